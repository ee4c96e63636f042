"""The pure gates: what was seen, the verdict, and look-alikes that must pass."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tui_pilot.events.schema import PHASES
from tui_pilot.gates.codes import CODES
from tui_pilot.gates.judge import JUDGES, judge
from tui_pilot.gates.stack import covers
from tui_pilot.gates.verdict import Reason, settle, worst
from tui_pilot.plan.model import Batch, Evaluate, Gates, Optimizer, Plan

PLAN = Plan(batch=Batch(micro=2, accumulation=4), optimizer=Optimizer(lr=1e-3))


def found(phase: str, seen: dict[str, Any], plan: Plan = PLAN) -> dict[str, Reason]:
    return {reason.code: reason for reason in judge(phase, seen, plan).reasons}


def word(phase: str, seen: dict[str, Any], plan: Plan = PLAN) -> str:
    return judge(phase, seen, plan).word


def test_every_phase_has_a_judge_and_nothing_seen_is_unchecked() -> None:
    assert set(JUDGES) == set(PHASES)
    assert {word(phase, {}) for phase in PHASES} == {"unchecked"}


def test_every_code_has_advice_and_a_phase() -> None:
    for code, entry in CODES.items():
        assert entry.advice.endswith((".", "conversation_id", "seed: 0}.")), code
        assert entry.severity in ("fail", "warn", "unchecked", "note"), code
        assert all(phase in (*PHASES, "any") for phase in entry.phases), code


def test_folding() -> None:
    assert worst(["pass", "warn", "unchecked", "fail"]) == "fail"
    assert worst(["pass", "warn", "unchecked"]) == "unchecked"
    assert worst(["not_run", None, "pass"]) == "pass"
    assert worst([]) is None
    assert settle([Reason("file_note", "x", "note")]).word == "pass"


def test_severity_of_the_plan_has_the_last_word() -> None:
    plan = dataclasses.replace(PLAN, gates=Gates(severity={"not_recovered": "warn"}))
    seen = {"steps": 50, "recovered": 0.8, "items": 10, "first_loss": 3.0, "last_loss": 0.5, "lr": 1e-3}
    assert word("overfit", seen) == "fail"
    assert word("overfit", seen, plan) == "warn"


@pytest.mark.parametrize(
    ("capability", "arches", "answer"),
    [
        ([12, 0], ["sm_80", "sm_90"], "no"),
        ([12, 0], ["sm_80", "compute_90"], "jit"),
        ([8, 6], ["sm_80"], "yes"),
        ([8, 0], ["sm_86"], "no"),
        ([9, 0], ["sm_90a"], "yes"),
        (None, ["sm_90"], "unknown"),
    ],
)
def test_kernels_for_a_capability(capability: Any, arches: list[str], answer: str) -> None:
    assert covers(capability, arches) == answer


def test_planned_gpu_that_torch_cannot_use() -> None:
    assert "device_not_used" in found("stack", {"device": {"wanted": "cuda", "usable": False, "why": "2.13.0+cpu"}})
    assert word("stack", {"device": {"wanted": "cpu", "usable": False, "present": True}}) == "pass"
    assert word("stack", {"device": {"wanted": "auto", "usable": False, "present": False}}) == "pass"


def test_disk_need_against_free() -> None:
    disk = {"free": 10**9, "need": 2_200_000_000, "path": "runs", "parts": {"export": 2_200_000_000}}
    assert "disk_too_small" in found("stack", {"disk": disk})
    assert word("stack", {"disk": {**disk, "need": 10**9}}) == "pass"


def test_a_changed_version_is_named_with_both() -> None:
    reason = found("stack", {"changed": {"trl": ("0.19.0", "0.19.1")}})["version_changed"]
    assert "0.19.0" in reason.text and "0.19.1" in reason.text and reason.severity == "warn"


def test_truncation_is_a_warn_until_the_share_passes() -> None:
    fault = {"count": 1, "rows": ["r7"], "first": {"lost": 2, "of": 3}, "sum": {"lost": 2}}
    few, many = (
        {"rows": 200, "faults": {"response_truncated": fault}},
        {"rows": 50, "faults": {"response_truncated": fault}},
    )
    assert (word("examples", few), word("examples", many)) == ("warn", "fail")


def test_no_unit_is_unchecked_and_never_pass() -> None:
    assert word("splits", {"rows": {"train": 8, "validation": 2}, "unit": None}) == "unchecked"
    assert word("splits", {"rows": {"train": 8, "validation": 2}, "unit": "conversation_id"}) == "pass"


RECOVERED = {"steps": 20, "recovered": 1.0, "items": 12, "first_loss": 3.0, "last_loss": 0.01, "lr": 1e-3, "tensors": 4}


def test_overfit() -> None:
    assert word("overfit", RECOVERED) == "pass"
    shifted = {**RECOVERED, "recovered": 0.02, "shifted": 0.97}
    assert list(found("overfit", shifted)) == ["recovers_shifted_ids"]
    gap = {**RECOVERED, "recovered": 0.6, "recovered_train_mode": 1.0}
    assert list(found("overfit", gap)) == ["train_eval_gap"]
    assert "evaluated_other_rows" in found("overfit", {**RECOVERED, "trained_rows": [0, 1], "evaluated_rows": [10, 11]})
    assert word("overfit", {**RECOVERED, "trained_rows": [0, 1], "evaluated_rows": [1, 0]}) == "pass"
    assert found("overfit", {**RECOVERED, "no_gradient": ["b1"]})["no_gradient"].where["tensor"] == "b1"
    assert word("overfit", {**RECOVERED, "recovered": None}) == "unchecked"


def test_adapter_plan_with_other_tensors_trainable() -> None:
    facts = {"plan": "adapter", "names_count": 3, "adapter_count": 2, "first": "a", "others": ["norm.weight"]}
    assert "norm.weight" in found("load", {"trainable": facts})["trainable_set_differs"].text
    assert "no adapter" in found("load", {"trainable": {**facts, "adapter_count": 0}})["trainable_set_differs"].text


def test_fp32_adapters_on_a_bf16_base_are_right() -> None:
    plan = dataclasses.replace(PLAN, precision="bf16")
    assert word("load", {"trainable_dtypes": {"float32": ["lora_A"]}, "adapter": True}, plan) == "pass"
    amp = dataclasses.replace(PLAN, precision="fp16-amp")
    assert "trainable_half_precision" in found("load", {"trainable_dtypes": {"float16": ["lm_head"]}}, amp)


def test_memory_that_grows_and_memory_that_wobbles() -> None:
    grows = {"allocated_after": [10 << 20, 11 << 20, 12 << 20], "losses": [2.0, 1.9, 1.8]}
    flat = {"allocated_after": [10 << 20, 11 << 20, 10 << 20], "losses": [2.0, 1.9, 1.8]}
    assert (word("steady_step", grows), word("steady_step", flat)) == ("fail", "pass")


def test_a_forward_that_does_not_see_updates() -> None:
    stale = {"losses": [0.2659, 0.2659, 0.2659], "moved_share": 1.0}
    assert list(found("steady_step", stale)) == ["update_not_seen"]
    # Warm-up: learning rate 0, nothing moves, the loss stays.
    assert word("steady_step", {**stale, "moved_share": 0.0}) == "pass"


GRADIENT = {"error": 1e-7, "ratio": 1.0, "direction": 1.0, "microbatches": 4, "rows": [1, 2], "rows_per_micro": 2}


def test_two_ways_to_one_gradient() -> None:
    assert word("batch", {"gradient": GRADIENT}) == "pass"
    for ratio in (4.0, 0.25):
        seen = {"gradient": {**GRADIENT, "error": abs(ratio - 1), "ratio": ratio}}
        assert list(found("batch", seen)) == ["gradient_scaled"], ratio
    weighted = {"gradient": {**GRADIENT, "error": 0.93, "ratio": 1.1, "direction": 0.6}}
    assert list(found("batch", weighted)) == ["loss_not_token_weighted"]


def test_a_mean_is_found_at_micro_one_too() -> None:
    seen = {"gradient": {**GRADIENT, "together": {"whole": 2.0, "apart": 4.0, "error": 0.5}}}
    assert list(found("batch", seen)) == ["loss_not_token_weighted"]


def test_ticks_updates_and_rows() -> None:
    assert "scheduler_ticks" in found("batch", {"optimizer_steps": 0, "scheduler_ticks": 1, "updates": 1})
    assert word("batch", {"optimizer_steps": 3, "scheduler_ticks": 3, "updates": 3}) == "pass"
    differs = found("batch", {"planned_rows_per_update": [8, 8], "rows_per_update": [8, 4]})["effective_batch_differs"]
    assert differs.where["update"] == 2
    assert "no_update" in found("batch", {"no_update": "18 rows, batch 32"})


def test_learning_rate_after_warm_up() -> None:
    curve = [{"update": 130, "name": "after warm-up", "seen": 1e-7, "planned": 1e-5}]
    assert found("batch", {"curve": curve})["lr_curve_differs"].where["update"] == 130


def test_evaluation_metric() -> None:
    plan = dataclasses.replace(PLAN, evaluate=Evaluate(metric="accuracy"))
    assert "metric_missing" in found("evaluate", {"rows": 4, "metrics": {"loss": 1.0}}, plan)
    assert "metric_missing" in found("evaluate", {"rows": 4, "metrics": {"accuracy": float("nan")}}, plan)
    assert word("evaluate", {"rows": 4, "metrics": {"accuracy": 0.5}}, plan) == "pass"


def test_logits_kept_grows_with_every_batch() -> None:
    base = {"rows": 9, "metrics": {"loss": 1.0}}
    kept = {**base, "allocated_after": [100 << 20, 140 << 20, 180 << 20], "allocated_before": 100 << 20}
    assert "logits_kept" in found("evaluate", kept)
    assert word("evaluate", {**base, "allocated_after": [100 << 20] * 3}) == "pass"


def test_checkpoint() -> None:
    whole = {"states_expected": ["model"], "states": ["model"], "hashes": {"a": "1"}, "second_hashes": {"a": "1"}}
    assert word("checkpoint", whole) == "pass"
    assert "hashes_differ" in found("checkpoint", {**whole, "second_hashes": {"a": "2"}})
    assert "state_missing" in found("checkpoint", {**whole, "states": []})
    residue = {**whole, "allocated_before": 10 << 20, "allocated_later": 20 << 20}
    assert "residue" in found("checkpoint", residue)


def test_export() -> None:
    good = {"files": {"adapter.safetensors": 900}, "elements": 100, "trained": 2, "missing": []}
    assert word("export", good) == "pass"
    assert "empty_artifact" in found(
        "export", {**good, "files": {"README.md": 10}, "elements": 0, "trained_elements": 8}
    )
    assert "empty_artifact" in found("export", {**good, "files": {"model.safetensors": 0}})
    assert found("export", {**good, "missing": ["norm.weight"]})["trained_not_saved"].where["tensors"] == [
        "norm.weight"
    ]
    assert "unsafe_artifact" in found("export", {**good, "unsafe": ["weights.bin"]})


TRACE = [{"update": 5, "rows": [9, 8, 1, 5], "lr": 0.5, "loss": 1.25, "weights": "a"}]


def resumed(**changes: Any) -> dict[str, Any]:
    return {"twin": TRACE, "here": [{**TRACE[0], **changes}], "rows_before": [2, 4], "states": {}}


def test_resume() -> None:
    assert word("resume", resumed()) == "pass"
    assert list(found("resume", resumed(lr=1.0))) == ["scheduler_restarted"]
    assert list(found("resume", resumed(rows=[0, 2, 10, 11]))) == ["rows_repeated"]
    assert list(found("resume", resumed(rows=[0, 3, 10, 11]))) == ["rows_skipped"]
    assert list(found("resume", resumed(rows=[8, 9, 1, 5]))) == ["order_differs"]
    assert list(found("resume", resumed(loss=1.26))) == ["loss_diverges"]
    assert word("resume", {**resumed(loss=1.25 + 1e-7), "tolerance": 1e-6}) == "pass"


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("weights", "weights_not_restored"),
        ("optimizer", "optimizer_not_restored"),
        ("scheduler", "scheduler_restarted"),
        ("scaler", "scaler_not_restored"),
        ("torch_rng", "rng_not_restored"),
        ("python_rng", "rng_not_restored"),
    ],
)
def test_each_state_is_named_apart(state: str, code: str) -> None:
    reason = found("resume", {**resumed(), "states": {state: {"equal": False}}})[code]
    assert reason.text.startswith("The " + state.split("_", maxsplit=1)[0])


def test_resume_with_nothing_left_and_a_cut_off_checkpoint() -> None:
    assert "nothing_left" in found("resume", {**resumed(), "left": 0, "step": 100, "total": 100})
    broken = {
        **resumed(),
        "incomplete": [{"name": "step-000020", "why": "model.pt is missing"}],
        "checkpoint": "step-000010",
    }
    assert found("resume", broken)["newest_incomplete"].severity == "warn"
    assert "trainable_lost" in found("resume", {**resumed(), "trainable_before": 512, "trainable_after": 0})


def test_reload() -> None:
    same = {
        "loss_before": 1.5,
        "loss_after": 1.5,
        "loss_base": 2.0,
        "answers": 4,
        "answers_changed": 0,
        "dtype": "float32",
    }
    assert word("reload", same) == "pass"
    assert list(found("reload", {**same, "loss_after": 1.7})) == ["outputs_differ"]
    assert list(found("reload", {**same, "loss_after": 2.0, "adapter": True})) == ["adapter_has_no_effect"]
    assert word("reload", {**same, "loss_after": 1.51, "dtype": "bfloat16"}) == "pass"
    differ = {"row": 0, "position": 3, "stored": 5, "seen": 6}
    assert "prompt_ids_differ" in found("reload", {**same, "prompt_ids_differ": differ})


def test_updates_rounded_away_in_some_tensors_are_a_warn() -> None:
    seen = {**RECOVERED, "rounded_away": ["norm.weight"]}
    assert (word("overfit", seen), list(found("overfit", seen))) == ("warn", ["update_below_precision"])
    assert word("overfit", {**seen, "below_precision": ["norm.weight"], "below_steps": 5}) == "fail"
