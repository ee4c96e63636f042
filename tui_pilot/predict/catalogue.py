"""GPUs that can be had, and which of them a predicted run fits. The figures stand in ``gpus.yaml`` with their sources.

Read on the screen side: YAML is no part of a training image, so it is imported only when the file is read.
"""

from __future__ import annotations

import difflib
import functools
import importlib.resources
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tui_pilot.errors import EXIT_PLAN_WRONG, PilotError
from tui_pilot.predict.residuals import FLOOR, Residuals, unmeasured
from tui_pilot.text import MIB, size

Basis = Literal["measured", "derived", "vendor", "given"]
FILE = "gpus.yaml"


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU. ``usable_bytes``: NVML's total less the driver's reserve; ``basis`` says how that is known.

    ``reported`` are the names that drivers give. What only the person knows (a MIG instance, a GPU that is not in the
    list) has ``basis`` given, and no capability.
    """

    name: str
    usable_bytes: int
    total_bytes: int | None
    capability: tuple[int, int] | None
    bf16: bool | None
    fp8: bool | None
    basis: Basis
    source: str
    reported: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The GPU as other programs read it."""
        return {
            "name": self.name,
            "usable_bytes": self.usable_bytes,
            "total_bytes": self.total_bytes,
            "capability": None if self.capability is None else "{}.{}".format(*self.capability),
            "bf16": self.bf16,
            "fp8": self.fp8,
            "basis": self.basis,
            "source": self.source,
        }


@dataclass(frozen=True)
class Fit:
    """One GPU against one prediction.

    ``need_bytes`` is the highest corrected reserve of a phase plus what the process takes outside torch, where that was
    measured. ``margin`` is the share of the usable bytes that stays free at the need, negative where it is too much;
    it fits when that is at least ``asked``. ``residual`` is measured / predicted of the binding phase, None where no
    run on such a GPU says it. ``note`` says what else matters.
    """

    name: str
    usable_bytes: int
    need_bytes: int
    residual: float | None
    fits: bool
    margin: float
    binding_phase: str
    basis: str
    asked: float = FLOOR
    note: str | None = None

    def as_json(self) -> dict[str, Any]:
        """One entry of ``gpus`` in ``predict --json``."""
        return {
            "name": self.name,
            "usable_bytes": self.usable_bytes,
            "need_bytes": self.need_bytes,
            "residual": self.residual,
            "fits": self.fits,
            "margin": round(self.margin, 4),
            "margin_asked": round(self.asked, 4),
            "binding_phase": self.binding_phase,
            "basis": self.basis,
            "note": self.note,
        }


@functools.cache
def catalogue() -> tuple[Gpu, ...]:
    """Every GPU of the list, in its order."""
    import yaml

    text = importlib.resources.files("tui_pilot.predict").joinpath(FILE).read_text("utf-8")
    return tuple(_gpu(entry) for entry in yaml.safe_load(text)["gpus"])


def _gpu(entry: Mapping[str, Any]) -> Gpu:
    major, minor = str(entry["capability"]).split(".")
    return Gpu(
        name=entry["name"],
        usable_bytes=entry["usable_mib"] * MIB,
        total_bytes=entry["total_mib"] * MIB,
        capability=(int(major), int(minor)),
        bf16=entry["bf16"],
        fp8=entry["fp8"],
        basis=entry["basis"],
        source=entry["source"],
        reported=tuple(entry["reported"]),
    )


def class_of(reported: str | None) -> str | None:
    """The list's name of a GPU that a driver calls so; the driver's own name where the list does not have it."""
    if reported is None:
        return None
    plain = _plain(reported)
    for gpu in catalogue():
        if any(_plain(name) == plain for name in (gpu.name, *gpu.reported)):
            return gpu.name
    return reported


