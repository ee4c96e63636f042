"""How fast the audit of a chat file is, beside a plain loop that renders and tokenizes the same rows.

    python tests/benchmarks/audit.py [--rows 100000] [--words 270] [--model FOLDER]

Prints one JSON line: rows, tokens a row, rows a second of both, their ratio (audit time / loop time, the loop taken
before and after the audit), and the audit's highest resident memory. Without ``--model`` a byte-level tokenizer is
trained on the rows' own words. One thread; rows are synthetic and lie in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "tasks")]

from lab import ONE_THREAD, Lab  # noqa: E402

PLAN = """
name: audit-benchmark
task: sft
model: {{path: {model}, adapter: {{kind: lora, r: 4, alpha: 8, targets: [q_proj]}}}}
data: {{train: train.jsonl, validation: {{fraction: 0.05, seed: 0}}, unit: id, max_length: {length}}}
device: cpu
"""


def words(count: int, seed: int = 0) -> list[str]:
    """Invented words of three to ten letters, common ones more often: what a tokenizer splits as it splits prose."""
    chance = random.Random(seed)
    syllables = [a + b for a in "bcdfghklmnprstvw" for b in ("a", "e", "i", "o", "u", "en", "or", "ist")]
    return ["".join(chance.choices(syllables, k=chance.randint(1, 4))) for _ in range(count)]


def write_rows(path: Path, rows: int, size: int) -> None:
    """Conversations of one or two questions; every tenth is twice as long."""
    chance, known = random.Random(1), words(4000)
    weights = [1 / (place + 10) for place in range(len(known))]
    pool = chance.choices(known, weights, k=400_000)
    with path.open("w") as stream:
        for number in range(rows):
            turns, long = chance.choice([1, 2]), 2 if number % 10 == 0 else 1
            messages = []
            for turn in range(2 * turns):
                start = chance.randrange(len(pool) - 4 * size)
                text = " ".join(pool[start : start + long * size // (2 * turns)]).capitalize() + "."
                messages.append({"role": "assistant" if turn % 2 else "user", "content": text})
            stream.write(json.dumps({"id": f"row-{number}", "messages": messages}) + "\n")


def write_model(folder: Path, sample: Path) -> Path:
    """A tiny model folder whose tokenizer was trained on the rows' words."""
    import tiny_llm

    lines = sample.read_text().splitlines()[:2000]
    return tiny_llm.write_model(folder, tiny_llm.tokenizer(lines=lines, vocabulary=4000))


def plain_loop(tokenizer: Any, path: Path) -> tuple[float, int]:
    """Seconds and tokens of reading, rendering and tokenizing every row."""
    tokens, start = 0, time.perf_counter()
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            text = tokenizer.apply_chat_template(json.loads(line)["messages"], tokenize=False)
            tokens += len(tokenizer(text, add_special_tokens=False)["input_ids"])
    return time.perf_counter() - start, tokens


def audit(lab: Lab) -> tuple[float, int | None]:
    """Seconds of the ``examples`` phase and the stage's highest resident memory, in bytes."""
    row = lab.stage("data").row("examples")
    assert row.verdict in ("pass", "warn") and row.duration_s is not None, row
    return row.duration_s, max((each.get("host_peak") or 0 for each in row.memory), default=None)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--words", type=int, default=270)
    parser.add_argument("--model", type=Path)
    given = parser.parse_args()
    os.environ.update(ONE_THREAD, HF_HUB_OFFLINE="1")
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = folder / "train.jsonl"
        write_rows(rows, given.rows, given.words)
        model = (given.model or write_model(folder / "model", rows)).resolve()
        tokenizer = AutoTokenizer.from_pretrained(model)
        lab = Lab(folder)
        lab.prepare(PLAN.format(model=model, length=2048))
        before, tokens = plain_loop(tokenizer, rows)
        seconds, peak = audit(lab)
        after, _ = plain_loop(tokenizer, rows)
    loop = (before + after) / 2
    print(
        json.dumps(
            {
                "rows": given.rows,
                "tokens_per_row": round(tokens / given.rows, 1),
                "loop_rows_per_second": round(given.rows / loop, 1),
                "audit_rows_per_second": round(given.rows / seconds, 1),
                "ratio": round(seconds / loop, 3),
                "audit_peak_bytes": peak,
            }
        )
    )


if __name__ == "__main__":
    main()
