"""The remembering fake mode against torch's own: the same events, in the same order, of the same bytes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[pilot]'")

import small_tasks as tasks  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from tui_pilot.plan.model import Adapter, Batch, Data, Evaluate, Memory, Model, Optimizer, Plan  # noqa: E402
from tui_pilot.predict import passes, quick  # noqa: E402
from tui_pilot.predict.inputs import rows_of  # noqa: E402
from tui_pilot.predict.passes import Pass, Target  # noqa: E402
from tui_pilot.predict.quick import QuickFakeMode  # noqa: E402
from tui_pilot.tasks.base import Task  # noqa: E402
from tui_pilot.tasks.demo import DemoTask  # noqa: E402

CASES: list[tuple[type[Task], dict[str, Any]]] = [
    (DemoTask, {"precision": "bf16-amp", "memory": Memory(True)}),
    (tasks.OwnReentrant, {"precision": "fp16-amp", "memory": Memory(True), "optimizer": Optimizer(name="sgd")}),
    (tasks.Gpt2, {"optimizer": Optimizer(implementation="fused")}),
    (tasks.Llama, {"precision": "bf16", "model": Model(adapter=Adapter(r=16))}),
    (tasks.Uneven, {"optimizer": Optimizer(implementation="loop")}),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("target", [Target(None), Target((8, 0))], ids=["cpu", "gpu"])
@pytest.mark.parametrize(("kind", "changes"), CASES, ids=lambda each: getattr(each, "__name__", None))
def test_it_sees_what_torchs_own_sees(
    kind: type[Task], changes: dict[str, Any], target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    if issubclass(kind, tasks.HuggingFace):
        pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")
        import transformers.modeling_utils  # noqa: F401  # before anything in it is replaced
    plan = Plan(
        task="own.py:Own", batch=Batch(micro=2, accumulation=2), evaluate=Evaluate(micro=2), data=Data(max_length=96),
        **changes,
    )  # fmt: skip

    def one() -> Pass:
        task = kind(plan)
        return passes.run(task, rows_of(task, 4), target)

    remembering = one()
    monkeypatch.setattr(quick, "QuickFakeMode", lambda: FakeTensorMode(allow_non_fake_inputs=True))
    own = one()
    assert remembering.missed == own.missed == {}
    assert in_order(remembering) == in_order(own)
    assert remembering.tracker.trace.marks == own.tracker.trace.marks
    assert remembering.tracker.with_grad == own.tracker.with_grad


def in_order(done: Pass) -> list[Any]:
    """The events; what is freed at once (autocast empties its cache in the order of addresses) as a set."""
    found: list[Any] = []
    for free, events in itertools.groupby(done.tracker.trace.events, lambda event: event[1] < 0):
        together = list(events)
        found += [set(together)] if free else together
    return found


def both(work: Any) -> tuple[Any, Any]:
    """What ``work`` gives under the remembering mode, asked twice, and under torch's own."""
    with QuickFakeMode():
        work()
        found = work()
    with FakeTensorMode(allow_non_fake_inputs=True):
        expected = work()
    return found, expected


def shape_of(tensor: Any) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device


def one_and_one_point_oh() -> Any:
    whole = torch.ones(3, dtype=torch.long)
    return [shape_of(whole * 2), shape_of(whole * 2.0), shape_of(whole * True)]


def views() -> Any:
    base = torch.empty(4, 6)
    parts = [base.t(), base[1:3, ::2], base.view(-1), base.expand(2, 4, 6), *base.split(2), *base.unbind(1)]
    return [(shape_of(each), each.untyped_storage()._cdata == base.untyped_storage()._cdata) for each in parts]


def in_place() -> Any:
    base = torch.empty(4, 6)
    same = [base.add_(1) is base, base.copy_(torch.empty(6)) is base]
    base.resize_(2, 2)
    base.t_()
    base.resize_(2, 2)
    return same, shape_of(base), base.untyped_storage().nbytes()


def default_dtype() -> Any:
    found = [shape_of(torch.full((2,), 1.5))]
    torch.set_default_dtype(torch.float64)
    try:
        found.append(shape_of(torch.full((2,), 1.5)))
    finally:
        torch.set_default_dtype(torch.float32)
    return found


def several_at_once() -> Any:
    tensors = [torch.empty(2), torch.empty(3, dtype=torch.float64)]
    torch._foreach_add_(tensors, 1)
    return [shape_of(each) for each in [*torch._foreach_mul(tensors, 2), *torch.empty(4, 3).max(1)]]


def complex_numbers() -> Any:
    conjugate = torch.empty(3, 2, dtype=torch.complex64).conj()
    parts = torch.view_as_real(torch.empty(3, dtype=torch.complex64))
    return conjugate.is_conj(), shape_of(conjugate.t()), shape_of(parts)


def kept_values() -> Any:
    count = torch.tensor(3)
    before = count.item()
    count.add_(2)
    return before, count.item() if count.constant is not None else None


def a_view_that_autograd_changes() -> Any:
    base = torch.zeros(4, 4, requires_grad=True)
    half = (base * 2)[:2]
    half.mul_(3)
    half.sum().backward()
    return shape_of(base.grad), base.grad.untyped_storage().nbytes()


@pytest.mark.parametrize(
    "work",
    [
        one_and_one_point_oh, views, in_place, default_dtype, several_at_once, complex_numbers, kept_values,
        a_view_that_autograd_changes,
    ],
    ids=lambda each: each.__name__,
)  # fmt: skip
def test_what_is_unusual_comes_out_as_torchs_own(work: Any) -> None:
    found, expected = both(work)
    assert found == expected


def test_what_cannot_be_known_without_values_is_still_refused() -> None:
    def work() -> None:
        torch.empty(4).nonzero()

    with QuickFakeMode():
        for _ in range(2):
            with pytest.raises(Exception, match="nonzero"):
                work()
