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
| load | P (built whole, then sharded) | 0 | 0 | as on one GPU |
| forward, evaluate | P/N + R + 2U | as held / N | O/N | as on one GPU |
| backward, steady_step | P/N + R + 2U | G/N + 2U' | O/N | as on one GPU |
| first_step, and where a step binds | P/N + R | G/N | O/N | T/N |
| checkpoint, export | P/N + R | as held / N | O/N | P (gathered whole to be written) |

2U: the unit that computes and the one that is fetched ahead. U' are that unit's gradients before they are reduced, and
once more the buffer they are reduced from. An optimizer's temporaries grow with what it updates: /N.

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
_COMPUTES = ("forward", "backward", "steady_step", "evaluate", "batch")
_REDUCES = ("backward", "steady_step", "batch")
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

    A phase without categories (it was not predicted) stays as it is, with nothing claimed.
    """
    if strategy == "none" or replicas < 2:
        return [{**phase, "basis": BASIS["none"]} for phase in phases]
    found = []
    for phase in phases:
        categories = phase.get("at_peak")
        if not isinstance(categories, Mapping) or not isinstance(phase.get("allocated_peak"), int):
            found.append({**phase, "basis": "not predicted"})
            continue
        held = {name: int(categories.get(name) or 0) for name in CATEGORIES}
        binding = binds_in_step(phase)
        at_peak = _ddp(held, units) if strategy == "ddp" else _fsdp(str(phase["phase"]), held, replicas, units, binding)
        allocated = sum(at_peak.values())
        found.append(
            {
                **phase,
                "at_peak": at_peak,
                "allocated_peak": allocated,
                "reserved_peak": _reserved(phase, allocated),
                "parts": {},
                "basis": BASIS[strategy],
            }
        )
    return found


def binds_in_step(phase: Mapping[str, Any]) -> bool:
    """Whether an optimizer's step makes this phase's peak: then its temporaries are the optimizer's."""
    parts = phase.get("parts") or {}
    peaks = {name: part.get("allocated_peak") or 0 for name, part in parts.items() if isinstance(part, Mapping)}
    if not peaks:
        return bool(phase.get("phase") == "first_step")
    return bool(max(peaks, key=lambda name: peaks[name]) == "step")


def _reserved(phase: Mapping[str, Any], allocated: int) -> int | None:
    """Reserved in proportion: how much the allocator keeps beyond what is allocated is taken from the one GPU."""
    before, reserved = int(phase["allocated_peak"]), phase.get("reserved_peak")
    if not isinstance(reserved, int) or before <= 0:
        return None
    return max(allocated, round(allocated * reserved / before))


def _ddp(held: dict[str, int], units: Units) -> dict[str, int]:
    return {**held, "gradients": held["gradients"] + units.trainable}


def _fsdp(name: str, held: dict[str, int], replicas: int, units: Units, step: bool) -> dict[str, int]:
    if name == "load":
        return held
    share = -(-held["parameters"] // replicas)
    out = {
        "parameters": share + min(units.root, held["parameters"]),
        "gradients": -(-held["gradients"] // replicas),
        "optimizer_state": -(-held["optimizer_state"] // replicas),
        "activations": held["activations"],
        "temporary": held["temporary"],
    }
    if step:
        out["temporary"] = -(-held["temporary"] // replicas)
    elif name in _COMPUTES:
        out["parameters"] = min(out["parameters"] + 2 * units.largest, share + held["parameters"])
        if name in _REDUCES:
            trains = units.trainable / units.total if units.total else 0.0
            out["gradients"] += 2 * round(units.largest * trains)
    if name in _WRITES:
        out["temporary"] = max(out["temporary"], held["parameters"])
    return out
