"""Area 6, out of memory by name, variants, mixed precision: scalers, stale casts, updates that rounding eats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from area_5 import row, stages
from lab import Lab, codes, reason_of

from tui_pilot.errors import PlanError
from tui_pilot.gates.judge import judge
from tui_pilot.gates.verdict import Reason
from tui_pilot.gates.ways_out import ways_out
from tui_pilot.plan import variants
from tui_pilot.plan.load import load
from tui_pilot.plan.model import Batch, Plan

if TYPE_CHECKING:
    from pathlib import Path

HALF = "precision: fp16-amp\n"
PEAK = ("forward", "backward", "first_step", "steady_step")


def found(phase: str, seen: dict[str, Any]) -> dict[str, Reason]:
    """What a phase's gate says of what a loop of any kind showed, by code."""
    return {reason.code: reason for reason in judge(phase, seen, Plan(precision="fp16-amp")).reasons}


# -- 6.01 ------------------------------------------------------------------------------------------------------------
TOO_LONG = """
class Own(Tiny):
    def loss(self, model, batch):
        if batch["input_ids"].shape[1] > 64:
            %s
        return super().loss(model, batch)
"""
CUDA = "raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 2.00 GiB.')"
LONG = {"lengths": list(range(8, 101)), "batch": "micro: 2"}


@pytest.mark.parametrize(
    ("does", "asked"),
    [
        (CUDA, 2 << 30),
        ("torch.empty(1 << 50, dtype=torch.uint8)", 1 << 50),
        ("raise RuntimeError('DefaultCPUAllocator: can\\'t allocate')", None),
        ("raise RuntimeError('CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`')", None),
        ("import os; raise OSError(12, os.strerror(12))", None),
        (
            f"try: {CUDA}\n            except RuntimeError as error: raise ValueError('training failed') from error",
            2 << 30,
        ),
    ],
)
def test_6_01_the_longest_rows_come_first_and_are_named(lab: Lab, does: str, asked: int | None) -> None:
    state = stages(lab, "peak", code=TOO_LONG % does, **LONG)
    reason = reason_of(row(state, "forward"), "oom")
    where = reason["where"]
    assert where["rows"] == ["r92", "r91"] and where["shape"] == "2 x 100" and where["asked_bytes"] == asked
    assert where["part"] == "forward" and where["dtype"] == "fp32"
    assert "Out of memory in forward" in reason["text"] and "rows r92, r91, 2 x 100" in reason["text"]
    assert {"data.max_length", "batch.micro"} & {key for way in where["variants"] for key in way["set"]}
    assert all(row(state, each).verdict == "not_run" for each in PEAK[1:])


def test_6_01_shorter_rows_pass(lab: Lab) -> None:
    state = stages(lab, "peak", code=TOO_LONG % CUDA, more="data: {max_length: 64}\n", **LONG)
    assert {row(state, each).verdict for each in PEAK} == {"pass"}
    assert row(state, "forward").inputs["shape"] == "2 x 64"


def test_6_01_another_error_is_no_memory(lab: Lab) -> None:
    does = "raise RuntimeError('The size of tensor a (3) must match the size of tensor b (4)')"
    judged = row(stages(lab, "peak", code=TOO_LONG % does, **LONG), "forward", crash=True)
    assert codes(judged) == ["crash"] and reason_of(judged, "crash")["where"]["rows"] == ["r92", "r91"]


# -- 6.03 ------------------------------------------------------------------------------------------------------------
EIGHT = """
name: eight
task: demo
batch: {micro: 8, accumulation: 4}
budget: {updates: 20}
variants:
  - {id: whole, set: {batch.micro: 4, batch.accumulation: 8}}
  - {id: half, set: {batch.micro: 4}}
  - {id: split, set: {batch.micro: 16, batch.accumulation: 2}}
"""


