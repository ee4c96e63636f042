"""A prediction against the same step on real CPU tensors, phase by phase: by our tracker and by torch's own counter."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[pilot]'")

import small_tasks as tasks  # noqa: E402
from real_pass import CPU, CounterMissing, measured, peaks  # noqa: E402

from tui_pilot.plan.model import Adapter, Batch, Data, Evaluate, Memory, Model, Optimizer, Plan  # noqa: E402
from tui_pilot.predict import passes  # noqa: E402
from tui_pilot.predict.inputs import rows_of  # noqa: E402
from tui_pilot.predict.passes import Target  # noqa: E402
from tui_pilot.predict.trace import Trace  # noqa: E402
from tui_pilot.tasks.base import Task  # noqa: E402
from tui_pilot.tasks.demo import DemoTask  # noqa: E402

PHASES = ["load", "forward", "backward", "first_step", "steady_step", "evaluate", "export"]
ALLOWED = 0.001
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def plan_of(**changes: Any) -> Plan:
    return Plan(task="own.py:Own", batch=Batch(micro=2, accumulation=2), evaluate=Evaluate(micro=2), **changes)


class ScaledByOne(torch.amp.GradScaler):
    def __init__(self, device: str) -> None:
        super().__init__(device, init_scale=1.0)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


CASES: list[tuple[type[Task], dict[str, Any]]] = [
    (DemoTask, {}),
    (DemoTask, {"precision": "bf16-amp", "memory": Memory(True), "optimizer": Optimizer(implementation="fused")}),
    (DemoTask, {"precision": "bf16", "optimizer": Optimizer(implementation="foreach")}),
    (tasks.Own, {"optimizer": Optimizer(implementation="foreach", clip=None)}),
    (tasks.Own, {"precision": "bf16", "memory": Memory(True)}),
    (tasks.OwnReentrant, {"precision": "bf16-amp", "memory": Memory(True)}),
    (tasks.OwnReentrant, {"memory": Memory(True), "optimizer": Optimizer(name="sgd")}),
    (tasks.Gpt2, {"optimizer": Optimizer(implementation="fused")}),
    (tasks.Gpt2, {"precision": "bf16-amp", "memory": Memory(True)}),
    (tasks.Llama, {"optimizer": Optimizer(implementation="loop")}),
    (tasks.Llama, {"precision": "bf16", "optimizer": Optimizer(implementation="foreach")}),
    (tasks.Llama, {"precision": "bf16-amp", "optimizer": Optimizer(implementation="fused")}),
    (tasks.Llama, {"memory": Memory(True)}),
    (tasks.Llama, {"precision": "bf16", "model": Model(adapter=Adapter(r=16))}),
    (tasks.Llama, {"model": Model(adapter=Adapter(r=16)), "memory": Memory(True)}),
    (tasks.Uneven, {}),
    (tasks.Own, {"precision": "fp16-amp"}),
    (tasks.Llama, {"precision": "fp16-amp", "memory": Memory(True)}),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "changes"), CASES, ids=lambda each: getattr(each, "__name__", None))
def test_fake_tensors_take_what_real_ones_take(
    kind: type[Task], changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if issubclass(kind, tasks.HuggingFace):
        pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")
        import transformers.modeling_utils  # noqa: F401  # before anything in it is replaced
    # A step that overflows at the usual first scale is skipped, without state; a prediction is of one that is made.
    monkeypatch.setattr(torch.amp, "GradScaler", ScaledByOne)
    plan = plan_of(data=Data(max_length=96), **changes)
    task = kind(plan)
    predicted = passes.run(task, rows_of(task, 4), CPU)
    assert predicted.missed == {}
    try:
        real, counter = measured(kind(plan), 4)
    except CounterMissing as why:
        pytest.skip(str(why))
    assert real.missed == {}
    expected, tracked = peaks(predicted), peaks(real)
    assert list(expected) == PHASES
    for phase in PHASES:
        assert abs(expected[phase] / tracked[phase] - 1) <= ALLOWED, phase
        assert abs(expected[phase] / counter[phase] - 1) <= ALLOWED, (phase, expected[phase], counter[phase])
    for row in predicted.rows(1):
        assert sum(row.at_peak.values()) == row.peak


def check_balance(trace: Trace) -> None:
    live: dict[int, int] = {}
    for block, count in trace.events:
        live[block] = live.get(block, 0) + count
        assert live[block] >= 0


def test_the_categories_are_those_of_an_adamw_step() -> None:
    task = tasks.Own(plan_of(optimizer=Optimizer(implementation="foreach")))
    done = passes.run(task, rows_of(task, 4), Target((8, 0)))
    check_balance(done.tracker.trace)
    held = passes.parameter_bytes(done.model)
    rows = {(row.phase, row.part): row for row in done.rows(512)}
    load, step = rows["load", None].at_peak, rows["first_step", "step"].at_peak
    rounding = 512 * len(list(done.model.parameters()))
    assert 0 <= load["parameters"] - held <= rounding
    assert load["gradients"] == load["optimizer_state"] == load["activations"] == 0
    assert 0 <= step["gradients"] - held <= rounding
    assert 0 <= step["optimizer_state"] - 2 * held <= 2 * rounding  # step counts stay on the host
    assert 0 <= step["temporary"] - held <= rounding + (2 << 25)  # one more of foreach, and two cuBLAS workspaces
    assert rows["steady_step", "backward"].at_peak["activations"] > 0


def test_checkpoints_and_the_fused_step_take_less() -> None:
    def highest(kind: type[Task], phase: str, **changes: Any) -> int:
        task = kind(plan_of(**changes))
        done = passes.run(task, rows_of(task, 4), Target((9, 0)))
        assert done.missed == {}
        return peaks(done, 512)[phase]

    assert highest(tasks.Own, "forward", memory=Memory(True)) < highest(tasks.Own, "forward")
    fused, foreach = (Optimizer(implementation=how) for how in ("fused", "foreach"))
    assert highest(tasks.Own, "first_step", optimizer=fused) < highest(tasks.Own, "first_step", optimizer=foreach)


def test_everything_replaced_is_put_back() -> None:
    from torch._subclasses import fake_tensor

    def replaced() -> list[Any]:
        return [
            torch.nn.Module._apply, torch.nn.functional.scaled_dot_product_attention, torch.nn.functional.dropout,
            torch.amp.GradScaler._maybe_opt_step, torch.amp.autocast_mode.autocast.__init__, torch.get_rng_state,
            sys.modules["torch.optim.adam"]._default_to_fused_or_foreach, fake_tensor.CONSTANT_NUMEL_LIMIT,
        ]  # fmt: skip

    before = replaced()
    for target in (CPU, Target((8, 0))):
        task = tasks.Own(plan_of(precision="fp16-amp"))
        assert passes.run(task, rows_of(task, 4), target).missed == {}
        assert replaced() == before
    with torch.autocast("cpu", torch.bfloat16):  # the CPU's own rules hold again
        assert torch.nn.LayerNorm(8)(torch.ones(2, 8, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_a_gpus_autocast_norms_in_fp32() -> None:
    from tui_pilot.predict.autocast import gpu_rules

    half = torch.ones(2, 8, dtype=torch.bfloat16)
    with gpu_rules(), torch.autocast("cuda", torch.bfloat16):
        assert torch.nn.LayerNorm(8)(half).dtype == torch.float32
        assert torch.softmax(half, -1).dtype == torch.float32
        assert half.pow(2).dtype == half.sum().dtype == torch.float32
        assert torch.nn.functional.linear(half, torch.ones(3, 8)).dtype == torch.bfloat16
