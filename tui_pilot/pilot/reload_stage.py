"""The reload stage: a new process, the artifact folder alone, and the control inputs once more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tui_pilot.errors import PilotError
from tui_pilot.gates.codes import reason
from tui_pilot.gates.judge import known
from tui_pilot.observe.memory import reachable_bytes
from tui_pilot.observe.tensor_files import unsafe_files
from tui_pilot.pilot import came_back, checkpoint, control
from tui_pilot.pilot.context import Context
from tui_pilot.pilot.out_of_memory import is_out_of_memory
from tui_pilot.pilot.phase import Phase, PhaseBroken, phase, skip
from tui_pilot.tasks.base import defines

_MISSING = re.compile(r"Missing key\(s\) in state_dict: (.*?)(?:\n|$)")
_UNEXPECTED = re.compile(r"Unexpected key\(s\) in state_dict: (.*?)(?:\n|$)")


def run(context: Context) -> None:
    """The one phase of this stage."""
    if "reload" in context.skipped:
        skip(context, "reload")
        return
    if not (context.run.artifact / checkpoint.MANIFEST).is_file():
        skip(context, "reload", "not_run", reason("needs_artifact", "There is no artifact with a manifest."))
        return
    try:
        with phase(context, "reload") as current:
            reload(context, current)
    except PhaseBroken:
        return


def reload(context: Context, current: Phase) -> None:
    """Load the artifact, ask the stored control rows, and ask the task for its control ids again."""
    folder = context.run.artifact
    why = checkpoint.why_incomplete(folder)
    if why is not None:
        current.seen["problems"] = [
            {"code": "tensors_missing", "text": f"The artifact is not whole: {why}.", "where": {}}
        ]
        return
    refused = {name: what for name, what in unsafe_files(folder).items() if not name.endswith("training_args.bin")}
    if refused:
        current.seen["problems"] = [unsafe(refused)]
        return
    task = context.task()
    found = control.stored(context.run)
    try:
        with current.measure("load"):
            model = task.load_artifact(folder)
            model.to(context.device)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        problem = named(error, folder)
        if problem is None:
            raise
        current.seen["problems"] = [problem]
        return
    model.eval()
    current.reachable = reachable_bytes(model)
    if found is None:
        current.seen["loss_before"] = None
        return
    batch, before = found
    current.at = {"rows": list(range(_rows(batch)))}
    try:
        with current.measure("control"), tables_watched(model):
            after = control.answers(context, model, batch)
    except OutOfTable as error:
        current.seen["problems"] = [error.problem]
        return
    changed = [
        row
        for row, pair in enumerate(zip(before.get("answers") or (), after.get("answers") or (), strict=False))
        if differ(*pair, batch, row)
    ]
    dtypes = {str(p.dtype).removeprefix("torch.") for p in model.parameters() if p.is_floating_point()}
    coarse = next((name for name in ("float16", "bfloat16") if name in dtypes), "float32")
    if context.plan.precision in ("bf16-amp", "fp16-amp"):
        coarse = "bfloat16"
    current.seen |= {
        "loss_before": before.get("loss"),
        "loss_after": after.get("loss"),
        "loss_base": before.get("base_loss"),
        "answers": None if before.get("answers") is None else len(before["answers"]),
        "answers_changed": len(changed),
        "changed_rows": changed,
        "dtype": coarse,
        "adapter": context.plan.model.adapter is not None,
        "recast": context.plan.export.kind == "merged" or context.plan.export.dtype is not None,
        **prompt_ids(context, batch),
        **came_back.compare(context.run, model),
    }
    current.inputs |= {
        "control_rows": _rows(batch),
        "control_loss_before": before.get("loss"),
        "control_loss_after": after.get("loss"),
        "control_loss_base": before.get("base_loss"),
        "answers_equal": not changed,
        "answers_changed_rows": changed,
        "dtype": sorted(dtypes),
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    if defines(task, "decode") and isinstance(after.get("answers"), list) and not lacking_data(context):
        current.inputs["control_answers"] = [
            _text(task, answer, batch, row) for row, answer in enumerate(after["answers"][:4])
        ]
    context.facts("reload", {"answers": current.seen["answers"], "changed": len(changed), "loss": after.get("loss")})


class OutOfTable(Exception):
    """An id that has no row in an embedding table."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(problem["text"])
        self.problem = problem