def test_6_03_a_smaller_microbatch_keeps_the_effective_batch_or_says_so(tmp_path: Path) -> None:
    (tmp_path / "pilot.yaml").write_text(EIGHT)
    loaded = load(tmp_path / "pilot.yaml")
    for name in ("whole", "split"):
        assert variants.keeps_question(loaded.plan, variants.variant(loaded, name).plan) == (True, [])
    same, why = variants.keeps_question(loaded.plan, variants.variant(loaded, "half").plan)
    assert not same and why[0].startswith("effective batch 32 -> 16")


def test_6_03_a_comparison_that_holds_the_effective_batch_refuses_another(tmp_path: Path) -> None:
    trials = "compare: {hold: [effective_batch], trials: [{id: half, set: {batch.micro: 4}}]}\n"
    (tmp_path / "pilot.yaml").write_text(EIGHT + trials)
    try:
        loaded = load(tmp_path / "pilot.yaml")
    except PlanError as error:
        assert "32" in str(error) and "16" in str(error)
        return
    changed = variants.trial(loaded, "half", 0).plan
    assert variants.not_held(loaded.plan, changed, ("effective_batch",))["effective_batch"]["effective_batch"] == [
        32,
        16,
    ]


@pytest.mark.parametrize(("micro", "accumulation"), [(8, 4), (3, 5), (7, 1), (2, 1), (1, 6)])
def test_6_03_ways_out_of_memory_keep_the_effective_batch(micro: int, accumulation: int) -> None:
    plan = Plan(batch=Batch(micro=micro, accumulation=accumulation))
    for way in ways_out(plan, "forward"):
        smaller = way["set"].get("batch.micro")
        if smaller is not None:
            assert way["same_experiment"] and smaller < micro
            assert smaller * way["set"]["batch.accumulation"] == micro * accumulation


# -- 6.04 ------------------------------------------------------------------------------------------------------------
LEAKS = """
KEPT = []

class Own(Tiny):
    def loss(self, model, batch):
        if KEPT or batch["input_ids"].shape[1] > self.plan.options["most"]:
            KEPT.append("a reservation that nothing gives back")
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB.")
        return super().loss(model, batch)
"""


def test_6_04_a_setting_that_fits_passes_after_one_that_did_not(lab: Lab) -> None:
    state = stages(lab, "overfit", "peak", code=LEAKS, lengths=[8, 9, 10], most=4)
    assert codes(row(state, "overfit")) == ["oom"] and codes(row(state, "forward")) == ["oom"]
    state = stages(lab, "peak", code=LEAKS, lengths=[8, 9, 10], most=10)
    assert {row(state, each).verdict for each in PEAK} == {"pass"}, "a process of its own"


