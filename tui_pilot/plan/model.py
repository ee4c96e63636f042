"""The plan as frozen dataclasses, standard library only: the training interpreter reads it from ``plan.json``.

One dataclass per section of the YAML file; names are the file's names. Defaults stand here and nowhere else.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal

Json = dict[str, Any]

DEFAULT_UPDATES = 200


@dataclass(frozen=True)
class Adapter:
    """A low-rank adapter; ``targets`` are module name endings, empty: the library's choice for the architecture."""

    kind: Literal["lora"] = "lora"
    r: int = 8
    alpha: float = 16
    dropout: float = 0.0
    targets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Model:
    """Where the weights come from. ``path`` is a folder; nothing is downloaded."""

    path: str | None = None
    attention: str = "auto"
    trust_remote_code: bool = False
    adapter: Adapter | None = None


@dataclass(frozen=True)
class Held:
    """A part of the training rows kept for validation, always split along the unit."""

    fraction: float = 0.1
    seed: int = 0


@dataclass(frozen=True)
class TimeUnit:
    """Units are moments of ``field``; two sides closer than ``gap`` (in the field's own scale) leak."""

    field: str
    gap: float = 0


@dataclass(frozen=True)
class RootUnit:
    """Units are the roots of parent chains: ``parent`` names the field that holds the parent's id."""

    parent: str
    id: str = "id"


@dataclass(frozen=True)
class Unit:
    """How to read the unit that must stay on one side of a split; exactly one rule is set.

    ``prefix`` is a separator: the unit is what stands before its last occurrence in ``field``. ``regex`` has one group:
    what it matches in ``field`` is the unit. ``field`` alone is the unit itself; beside a rule it defaults to ``id``.
    """

    field: str | None = None
    prefix: str | None = None
    regex: str | None = None
    root_of: RootUnit | None = None
    time: TimeUnit | None = None


@dataclass(frozen=True)
class Data:
    """The person's files and how they become examples."""

    train: str | None = None
    validation: str | Held | None = None
    test: str | None = None
    benchmark: str | None = None
    format: Literal[
        "auto", "alpaca", "sharegpt", "messages", "prompt_completion", "preference", "text", "csv", "tsv", "jsonl",
        "parquet",
    ] = "auto"  # fmt: skip
    columns: dict[str, str] = field(default_factory=dict)
    header: bool = True
    quoting: Literal["auto", "none"] = "auto"
    unit: str | Unit | None = None
    max_length: int | None = None
    train_on: Literal["all", "assistant", "last_assistant"] = "assistant"
    packing: str = "none"
    workers: int = 0
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Loss:
    label_smoothing: float = 0.0


@dataclass(frozen=True)
class Batch:
    micro: int = 1
    accumulation: int = 1
    drop_last: bool = False
    tail: Literal["step", "drop"] = "step"


@dataclass(frozen=True)
class Budget:
    """What is held constant; exactly one is set, the rest follows. A plan that sets none has DEFAULT_UPDATES."""

    updates: int | None = None
    epochs: float | None = None
    examples: int | None = None
    tokens: int | None = None

    @property
    def held(self) -> tuple[Literal["updates", "epochs", "examples", "tokens"], float]:
        """Which quantity is held constant, and how much of it."""
        if self.epochs is not None:
            return "epochs", self.epochs
        if self.examples is not None:
            return "examples", self.examples
        if self.tokens is not None:
            return "tokens", self.tokens
        return "updates", DEFAULT_UPDATES if self.updates is None else self.updates


@dataclass(frozen=True)
class Optimizer:
    name: Literal["adamw", "sgd"] = "adamw"
    lr: float = 1e-4
    weight_decay: float = 0.0
    clip: float | None = 1.0
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    warmup: int = 0
    implementation: Literal["auto", "foreach", "fused", "loop"] = "auto"


@dataclass(frozen=True)
class Memory:
    activation_checkpointing: bool = False


@dataclass(frozen=True)
class Evaluate:
    every: int = 50
    micro: int | None = None
    rows: int = 64
    metric: str = "loss"
    direction: Literal["min", "max"] = "min"
    max_new_tokens: int = 0


@dataclass(frozen=True)
class Checkpoint:
    every: int = 100
    keep: int = 2


@dataclass(frozen=True)
class Export:
    kind: Literal["adapter", "merged", "full"] | None = None
    dtype: str | None = None


@dataclass(frozen=True)
class Launch:
    processes: int = 1
    nodes: int = 1
    strategy: Literal["none", "ddp", "fsdp"] = "none"
    tensor_parallel: int = 1
    python: str | None = None


@dataclass(frozen=True)
class Pilot:
    """Updates of the pilot: ``steady`` in peak, ``timed`` in train, ``reference`` repeated by resume."""

    steady: int = 3
    timed: int = 10
    reference: int = 3


@dataclass(frozen=True)
class OverfitGate:
    rows: int = 4
    steps: int = 200
    lr: float | Literal["auto"] = "auto"


@dataclass(frozen=True)
class ExamplesGate:
    max_truncated: float = 0.01


