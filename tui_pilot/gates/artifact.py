"""Gates of what evaluation will load: ``export`` looks into the files, ``reload`` asks them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.gates import residue
from tui_pilot.gates.codes import reason
from tui_pilot.gates.verdict import Reason
from tui_pilot.plan.model import Plan
from tui_pilot.text import plural

Seen = Mapping[str, Any]
OUTPUT_TOLERANCE = {"float32": 1e-4, "bfloat16": 3e-2, "float16": 3e-2}
EFFECT_SEEN, EXACT = 1 / 30, 1e-5
"""An effect of training on the control loss below this share of the tolerance (below ``EXACT`` where the artifact holds
the trained values as they were) cannot be told from arithmetic, so its absence would not show."""
WEIGHTS = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".json", ".npz", ".gguf", ".onnx")


def export(seen: Seen, plan: Plan) -> list[Reason]:
    """``seen``: files with sizes, tensors found, trained tensors that are not among them, tokenizer and template."""
    error = seen.get("error")
    if error:
        code = "disk_too_small" if error.get("full") else "empty_artifact"
        return [reason(code, error["text"], {"file": error.get("file")} if error.get("file") else {})]
    reasons = _refused(seen)
    reasons += _empty(seen, bool(reasons))
    reasons += residue.judge(seen.get("allocated_before"), seen.get("allocated_left"), "the export")
    missing = list(seen.get("missing") or ())
    if missing and seen.get("elements"):
        names = [_name(each) for each in missing]
        text = (
            f"{plural(len(missing), 'trained tensor')} of {seen.get('trained', 0)} not in the artifact: "
            f"{_instead(missing[0])}; saved {seen['elements']:,} elements, "
            f"trained {seen.get('trained_elements', 0):,}."
        )
        reasons.append(reason("trained_not_saved", text, {"tensors": names, "tensor": names[0]}))
    reasons += _merged(seen.get("unmerged"), plan)
    if seen.get("values_unread"):
        reasons.append(reason("not_observed", f"Weights in {seen['values_unread']} could not be compared by value."))
    zero = list(seen.get("zero_adapters") or ())
    if zero:
        more = f" and {len(zero) - 1} more are" if len(zero) > 1 else " is"
        text = f"{zero[0]}{more} all zero: the adapter equals the base."
        reasons.append(reason("empty_artifact", text, {"tensors": zero, "tensor": zero[0]}))
    lacking = seen.get("lacking") or []
    if lacking:
        text = f"The artifact lacks {', '.join(lacking)}: whoever loads it would encode other ids."
        reasons.append(reason("template_missing", text, {"file": lacking[0]}))
    if seen.get("generic_names"):
        names = seen["generic_names"][:3]
        reasons.append(reason("names_generic", f"The artifact names its classes {', '.join(names)}."))
    return reasons


def _merged(found: Seen | None, plan: Plan) -> list[Reason]:
    """A merged artifact whose matrices are the base's: not merged, or a change that rounding took away."""
    same = list((found or {}).get("same") or ())
    if not found or not same:
        return []
    text = f"{len(same)} of {found['of']} adapted matrices equal the base's in the merged artifact: {same[0]}."
    rounded = plan.export.dtype in ("bf16", "fp16") or plan.precision == "bf16"
    severity = "warn" if rounded and len(same) < found["of"] else None
    return [reason("adapter_has_no_effect", text, {"tensors": same, "tensor": same[0]}, severity=severity)]


def _refused(seen: Seen) -> list[Reason]:
    """Files that only unsafe loading could read. A trainer's own arguments beside safe weights are only noted."""
    unsafe = list(seen.get("unsafe") or ())
    if not unsafe:
        return []
    what = (seen.get("refused") or {}).get(unsafe[0])
    text = f"{', '.join(unsafe[:3])} holds objects that only unsafe loading could read"
    text += f" ({what})" if what else ""
    harmless = seen.get("elements") and all(name.rpartition("/")[2] == "training_args.bin" for name in unsafe)
    where = {"file": unsafe[0], **({"type": what} if what else {})}
    return [reason("unsafe_artifact", text + "; it was not opened.", where, severity="note" if harmless else None)]