# -- 6.06 ------------------------------------------------------------------------------------------------------------
class Scaled:
    """A foreign loop with a loss scaler, watched by the hooks alone; ``bad`` microbatches leave an inf."""

    def __init__(self, interval: int = 2000) -> None:
        import torch

        from tui_pilot.observe.counters import Counters

        torch.manual_seed(0)
        self.model = torch.nn.Linear(3, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.scaler = torch.amp.GradScaler("cpu", growth_interval=interval)
        self.counters = Counters.watch(self.optimizer, self.scheduler, self.scaler)
        self.windows = self.in_row = 0

    def backward(self, bad: bool = False) -> None:
        import torch

        rows = torch.full((2, 3), float("inf") if bad else 1.0)
        self.scaler.scale(self.model(rows).pow(2).sum() if not bad else self.model(rows).sum()).backward()

    def window(self, *bad: bool, tick: str = "stepped", update_each: bool = False, clip: str = "") -> None:
        import torch

        before = self.counters.optimizer_steps
        for number, each in enumerate(bad):
            self.backward(each)
            if update_each and number < len(bad) - 1:
                self.scaler.unscale_(self.optimizer)
                self.scaler.update()
        with self.counters.clipping():
            if clip == "early":
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.scaler.unscale_(self.optimizer)
            if clip == "late":
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        stepped = self.counters.optimizer_steps > before
        if stepped or tick == "always":
            self.scheduler.step()
        self.optimizer.zero_grad()
        self.windows += 1
        self.in_row = 0 if stepped else self.in_row + 1

    def seen(self) -> dict[str, Any]:
        from tui_pilot.observe.counters import scaler_facts

        skipped = self.windows - self.counters.optimizer_steps
        facts = scaler_facts(self.counters, {}, self.windows)
        return {**self.counters.numbers(), "skipped": skipped, "scaler": {**facts, "skips_in_row": self.in_row}}


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_6_06_schedule_that_ticks_for_a_skipped_update() -> None:
    import torch

    loop = Scaled()
    before = loop.model.weight.detach().clone()
    loop.window(True, tick="always")
    assert torch.equal(before, loop.model.weight) and loop.scaler.get_scale() == 32768.0
    assert loop.scheduler.last_epoch == 1 and loop.optimizer.param_groups[0]["lr"] == pytest.approx(0.09)
    judged = found("batch", loop.seen())
    assert list(judged) == ["scheduler_ticks"] and "ticks 1 > updates 0" in judged["scheduler_ticks"].text


def test_6_06_a_skipped_update_without_a_tick_passes() -> None:
    loop = Scaled()
    for bad in (True, False, True, False):
        loop.window(False, bad)
    assert loop.counters.optimizer_steps == 2 and not found("batch", loop.seen())


def test_6_06_five_skips_in_a_row_are_no_training() -> None:
    loop = Scaled()
    for _ in range(4):
        loop.window(True)
    assert not found("batch", loop.seen()), "a scaler that looks for its scale"
    loop.window(True)
    assert "5 updates in a row were skipped" in found("batch", loop.seen())["scaler_never_steps"].text
    assert "scaler_never_steps" in found("steady_step", {"skips_in_row": 5, "losses": [1.0, 0.9]})


OVERFLOWS = """
class Own(Tiny):
    calls = 0

    def loss(self, model, batch):
        total = super().loss(model, batch)
        Own.calls += 1
        bad = %s
        if total.requires_grad and bad:
            model.head.weight.register_hook(lambda gradient: gradient * float("inf"))
        return total
"""


def test_6_06_a_task_whose_gradients_always_overflow(lab: Lab) -> None:
    state = stages(lab, "peak", "train", code=OVERFLOWS % "True", more=HALF, pilot="timed: 6, reference: 1")
    assert reason_of(row(state, "first_step"), "step_skipped")["severity"] == "warn"
    assert "5 updates in a row" in reason_of(row(state, "steady_step"), "scaler_never_steps")["text"]
    assert row(state, "steady_step").verdict == "fail"


def test_6_06_a_task_in_half_precision_that_is_right(lab: Lab) -> None:
    state = stages(lab, "peak", "train", more=HALF)
    assert {row(state, each).verdict for each in (*PEAK, "batch")} == {"pass"}, row(state, "batch").reasons


APPLIES = """
class Through(torch.optim.Optimizer):
    _step_supports_amp_scaling = True  # a promise to look at found_inf, and it does not

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            parameter -= 0.01 * parameter.grad

class Own(Tiny):
    def build_optimizer(self, model):
        return Through(model.parameters(), lr=0.01)
"""


def test_6_06_an_optimizer_that_applies_what_overflowed(lab: Lab) -> None:
    judged = row(stages(lab, "train", code=APPLIES, more=HALF), "batch")
    reason = reason_of(judged, "inf_applied")
    assert "token.weight" in reason["text"] and reason["where"]["rows"] and reason["severity"] == "fail"
    assert reason["where"]["tensors"] == ["token.weight"]
    assert "not_finite" not in codes(judged), "what was tried out is taken back"


@pytest.mark.parametrize(
    ("injected", "code", "words"),
    [
        ({"ticks": 1, "before": 8.0, "after": 4.0}, "scheduler_ticks", "ticks 1 > updates 0"),
        ({"ticks": 0, "before": 8.0, "after": 1.0}, "scaler_updated_in_window", "from 8 to 1; expected 4"),
        ({"ticks": 0, "before": 8.0, "after": 8.0}, "scaler_updated_in_window", "from 8 to 8; expected 4"),
        ({"moved": ["head.weight"], "ticks": 0, "before": 8.0, "after": 4.0}, "inf_applied", "1 tensor moved"),
        ({"ticks": 0, "before": 8.0, "after": 4.0}, "", ""),
    ],
)
def test_6_06_a_window_with_an_inf_in_its_last_microbatch(injected: dict[str, Any], code: str, words: str) -> None:
    judged = found("batch", {"scaler": {"injected": injected}})
    assert list(judged) == ([code] if code else []) and (not code or words in judged[code].text)


def test_6_06_scaler_updated_for_every_microbatch() -> None:
    right, wrong, moved = Scaled(), Scaled(), Scaled(interval=2)
    right.window(False, False, False, False)
    wrong.window(False, False, False, False, update_each=True)
    moved.window(False, False, False, False, update_each=True)
    assert not found("batch", right.seen())
    judged = found("batch", wrong.seen())
    assert list(judged) == ["scaler_updated_in_window"], "before the scale has moved the counts alone show it"
    assert "updated 4 times in 1 window; expected once" in judged["scaler_updated_in_window"].text
    text = found("batch", moved.seen())["scale_changed_in_window"].text
    assert "65,536 to 131,072" in text and "window 1" in text


def test_6_06_clip_before_unscale() -> None:
    early, late = Scaled(), Scaled()
    early.window(False, False, clip="early")
    late.window(False, False, clip="late")
    for phase, seen in (("batch", early.seen()), ("first_step", {"scaler": early.seen()["scaler"]})):
        text = found(phase, seen)["clip_before_unscale"].text
        assert "1 of 1 clip came before unscale_" in text and "65,536" in text
    assert not found("batch", late.seen())


CLAMPED = """
class Own(Tiny):
    def build_model(self):
        model = super().build_model()
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient: gradient.clamp(-1, 1))
        return model
"""


def test_6_06_gradients_clamped_by_a_hook_are_clamped_before_unscale(lab: Lab) -> None:
    judged = row(stages(lab, "train", code=CLAMPED, more=HALF), "batch")
    reason = reason_of(judged, "clip_before_unscale")
    assert "at scale 16 and" in reason["text"] and "at 4,096" in reason["text"] and reason["where"]["rows"]
    assert codes(row(stages(lab, "train", code=CLAMPED), "batch")) == [], "without a scale there is nothing to undo"


# -- 6.07 ------------------------------------------------------------------------------------------------------------
def whole_block(inside: bool) -> dict[str, Any]:
    """The report's loop: one autocast block around three updates, or one around each forward."""
    import contextlib

    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1, bias=False)
    before = model.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    with torch.autocast("cpu", torch.bfloat16) if inside else contextlib.nullcontext():
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(torch.ones(1, 4)).pow(2).sum()
            loss.backward()
            optimizer.step()
            losses.append(round(float(loss.detach()), 4))
    moved = float((model.weight.detach() != before).float().mean())
    return {"losses": losses, "moved_share": moved, "row_ids": ["r0"]}


