"""What was measured, from a run's rows: memory per GPU and phase, the need, seconds, sizes, dimensions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tui_pilot.plan.model import Plan

Json = Mapping[str, Any]

# A tiny throwaway subset: its peak says nothing about the campaign's loop.
DIAGNOSTIC = ("overfit",)


def row_of(show: Json, phase: str | None) -> Json:
    """One phase's row; empty where it is not there."""
    return next((row for row in show.get("phases") or () if row.get("phase") == phase), {})


def memory(show: Json) -> list[dict[str, Any]]:
    """One entry a phase and rank: a row's memory with ``phase`` and ``verdict`` beside."""
    return [
        {"phase": row.get("phase"), "verdict": row.get("verdict"), **entry}
        for row in show.get("phases") or ()
        for entry in row.get("memory") or ()
        if isinstance(entry, Mapping)
    ]


def on_gpu(entry: Json) -> bool:
    """Whether a memory entry was measured on a GPU."""
    return str(entry.get("device") or "").startswith("cuda")


def need(entries: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The bytes one GPU must have: the highest of device used and of reserved plus outside torch, over all phases.

    None where no GPU was measured: what a process takes on a CPU says nothing about a GPU.
    """
    best: dict[str, Any] | None = None
    for entry in entries:
        if not on_gpu(entry) or entry.get("phase") in DIAGNOSTIC:
            continue
        reserved = entry.get("reserved_peak")
        known = [entry.get("device_used_peak")]
        if reserved is not None:
            known.append(reserved + (entry.get("outside_torch") or 0))
        found = [value for value in known if value is not None]
        if not found or (best is not None and max(found) <= best["bytes"]):
            continue
        usable = entry.get("device_usable")
        best = {
            "bytes": max(found),
            "phase": entry["phase"],
            "device": entry.get("device"),
            "uuid": entry.get("uuid"),
            "usable_bytes": usable,
            "margin": (usable - max(found)) / usable if usable else None,
        }
    return best


def seconds(show: Json, facts: Json) -> dict[str, float | None]:
    """Seconds of the operations a campaign repeats; null where nothing measured them.

    ``update`` comes from the timed updates of the train stage alone; the others fall back to the phase's duration.
    """
    timed = (facts.get("sizes") or {}).get("seconds") or {}

    def phase(name: str) -> float | None:
        value = row_of(show, name).get("duration_s")
        return None if value is None else float(value)

    def first(*values: float | None) -> float | None:
        return next((value for value in values if value is not None), None)

    return {
        "update": timed.get("update"),
        "evaluation": first(timed.get("evaluate"), timed.get("evaluation"), phase("evaluate")),
        "save_first": timed.get("save_first"),
        "save_second": timed.get("save_second"),
        "export": first(timed.get("export"), phase("export")),
        "resume": phase("resume"),
        "resume_load": first(timed.get("resume_load"), (facts.get("resume") or {}).get("load_seconds")),
    }


def sizes(facts: Json, plan: Plan | None) -> dict[str, Any]:
    """Bytes on disk of one checkpoint and of the artifact."""
    found = facts.get("sizes") or {}
    return {
        "checkpoint_bytes": found.get("checkpoint_bytes"),
        "artifact_bytes": found.get("artifact_bytes"),
        "artifact_kind": plan.export.kind if plan else None,
    }


def dimensions(show: Json, facts: Json) -> dict[str, Any]:
    """The largest inputs the pilot saw, and what the cut took."""
    examples = facts.get("examples") or {}
    length = examples.get("length") or {}
    inputs = row_of(show, "forward").get("inputs") or {}
    return {
        "rows": examples.get("rows"),
        "longest_row": length.get("max"),
        "p50": length.get("p50"),
        "p95": length.get("p95"),
        "truncated": examples.get("truncated"),
        "response_tokens_lost": examples.get("response_tokens_lost"),
        "padding_share": examples.get("padding_share"),
        "microbatch_shape": inputs.get("shape"),
        "evaluation_shape": (row_of(show, "evaluate").get("inputs") or {}).get("shape"),
    }
