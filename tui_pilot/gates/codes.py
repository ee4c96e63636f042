"""Every reason code in one table: the phases it can stand in, its severity, and one line of advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tui_pilot.gates.verdict import Reason


@dataclass(frozen=True)
class Code:
    """``severity`` is the default; ``gates.severity`` in the plan sets another."""

    phases: tuple[str, ...]
    severity: str
    advice: str


def _table(*rows: tuple[str, str, str, str]) -> dict[str, Code]:
    return {code: Code(tuple(phases.split()), severity, advice) for code, phases, severity, advice in rows}


CODES: Final[dict[str, Code]] = _table(
    # any phase
    ("crash", "any", "fail", "The traceback is in crash/; the first frame named is yours."),
    ("killed", "any", "fail", "Free host memory or raise the container's limit, then run again."),
    ("oom", "any", "fail", "Halve batch.micro and double batch.accumulation: the effective batch stays."),
    ("lost", "any", "unchecked", "The run's process is gone without a last word; start it again as a new run."),
    ("not_observed", "any", "unchecked", "The task does not define what this check needs; see tasks/base.py."),
    ("plan_wrong", "any", "fail", "Mend the plan; pilot-tui check PLAN looks again without training."),
    ("data_wrong", "stack examples", "fail", "Mend the file at the place named."),
    ("model_wrong", "any", "fail", "Check model.path and its files."),
    ("task_missing", "any", "fail", "task is demo, sft, classification or my_file.py:MyClass."),
    ("needs_checkpoint", "resume", "unchecked", "The checkpoint phase must write one first."),
    ("needs_artifact", "reload", "unchecked", "The export phase must write one first."),
    ("needs_model", "any", "unchecked", "An earlier phase of this stage failed."),
    # stack
    ("device_not_used", "stack", "fail", "Put an interpreter whose torch can use the GPU into launch.python."),
    ("no_kernel_for_gpu", "stack", "fail", "Install a torch build that has kernels for this GPU."),
    ("extension_broken", "stack", "fail", "Reinstall the package for this torch and driver."),
    (
        "extension_falls_back",
        "stack",
        "warn",
        "Install the build for this GPU: the package works on, without what it was chosen for.",
    ),
    ("requirement_unmet", "stack", "fail", "Install the pair that the package was built for."),
    ("package_missing", "stack", "fail", "Install it into the training interpreter."),
    ("disk_too_small", "stack load checkpoint export", "fail", "Free space, keep fewer checkpoints, or move the runs."),
    ("disk_unknown", "stack", "note", "Free space could not be read."),
    ("without_effect", "stack", "note", "Leave it out, or know that it changes nothing here."),
    ("unsafe_model_file", "stack load", "fail", "Convert the weights to safetensors on a machine you can lose."),
    ("version_changed", "stack", "warn", "Run pilot-tui check PLAN --lock again if the change is wanted."),
    ("lost_on_stop", "stack", "note", "Put the runs on the volume that survives a stop."),
    # examples
    ("no_supervised_token", "examples", "fail", "Raise data.max_length, mend the marker, or leave the rows out."),
    ("end_token_unsupervised", "examples", "fail", "Mask padding by length, not by id: the end token is a target."),
    ("missing_end_token", "examples", "fail", "Append the end token to each document."),
    ("bos_count", "examples", "fail", "Let either the template or the tokenizer write BOS, not both and not none."),
    ("response_truncated", "examples", "warn", "Raise data.max_length, or leave these rows out."),
    ("wrong_role_supervised", "examples", "fail", "Mask every role that data.train_on does not name."),
    ("turn_unsupervised", "examples", "fail", "Label every assistant turn, or set data.train_on: last_assistant."),
    ("span_shifted", "examples", "fail", "labels[i] names the token at place i; the loss shifts, not the labels."),
    ("length_beyond_model", "examples", "fail", "Set data.max_length to what the model was made for, or less."),
    ("input_truncated", "examples", "note", "Raise data.max_length if the end of the text matters."),
    ("length_cap", "examples", "fail", "Something cuts below data.max_length; find the second cap."),
    ("content_lost", "examples", "warn", "The template drops text; accept it or train on another template."),
    ("text_normalised", "examples", "note", "Look whether letter case and accents matter for the task."),
    ("field_lost", "examples", "warn", "Hand on the whole value, calls of tools too, or say why it is left out."),
    ("invented_field", "examples", "fail", "Keep each row's own keys: read JSONL by line, not by column."),
    ("stale_cache", "examples", "fail", "Delete the cache, or read the file that the plan names."),
    ("rows_left_out", "examples", "warn", "Count and name the rows that the loader leaves out."),
    ("message_lost", "examples", "fail", "Every message of the file must be rendered; look at the role mapping."),
    ("values_invented_missing", "examples", "fail", "Read None, NA and null as text."),
    ("template_token_supervised", "examples", "note", "Template text after the end token is trained on."),
    ("padding_supervised", "examples", "fail", "Padding has the label -100."),
    ("class_names_disagree", "examples", "fail", "Give one order of names: data.classes."),
    ("label_out_of_range", "examples", "fail", "Class ids run from 0 to classes - 1; -100 is ignored."),
    ("loss_mismatch", "examples batch", "fail", "Give the loss the label type it works on."),
    ("entities_inflated", "examples", "fail", "Mask later sub-words or label them I-."),
    ("entities_lost", "examples", "fail", "Every word's label must reach its first sub-word."),
    ("empty_target", "examples", "fail", "A row without an answer teaches to stop at once; leave it out."),
    ("pair_identical", "examples", "fail", "A pair whose sides are equal after the cut carries no preference."),
    ("pair_side_empty", "examples", "fail", "Both sides need at least one supervised token after the cut."),
    ("pair_prompts_differ", "examples", "warn", "Both sides of a pair answer one prompt."),
    ("broken_line", "examples", "fail", "Mend or remove the line."),
    ("no_rows", "examples", "fail", "The split has no rows; check the path and the filter."),
    ("id_out_of_table", "examples reload", "fail", "Resize the embeddings or use the model's own tokenizer."),
    ("file_note", "examples", "note", "Nothing to do; said so that nobody wonders."),
    ("duplicate_ids", "examples", "warn", "Give every row an id of its own."),
    # splits
    ("unit_in_two_splits", "splits", "fail", "Split along data.unit so that a unit stays on one side."),
    ("same_rows", "splits", "fail", "Remove the rows from one side."),
    ("same_file", "splits", "fail", "Point validation at another file."),
    ("near_duplicate", "splits", "warn", "Look at both texts; group them into one unit if they are one source."),
    ("duplicates_in_split", "splits", "note", "Repeated rows weigh more; remove them if that is not meant."),
    ("windows_overlap", "splits", "fail", "Leave a gap between training and validation windows."),
    ("benchmark_in_train", "splits", "fail", "Remove the benchmark's rows from train."),
    ("unit_unknown", "splits", "unchecked", "Which field keeps one source together? data.unit: conversation_id"),
    ("no_validation", "splits", "unchecked", "Give data.validation a file, or {fraction: 0.1, seed: 0}."),
    ("ranks_see_same_rows", "splits batch evaluate", "fail", "Shard rows by rank: the batch is not multiplied."),
    # overfit
    (
        "not_finite",
        "overfit forward backward steady_step batch",
        "fail",
        "Look at the rows named: padding, masks, learning rate.",
    ),
    ("not_recovered", "overfit", "fail", "More steps or a higher gates.overfit.lr; if that fails, the loop is wrong."),
    ("recovers_shifted_ids", "overfit", "fail", "Labels are shifted twice: once in the data, once in the loss."),
    (
        "no_gradient",
        "overfit backward",
        "fail",
        "Something cuts the graph: frozen inputs, detach, re-entrant checkpoints.",
    ),
    ("untouched_tensor", "overfit", "fail", "The optimizer does not hold these tensors, or their gradient is zero."),
    (
        "trainable_set_differs",
        "overfit load resume",
        "fail",
        "Freeze and unfreeze after the adapter is added, as planned.",
    ),
    ("train_eval_gap", "overfit", "fail", "Evaluation mode differs: batch-norm statistics, dropout, caches."),
    (
        "variant_changes_result",
        "overfit",
        "fail",
        "Two ways to run one experiment must agree: mend the way, or call it another experiment.",
    ),
    ("variant_not_compared", "overfit", "unchecked", "Run the baseline where it fits, and compare the two runs."),
    ("variant_compared", "overfit", "note", "Read the numbers before the variant takes the baseline's place."),
    ("evaluated_other_rows", "overfit", "fail", "Evaluate the rows that were trained on."),
    (
        "zero_loss_zero_gradient",
        "overfit batch",
        "fail",
        "Nothing is supervised: the loss is 0 because no label counts.",
    ),
    ("update_below_precision", "overfit", "fail", "Keep fp32 weights (bf16-amp), or raise the learning rate."),
    ("loss_not_falling", "overfit", "fail", "The loss does not fall on its own rows: look at loss and optimizer."),
    # memory phases
    ("dtype_differs", "load", "fail", "Load the weights in the planned precision."),
    ("trainable_half_precision", "overfit load", "fail", "Keep trainable tensors in fp32 under a loss scaler."),
    ("seed_after_build", "load", "fail", "Seed before the model and its adapter are made."),
    ("replicas_differ", "load", "fail", "Same seed on every rank, and add adapters before wrapping."),
    (
        "packed_documents_leak",
        "forward",
        "fail",
        "Attention must end at each document: mask it by blocks, or do not pack.",
    ),
    ("control_loss_moved", "forward", "fail", "An upgrade changed the model's answers: compare versions."),
    ("step_skipped", "first_step", "fail", "The scaler skipped the first step: look for inf in the gradients."),
    ("memory_grows", "steady_step", "fail", "Something keeps tensors between updates."),
    ("update_not_seen", "steady_step", "fail", "Open autocast per forward: a longer block serves stale casts."),
    ("scaler_never_steps", "steady_step batch", "fail", "Every update overflows: lower the learning rate or use bf16."),
    ("clip_before_unscale", "first_step batch", "fail", "Call scaler.unscale_(optimizer) before anything clips."),
    # batch
    ("effective_batch_differs", "batch", "fail", "micro x accumulation x replicas must be what an update sees."),
    ("sources_disagree", "batch", "fail", "Count supervised items the same way in count and in loss."),
    (
        "loss_not_token_weighted",
        "batch",
        "fail",
        "Return the loss summed over supervised tokens, not a mean; rows compared by design: gates.severity.",
    ),
    ("gradient_scaled", "batch", "fail", "Divide by the window's token count once."),
    ("scheduler_ticks", "batch", "fail", "Tick the schedule once per update that really happened."),
    ("lr_curve_differs", "batch", "fail", "The schedule must reach the planned rate after warm-up."),
    ("scaler_updated_in_window", "batch", "fail", "Update the scaler once per window."),
    ("scale_changed_in_window", "batch", "fail", "Microbatches of one window need one scale: update after the step."),
    ("inf_applied", "batch", "fail", "Let the scaler's step decide: an update with an inf must not reach the weights."),
    ("last_window", "batch", "warn", "The last window is incomplete; batch.tail says what happens to it."),
    ("no_update", "batch", "fail", "The campaign would end without training: fewer rows than one window."),
    ("ranks_miss_rows", "batch evaluate", "fail", "Let the loop share rows out: who shards too loses some."),
    ("rows_dropped", "batch", "warn", "drop_last leaves rows out in every epoch."),
    ("order_differs", "batch resume", "fail", "Derive the order from seed and epoch."),
    ("replicas_drift", "batch", "fail", "A gradient is not reduced over ranks."),
    ("norm_local", "batch", "fail", "Clip by the norm over all ranks."),
    # evaluate
    ("rows_counted_twice", "evaluate", "fail", "Padding rows of the last batch must not be scored."),
    ("logits_kept", "evaluate", "fail", "Keep predictions, not logits."),
    ("residue", "evaluate checkpoint export", "fail", "Something still holds the tensors."),
    ("state_changed", "evaluate batch", "fail", "Evaluate under no_grad, in evaluation mode, and on copies."),
    ("metric_mixed", "evaluate", "fail", "Compute the metric from the predictions handed in, and keep no sums."),
    ("metric_missing", "evaluate", "fail", "The metric of evaluate.metric must be there and finite."),
    # checkpoint, export
    ("incomplete", "checkpoint", "fail", "The save did not finish; the reason names the file."),
    (
        "state_missing",
        "checkpoint",
        "fail",
        "A resume needs model, optimizer, schedule, scaler, random state, position.",
    ),
    ("unsafe_state", "checkpoint resume", "fail", "Keep numbers, strings and tensors alone in the state."),
    ("hashes_differ", "checkpoint", "fail", "Saving the same state twice must give the same bytes."),
    ("trained_not_saved", "export", "fail", "Add the tensors to what save_artifact writes."),
    ("empty_artifact", "export", "fail", "The artifact holds no weights."),
    ("template_missing", "export", "fail", "Save tokenizer and chat template into the artifact."),
    ("names_generic", "export", "warn", "Class names in the artifact are LABEL_0, LABEL_1: set id2label."),
    # resume
    ("weights_not_restored", "resume", "fail", "Load the model's weights from the checkpoint."),
    ("optimizer_not_restored", "resume", "fail", "Load the optimizer's state from the checkpoint."),
    ("scheduler_restarted", "resume", "fail", "Load the schedule's state; it counts updates, not epochs."),
    ("scaler_not_restored", "resume", "fail", "Load the loss scaler's state."),
    ("trainable_lost", "resume", "fail", "Load the adapter for training, not for inference."),
    ("rows_repeated", "resume", "fail", "Start the data where the checkpoint stood."),
    ("rows_skipped", "resume", "fail", "Start the data where the checkpoint stood."),
    ("rng_not_restored", "resume", "fail", "Restore Python's, numpy's and torch's random state last."),
    (
        "loss_diverges",
        "resume",
        "fail",
        "The states loaded are equal: look for state outside them, such as counters or caches of the task.",
    ),
    ("updates_left_differ", "resume", "fail", "A resumed run must finish the plan's updates, no more and no less."),
    ("newest_incomplete", "resume", "warn", "The newest checkpoint is not whole; the one before was used."),
    ("nothing_left", "resume", "fail", "The checkpoint stands at the end of the plan: nothing is left to do."),
    ("resume_peak_higher", "resume", "warn", "Resuming needs more memory than training: plan for it."),
    ("seek_too_slow", "resume", "fail", "Seek in the data instead of replaying it."),
    ("environment_differs", "resume", "note", "Another thread count or build: compared with a tolerance."),
    # a compared run
    ("diverged", "batch", "fail", "A result, and kept as one: compare lower rates, a longer warm-up, or clipping."),
    ("no_progress", "batch", "note", "The plan's own rule ended it: compare.stop.no_progress."),
    # reload
    ("outputs_differ", "reload", "fail", "The artifact does not answer as the trained model did."),
    ("adapter_has_no_effect", "reload export", "fail", "The artifact is the base alone: the adapter is lost."),
    ("adapter_keys_unmatched", "reload", "fail", "Adapter keys do not match the model's names."),
    ("base_differs", "reload", "fail", "Point model.path at the base the adapter was trained on."),
    ("tied_weights_lost", "reload", "fail", "Tie the weights again after the load, or save both names."),
    ("effect_not_seen", "reload", "note", "The files were compared by value in export; train longer to see it here."),
    ("tensors_missing", "reload", "fail", "The artifact lacks tensors the model needs."),
    ("prompt_ids_differ", "reload", "fail", "The artifact's tokenizer or template gives other ids."),
    ("unsafe_artifact", "reload export", "fail", "Save tensors alone: safetensors, or torch.save of a state dict."),
)


def reason(
    code: str, text: str, where: Mapping[str, Any] | None = None, advice: str | None = None, severity: str | None = None
) -> Reason:
    """A reason with the table's severity and advice, unless told otherwise."""
    entry = CODES[code]
    return Reason(code, text, severity or entry.severity, where or {}, entry.advice if advice is None else advice)
