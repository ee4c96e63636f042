"""What is known of a GPU, as immutable values any thread may hold. Sizes are bytes; unknown is None, never 0."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """One GPU, or one MIG instance (`parent` is then the UUID of the card), as found when NVML was opened.

    `basis` is `v2`, where used leaves out the driver's reserve and `usable` is total less that reserve, or `v1` (old
    drivers), where used includes it, the reserve is unknown and `usable` is the total. Either way usable less used is
    what is free. `error` says why there is no memory figure, `code` is NVML's number for it.
    """

    index: int
    uuid: str | None = None
    name: str | None = None
    total: int | None = None
    reserved_by_driver: int | None = None
    usable: int | None = None
    capability: tuple[int, int] | None = None
    bus_id: str | None = None
    error: str | None = None
    code: int | None = None
    basis: str | None = None
    unified: bool = False
    parent: str | None = None

    @property
    def key(self) -> str:
        """The UUID; for a GPU too broken to say it, its NVML index."""
        return self.uuid or f"nvml:{self.index}"


@dataclass(frozen=True)
class Reading:
    """One reading. `at_mono` is time.monotonic(), seconds. `missing` names each field that was asked and not answered.

    A field that is None and not in `missing` was not asked this time. `error` is why there is no `used`.
    """

    uuid: str
    at_mono: float
    used: int | None = None
    utilization: int | None = None
    temperature: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    throttle: tuple[str, ...] | None = None
    error: str | None = None
    code: int | None = None
    missing: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Inventory:
    """All GPUs NVML counts, broken ones included. `why` says why there are none; `problem` what is odd about pynvml."""

    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    why: str | None = None
    code: int | None = None
    problem: str | None = None
