"""``pilot-tui fit``: the largest microbatch by prediction, the effective batch held; ``--run``: verified by a pilot."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tui_pilot.commands.options import allow_option, json_option, load_plan, runs_option, set_option
from tui_pilot.commands.output import say, write_json, write_lines
from tui_pilot.errors import EXIT_GATE_FAILED, EXIT_OK, EXIT_UNCHECKED, PlanError

if TYPE_CHECKING:
    from tui_pilot.plan.load import LoadedPlan
    from tui_pilot.predict.catalogue import Gpu
    from tui_pilot.predict.largest import Asked, Found, Shape
    from tui_pilot.predict.residuals import Residuals
    from tui_pilot.run_folder import RunFolder

    Predictions = dict[tuple[tuple[int, int] | None, Shape], dict[str, Any]]

_SIZE = re.compile(r"([\d.]+)\s*([KMGT]i?B|B)?", re.IGNORECASE)
HERE = "NVML, this machine"
#: Without one of these nothing can be said of a microbatch.
NEEDED = ("load", "forward", "backward", "first_step", "steady_step")
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def bytes_of(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """``22GiB``, ``24GB`` or a number of bytes."""
    if value is None:
        return None
    found = _SIZE.fullmatch(value.strip())
    unit = (found[2] or "B").lower() if found else ""
    try:
        count = float(found[1]) if found else 0.0
    except ValueError:
        count = 0.0
    total = int(count * (1024 if "i" in unit else 1000) ** _UNITS[unit.rstrip("b").rstrip("i")]) if count else 0
    if total <= 0:
        raise click.BadParameter(f"{value!r} is no size; write it like 22GiB, 24GB or 23622320128.")
    return total


@click.command()
@click.argument("plan", required=False, type=click.Path(path_type=Path))
@set_option
@click.option(
    "--gpu", "names", metavar="NAME", multiple=True, help="For this GPU of the list, H100 80GB; several may be given."
)
@click.option("--usable", metavar="SIZE", callback=bytes_of, help="For a GPU with so much usable memory: 22GiB.")
@click.option("--run", "verify", is_flag=True, help="Verify the answer with a real pilot, here and now.")
@json_option
@allow_option
@runs_option
def fit(
    *,
    plan: Path | None,
    sets: tuple[str, ...],
    names: tuple[str, ...],
    usable: int | None,
    verify: bool,
    as_json: bool,
    allowed: tuple[str, ...],
    runs: Path,
) -> int:
    """The largest microbatch that a GPU holds, by prediction, with the effective batch held by accumulation.

    Without --gpu or --usable: the plan's rental.gpus, else the GPU of this machine. No GPU is needed for that. --run
    then runs the plan with that microbatch as a variant of it, and the next smaller one if memory does not suffice.
    """
    from tui_pilot.commands import fit_words
    from tui_pilot.predict.catalogue import class_of
    from tui_pilot.predict.residuals import learn
    from tui_pilot.store.earlier import documents

    loaded, words = load_plan(plan, sets, need_weights=verify)
    say(words)
    gpus = chosen(names, usable, loaded.plan.rental.gpus)
    earlier = list(documents(runs))
    known = {gpu.name: learn(earlier, gpu.name, class_of) for gpu in gpus}
    predictions: Predictions = {}
    answers = [(gpu, search(loaded, gpu, known[gpu.name], predictions)) for gpu in gpus]
    document = fit_words.answer_json(loaded, answers, known)
    if not as_json:
        write_lines(fit_words.lines(loaded, answers))
    code = exit_code([found for _, found in answers])
    if verify and code == EXIT_OK:
        gpu, found = answers[0]
        own = {shape: made for (kind, shape), made in predictions.items() if kind == gpu.capability}
        own = own if gpu.source == HERE else {}
        document["run"], code = verified(loaded, found, runs, allowed, own)
    if as_json:
        write_json(document)
    return code


def chosen(names: Sequence[str], usable: int | None, planned: Sequence[str]) -> list[Gpu]:
    """The GPUs that are meant: named, given by their memory, planned, or here."""
    from tui_pilot.predict.catalogue import find, given
    from tui_pilot.text import size

    gpus = [find(name) for name in names]
    if usable is not None:
        gpus.append(given(usable, f"given {size(usable)}"))
    gpus = gpus or [find(name) for name in planned] or here()
    if not gpus:
        raise PlanError(
            "there is no GPU here, and none was named.", "Name one: --gpu 'H100 80GB', or --usable 22GiB.", key="--gpu"
        )
    return list(dict.fromkeys(gpus))


def here() -> list[Gpu]:
    """The smallest GPU of this machine, as NVML reports it; none where there is none."""
    from tui_pilot.devices.nvml import Nvml
    from tui_pilot.predict.catalogue import Gpu, class_of

    nvml = Nvml()
    found = [gpu for gpu in nvml.open().gpus if gpu.usable]
    nvml.close()
    if not found:
        return []
    least = min(found, key=lambda gpu: gpu.usable or 0)
    capability = least.capability
    return [
        Gpu(
            name=class_of(least.name) or "this GPU",
            usable_bytes=least.usable or 0,
            total_bytes=least.total,
            capability=capability,
            bf16=None if capability is None else capability >= (8, 0),
            fp8=None if capability is None else capability >= (8, 9),
            basis="measured",
            source=HERE,
        )
    ]


def search(loaded: LoadedPlan, gpu: Gpu, known: Residuals, predictions: Predictions) -> Found:
    """The largest microbatch of a plan on one GPU. ``predictions`` keeps what was predicted, by capability."""
    from tui_pilot.predict.catalogue import fits
    from tui_pilot.predict.largest import Asked, Shape, largest, shapes

    batch = loaded.plan.batch

    def ask(shape: Shape) -> Asked:
        key = (gpu.capability, shape)
        if key not in predictions:
            say(f"{gpu.name}: predicting microbatch {shape.micro}, accumulation {shape.accumulation}")
            predictions[key] = predicted(with_shape(loaded, shape), gpu)
        document = predictions[key]
        plan = loaded.plan
        one = fits(document["phases"], [gpu], {gpu.name: known}, plan.rental.memory_margin, plan.precision)
        missing = [_words(each) for each in document.get("not_predicted") or () if each["phase"] in NEEDED]
        if missing or not one:
            return Asked(shape, None, (missing or ["nothing was predicted"])[0])
        return Asked(shape, one[0])

    return largest(shapes(batch.micro, batch.accumulation), ask, Shape(batch.micro, batch.accumulation))


def predicted(loaded: LoadedPlan, gpu: Gpu) -> dict[str, Any]:
    """The prediction of a plan for a GPU, as ``predict --json`` has it."""
    from tui_pilot.launch import predicting

    return predicting.predict(loaded, gpu.capability, both=False)


def _words(missing: dict[str, Any]) -> str:
    place = f"{missing['file']}:{missing['line']}: " if missing.get("file") else ""
    return f"{missing['phase']}: {place}{missing['text']}"


def with_shape(loaded: LoadedPlan, shape: Shape) -> LoadedPlan:
    """The plan with that microbatch and accumulation; the plan itself where they are its own."""
    from tui_pilot.plan import variants

    batch = loaded.plan.batch
    if (batch.micro, batch.accumulation) == (shape.micro, shape.accumulation):
        return loaded
    return dataclasses.replace(variants.apply(loaded, shape.changes, f"micro-{shape.micro}"), baseline=loaded)


def verified(
    loaded: LoadedPlan, found: Found, runs: Path, allowed: tuple[str, ...], own: dict[Shape, dict[str, Any]]
) -> tuple[dict[str, Any] | None, int]:
    """A real pilot of the answer; out of memory, the next smaller microbatch. The last run's summary and exit code.

    ``own`` are predictions for the GPU that it runs on: a run keeps its own, to be held against what it measures.
    """
    from tui_pilot.commands.follow import Left, follow, last_words
    from tui_pilot.predict.largest import shapes
    from tui_pilot.store.view import snapshot

    batch = loaded.plan.batch
    best = found.best
    assert best is not None
    for shape in reversed([each for each in shapes(batch.micro, batch.accumulation) if each.micro <= best.shape.micro]):
        folder = launch(loaded, shape, runs, own.get(shape))
        say(f"verifying microbatch {shape.micro}: {folder.id}")
        try:
            state = follow(folder)
        except Left as left:
            return {"run": folder.id, "state": "running"}, left.exit_code
        document = snapshot(folder, allowed)
        short = [row["phase"] for row in document["phases"] if any(each["code"] == "oom" for each in row["reasons"])]
        summary = {
            "run": folder.id,
            "micro": shape.micro,
            "accumulation": shape.accumulation,
            "verdict": document["verdict"],
            "binding_phase": document["binding_phase"],
            "out_of_memory": short,
            "on_gpu": on_gpu(document),
        }
        if not short:
            say(_verdict(summary))
            return summary, last_words(state, document, allowed)
        say(f"microbatch {shape.micro} ran out of memory in {', '.join(short)}")
    return summary, EXIT_GATE_FAILED


def _verdict(summary: dict[str, Any]) -> str:
    if not summary["on_gpu"]:
        return f"microbatch {summary['micro']} ran, on a CPU: that says nothing about the memory of a GPU"
    return f"microbatch {summary['micro']} ran; memory is set by {summary['binding_phase']}"


def on_gpu(document: dict[str, Any]) -> bool:
    """Whether the run's memory was measured on a GPU."""
    entries = [entry for row in document["phases"] for entry in row["memory"]]
    return any(str(entry.get("device") or "").startswith("cuda") for entry in entries)


def launch(loaded: LoadedPlan, shape: Shape, runs: Path, prediction: dict[str, Any] | None) -> RunFolder:
    """Start a pilot of the plan with that microbatch."""
    from tui_pilot.launch import start
    from tui_pilot.run_folder import write_json as write_file
    from tui_pilot.store.earlier import PREDICTION_FILE

    changed = with_shape(loaded, shape)
    own = changed is loaded
    folder = start.prepare(
        changed, runs, argv=sys.argv, kind="pilot" if own else "variant",
        variant=None if own else f"micro-{shape.micro}", tell=say,
    )  # fmt: skip
    if prediction is not None:
        write_file(folder.path / PREDICTION_FILE, prediction)
    start.start(folder)
    return folder


def exit_code(found: Sequence[Found]) -> int:
    """4 where something could not be predicted, 1 where a GPU holds no microbatch at all, else 0."""
    if any(each.failed is not None for each in found):
        return EXIT_UNCHECKED
    return EXIT_OK if all(each.best is not None for each in found) else EXIT_GATE_FAILED
