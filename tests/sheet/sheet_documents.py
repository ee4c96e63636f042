"""Hand-made ``show --json`` documents: a pilot on 8 GPUs that passed, to be changed by each test."""

from __future__ import annotations

import copy
from typing import Any

from tui_pilot.events.schema import PHASES
from tui_pilot.plan.model import (
    Adapter,
    Batch,
    Data,
    Evaluate,
    Export,
    Launch,
    Model,
    Optimizer,
    Plan,
    Variant,
    as_json,
)

GIB = 1 << 30

PLAN = Plan(
    name="llama8b-lora",
    task="sft",
    model=Model(path="./llama-3.1-8b", adapter=Adapter(r=16, targets=("q_proj", "v_proj"))),
    data=Data(train="support.jsonl", max_length=2048),
    batch=Batch(micro=1, accumulation=2),
    optimizer=Optimizer(lr=1e-4, warmup=10, implementation="foreach"),
    precision="bf16",
    evaluate=Evaluate(max_new_tokens=128),
    export=Export(kind="adapter"),
    launch=Launch(processes=8, strategy="ddp"),
    expected="val loss <= 1.25; names the part and the next step",
    variants=(
        Variant("ckpt", {"memory.activation_checkpointing": True}, "less activation memory", 1),
        Variant("r64", {"model.adapter.r": 64}, "", 2),
    ),
)


def memory(device: str, allocated: float, ranks: int = 8) -> list[dict[str, Any]]:
    """A row's memory list; GiB in, bytes out. On a CPU nothing is reserved and nothing is a GPU's."""
    if device == "cpu":
        return [{"rank": 0, "device": "cpu", "allocated_peak": round(allocated * GIB), "reserved_peak": None,
                 "device_used_peak": None, "device_usable": None, "host_peak": 2 * GIB,
                 "known": {"allocated_peak": {"kind": "sampled", "hz": 1000}}}]  # fmt: skip
    return [
        {
            "rank": rank,
            "device": f"cuda:{rank}",
            "uuid": f"GPU-{rank}",
            "allocated_peak": round((allocated - rank / 100) * GIB),
            "reserved_peak": round((allocated + 1.5) * GIB),
            "device_used_peak": round((allocated + 3.1) * GIB),
            "device_usable": round(79.1 * GIB),
            "outside_torch": round(1.6 * GIB),
            "host_peak": 41 * GIB,
            "known": {"device_used_peak": {"kind": "sampled", "hz": 20}, "allocated_peak": {"kind": "exact"}},
        }
        for rank in range(ranks)
    ]


def reason(code: str, text: str, severity: str = "fail", **where: Any) -> dict[str, Any]:
    return {"code": code, "severity": severity, "text": text, "where": where, "advice": ""}


def shown(device: str = "cuda", plan: Plan = PLAN, run: str = "20261201-193200-llama8b-lora-77c1") -> dict[str, Any]:
    """A finished run in which everything passed, every row judged by the machine alone."""
    peaks = {"load": 15.1, "forward": 30.2, "backward": 31.4, "first_step": 31.5, "steady_step": 31.6, "batch": 22.4}
    peaks |= {"evaluate": 17.9, "checkpoint": 15.6, "export": 15.7, "resume": 31.6, "reload": 15.4, "overfit": 60.0}
    phases = [
        {
            "phase": phase,
            "verdict": "pass",
            "reasons": [],
            "mark": None,
            "note": None,
            "attempt": 1,
            "attempts": [],
            "inputs": {"shape": [1, 2048]} if phase == "forward" else {},
            "thresholds": {},
            "duration_s": 1.5,
            "parts": {},
            "memory": memory(device, peaks[phase]) if phase in peaks else [],
        }
        for phase in PHASES
    ]
    return copy.deepcopy(
        {
            "schema": 1,
            "run": run,
            "kind": "pilot",
            "demo": False,
            "state": "finished",
            "verdict": "pass",
            "exit_code": 0,
            "started": "2026-12-01T19:32:00Z",
            "ended": "2026-12-01T19:36:00Z",
            "binding_phase": "steady_step",
            "plan": as_json(plan),
            "revisions": {"identity": "ab" * 32},
            "parent": None,
            "changed": {},
            "decision": None,
            "notes": [],
            "open": [],
            "phases": phases,
            "events": {"read": 300, "broken_lines": 0, "unknown_kinds": 0},
            "facts": {
                "examples": {
                    "rows": 3200, "truncated": 37, "response_tokens_lost": 4102,
                    "length": {"max": 2311, "p50": 612, "p95": 1688}, "padding_share": 0.114,
                },
                "sizes": {
                    "checkpoint_bytes": 512 << 20, "artifact_bytes": 160 << 20,
                    "seconds": {"update": 1.31, "evaluate": 19.8, "save_first": 3.1, "save_second": 1.2},
                },
                "software": {"python": "3.11.7", "torch": "2.13.0+cu130", "driver": "580.95", "transformers": "5.24.0"},
                "stack": {"gpu": "NVIDIA H100 80GB HBM3"},
            },
        }
    )  # fmt: skip


def row(show: dict[str, Any], phase: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in show["phases"] if each["phase"] == phase)
    return found
