"""What earlier runs teach: measured / predicted by phase, kept apart by class of GPU."""

from __future__ import annotations

from typing import Any

import pytest

from tui_pilot.predict.catalogue import class_of
from tui_pilot.predict.residuals import CPU, FLOOR, FLOOR_UNMEASURED, compare, learn, unmeasured

H100 = "NVIDIA H100 80GB HBM3"


def run(measured: dict[str, Any], predicted: dict[str, int], gpu: str | None = H100, **more: Any) -> dict[str, Any]:
    """A run's document: one rank's peaks by phase, a list for several ranks."""
    key = "reserved_peak" if gpu else "allocated_peak"
    rows: list[dict[str, Any]] = [{"phase": "stack", "verdict": "pass", "inputs": {"gpu": gpu}, "memory": []}]
    for phase, peaks in measured.items():
        ranks = [
            {"rank": rank, "device": f"cuda:{rank}" if gpu else "cpu", key: peak, "outside_torch": 7 if gpu else None}
            for rank, peak in enumerate(peaks if isinstance(peaks, list) else [peaks])
        ]
        rows.append({"phase": phase, "verdict": "pass", "memory": ranks, "inputs": {}})
    prediction = {"phases": [{"phase": phase, key: peak} for phase, peak in predicted.items()]}
    return {"phases": rows, "facts": {}, "prediction": prediction, **more}


def test_no_run_no_knowledge() -> None:
    known = learn([], "H100 80GB", class_of)
    assert known == unmeasured("H100 80GB")
    assert (known.margin, known.runs, known.outside_torch) == (FLOOR_UNMEASURED, 0, None)
    assert "10%" in known.basis and "H100 80GB" in known.basis


def test_the_largest_ratio_of_each_phase_and_the_largest_residual_as_the_margin() -> None:
    runs = [
        run({"forward": 105, "first_step": 198}, {"forward": 100, "first_step": 200}),
        run({"forward": 102, "first_step": 220}, {"forward": 100, "first_step": 200}),
    ]
    known = learn(runs, "H100 80GB", class_of)
    assert known.by_phase == {"forward": pytest.approx(1.05), "first_step": pytest.approx(1.1)}
    assert known.runs == 2
    assert known.margin == pytest.approx(0.1)
    assert known.outside_torch == 7
    assert "2 runs" in known.basis and "+10.0%" in known.basis and "first_step" in known.basis


def test_a_prediction_that_held_leaves_the_floor() -> None:
    known = learn([run({"forward": 1001}, {"forward": 1000})], "H100 80GB", class_of)
    assert known.margin == FLOOR
    assert "floor of 3%" in known.basis and "1 run" in known.basis


def test_too_much_predicted_counts_as_a_residual_too() -> None:
    known = learn([run({"forward": 80}, {"forward": 100})], "H100 80GB", class_of)
    assert known.margin == pytest.approx(0.2)
    assert known.corrected("forward", 1000) == 800


def test_a_prediction_for_another_device_is_not_compared() -> None:
    """A CPU's run with the prediction that was made of a GPU, and the other way round."""
    on_cpu = run({"forward": 200}, {"forward": 100}, gpu=None)
    on_cpu["prediction"]["assumptions"] = {"target": "cuda 8.0"}
    on_gpu = run({"forward": 200}, {"forward": 100})
    on_gpu["prediction"]["assumptions"] = {"target": "cpu"}
    assert learn([on_cpu], CPU, class_of).runs == 0
    assert learn([on_gpu], "H100 80GB", class_of).runs == 0
    on_gpu["prediction"]["assumptions"] = {"target": "cuda 9.0"}
    assert learn([on_gpu], "H100 80GB", class_of).runs == 1


def test_the_highest_rank_counts() -> None:
    assert compare(run({"forward": [100, 130, 90]}, {"forward": 100})) == {"forward": pytest.approx(1.3)}


def test_a_cpu_run_says_nothing_about_a_gpu_nor_a_gpu_about_a_cpu() -> None:
    on_cpu = run({"forward": 200}, {"forward": 100}, gpu=None)
    on_gpu = run({"forward": 150}, {"forward": 100})
    assert learn([on_cpu], "H100 80GB", class_of) == unmeasured("H100 80GB")
    assert learn([on_gpu], CPU, class_of) == unmeasured(CPU)
    cpu = learn([on_cpu, on_gpu], CPU, class_of)
    assert (cpu.by_phase, cpu.runs, cpu.outside_torch) == ({"forward": 2.0}, 1, None)


def test_another_class_is_not_asked() -> None:
    assert learn([run({"forward": 150}, {"forward": 100}, gpu="Tesla T4")], "H100 80GB", class_of).runs == 0
    assert learn([run({"forward": 150}, {"forward": 100}, gpu="Tesla T4")], "T4 16GB", class_of).runs == 1


def test_the_same_class_under_two_names() -> None:
    runs = [run({"forward": 110}, {"forward": 100}, gpu=name) for name in (H100, "NVIDIA H100 PCIe")]
    assert learn(runs, "H100 80GB", class_of).runs == 2


def test_a_gpu_that_is_not_in_the_list_is_a_class_of_its_own() -> None:
    assert learn([run({"forward": 110}, {"forward": 100}, gpu="NVIDIA GB300")], "NVIDIA GB300", class_of).runs == 1


def test_phases_that_failed_or_were_not_predicted_teach_nothing() -> None:
    document = run({"forward": 300, "backward": 110, "overfit": 900}, {"forward": 100, "backward": 100, "overfit": 10})
    document["phases"][1]["verdict"] = "fail"
    assert compare(document) == {"backward": pytest.approx(1.1)}
    assert compare(run({"forward": 100}, {"load": 100})) == {}


def test_runs_without_a_prediction_or_with_mixed_devices_are_left_out() -> None:
    bare = run({"forward": 300}, {"forward": 100})
    del bare["prediction"]
    mixed = run({"forward": 300}, {"forward": 100})
    mixed["phases"][1]["memory"].append({"rank": 1, "device": "cpu", "allocated_peak": 5})
    assert learn([bare, mixed, {}], "H100 80GB", class_of).runs == 0


def test_on_a_cpu_mapped_weights_are_added() -> None:
    document = run({"load": 100}, {"load": 150}, gpu=None)
    document["phases"][1]["memory"][0]["mapped"] = 50
    assert compare(document) == {"load": 1.0}


def test_as_other_programs_read_it() -> None:
    known = learn([run({"forward": 105}, {"forward": 100})], "H100 80GB", class_of).as_json()
    assert known["by_phase"] == {"forward": 1.05}
    assert known["margin"] == 0.05
