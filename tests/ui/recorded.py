"""Event logs written as a supervisor and its stages write them, for screens that need a run without running one."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tui_pilot.events import schema
from tui_pilot.events.schema import PHASES, STAGE_OF
from tui_pilot.events.writer import Writer
from tui_pilot.plan.document import to_document
from tui_pilot.plan.load import default_demo
from tui_pilot.run_folder import RunFolder, take_lock, write_json

GIB = 1 << 30
MIB = 1 << 20
USABLE = int(79.1 * GIB)
RUN_ORDER = (
    "stack", "examples", "splits", "overfit", "load", "forward", "backward", "first_step", "steady_step", "evaluate",
    "batch", "checkpoint", "export", "resume", "reload",
)  # fmt: skip


@dataclass
class Recording:
    """Writes one run's events with a clock of its own: ``wait`` moves it, nothing sleeps."""

    folder: RunFolder
    ago: float
    gpus: int = 0
    now: float = field(init=False)
    mono: float = field(init=False)
    writers: dict[str, Writer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.now, self.mono = time.time() - self.ago, time.monotonic() - self.ago
        self.folder.events.mkdir(parents=True, exist_ok=True)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.mono += seconds

    def emit(self, source: str, kind: str, **fields: Any) -> None:
        if source not in self.writers:
            self.writers[source] = Writer(self.folder.events, source)
        at = datetime.fromtimestamp(self.now, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.writers[source].emit(kind, at=at, mono=round(self.mono, 4), **fields)

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()

    def began(self, phase: str, **inputs: Any) -> None:
        self.emit(f"{STAGE_OF[phase]}.rank0", schema.PHASE_STARTED, phase=phase, attempt=1, inputs=inputs)

    def ended(
        self,
        phase: str,
        seconds: float,
        memory: list[dict[str, Any]] | None = None,
        *,
        verdict: str = "pass",
        reasons: list[dict[str, Any]] | None = None,
        parts: dict[str, Any] | None = None,
        thresholds: dict[str, Any] | None = None,
        **inputs: Any,
    ) -> None:
        self.wait(seconds)
        self.emit(
            f"{STAGE_OF[phase]}.rank0", schema.PHASE_ENDED, phase=phase, attempt=1, verdict=verdict,
            reasons=reasons or [], inputs=inputs, thresholds=thresholds or {}, duration_s=seconds, parts=parts or {},
            memory=memory or [],
        )  # fmt: skip
        if self.gpus and memory:
            rows = [
                {
                    "uuid": one["uuid"],
                    "index": n,
                    "used_peak": one["device_used_peak"],
                    "usable": USABLE,
                    "readings": 212,
                }
                for n, one in enumerate(memory)
            ]
            self.emit("supervisor", schema.DEVICE_PEAKS, phase=phase, attempt=1, gpus=rows)
        self.wait(0.02)

    def stage(self, name: str) -> None:
        self.emit("supervisor", schema.STAGE_STARTED, stage=name, attempt=1, pid=4242, pid_start=1)

    def stage_over(self, name: str, code: int = 0, text: str = "") -> None:
        self.emit("supervisor", schema.STAGE_ENDED, stage=name, attempt=1, exit_code=code, signal=None, text=text)


def folder(runs: Path, name: str, demo: bool, parent: str | None = None) -> RunFolder:
    """A run folder with ``run.json`` and ``plan.json``."""
    made = RunFolder(runs / f"20261201-193200-{name}")
    for each in (made.events, made.samples, made.logs):
        each.mkdir(parents=True)
    write_json(made.plan_file, to_document(default_demo()))
    facts = {"schema": 1, "tool": "0", "run": made.id, "kind": "pilot", "demo": demo, "name": name[:-5]}
    write_json(made.run_file, {**facts, "parent": parent, "changed": {}, "created": "2026-12-01T19:32:00Z", "argv": []})
    return made


def cpu(allocated: float, host: float) -> list[dict[str, Any]]:
    """Memory of one CPU rank, MiB."""
    known = {
        "allocated_peak": {"kind": "sampled", "hz": 1000, "readings": 812, "bound": "lower"},
        "host_peak": {"kind": "exact"},
        "reserved_peak": {"kind": "unchecked", "why": "no accelerator"},
    }
    return [
        {
            "rank": 0, "device": "cpu", "uuid": None, "allocated_peak": int(allocated * MIB), "reserved_peak": None,
            "device_used_peak": None, "host_peak": int(host * MIB), "known": known,
        }
    ]  # fmt: skip


def cuda(ranks: int, allocated: float, reserved: float, used: float) -> list[dict[str, Any]]:
    """Memory of several CUDA ranks, GiB; the fourth a little lower."""
    known = {
        "allocated_peak": {"kind": "exact"},
        "reserved_peak": {"kind": "exact"},
        "device_used_peak": {"kind": "sampled", "hz": 20, "readings": 212, "bound": "lower"},
    }
    return [
        {
            "rank": n, "device": f"cuda:{n}", "uuid": f"GPU-{n}", "allocated_peak": int((allocated - n * 0.01) * GIB),
            "reserved_peak": int(reserved * GIB), "device_used_peak": int((used - n % 2 * 0.1) * GIB),
            "outside_torch": int((used - reserved) * GIB), "device_usable": USABLE, "host_peak": int(11.2 * GIB),
            "known": known,
        }
        for n in range(ranks)
    ]  # fmt: skip


def finished_demo(runs: Path, name: str = "demo-3f9a") -> RunFolder:
    """The demo on a CPU: fifteen verdicts, one warning."""
    made = folder(runs, name, demo=True)
    rec = Recording(made, ago=600)
    rec.emit(
        "supervisor", schema.RUN_STARTED, run=made.id, run_kind="pilot", name="demo", demo=True, pid=1, pid_start=1
    )
    warn = {
        "code": "response_truncated", "severity": "warn", "where": {"rows": ["0417", "2290", "77"], "rows_count": 3},
        "text": "3 of 320 rows lose part of the response to max_length 128, 41 response tokens in all",
        "advice": "max_length 151 keeps them whole",
    }  # fmt: skip
    plan: dict[str, dict[str, Any]] = {
        "stack": {"seconds": 2.1, "torch": "2.13.0+cpu", "python": "3.11.7", "device": "cpu"},
        "examples": {"seconds": 0.9, "verdict": "warn", "reasons": [warn], "rows": 320, "supervised_rows": 320},
        "splits": {"seconds": 0.12, "unit": "conversation_id", "units": 160, "shared": 0},
        "overfit": {"seconds": 3.4, "memory": cpu(38.2, 402.0), "rows": 4, "steps": 61, "recovered": "100%"},
        "load": {"seconds": 0.31, "memory": cpu(8.4, 401.0), "parameters": 2_098_176, "dtype": "float32"},
        "forward": {"seconds": 0.08, "memory": cpu(41.5, 440.2), "row_ids": ["0417", "0012"], "shape": [4, 128]},
        "backward": {"seconds": 0.11, "memory": cpu(58.9, 461.7), "tensors": 51},
        "first_step": {"seconds": 0.35, "memory": cpu(64.1, 470.4), "optimizer_state_bytes": 16_785_408},
        "steady_step": {
            "seconds": 0.92, "memory": cpu(72.8, 481.9), "updates": 3,
            "parts": {
                "forward": {"duration_s": 0.11, "allocated_peak": int(60.2 * MIB)},
                "backward": {"duration_s": 0.14, "allocated_peak": int(72.8 * MIB)},
                "step": {"duration_s": 0.03, "allocated_peak": int(41.0 * MIB)},
            },
        },
        "evaluate": {"seconds": 0.4, "memory": cpu(44.0, 478.1), "rows": 64, "metric": "loss"},
        "batch": {"seconds": 3.2, "memory": cpu(70.2, 480.0), "effective_batch": 16, "updates": 10},
        "checkpoint": {"seconds": 0.5, "memory": cpu(42.1, 480.0), "bytes": 25_214_113},
        "export": {"seconds": 0.2, "memory": cpu(17.0, 480.0), "kind": "full"},
        "resume": {"seconds": 2.8, "memory": cpu(70.2, 455.0), "updates": 3, "equal": "bit for bit"},
        "reload": {"seconds": 1.4, "memory": cpu(16.9, 390.0), "control_inputs": 8, "equal": 8},
    }  # fmt: skip
    stage = ""
    for phase in RUN_ORDER:
        if STAGE_OF[phase] != stage:
            if stage:
                rec.stage_over(stage)
            stage = STAGE_OF[phase]
            rec.wait(0.4)
            rec.stage(stage)
        facts = dict(plan[phase])
        seconds = facts.pop("seconds")
        rec.began(phase)
        if phase == "batch":
            for update in range(1, 11):
                rec.wait(0.2)
                rec.emit(
                    "train.rank0", schema.UPDATE, stage="train", phase="batch", update=update,
                    loss=round(4.1 * 0.87**update + 0.4, 4), lr=round(1e-4 * min(1, update / 4), 8), rows=16,
                    seconds=0.21,
                )  # fmt: skip
        rec.ended(phase, seconds, **facts)
    rec.stage_over(stage)
    rec.emit("supervisor", schema.RUN_ENDED, state="finished", text="")
    rec.close()
    return made


def _gpu_files(made: RunFolder, used: float) -> None:
    lines: list[dict[str, Any]] = []
    for n in range(8):
        key, total, now = f"GPU-{n}", int(79.6 * GIB), int((used - n % 2 * 0.1) * GIB)
        what = {"index": n, "name": "NVIDIA H100 80GB HBM3", "total": total, "usable": USABLE, "error": None}
        sensors = {"util": 97 - n % 2, "power_w": 640.0, "temperature": 58 + n}
        lines.append({"kind": "gpu", "gpu": key, **what})
        lines.append({"kind": "sample", "gpu": key, "mono": 1.0, "time": 1.0, "used": now, **sensors})
    (made.samples / "devices.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _eight_gpus(runs: Path, name: str, ago: float) -> tuple[RunFolder, Recording]:
    made = folder(runs, name, demo=False)
    _gpu_files(made, 34.7)
    rec = Recording(made, ago=ago, gpus=8)
    rec.emit(
        "supervisor", schema.RUN_STARTED, run=made.id, run_kind="pilot", name=name[:-5], demo=False, pid=1, pid_start=1
    )
    rec.stage("data")
    cut = {
        "code": "response_truncated", "severity": "warn", "where": {"rows": ["1733", "208", "2951"], "rows_count": 37},
        "text": "37 of 3,200 rows lose part of the response", "advice": "max_length 2,311 keeps them",
    }  # fmt: skip
    rec.began("stack")
    rec.ended("stack", 4.1, torch="2.13.0+cu130", driver="580.95", device="8 x H100 80GB")
    rec.began("examples")
    rec.ended("examples", 12.8, verdict="warn", reasons=[cut], rows=3600)
    rec.emit("operator-4121-1", schema.MARK, phase="examples", verdict="pass", note="long threads are rare in use")
    rec.began("splits")
    rec.ended("splits", 0.62, unit="conversation_id", units=1800)
    rec.stage_over("data")
    rec.stage("overfit")
    return made, rec


def out_of_memory(runs: Path, name: str = "llama8b-full-3f9a") -> RunFolder:
    """Full tuning that runs out of memory in the first optimizer step on eight GPUs."""
    made, rec = _eight_gpus(runs, name, ago=300)
    for phase, seconds, memory in (
        ("overfit", 58.2, cuda(1, 74.9, 75.6, 76.2)),
        ("load", 11.9, cuda(8, 29.9, 30.0, 31.6)),
        ("forward", 0.62, cuda(8, 33.0, 33.4, 35.0)),
        ("backward", 1.41, cuda(8, 44.9, 45.6, 47.2)),
    ):
        rec.began(phase)
        rec.ended(phase, seconds, memory, shape=[1, 2048], dtype="bf16", row_ids=["0417", "2290"])
    oom = {
        "code": "oom", "severity": "fail",
        "text": "out of memory in optimizer.step: gpu 3 asked 112.0 MiB, 74.0 MiB were free. 8 GPUs alike, gpu 3 first",
        "where": {"rows": ["0417", "2290"], "rank": 3},
        "advice": "a fused adamw needs ~77.2 GiB, same experiment; lora r16 ~34.8 GiB, another experiment",
    }  # fmt: skip
    rec.began("first_step")
    rec.ended(
        "first_step", 2.3, cuda(8, 76.8, 77.4, 79.0), verdict="fail", reasons=[oom], shape=[1, 2048], dtype="bf16"
    )
    rec.stage_over("peak", 1, "8 ranks gone; allocator snapshot kept in logs/ (2.1 MiB)")
    rec.emit("supervisor", schema.RUN_ENDED, state="failed", text="7 phases not run; every row above is on disk")
    rec.close()
    return made


def running(runs: Path, name: str = "llama8b-lora-77c1", live: bool = True) -> RunFolder:
    """LoRA on eight GPUs in the steady step; ``live``: this process holds its lock. Not live: it is a lost run."""
    made, rec = _eight_gpus(runs, name, ago=107)
    for phase, seconds, memory in (
        ("overfit", 41.7, cuda(1, 31.9, 33.4, 34.0)),
        ("load", 9.4, cuda(8, 15.1, 15.3, 16.9)),
        ("forward", 0.41, cuda(8, 30.2, 31.0, 32.6)),
        ("backward", 0.83, cuda(8, 31.4, 33.0, 34.6)),
        ("first_step", 1.9, cuda(8, 31.5, 33.0, 34.6)),
    ):
        rec.began(phase)
        rec.ended(phase, seconds, memory, shape=[2, 2048], dtype="bf16")
    rec.now, rec.mono = time.time() - 3.9, time.monotonic() - 3.9
    rec.began("steady_step", rows=["0417", "2290"], shape=[16, 2048], dtype="bf16")
    rec.wait(3.5)
    rec.emit("peak.rank0", schema.PROGRESS, phase="steady_step", attempt=1, done=3, total=5, unit="update", text=None)
    rec.close()
    if live:
        take_lock(made.lock_file)
    return made


__all__ = ["PHASES", "finished_demo", "out_of_memory", "running"]