@contextmanager
def tables_watched(model: nn.Module) -> Iterator[None]:
    """Raise ``OutOfTable`` before a table is asked for a row it has not: a GPU would end the process by an assert."""

    def look(name: str, table: nn.Embedding, ids: Any) -> None:
        highest = int(ids.max()) if isinstance(ids, torch.Tensor) and ids.numel() else -1
        if highest >= table.num_embeddings:
            text = f"Token id {highest} out of table {table.num_embeddings} ({name} of the reloaded model)."
            where = {"tensor": f"{name}.weight", "id": highest}
            raise OutOfTable({"code": "id_out_of_table", "text": text, "where": where})

    hooks = [
        module.register_forward_pre_hook(lambda table, given, name=name: look(name, table, given[0] if given else None))
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def unsafe(refused: dict[str, str]) -> dict[str, Any]:
    """The problem of files that safe loading refuses: named, and the artifact is not loaded at all."""
    file, what = next(iter(refused.items()))
    text = f"{', '.join(list(refused)[:3])} holds objects that only unsafe loading could read"
    text += f" ({what})" if what else ""
    where = {"file": file, **({"type": what} if what else {})}
    return {"code": "unsafe_artifact", "text": text + "; nothing was loaded.", "where": where}


def differ(before: Any, after: Any, batch: dict[str, Any], row: int) -> bool:
    """Whether one row's answers differ where they count: real tokens, not padding."""
    if isinstance(before, list) and isinstance(after, list) and "labels" in batch and batch["labels"].dim() == 2:
        labels = batch["labels"][row].tolist()
        places = [place - 1 for place in range(1, len(labels)) if labels[place] != -100]
        return any(place < len(before) and before[place] != after[place] for place in places)
    return bool(before != after)


def _text(task: Any, answer: Any, batch: dict[str, Any], row: int) -> str:
    if not isinstance(answer, list):
        names = list(task.class_names())
        return str(names[answer]) if isinstance(answer, int) and 0 <= answer < len(names) else str(answer)
    labels = batch["labels"][row].tolist() if "labels" in batch and batch["labels"].dim() == 2 else None
    ids = answer if labels is None else [answer[p - 1] for p in range(1, len(labels)) if labels[p] != -100]
    return str(task.decode(ids))[:400]


def lacking_data(context: Context) -> list[str]:
    """Names of the plan's data files that are not on this machine: an archive is replayed without them."""
    files = (context.plan.data.train, context.plan.data.validation)
    return [Path(file).name for file in files if isinstance(file, str) and not Path(file).exists()]


def prompt_ids(context: Context, batch: dict[str, Any]) -> dict[str, Any]:
    """The control rows' ids as the artifact's own tokenizer gives them, against the stored ones."""
    task = context.task()
    away = lacking_data(context)
    if away:
        said = f"{', '.join(away)} of the plan's data is not here: the stored control ids alone were asked."
        return {"prompt_ids_unchecked": said}
    own = getattr(task, "artifact_control_inputs", None)
    if own is None and not defines(task, "encode"):
        return {}
    again = own(context.run.artifact) if callable(own) else control.seeded(context, task.control_inputs)
    if again is None:
        return {"prompt_ids_unchecked": "The artifact carries no tokenizer to ask for the control ids again."}
    if "input_ids" not in batch or "input_ids" not in again:
        return {}
    left, right = batch["input_ids"].tolist(), again["input_ids"].tolist()
    for row, (stored, seen) in enumerate(zip(left, right, strict=False)):
        if stored != seen:
            place = next(
                (n for n, pair in enumerate(zip(stored, seen, strict=False)) if pair[0] != pair[1]),
                min(len(stored), len(seen)),
            )
            return {
                "prompt_ids_differ": {
                    "row": row,
                    "position": place,
                    "stored": stored[place] if place < len(stored) else None,
                    "seen": seen[place] if place < len(seen) else None,
                }
            }
    return {}


def named(error: Exception, folder: Path) -> dict[str, Any] | None:
    """A failed load by what it means, where it is one of the known kinds."""
    text = str(error)
    if isinstance(error, FileNotFoundError) and str(error.filename or "").startswith(str(folder)):
        file = str(Path(str(error.filename)).relative_to(folder))
        return {"code": "tensors_missing", "text": f"The artifact has no {file}.", "where": {"file": file}}
    if isinstance(error, PilotError) and known(error.code):
        return {"code": error.code, "text": str(error), "where": {"file": error.file} if error.file else {}}
    missing, unexpected = _MISSING.search(text), _UNEXPECTED.search(text)
    if missing or unexpected:
        names = [name.strip().strip('"') for name in (missing[1] if missing else "").split(",") if name.strip()]
        extra = [name.strip().strip('"') for name in (unexpected[1] if unexpected else "").split(",") if name.strip()]
        sentence = f"{len(names)} tensors of the model are not in the artifact"
        sentence += f", first {names[0]}" if names else ""
        sentence += (
            f"; {len(extra)} tensors of the artifact have no place in the model, first {extra[0]}" if extra else ""
        )
        return {"code": "tensors_missing", "text": sentence + ".", "where": {"tensors": names or extra}}
    if "weights_only" in text or "WeightsUnpickler" in text or "Unsupported global" in text:
        return {"code": "unsafe_artifact", "text": "The artifact holds objects that safe loading refuses.", "where": {}}
    return None


def _rows(batch: dict[str, Any]) -> int:
    return next((int(value.shape[0]) for value in batch.values() if isinstance(value, torch.Tensor) and value.dim()), 0)
