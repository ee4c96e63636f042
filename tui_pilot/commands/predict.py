"""``pilot-tui predict``: memory per phase without a GPU, and which GPUs would hold it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tui_pilot.commands.options import json_option, load_plan, runs_option, set_option
from tui_pilot.commands.output import say, write_json, write_lines
from tui_pilot.errors import EXIT_OK, EXIT_UNCHECKED

if TYPE_CHECKING:
    from tui_pilot.plan.load import LoadedPlan
    from tui_pilot.predict.catalogue import Fit, Gpu

CATEGORIES = ("parameters", "gradients", "optimizer_state", "activations", "temporary")


@click.command()
@click.argument("plan", required=False, type=click.Path(path_type=Path))
@set_option
@click.option("--variant", metavar="ID", help="Predict this variant of the plan.")
@click.option(
    "--gpu", "names", metavar="NAME", multiple=True, help="Whether it fits this GPU of the list; several may be given."
)
@click.option("--cpu", is_flag=True, help="For this CPU itself, as a pilot here would measure it.")
@json_option
@runs_option
def predict(
    *,
    plan: Path | None,
    sets: tuple[str, ...],
    variant: str | None,
    names: tuple[str, ...],
    cpu: bool,
    as_json: bool,
    runs: Path,
) -> int:
    """Memory of each phase, predicted: no GPU is needed, nothing is trained, a model folder's config is enough.

    Without --gpu every GPU of the list is looked at. Kernels are those of the first --gpu; else of the GPU here.
    """
    from tui_pilot.launch import predicting
    from tui_pilot.predict import catalogue

    loaded, words = load_plan(plan, sets, variant, need_weights=False)
    say(words)
    cpu = cpu or loaded.plan.device == "cpu"
    gpus = [catalogue.find(name) for name in names or loaded.plan.rental.gpus]
    capability = gpus[0].capability if gpus else None
    found = predicting.predict(loaded, capability, cpu=cpu, both=True)
    fits = [] if cpu else _fits(loaded, found["phases"], gpus or list(catalogue.catalogue()), runs)
    found["gpus"] = [each.as_json() for each in fits]
    if as_json:
        write_json(found)
    else:
        write_lines([*_table(found), *_assumed(found["assumptions"]), *_gpu_lines(fits)])
    for each in found["not_predicted"]:
        place = f"{each['file']}:{each['line']}: " if each["file"] else ""
        say(f"not predicted: {each['phase']}: {place}{each['text']}")
    return EXIT_UNCHECKED if found["not_predicted"] else EXIT_OK


def _fits(loaded: LoadedPlan, phases: Sequence[Mapping[str, Any]], gpus: Sequence[Gpu], runs: Path) -> list[Fit]:
    from tui_pilot.predict.catalogue import class_of, fits
    from tui_pilot.predict.residuals import learn
    from tui_pilot.store.earlier import documents

    earlier = list(documents(runs))
    known = {gpu.name: learn(earlier, gpu.name, class_of) for gpu in gpus}
    return fits(phases, gpus, known, loaded.plan.rental.memory_margin, loaded.plan.precision)


def _table(found: Mapping[str, Any]) -> list[str]:
    """A row a phase: peaks with and without activation checkpointing, and what lies at the plan's own peak."""
    from tui_pilot.commands.tables import table
    from tui_pilot.text import size

    now = found["assumptions"]["activation_checkpointing"]
    other = {row["phase"]: row for row in (found["other"] or {}).get("phases", ())}
    head = ("phase", "alloc", "resvd", *(name.replace("_", " ") for name in CATEGORIES))
    head += (f"alloc, ckpt {'off' if now else 'on'}", f"resvd, ckpt {'off' if now else 'on'}") if other else ()
    rows = []
    for row in found["phases"]:
        cells = [row["phase"], size(row["allocated_peak"]), size(row["reserved_peak"], "-")]
        cells += [size(row["at_peak"][name]) for name in CATEGORIES]
        if other:
            twin = other.get(row["phase"], {})
            cells += [size(twin.get("allocated_peak"), "-"), size(twin.get("reserved_peak"), "-")]
        rows.append(cells)
    note = f"predicted, activation checkpointing {'on' if now else 'off'} as planned"
    note += "" if other else "; the task does not follow the other setting"
    return [note, *table(head, rows, right=range(1, len(head)))]


def _assumed(assumptions: Mapping[str, Any]) -> list[str]:
    from tui_pilot.text import size

    keys = ("target", "attention", "optimizer", "precision", "micro", "length", "rows")
    said = "; ".join(f"{key} {assumptions[key]}" for key in keys if assumptions.get(key) is not None)
    lines = [f"assumed: {said}"]
    if assumptions.get("mapped_bytes"):
        mapped = size(assumptions["mapped_bytes"])
        lines.append(
            f"not counted: {mapped} of weights that stay where their file is mapped, as torch's counter has it"
        )
    if assumptions.get("unverified"):
        lines.append(f"unverified on a GPU: {', '.join(assumptions['unverified'])}")
    if assumptions.get("not_included"):
        lines.append(f"not included: {'; '.join(assumptions['not_included'])}")
    return lines


def _gpu_lines(fits: Sequence[Fit]) -> list[str]:
    from tui_pilot.commands.tables import table
    from tui_pilot.text import size

    if not fits:
        return []
    rows = [
        (each.name, size(each.usable_bytes), size(each.need_bytes), f"{each.margin:.0%}", "fits" if each.fits else "no",
         each.binding_phase, each.note or "")
        for each in fits
    ]  # fmt: skip
    lines = table(("gpu", "usable", "need", "free", "", "set by", ""), rows, right=(1, 2, 3))
    bases = sorted({each.basis for each in fits})
    return [
        "",
        *lines,
        f"free asked: {max(each.asked for each in fits):.0%}; {bases[0]}" + (" ..." if bases[1:] else ""),
    ]
