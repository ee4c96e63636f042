"""The whole chain on a CUDA GPU: exact allocator counters, NVML by UUID, resume within a measured tolerance."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lab import pilot_tui

from tui_pilot.events.schema import PHASES_OF

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

PLAN = """
name: demo-cuda
task: demo
data: {unit: conversation_id, max_length: 512}
batch: {micro: 4, accumulation: 2}
optimizer: {lr: 1.0e-3, warmup: 2}
device: cuda
evaluate: {rows: 16}
"""


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU that this torch can use")
@pytest.mark.parametrize("precision", ["fp32", "bf16-amp", "fp16-amp"])
def test_the_demo_on_a_gpu(tmp_path: Path, precision: str) -> None:
    (tmp_path / "pilot.yaml").write_text(PLAN + f"precision: {precision}\n")
    done = pilot_tui(["run", "pilot.yaml", "--headless", "--json"], tmp_path)
    document = json.loads(done.stdout)
    failed = [(row["phase"], row["reasons"]) for row in document["phases"] if row["verdict"] == "fail"]
    assert not failed, failed
    on_gpu = [row for row in document["phases"] if row["phase"] not in PHASES_OF["data"]]
    for row in on_gpu:
        memory = row["memory"][0]
        assert memory["device"].startswith("cuda") and memory["uuid"].startswith("GPU-")
        assert memory["known"]["allocated_peak"]["kind"] == "exact"
        assert 0 < memory["allocated_peak"] <= memory["reserved_peak"]
        if memory["device_used_peak"] is not None:
            assert memory["reserved_peak"] <= memory["device_used_peak"] <= memory["device_total"]
            assert memory["known"]["device_used_peak"]["bound"] == "lower"
    assert document["binding_phase"] != "overfit"
