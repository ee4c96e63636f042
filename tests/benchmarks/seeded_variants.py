"""Predicted against measured memory of variants drawn by a seed: ``python tests/benchmarks/seeded_variants.py``.

    [--seed 7] [--variants 16] [--json OUT]

Each variant draws a model (an own transformer, GPT-2's and Llama's shape, 2 to 6 million parameters, random weights),
microbatch, accumulation, length, activation checkpointing, optimizer implementation, precision, and for Llama an
adapter. Predicted: the pass under fake tensors. Measured: the same pass on real CPU tensors, torch's byte counter read
after every operator. ``error`` of a phase is predicted over measured, less one. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent / "predict")]

import small_tasks  # noqa: E402
import torch  # noqa: E402
import transformers.modeling_utils  # noqa: E402, F401  # before anything in it is replaced
from real_pass import CPU, measured, peaks  # noqa: E402
from torch import nn  # noqa: E402

from tui_pilot.plan.model import Adapter, Batch, Data, Evaluate, Memory, Model, Optimizer, Plan  # noqa: E402
from tui_pilot.predict import passes  # noqa: E402
from tui_pilot.predict.inputs import rows_of  # noqa: E402

WIDTH, LAYERS = 256, 4


class Own(small_tasks.Own):
    def build_model(self) -> nn.Module:
        reentrant = self.reentrant if self.plan.memory.activation_checkpointing else None
        model = small_tasks.Network(WIDTH, reentrant)
        return model.to(torch.bfloat16) if self.plan.precision == "bf16" else model


class OwnReentrant(Own):
    reentrant = True


class Llama(small_tasks.Llama):
    @staticmethod
    def make() -> Any:
        config = small_tasks.Llama.make()
        config.update({"hidden_size": WIDTH, "intermediate_size": 3 * WIDTH, "num_hidden_layers": LAYERS})
        config.update({"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": WIDTH // 8})
        return config


class Gpt2(small_tasks.Gpt2):
    @staticmethod
    def make() -> Any:
        config = small_tasks.Gpt2.make()
        config.update({"n_embd": WIDTH, "n_layer": LAYERS, "n_head": 8})
        return config


def draw(choose: random.Random) -> tuple[type[small_tasks.Rows], Plan]:
    """One variant: the task's class and its plan."""
    kind = choose.choice((Own, OwnReentrant, Llama, Gpt2))
    length = choose.choice((32, 64, 100, 192))
    micro = choose.choice((1, 2, 3, 4))
    adapter = Adapter(r=choose.choice((4, 16))) if kind is Llama and choose.random() < 0.5 else None
    plan = Plan(
        task="own.py:Own",
        data=Data(max_length=length),
        batch=Batch(micro=micro, accumulation=choose.choice((1, 2, 4))),
        evaluate=Evaluate(micro=micro),
        model=Model(adapter=adapter),
        memory=Memory(choose.random() < 0.5),
        precision=choose.choice(("fp32", "bf16", "bf16-amp")),
        optimizer=Optimizer(implementation=choose.choice(("loop", "foreach", "fused"))),
    )
    return type(kind.__name__, (kind,), {"lengths": (length,)}), plan


def one(kind: type[small_tasks.Rows], plan: Plan) -> dict[str, Any]:
    """Predicted and measured peaks of a variant, by phase, and the error of each."""
    task = kind(plan)
    count = plan.batch.micro * passes.planned(plan)
    done = passes.run(task, rows_of(task, count), CPU)
    _, counter = measured(kind(plan), count)
    if done.missed:
        raise SystemExit(f"{kind.__name__}: {done.missed}")
    predicted = peaks(done)
    errors = {phase: predicted[phase] / counter[phase] - 1 for phase in predicted}
    return {"predicted": predicted, "measured": {phase: counter[phase] for phase in predicted}, "errors": errors}


def words(kind: type[small_tasks.Rows], plan: Plan) -> list[str]:
    """The variant as cells of the table."""
    adapter = "" if plan.model.adapter is None else f", lora r{plan.model.adapter.r}"
    return [
        f"{kind.__name__}{adapter}",
        f"{plan.batch.micro} x {plan.batch.accumulation}",
        str(plan.data.max_length),
        plan.precision,
        "on" if plan.memory.activation_checkpointing else "off",
        plan.optimizer.implementation,
    ]


def main() -> None:
    """Draw, predict, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--variants", type=int, default=16)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    choose = random.Random(options.seed)
    found, errors = [], []
    print("| model | micro x accumulation | length | precision | checkpointing | AdamW | highest, MiB | worst error |")
    print("|---|---|---|---|---|---|---|---|")
    for _ in range(options.variants):
        kind, plan = draw(choose)
        result = one(kind, plan)
        found.append({"variant": words(kind, plan), **result})
        errors += [abs(error) for error in result["errors"].values()]
        phase = max(result["errors"], key=lambda name: abs(result["errors"][name]))
        highest = max(result["measured"].values()) / (1 << 20)
        cells = [*words(kind, plan), f"{highest:.1f}", f"{result['errors'][phase]:+.3%} ({phase})"]
        print("| " + " | ".join(cells) + " |", flush=True)
    print(
        f"\nseed {options.seed}, {len(found)} variants, {len(errors)} phases: "
        f"median error {statistics.median(errors):.4%}, worst {max(errors):.4%}"
    )
    if options.json:
        options.json.write_text(json.dumps({"seed": options.seed, "variants": found}, indent=1))


if __name__ == "__main__":
    main()
