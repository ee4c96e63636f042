"""Which of the GPUs that NVML counts a training process may use, and in which order it counts them.

CUDA_VISIBLE_DEVICES holds indices, UUIDs that may be abbreviated, or MIG instances, never a mixture. The list ends at
the first entry that names nothing, and a GPU named twice hides all of them. Stages run with
CUDA_DEVICE_ORDER=PCI_BUS_ID, which is NVML's own order, so an index means the same GPU to both. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tui_pilot.devices.readings import Gpu

NAME, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
BY_ADDRESS = "PCI_BUS_ID"


@dataclass(frozen=True)
class Visible:
    """The GPUs a stage may use, in its own order; ``note`` says what a person should know of the choice.

    ``known`` is False where an entry names nothing that NVML shows: what CUDA makes of it is not known then, and
    ``gpus`` are all of them.
    """

    gpus: tuple[Gpu, ...]
    note: str | None = None
    known: bool = True


def visible(gpus: Sequence[Gpu], environ: Mapping[str, str]) -> Visible:
    """What CUDA_VISIBLE_DEVICES leaves of ``gpus``."""
    value = environ.get(NAME)
    if value is None:
        return Visible(tuple(gpus))
    entries = [part.strip() for part in value.split(",")]
    if not value.strip():
        return Visible((), f"{NAME} is empty: every GPU is hidden")
    chosen: list[Gpu] = []
    said: list[str] = []
    for entry in _of_one_kind(entries):
        found = list(_named(entry, gpus))
        if not found:
            said.append(_nothing(entry, entries, bool(chosen)))
            break
        if any(each in chosen for each in found):
            return Visible((), f"{NAME} names a GPU twice, {entry}: CUDA then hides every GPU")
        chosen += found
    if not chosen and not _hides_all(entries[0]):
        return Visible(tuple(gpus), said[0] if said else None, known=False)
    said += _by_speed(entries, gpus, environ)
    return Visible(tuple(chosen), "; ".join(said) or None)


def _of_one_kind(entries: list[str]) -> Iterator[str]:
    """The entries until one of another kind than the first: CUDA reads no further."""
    first = _kind(entries[0])
    for entry in entries:
        yield entry if _kind(entry) == first else f"{entry} after {entries[0]}"


def _kind(entry: str) -> str:
    return next((kind for kind in ("MIG-", "GPU-") if entry.upper().startswith(kind)), "index")


def _named(entry: str, gpus: Sequence[Gpu]) -> Iterator[Gpu]:
    """What one entry stands for: a GPU, the first instance of a partitioned card, or an instance."""
    kind = _kind(entry)
    if kind == "index":
        cards = list(dict.fromkeys(gpu.index for gpu in gpus))
        number = int(entry) if re.fullmatch(r"\d+", entry) else -1
        if 0 <= number < len(cards):
            yield next(gpu for gpu in gpus if gpu.index == cards[number])
        return
    if entry.upper().startswith("MIG-GPU-"):  # the form of drivers before 470: MIG-GPU-<card>/<instance>/<part>
        card = entry[4:].partition("/")[0].lower()
        yield from (gpu for gpu in gpus if (gpu.parent or "").lower() == card)
        return
    start = entry.lower()
    own = [gpu for gpu in gpus if (gpu.uuid or "").lower().startswith(start)]
    if kind == "GPU-" and not own:
        parts = [gpu for gpu in gpus if (gpu.parent or "").lower().startswith(start)]
        own = parts[:1] if len({gpu.parent for gpu in parts}) == 1 else []
    if len(own) == 1:  # an abbreviation that fits several is none
        yield own[0]


def _hides_all(entry: str) -> bool:
    """``-1``, and other words that are no device by intent."""
    return entry in ("-1", "none", "None", "NoDevFiles", "void")


def _nothing(entry: str, entries: list[str], some: bool) -> str:
    if _hides_all(entry) and not some:
        return f"{NAME}={entry} hides every GPU"
    after = " and what follows it" if entry.partition(" ")[0] != entries[-1] else ""
    return f"{NAME}: {entry} names no GPU that NVML shows here; CUDA hides it{after}"


def _by_speed(entries: list[str], gpus: Sequence[Gpu], environ: Mapping[str, str]) -> list[str]:
    """Indices of unlike GPUs mean others by speed, which is CUDA's own order, than by address."""
    unlike = len({gpu.name for gpu in gpus}) > 1
    if _kind(entries[0]) != "index" or not unlike or environ.get(ORDER) == BY_ADDRESS:
        return []
    return [f"{NAME} counts by PCI address in a pilot ({ORDER}={BY_ADDRESS}), not by speed: these GPUs are unlike"]
