"""Several GPUs, as arithmetic over a prediction made for one: DDP's buckets, FSDP2's shards and gathers.

A model, not a replay: what a rank holds follows from the categories at each phase's peak and from the sizes of the
wrapped units. ``basis`` of every result says so. N is the number of replicas, P, G, O the bytes of parameters,
gradients and optimizer state on one GPU, U the largest unit (a block of the network) and R what no unit owns
(embeddings, last norm, head).

**DDP** (torch's defaults, ``gradient_as_bucket_view`` off): every rank holds all of P, G, O. Beside the gradients the
reducer keeps a copy of them in buckets, from wrapping on: + G' in every phase, G' being the gradients' bytes of all
trainable parameters. Activations are those of the rank's own microbatch.

**FSDP2** (``fully_shard`` on every unit and on the root, resharding after forward; the root stays gathered):

| at the peak of | parameters | gradients | optimizer state | temporary |
|---|---|---|---|---|
| load | P + U/N (built whole, then sharded unit by unit) | 0 | 0 | as on one GPU |
| a forward, evaluate | P/N + R + 2U | G/N | O/N | as on one GPU |
| a backward | P/N + R + 2U | G/N, + 2U' where gradients are there | O/N | as on one GPU |
| an optimizer's step | P/N + R | G/N | O/N | T/N |
| checkpoint, export | P/N + R | G/N | O/N | P (gathered whole to be written) |

2U: the unit that computes and the one that is fetched ahead; where the peak is at the loss neither is there, so this is
an upper bound. U' are that unit's gradients before they are reduced, and once more the buffer they are reduced from;
a backward that has its peak at its start, with no gradient made yet, holds neither. An optimizer's temporaries grow
with what it updates: /N. Held against two real processes on a CPU (``tests/benchmarks/sharding.py``): DDP within 0.5%,
FSDP2 between 1% too little and 8% too much.

Not in it: NCCL's own buffers (outside torch, 1 to 2 GiB a communicator), padding of shards, offloading, tensor
parallelism. Pure, standard library only; ``units_of`` only walks a module's parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Strategy = Literal["none", "ddp", "fsdp"]
CATEGORIES = ("parameters", "gradients", "optimizer_state", "activations", "temporary")
BASIS = {
    "none": "predicted",
    "ddp": "model: DDP buckets over the prediction for one GPU",
    "fsdp": "model: FSDP2 shards and gathers over the prediction for one GPU",
}
_WRITES = ("checkpoint", "export")


@dataclass(frozen=True)
class Units:
    """Bytes of a model's parameters: all, those that train, the largest unit, and what belongs to no unit."""

    total: int
    trainable: int
    largest: int
    root: int


def units_of(model: Any) -> Units:
    """The units of a model (a torch module, real or fake): the members of its longest list of equal blocks.

    A model without such a list is one unit, the root.
    """
    sizes = {name: parameter.numel() * parameter.element_size() for name, parameter in model.named_parameters()}
    trainable = sum(sizes[name] for name, parameter in model.named_parameters() if parameter.requires_grad)
    lists = [
        (len(list(module.children())), name)
        for name, module in model.named_modules()
        if type(module).__name__ == "ModuleList"
    ]
    length, prefix = max(lists, default=(0, ""), key=lambda found: found[0])
    total = sum(sizes.values())
    if length < 2:
        return Units(total, trainable, 0, total)
    head = f"{prefix}." if prefix else ""
    units: dict[str, int] = {}
    for name, count in sizes.items():
        if name.startswith(head) and (number := name[len(head) :].partition(".")[0]).isdigit():
            units[number] = units.get(number, 0) + count
    return Units(total, trainable, max(units.values(), default=0), total - sum(units.values()))