def _empty(seen: Seen, refused: bool) -> list[Reason]:
    """No file, no weight, a file without a byte, tensors without an element."""
    files, elements = seen.get("files") or {}, seen.get("elements")
    trained = seen.get("trained_elements") or 0
    # Weights of a kind that is not read here are at least a byte an element; a read-me is not.
    foreign = seen.get("foreign_bytes", 0) >= max(1, trained)
    hollow = list(seen.get("hollow") or ())
    if not files or (elements == 0 and not refused and not foreign):
        text = f"The artifact holds {plural(len(files), 'file')} and no weights"
        text += f" ({', '.join(sorted(files)[:3])})" if files else ""
        text += f": saved 0 of {trained:,} trained elements." if trained else "."
        where: dict[str, Any] = {"file": min(files)} if files else {}
        if hollow:
            where |= {"tensor": hollow[0]["tensor"], "tensors": [each["tensor"] for each in hollow]}
            text = text[:-1] + f"; {hollow[0]['tensor']} has the shape {hollow[0]['saved']}."
        return [reason("empty_artifact", text, where)]
    reasons = []
    zero = [name for name, count in files.items() if count == 0 and name.endswith(WEIGHTS)]
    if zero:
        reasons.append(reason("empty_artifact", f"{zero[0]} is empty (0 bytes).", {"file": zero[0]}))
    if hollow:
        first, names = hollow[0], [each["tensor"] for each in hollow]
        trained_shape = f", expected {first['trained']}" if first["trained"] else ""
        text = f"{plural(len(hollow), 'tensor')} saved without an element: {first['tensor']} has the shape "
        text += f"{first['saved']}{trained_shape}; saved {elements or 0:,} elements, trained {trained:,}."
        reasons.append(reason("empty_artifact", text, {"tensors": names, "tensor": names[0]}))
    return reasons


def _name(each: Any) -> str:
    return each["tensor"] if isinstance(each, Mapping) else str(each)


def _instead(each: Any) -> str:
    """A tensor that was not saved, and what stands under its name."""
    if not isinstance(each, Mapping):
        return str(each)
    saved, trained = each.get("saved"), each["trained"]
    if saved is None:
        return f"{each['tensor']} {trained}"
    if saved == trained:
        return f"{each['tensor']} stands there with other values"
    if saved[1:] == trained[1:] and saved[0] < trained[0]:
        last = trained[0] - 1
        rows = f"row {last}" if saved[0] == last else f"rows {saved[0]}-{last}"
        return f"{rows} of {each['tensor']} not saved ({saved[0]} of {trained[0]} rows are there)"
    return f"{each['tensor']} is there as {saved}, trained {trained}"


def reload(seen: Seen, plan: Plan) -> list[Reason]:
    """``seen``: control loss and answers before export and after reload, prompt ids, the base's loss, tensors."""
    reasons: list[Reason] = []
    for problem in seen.get("problems") or ():
        reasons.append(reason(problem["code"], problem["text"], problem.get("where")))
    if reasons:
        return reasons
    ids = seen.get("prompt_ids_differ")
    if ids:
        text = (
            f"The artifact gives other ids for control row {ids['row']} at place {ids['position']}: {ids['seen']}, "
            f"was {ids['stored']}."
        )
        reasons.append(reason("prompt_ids_differ", text, {"row": ids["row"], "position": ids["position"]}))
    if seen.get("prompt_ids_unchecked"):
        reasons.append(reason("not_observed", seen["prompt_ids_unchecked"]))
    answers = _answers(seen, plan)
    accepted = plan.gates.reload.relative_loss is not None and not answers
    return reasons + _tensors(seen, "note" if accepted else None) + answers