def find(name: str) -> Gpu:
    """The GPU that a person means: a name of the list or of a driver, or words that only one of them has."""
    words = _plain(name).split()
    exact = [gpu for gpu in catalogue() if any(_plain(each) == " ".join(words) for each in (gpu.name, *gpu.reported))]
    near = exact or [gpu for gpu in catalogue() if words and _has(gpu, words)]
    if len(near) == 1:
        return near[0]
    if near:
        text = f"{name!r} means {len(near)} GPUs: {', '.join(gpu.name for gpu in near)}."
        raise _unknown(name, text, "Type more of the name.")
    names = {_plain(gpu.name): gpu.name for gpu in catalogue()}
    close = difflib.get_close_matches(" ".join(words), names, 1, 0.5)
    advice = f"Nearest: {names[close[0]]}." if close else f"Known: {', '.join(names.values())}."
    raise _unknown(
        name, f"There is no GPU {name!r} in the list.", f"{advice} By its memory alone: pilot-tui fit --usable 22GiB."
    )


def _has(gpu: Gpu, words: Sequence[str]) -> bool:
    """Whether the name has these words, 80GB and 80 being the same."""
    own = {part for word in _plain(gpu.name).split() for part in (word, word.removesuffix("gb"))}
    return all(word in own or word.removesuffix("gb") in own for word in words)


def _plain(name: str) -> str:
    """Small letters, without the makers' words that people leave out."""
    words = name.lower().replace("-", " ").replace("_", " ").split()
    return " ".join(word for word in words if word not in ("nvidia", "geforce", "tesla"))


def _unknown(name: str, text: str, advice: str) -> PilotError:
    return PilotError(
        text, advice, code="unknown_gpu", title="No such GPU", exit_code=EXIT_PLAN_WRONG, value=name, key="--gpu"
    )


def given(usable_bytes: int, name: str = "given") -> Gpu:
    """A GPU of which the person, or NVML, said the usable bytes alone."""
    return Gpu(name, usable_bytes, None, None, None, None, "given", "the command line")


def fits(
    phases: Iterable[Mapping[str, Any]],
    gpus: Iterable[Gpu],
    residuals: Mapping[str, Residuals] | None = None,
    margin: float | None = None,
    precision: str | None = None,
) -> list[Fit]:
    """Every GPU against the phases of a prediction, in the order given.

    ``residuals`` by the GPU's name, as ``residuals.learn`` gives them. ``margin``: the free share that the person asks;
    the residuals' own margin holds where it is larger.
    """
    rows = [row for row in phases if isinstance(row.get("reserved_peak"), int)]
    if not rows:
        return []
    return [_fit(rows, gpu, (residuals or {}).get(gpu.name) or unmeasured(gpu.name), margin, precision) for gpu in gpus]


def _fit(
    rows: Sequence[Mapping[str, Any]], gpu: Gpu, known: Residuals, margin: float | None, precision: str | None
) -> Fit:
    outside = known.outside_torch or 0
    needs = [(known.corrected(row["phase"], row["reserved_peak"]) + outside, str(row["phase"])) for row in rows]
    # Of equal phases the first one binds: later ones only inherit what it reserved.
    need = max(count for count, _ in needs)
    phase = next(name for count, name in needs if count == need)
    asked = max(known.margin, margin or 0.0)
    free = (gpu.usable_bytes - need) / gpu.usable_bytes
    notes = []
    allocated = max(known.corrected(row["phase"], row.get("allocated_peak") or 0) for row in rows) + outside
    if free < asked and (gpu.usable_bytes - allocated) / gpu.usable_bytes >= asked:
        notes.append(
            f"its tensors alone ({size(allocated)}) fit: torch would give cached segments back and try again, slowly"
        )
    if precision is not None and precision.startswith("bf16") and gpu.bf16 is False:
        notes.append("no bf16 units: bf16 is emulated, slowly")
    return Fit(
        name=gpu.name,
        usable_bytes=gpu.usable_bytes,
        need_bytes=need,
        residual=known.by_phase.get(phase),
        fits=free >= asked,
        margin=free,
        binding_phase=phase,
        basis=f"{known.basis}; usable memory {_how(gpu)}",
        asked=asked,
        note="; ".join(notes) or None,
    )


def _how(gpu: Gpu) -> str:
    return {
        "measured": "as measured elsewhere",
        "derived": "derived from the driver's total",
        "vendor": "the maker's figure",
        "given": "as given",
    }[gpu.basis]
