"""Stands in for the pilot side: emits what a stage emits, and does to itself what ``plan.options.fake`` says.

``{"fake": {"first_step": "fail", "batch": "hang"}}``: fail, oom, warn, unchecked, exit, kill, hang, silent, no_payload,
fill (the disk).
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path

from tui_pilot.devices.host import process_start
from tui_pilot.events import schema
from tui_pilot.events.writer import Writer

run, stage, attempt = Path(sys.argv[1]), sys.argv[2], int(sys.argv[sys.argv.index("--attempt") + 1])
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
plan = json.loads((run / "plan.json").read_text())["plan"]
fake = plan["options"].get("fake", {})
source = f"{stage}.rank0" if attempt == 1 else f"{stage}-{attempt}.rank0"
writer = Writer(run / "events", source)
pid = os.getpid()
writer.emit(
    "rank_started", stage=stage, attempt=attempt, rank=0, world=1, pid=pid, pid_start=process_start(pid), device="cpu"
)
if fake.get(stage + ":start") == "exit":
    print("ModuleNotFoundError: no module named example", flush=True)
    os._exit(7)
for number, phase in enumerate(schema.PHASES_OF[stage]):
    if phase in plan["gates"]["skip"]:
        writer.emit("phase_ended", stage=stage, phase=phase, attempt=attempt, verdict="skipped", reasons=[])
        continue
    writer.emit("phase_started", sync=True, stage=stage, phase=phase, attempt=attempt, rank=0, inputs={"rows": 2})
    do = fake.get(f"{phase}@{attempt}", fake.get(phase, "pass"))
    if do == "hang":
        while True:
            time.sleep(0.2)
            if (run / "control" / "save_now").exists():
                break
        do = "pass"
    if do == "fill" or (run / "filler").exists():
        try:
            with (run / "filler").open("ab", buffering=0) as stream:
                while True:
                    stream.write(b"f" * 4096)
        except OSError:
            do = "pass"
    if do == "exit":
        print("RuntimeError: something broke", flush=True)
        os._exit(7)
    if do == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if do == "silent":
        sys.exit(0)
    if phase == "checkpoint" and do != "no_payload":
        folder = run / "checkpoints" / "step-000003"
        folder.mkdir(parents=True)
        (folder / "weights.pt").write_bytes(b"w" * 5000)
        (folder / "manifest.json").write_text('{"files": {}}')
    if phase == "export" and do != "no_payload":
        (run / "artifact").mkdir()
        (run / "artifact" / "weights.pt").write_bytes(b"w" * 3000)
        (run / "artifact" / "manifest.json").write_text('{"files": {}}')
    if phase == "batch":
        for update in (1, 2, 3):
            writer.emit("update", stage=stage, phase=phase, update=update, loss=4.0 / update, lr=1e-4, rows=2)
    if phase == "examples":
        writer.emit("facts", name="examples", value={"rows": 4, "supervised_rows": 4})
        writer.emit("facts", name="splits", value={"unit": "conversation_id", "shared": [], "shared_count": 0})
        writer.emit("facts", name="software", value={"torch": "2.99.0", "python": "3.11"})
    verdict = {"oom": "fail", "no_payload": "pass"}.get(do, do)
    code = {"fail": "not_finite", "oom": "oom", "warn": "response_truncated", "unchecked": "unit_unknown"}.get(do)
    reasons = []
    if code:
        text = f"seen 1, expected 0 in {phase} [/x] \x1b[31m"
        reasons = [{"code": code, "severity": verdict, "text": text, "where": {"rows": [3]}, "advice": "look"}]
    peak = 1000 + number if stage != "overfit" else 9000
    writer.emit(
        "phase_ended", sync=True, stage=stage, phase=phase, attempt=attempt, verdict=verdict, reasons=reasons,
        duration_s=0.01, thresholds={"tolerance": 1e-4},
        memory=[{"rank": 0, "device": "cpu", "uuid": None, "allocated_peak": peak, "reserved_peak": None, "known": {}}],
    )  # fmt: skip
writer.close()