@dataclass(frozen=True)
class ResumeGate:
    max_seek_seconds: float = 600.0


@dataclass(frozen=True)
class BatchGate:
    """Relative error allowed between the accumulated gradient and the same rows one by one; None: by precision."""

    gradient_error: float | None = None


@dataclass(frozen=True)
class ReloadGate:
    """Relative difference allowed between the control losses before and after; None: by the artifact's dtype."""

    relative_loss: float | None = None


@dataclass(frozen=True)
class Gates:
    """``severity`` maps a reason code to ``fail``, ``warn``, ``note`` or ``unchecked``: the person's own word."""

    stop_on_fail: bool = True
    skip: tuple[str, ...] = ()
    overfit: OverfitGate = field(default_factory=OverfitGate)
    examples: ExamplesGate = field(default_factory=ExamplesGate)
    batch: BatchGate = field(default_factory=BatchGate)
    resume: ResumeGate = field(default_factory=ResumeGate)
    reload: ReloadGate = field(default_factory=ReloadGate)
    severity: dict[str, Literal["fail", "warn", "note", "unchecked"]] = field(default_factory=dict)


@dataclass(frozen=True)
class Keep:
    checkpoints: int = 1
    artifact: bool = True


@dataclass(frozen=True)
class Variant:
    id: str
    set: dict[str, Any] = field(default_factory=dict)
    why: str = ""
    priority: int = 1


@dataclass(frozen=True)
class Trial:
    id: str
    set: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StopRule:
    not_finite: bool = True
    loss_above_start: float | None = None
    no_progress: int | None = None


@dataclass(frozen=True)
class Compare:
    hold: tuple[str, ...] = ("architecture", "data", "effective_batch", "updates")
    trials: tuple[Trial, ...] = ()
    seeds: tuple[int, ...] = (0,)
    stop: StopRule = field(default_factory=StopRule)


@dataclass(frozen=True)
class KeepFor:
    evaluation_hours: float = 4
    export_hours: float = 2


@dataclass(frozen=True)
class Rental:
    packages: tuple[int, ...] = (3, 7, 30)
    keep_for: KeepFor = field(default_factory=KeepFor)
    memory_margin: float = 0.15
    time_margin: float = 0.15
    gpus: tuple[str, ...] = ()
    prices: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Everything that can change a run's result. Relative paths start at the ``folder`` that ``plan.json`` names."""

    name: str = "pilot"
    task: str = "demo"
    model: Model = field(default_factory=Model)
    data: Data = field(default_factory=Data)
    loss: Loss = field(default_factory=Loss)
    batch: Batch = field(default_factory=Batch)
    budget: Budget = field(default_factory=Budget)
    optimizer: Optimizer = field(default_factory=Optimizer)
    precision: Literal["fp32", "bf16", "bf16-amp", "fp16-amp"] = "fp32"
    memory: Memory = field(default_factory=Memory)
    evaluate: Evaluate = field(default_factory=Evaluate)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    export: Export = field(default_factory=Export)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    launch: Launch = field(default_factory=Launch)
    seed: int = 0
    pilot: Pilot = field(default_factory=Pilot)
    gates: Gates = field(default_factory=Gates)
    keep: Keep = field(default_factory=Keep)
    options: dict[str, Any] = field(default_factory=dict)
    expected: str = ""
    variants: tuple[Variant, ...] = ()
    compare: Compare = field(default_factory=Compare)
    rental: Rental = field(default_factory=Rental)
    command: str | tuple[str, ...] | None = None
    resume_command: str | tuple[str, ...] | None = None
    artifact: str | None = None

    @property
    def replicas(self) -> int:
        """Data replicas: processes on all nodes that hold different rows; tensor parallelism does not multiply."""
        return max(1, self.launch.processes * self.launch.nodes // max(1, self.launch.tensor_parallel))

    @property
    def effective_batch(self) -> int:
        """Rows averaged by one update: microbatch x accumulation x data replicas."""
        return self.batch.micro * self.batch.accumulation * self.replicas


def as_json(plan: Plan) -> Json:
    """The plan as plain JSON values, lists and not tuples; ``from_json`` is its inverse."""
    value: Json = plain(plan)
    return value


def plain(value: Any) -> Any:
    """A part of a plan as plain JSON values: sections as dicts, tuples as lists."""
    if dataclasses.is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def from_json(value: Json) -> Plan:
    """Read a plan that ``as_json`` wrote. The screen side has validated it; unknown keys are ignored."""
    plan: Plan = _build(Plan, value)
    return plan


def _build(kind: Any, value: Any) -> Any:
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        return kind(**{name: _build(hints[name], item) for name, item in value.items() if name in hints})
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        for option in typing.get_args(kind):
            is_class = dataclasses.is_dataclass(option)
            is_tuple = typing.get_origin(option) is tuple
            if (is_class and isinstance(value, dict)) or (is_tuple and isinstance(value, (list, tuple))):
                return _build(option, value)
        return value
    if origin is tuple:
        item = typing.get_args(kind)[0]
        return tuple(_build(item, each) for each in value)
    return value
