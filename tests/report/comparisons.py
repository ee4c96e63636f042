"""Recorded runs as the trials of a comparison: each its own folder, with the document of the comparison beside them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from record_run import RECORDED, recorded_id

PARENT = recorded_id(RECORDED / "desk")
ID = "20261202-061500-desk-comparison-3f9a"


def trial(
    runs: Path, id: str, seed: int, lr: float, loss: float | None, diverged_at: int | None = None
) -> dict[str, Any]:
    """One trial of the comparison, with its run folder."""
    name = f"20261202-06{seed:02d}00-desk-{id}{seed}"
    folder = runs / name
    shutil.copytree(RECORDED / "desk", folder)
    run = json.loads((folder / "run.json").read_text("utf-8"))
    run |= {"run": name, "kind": "trial", "parent": PARENT, "changed": {"optimizer.lr": [1e-3, lr]}, "comparison": ID}
    (folder / "run.json").write_text(json.dumps(run))
    plan = json.loads((folder / "plan.json").read_text("utf-8"))
    plan["plan"]["optimizer"]["lr"], plan["plan"]["seed"] = lr, seed
    (folder / "plan.json").write_text(json.dumps(plan))
    state = "finished" if diverged_at is None else "diverged"
    return {
        "id": id, "seed": seed, "label": id, "set": {} if id == "base" else {"optimizer.lr": lr}, "run": name,
        "state": state, "counts": True, "diverged_at": diverged_at,
        "stop_reason": None if diverged_at is None else "not_finite",
        "stop_text": None if diverged_at is None else f"the loss of update {diverged_at} is nan", "not_matched": [],
        "updates": diverged_at or 200, "metrics": {"loss": loss}, "losses": [], "validation": [],
    }  # fmt: skip


def summary(id: str, lr: float, values: list[float], pairs: list[dict[str, Any]], apart: list[str]) -> dict[str, Any]:
    mean = sum(values) / len(values) if values else None
    return {
        "id": id, "set": {} if id == "base" else {"optimizer.lr": lr}, "seeds": len(values),
        "values": {str(seed): value for seed, value in enumerate(values)}, "final": {"mean": mean, "spread": 0.01},
        "paired_differences": pairs, "told_apart_from": apart, "basis": f"{len(values)} seeds",
    }  # fmt: skip


def pair(against: str, differences: list[float], told: bool) -> dict[str, Any]:
    return {
        "against": against, "differences": {str(seed): value for seed, value in enumerate(differences)},
        "mean": sum(differences) / len(differences), "standard_error": 0.005, "told_apart": told, "why": "",
    }  # fmt: skip


def comparison(runs: Path, half: list[float] = [1.13, 1.16, 1.15], half_apart: bool = True) -> Path:  # noqa: B006
    """Base, half and a rate that diverges with every seed: ``half`` are the losses of half, base has 1.10 to 1.12."""
    shutil.copytree(RECORDED / "desk", runs / PARENT)
    base = [1.10, 1.12, 1.11]
    trials = [trial(runs, "base", seed, 1e-4, base[seed]) for seed in range(3)]
    trials += [trial(runs, "half", seed, 5e-5, half[seed]) for seed in range(3)]
    trials += [trial(runs, "hot", seed, 0.5, None, 17 + seed) for seed in range(3)]
    apart = [pair("base", [round(one - other, 3) for one, other in zip(half, base, strict=True)], half_apart)]
    document = {
        "schema": 1, "id": ID, "name": "desk", "state": "finished", "metric": "loss", "direction": "min",
        "baseline": "base", "seeds": [0, 1, 2], "plan": {"optimizer": {"lr": 1e-4}}, "trials": trials,
        "planned": {"updates": 200, "validation_every": 50, "stop": {"not_finite": True, "loss_above_start": 3.0}},
        "held": {"data": "351 rows, the same order for each seed", "effective batch": "8 rows"},
        "not_matched": [], "verified": {"before": True, "after": []}, "said": [],
        "summary": [
            summary("base", 1e-4, base, [], ["half"] if half_apart else []),
            summary("half", 5e-5, half, apart, ["base"] if half_apart else []),
            summary("hot", 0.5, [], [], []),
        ],
        "next": [{"text": "add seeds 3 and 4", "trials": ["base"], "seeds": [3, 4]}],
    }  # fmt: skip
    (runs / ID).mkdir()
    (runs / ID / "comparison.json").write_text(json.dumps(document))
    return runs / ID