def test_6_07_one_autocast_block_around_the_loop() -> None:
    seen = whole_block(inside=True)
    assert seen["moved_share"] == 1.0 and len(set(seen["losses"])) == 1
    reason = found("steady_step", seen)["update_not_seen"]
    assert "stayed" in reason.text and "3 times" in reason.text and reason.where["rows"] == ["r0"]
    seen = whole_block(inside=False)
    assert seen["losses"][0] > seen["losses"][1] > seen["losses"][2] and not found("steady_step", seen)


OPEN = """
class Own(Tiny):
    def build_model(self):
        self.block = torch.autocast("cpu", torch.bfloat16)
        self.block.__enter__()
        return super().build_model()
"""
COPIES = """
class Copied(Net):
    def forward(self, ids):
        if not hasattr(self, "kept"):
            self.kept = [parameter.detach().clone() for parameter in self.parameters()]
        token, inner, bias, head, last = (
            old + (parameter - parameter.detach()) for old, parameter in zip(self.kept, self.parameters())
        )
        hidden = functional.linear(functional.embedding(ids, token), inner, bias)
        return functional.linear(torch.tanh(hidden), head, last)

class Own(Tiny):
    def build_model(self):
        return Copied()
"""


@pytest.mark.parametrize(
    ("code", "words"),
    [(OPEN, "once autocast's cache is emptied"), (COPIES, "when the signs of half of the weights are turned in place")],
)
def test_6_07_forwards_that_read_old_weights(lab: Lab, code: str, words: str) -> None:
    reason = reason_of(row(stages(lab, "peak", code=code), "steady_step"), "update_not_seen")
    assert words in reason["text"] and reason["where"]["rows"], reason["text"]


