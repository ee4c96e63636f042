"""The comparison document: what ``compare --json`` prints and ``runs/<comparison>/comparison.json`` holds, whole, at every
moment: rewritten at each change. Pure.

A comparison's folder stands beside its runs and has no ``run.json``; its trials are ordinary runs of kind ``trial`` whose
``run.json`` names it: ``{"comparison": id, "trial": "half", "seed": 0}``. Keys:

    {"schema": 1, "tool": "x.y", "id": "20261202-061500-demo-comparison-3f9a", "name": "demo", "demo": false,
     "identity": sha256, "created": "...Z", "state": "running|finished|stopped", "plan": {...plan.json's "plan"},
     "metric": "loss", "direction": "min", "baseline": "base", "seeds": [0, 1, 2],
     "planned": {"updates": 200, "validation_every": 50, "validation_at": [50, 100, 150, 200], "save_every": 100,
                 "stop": {"not_finite": true, "loss_above_start": 3.0, "no_progress": null}},
     "held": {"architecture": "12 tensors, 34,567 elements, ...", "data": "...", ...}, "not_matched": ["half: ..."],
     "verified": {"before": true, "after": ["what differed when it ran", ...]},
     "trials": [{"id": "half", "seed": 0, "label": "half", "set": {"optimizer.lr": 5e-05}, "run": "...",
                 "state": "waiting|running|finished|diverged|stopped|failed|lost", "counts": true, "diverged_at": null,
                 "stop_reason": null, "stop_text": null, "updates": 200, "examples_seen": 1600, "tokens_seen": 48000,
                 "metrics": {"loss": 1.2, ...last validation}, "best": {"update": 150, "value": 1.19},
                 "losses": [[1, 4.1], ...], "validation": [[50, 1.31], ...], "predictions": "path" or null,
                 "not_matched": ["..."], "cost": {"seconds": 61.2, "per_update": 0.21, "evaluate": 1.1, "save": 0.4}}],
     "summary": [{"id": "half", "label": "half", "set": {...}, "seeds": 3, "values": {"0": 1.2, ...},
                  "final": {"mean": 1.21, "spread": 0.02}, "ended": {"finished": 3, "diverged": 0, ...},
                  "paired_differences": [{"against": "base", "differences": {"0": 0.01, ...}, "mean": 0.01,
                                          "standard_error": 0.004, "told_apart": false, "better": null, "why": "..."}],
                  "told_apart_from": ["base"], "basis": "3 seeds"}],
     "next": [{"text": "...", "trials": ["base", "half"], "seeds": [3, 4]}],
     "said": ["sentences: what can be said"],
     "cost": {"predicted": {"seconds": 600.0, "low": 540.0, "high": 700.0, "basis": "..."} or null, "why": null,
              "spent": 123.0}}

``losses`` and ``validation`` values that are not finite are the words ``nan``, ``inf``, ``-inf``. Every run of the comparison
is in ``trials``, also lost, stopped and failed ones; ``counts`` says which of several attempts at one trial and seed is the
one that counts. ``spread`` is the standard deviation over seeds, null for one.
"""

from __future__ import annotations
