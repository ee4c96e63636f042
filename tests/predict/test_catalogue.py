"""The list of GPUs, its names, and which of them a prediction fits."""

from __future__ import annotations

from typing import Any

import pytest

from tui_pilot.errors import PilotError
from tui_pilot.predict.catalogue import Gpu, catalogue, class_of, find, fits, given
from tui_pilot.predict.residuals import FLOOR, FLOOR_UNMEASURED, Residuals

GIB = 1 << 30


def phases(**reserved: float) -> list[dict[str, Any]]:
    return [
        {"phase": phase, "allocated_peak": int(count * 0.9 * GIB), "reserved_peak": int(count * GIB)}
        for phase, count in reserved.items()
    ]


def test_every_entry_is_whole_and_plausible() -> None:
    gpus = catalogue()
    assert 15 <= len(gpus) <= 25
    assert len({gpu.name for gpu in gpus}) == len(gpus)
    reported = [name for gpu in gpus for name in gpu.reported]
    assert len(set(reported)) == len(reported)
    for gpu in gpus:
        assert gpu.total_bytes is not None and gpu.capability is not None
        assert 0.93 * gpu.total_bytes < gpu.usable_bytes < gpu.total_bytes
        assert gpu.basis in ("measured", "vendor", "derived")
        assert gpu.source and (gpu.basis != "measured" or "#" in gpu.source)
        assert gpu.bf16 is (gpu.capability >= (8, 0))
        assert gpu.fp8 is (gpu.capability >= (8, 9))
        stated = float(gpu.name.split()[-1].removesuffix("GB")) * 1e9
        assert 0.9 * stated < gpu.total_bytes < 1.1 * stated


def test_no_prices() -> None:
    assert not {"price", "cost", "hour"} & {key for gpu in catalogue() for key in gpu.as_json()}


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("H100 80GB", "H100 80GB"),
        ("h100-80gb", "H100 80GB"),
        ("NVIDIA H100 80GB HBM3", "H100 80GB"),
        ("h100 nvl", "H100 NVL 94GB"),
        ("4090", "RTX 4090 24GB"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090 24GB"),
        ("a100 40", "A100 40GB"),
        ("t4", "T4 16GB"),
        ("A10G", "A10 24GB"),
        ("l4", "L4 24GB"),
    ],
)
def test_names_that_people_type(typed: str, name: str) -> None:
    assert find(typed).name == name


@pytest.mark.parametrize(
    ("typed", "words"), [("a100", "2 GPUs: A100 80GB, A100 40GB"), ("h10O 80GB", "no GPU"), ("", "no GPU")]
)
def test_names_that_are_not_one_gpu(typed: str, words: str) -> None:
    with pytest.raises(PilotError) as caught:
        find(typed)
    assert words in caught.value.text
    assert caught.value.advice
    assert caught.value.exit_code == 2
    if typed == "h10O 80GB":
        assert "H100 80GB" in caught.value.advice


def test_classes_are_the_lists_names_and_unknown_gpus_are_their_own() -> None:
    assert class_of("NVIDIA A100-SXM4-80GB") == "A100 80GB"
    assert class_of("NVIDIA GB300") == "NVIDIA GB300"
    assert class_of(None) is None


def test_fits_with_the_floor_until_a_run_is_there() -> None:
    gpu = given(100 * GIB)
    (good,) = fits(phases(load=20, first_step=89, steady_step=80), [gpu])
    assert (good.fits, good.binding_phase, good.need_bytes) == (True, "first_step", 89 * GIB)
    assert good.margin == pytest.approx(0.11)
    assert (good.asked, good.residual) == (FLOOR_UNMEASURED, None)
    assert "no run on given" in good.basis
    (bad,) = fits(phases(load=20, first_step=91), [gpu])
    assert not bad.fits
    assert bad.margin == pytest.approx(0.09)
    (over,) = fits(phases(first_step=120), [gpu])
    assert over.margin == pytest.approx(-0.2)


def test_the_larger_margin_is_asked() -> None:
    gpu = given(100 * GIB)
    assert not fits(phases(first_step=89), [gpu], margin=0.15)[0].fits
    assert fits(phases(first_step=89), [gpu], margin=0.01)[0].asked == FLOOR_UNMEASURED


def test_of_equal_phases_the_first_binds() -> None:
    (fit,) = fits(phases(forward=10, first_step=50, steady_step=50), [given(100 * GIB)])
    assert fit.binding_phase == "first_step"


def test_residuals_correct_each_phase_and_may_change_which_binds() -> None:
    known = Residuals("given", 2, {"first_step": 1.0, "evaluate": 1.2}, margin=0.2, outside_torch=GIB, basis="2 runs")
    (fit,) = fits(phases(first_step=50, evaluate=45, backward=30), [given(100 * GIB)], {"given": known})
    assert fit.binding_phase == "evaluate"
    assert fit.need_bytes == pytest.approx(55 * GIB, abs=2)
    assert (fit.residual, fit.asked) == (1.2, 0.2)
    assert fit.basis.startswith("2 runs")


def test_a_phase_that_no_run_had_takes_the_largest_residual_and_never_shrinks() -> None:
    known = Residuals("given", 1, {"forward": 0.9}, margin=0.1)
    assert known.corrected("backward", 1000) == 1000
    assert known.corrected("forward", 1000) == 900
    assert Residuals("given", 1, {"forward": 1.1}).corrected("backward", 1000) == 1100


def test_residuals_of_another_gpu_are_not_used() -> None:
    other = Residuals("T4 16GB", 9, {"first_step": 3.0}, margin=FLOOR)
    (fit,) = fits(phases(first_step=50), [given(100 * GIB)], {"T4 16GB": other})
    assert fit.need_bytes == 50 * GIB


def test_what_would_only_just_not_fit_says_that_its_tensors_do() -> None:
    (fit,) = fits(phases(first_step=95), [given(100 * GIB)])
    assert not fit.fits and fit.note is not None and "tensors alone" in fit.note
    assert fits(phases(first_step=50), [given(100 * GIB)])[0].note is None


def test_bf16_without_units_is_said() -> None:
    notes = {fit.name: fit.note for fit in fits(phases(first_step=1), catalogue(), precision="bf16-amp")}
    assert notes["T4 16GB"] is not None and "bf16" in notes["T4 16GB"]
    assert notes["A100 40GB"] is None


def test_nothing_predicted_fits_nowhere_and_claims_nothing() -> None:
    assert fits([{"phase": "load", "reserved_peak": None}], catalogue()) == []


def test_an_eight_billion_model_with_adamw_needs_more_than_one_card() -> None:
    """bf16 weights, gradients and two states of 8.03 billion parameters: 60 GiB, 75 with foreach's temporary."""
    names = {fit.name for fit in fits(phases(load=15, first_step=75.9), catalogue()) if fit.fits}
    assert names == {"B200 180GB", "H200 141GB", "H100 NVL 94GB", "RTX PRO 6000 96GB"}


def test_a_gpu_as_other_programs_read_it() -> None:
    assert find("t4").as_json()["capability"] == "7.5"
    assert given(5).as_json()["capability"] is None
    assert isinstance(find("t4"), Gpu)