NORMALISED = """
class Cosine(Net):
    def forward(self, ids):
        hidden = functional.normalize(functional.linear(self.token(ids), self.inner.weight), dim=-1)
        return 5 * functional.linear(hidden, functional.normalize(self.head.weight, dim=-1))

class Own(Tiny):
    def build_model(self):
        model = Cosine()
        model.inner.bias.requires_grad_(False)
        model.head.bias.requires_grad_(False)
        return model
"""


def test_6_07_a_model_that_normalises_everything_passes(lab: Lab) -> None:
    judged = row(stages(lab, "peak", code=NORMALISED), "steady_step")
    assert judged.verdict == "pass", judged.reasons


@pytest.mark.parametrize("optimizer", ["lr: 0.01, schedule: constant", "lr: 1.0e-12, schedule: constant"])
def test_6_07_autocast_per_forward_passes_and_so_does_an_update_too_small_to_show(lab: Lab, optimizer: str) -> None:
    judged = row(stages(lab, "peak", more="precision: bf16-amp\n", optimizer=optimizer, drop=0.2), "steady_step")
    assert judged.verdict == "pass", judged.reasons


# -- 6.09 ------------------------------------------------------------------------------------------------------------
SWALLOWS = """
class Own(Tiny):
    def build_model(self):
        model = super().build_model()
        for parameter in model.parameters():
            torch.nn.init.uniform_(parameter, %s)
        return model.to(torch.bfloat16) if self.plan.precision == "bf16" else model
"""
BIG, SMALL = SWALLOWS % "0.1, 1.0", SWALLOWS % "0.0005, 0.004"
SHORT = "gates: {overfit: {steps: 12, lr: 0.01}}\n"


def overfit(lab: Lab, code: str, lr: float, precision: str = "bf16", more: str = "") -> Any:
    optimizer = f"lr: {lr}, schedule: constant{more}"
    return row(
        stages(lab, "overfit", code=code, optimizer=optimizer, more=f"precision: {precision}\n{SHORT}"), "overfit"
    )


def test_6_09_updates_below_the_precision_of_the_weights(lab: Lab) -> None:
    reason = reason_of(overfit(lab, BIG, 1e-5), "update_below_precision")
    assert "1.0e-5 100% of the weights" in reason["text"] and reason["severity"] == "fail"
    assert "token.weight" in reason["where"]["tensors"], "only elements that a gradient pushes count"


@pytest.mark.parametrize(("lr", "precision"), [(1e-2, "bf16"), (1e-5, "fp32")])
def test_6_09_larger_updates_and_fp32_weights_pass(lab: Lab, lr: float, precision: str) -> None:
    assert "update_below_precision" not in codes(overfit(lab, BIG, lr, precision))


def test_6_09_most_weights_and_not_all_of_them_is_a_warning(lab: Lab) -> None:
    reason = reason_of(overfit(lab, SMALL, 5e-6), "update_below_precision")
    assert reason["severity"] == "warn" and "of the weights that a gradient pushes" in reason["text"], reason["text"]