def _tensors(seen: Seen, severity: str | None) -> list[Reason]:
    """Trained tensors that the reloaded model has not; tied ones that came back as two."""
    reasons = []
    tensors = seen.get("tensors") or {}
    differ: Sequence[str] = tensors.get("differ") or ()
    if differ:
        code = "adapter_keys_unmatched" if tensors.get("adapter") else "tensors_missing"
        what = "adapter" if tensors.get("adapter") else "trained"
        text = f"{tensors['matched']} of {tensors['expected']} {what} tensors came back, and the load said nothing: "
        text += f"{differ[0]} has other values"
        if tensors.get("keys_matched") is not None and tensors["keys_matched"] < tensors["keys"]:
            text += f"; {tensors['keys_matched']} of the file's {tensors['keys']} names are the model's"
            text += f" ({tensors['key_of_file']}, the model has {tensors['key_of_model']})"
        where = {"tensors": list(differ), "tensor": differ[0]}
        reasons.append(reason(code, text + ".", where, severity=severity))
    for names in seen.get("untied") or ():
        text = f"{names[0]} and {names[1]} were one tensor and came back as two that differ."
        reasons.append(reason("tied_weights_lost", text, {"tensors": list(names), "tensor": names[1]}))
    return reasons


def _answers(seen: Seen, plan: Plan) -> list[Reason]:
    """Loss and answers on the control rows, against the trained model's, the base's and the tolerance."""
    reasons: list[Reason] = []
    before, after, base = seen.get("loss_before"), seen.get("loss_after"), seen.get("loss_base")
    given = plan.gates.reload.relative_loss
    limit = OUTPUT_TOLERANCE.get(str(seen.get("dtype")), 1e-4) if given is None else given
    changed, asked = seen.get("answers_changed"), seen.get("answers")
    if before is None or after is None:
        return [reason("not_observed", "No control loss was stored before the export.")]
    moved = _apart(before, after)
    effect = None if base is None else _apart(before, base)
    where = {"rows": seen.get("changed_rows")} if seen.get("changed_rows") else {}
    to_base = 0.0 if base is None else _apart(after, base)
    floor = limit * EFFECT_SEEN if seen.get("recast") else min(EXACT, limit * EFFECT_SEEN)
    gone = effect is not None and effect > floor and to_base <= effect / 3
    tensors = seen.get("tensors") or {}
    all_back = bool(tensors.get("expected")) and tensors["matched"] == tensors["expected"]
    lost = gone and effect is not None and to_base <= effect / 5
    if lost and seen.get("adapter") and not all_back:
        like = "equals" if to_base <= limit / 10 else "is nearer to"
        text = f"Control loss {after:.6g} {like} the base's {base:.6g}; the trained model had {before:.6g}."
        reasons.append(reason("adapter_has_no_effect", text, where))
    elif gone or moved > limit or (changed and changed > max(0.0, limit if limit > 1e-3 else 0.0) * (asked or 1)):
        text = (
            f"Control loss {before:.6g} before export, {after:.6g} after reload; {changed or 0} of {asked or 0} "
            f"answers changed; tolerance {limit:.0e}"
        )
        text += f", training moved it by {effect:.2g}" if gone else ""
        text += (
            ". The adapter's tensors are back: its base is another one." if all_back and seen.get("adapter") else "."
        )
        reasons.append(reason("outputs_differ", text, where))
    elif effect is not None and effect <= floor:
        text = (
            f"Training moved the control loss from {base:.6g} to {before:.6g}, too little to see a lost effect by it."
        )
        reasons.append(reason("effect_not_seen", text))
    if asked is None:
        reasons.append(reason("not_observed", "The task defines no predict: answers were compared by loss alone."))
    return reasons


def _apart(left: float, right: float) -> float:
    if math.isnan(left) or math.isnan(right):
        return float("inf")
    return abs(left - right) / max(1e-12, abs(left), abs(right))