def shard(phases: Iterable[Mapping[str, Any]], strategy: Strategy, replicas: int, units: Units) -> list[dict[str, Any]]:
    """The phases of a prediction for one GPU as one rank of ``replicas`` holds them, with the ``basis`` of each.

    Parts are worked out one by one, and a phase is its highest part: which one binds may be another than on one GPU.
    Reserved keeps the proportion to what was allocated at most until then, and never falls: what a phase only inherits
    from the ones before it says nothing about itself. A phase without categories (it was not predicted) stays as it
    is, with nothing claimed.
    """
    if strategy == "none" or replicas < 2:
        return [{**phase, "basis": BASIS["none"]} for phase in phases]
    found = []
    reserve = _Reserve()
    for phase in phases:
        name = str(phase["phase"])
        whole = _shared(phase, piece_of(name), strategy, replicas, units)
        if whole is None:
            found.append({**phase, "basis": "not predicted"})
            continue
        parts = {
            part: {**shared, "reserved_peak": reserve.of(figures, shared["allocated_peak"])}
            for part, figures in (phase.get("parts") or {}).items()
            if (shared := _shared(figures, piece_of(name, part), strategy, replicas, units)) is not None
        }
        highest = max(parts.values(), key=lambda each: each["allocated_peak"]) if parts else whole
        reserved = reserve.of(phase, highest["allocated_peak"])
        found.append({**phase, **highest, "reserved_peak": reserved, "parts": parts, "basis": BASIS[strategy]})
    return found


def piece_of(phase: str, part: str | None = None) -> str:
    """The piece of work that a phase, or a part of it, is for the model.

    The rest of first_step's window is forwards and backwards that are not told apart: it counts as a forward, which
    has more activations.
    """
    if part in ("forward", "backward", "step"):
        return part
    if part == "window":
        return "forward"
    return {"first_step": "step", "steady_step": "backward"}.get(phase, phase)


def _shared(
    figures: Mapping[str, Any], piece: str, strategy: Strategy, replicas: int, units: Units
) -> dict[str, Any] | None:
    """One phase's or part's figures on one rank; None where there are none."""
    categories, allocated = figures.get("at_peak"), figures.get("allocated_peak")
    if not isinstance(categories, Mapping) or not isinstance(allocated, int):
        return None
    held = {name: int(categories.get(name) or 0) for name in CATEGORIES}
    at_peak = _ddp(held, units) if strategy == "ddp" else _fsdp(piece, held, replicas, units)
    total = sum(at_peak.values())
    return {"allocated_peak": total, "at_peak": at_peak}


class _Reserve:
    """What the allocator keeps beyond what is allocated, carried from one GPU to a rank, phase after phase."""

    def __init__(self) -> None:
        self.allocated = 0  # on one GPU, the most until now
        self.reserved = 0  # on a rank, the most until now

    def of(self, figures: Mapping[str, Any], allocated: int) -> int | None:
        """The reserved peak of a rank that allocates that much; None where one GPU's is not known."""
        reserved = figures.get("reserved_peak")
        self.allocated = max(self.allocated, int(figures["allocated_peak"]))
        if not isinstance(reserved, int) or not self.allocated:
            return None
        self.reserved = max(self.reserved, allocated, round(allocated * reserved / self.allocated))
        return self.reserved


def _ddp(held: dict[str, int], units: Units) -> dict[str, int]:
    return {**held, "gradients": held["gradients"] + units.trainable}


def _fsdp(piece: str, held: dict[str, int], replicas: int, units: Units) -> dict[str, int]:
    if piece == "load":
        return {**held, "parameters": held["parameters"] + -(-units.largest // replicas)}
    share = -(-held["parameters"] // replicas)
    out = {
        "parameters": share + min(units.root, held["parameters"]),
        "gradients": -(-held["gradients"] // replicas),
        "optimizer_state": -(-held["optimizer_state"] // replicas),
        "activations": held["activations"],
        "temporary": held["temporary"],
    }
    if piece == "step":
        out["temporary"] = -(-held["temporary"] // replicas)
    elif piece in _WRITES:
        out["temporary"] = max(out["temporary"], held["parameters"])
    else:
        out["parameters"] = min(out["parameters"] + 2 * units.largest, share + held["parameters"])
        if piece == "backward" and held["gradients"] and units.total:
            out["gradients"] += 2 * round(units.largest * units.trainable / units.total)
    return out