def test_6_09_weight_decay_that_rounds_away(lab: Lab) -> None:
    decay = ", weight_decay: 0.1"
    judged = overfit(lab, BIG, 1e-2, more=decay)
    reason = reason_of(judged, "update_below_precision")
    assert "Weight decay takes 1.0e-03 of a weight per update" in reason["text"] and reason["severity"] == "warn"
    assert "update_below_precision" not in codes(overfit(lab, BIG, 1e-2, "fp32", decay))


def test_6_09_numbers_of_the_report() -> None:
    import torch

    for dtype, lr, share in ((torch.bfloat16, 1e-5, 1.0), (torch.float32, 1e-5, 0.0), (torch.bfloat16, 1e-2, 0.0)):
        torch.manual_seed(0)
        weight = torch.nn.Parameter((0.1 + 0.9 * torch.rand(4096)).to(dtype))
        before = weight.detach().clone()
        optimizer = torch.optim.AdamW([weight], lr=lr, weight_decay=0.0)
        for _ in range(20):
            weight.grad = torch.ones_like(weight)
            optimizer.step()
        assert float((weight.detach() == before).float().mean()) == pytest.approx(share, abs=0.01)


# -- 6.10 ------------------------------------------------------------------------------------------------------------
HEAD_16 = """
class Own(Tiny):
    def build_model(self):
        model = super().build_model()
        %s
        return model
"""


@pytest.mark.parametrize(
    ("change", "precision", "dtype"),
    [("model.head.half()", "fp16-amp", "float16"), ("model.head.bfloat16()", "bf16-amp", "bfloat16")],
)
def test_6_10_trainable_tensors_in_half_precision(lab: Lab, change: str, precision: str, dtype: str) -> None:
    state = stages(lab, "overfit", "peak", code=HEAD_16 % change, more=f"precision: {precision}\n{SHORT}")
    for phase in ("overfit", "load"):
        reason = reason_of(row(state, phase), "trainable_half_precision")
        assert f"2 trainable tensors in {dtype} under {precision}: head.weight, head.bias" in reason["text"]
        assert reason["where"]["tensor"] == "head.weight"
    assert "first_step" not in [each.phase for each in state.rows if each.verdict == "pass"] or precision != "fp16-amp"


ADAPTED = """
class Adapted(Net):
    def __init__(self):
        super().__init__()
        self.half().requires_grad_(False)
        self.lora_A, self.lora_B = torch.nn.Linear(8, 4, bias=False), torch.nn.Linear(4, 32, bias=False)
        torch.nn.init.zeros_(self.lora_B.weight)

    def forward(self, ids):
        hidden = torch.tanh(self.inner(self.token(ids)))
        return self.head(hidden) + self.lora_B(self.lora_A(hidden.float()))

class Own(Tiny):
    def build_model(self):
        return Adapted()
"""


def test_6_10_a_frozen_half_base_with_fp32_adapters_passes(lab: Lab) -> None:
    state = stages(lab, "overfit", "peak", code=ADAPTED, more=HALF + SHORT)
    assert "trainable_half_precision" not in codes(row(state, "overfit"))
    assert {row(state, each).verdict for each in ("load", *PEAK)} == {"pass"}, [each.reasons for each in state.rows]


# -- memory that grows -------------------------------------------------------------------------------------------------
KEEPS = """
class Own(Tiny):
    kept = {}

    def loss(self, model, batch):
        total = super().loss(model, batch)
        big = torch.zeros(200_000) + total
        %s
        return total
"""


@pytest.mark.parametrize(
    ("keep", "grows"),
    [
        ("self.kept[len(self.kept)] = big", True),
        ("self.all = torch.cat([getattr(self, 'all', big[:0].detach()), big.detach()])", True),
        ("self.kept[0] = big.detach()", False),
        ("self.kept.setdefault(0, big.detach())", False),
    ],
)
def test_memory_that_grows_with_every_update(lab: Lab, keep: str, grows: bool) -> None:
    judged = row(stages(lab, "peak", code=KEEPS % keep), "steady_step")
    assert ("memory_grows" in codes(judged)) == grows, judged.reasons
    if grows:
        assert "expected flat" in reason_of(judged, "memory_grows")["text"]
