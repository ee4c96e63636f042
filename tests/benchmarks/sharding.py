"""The model of several GPUs against two real processes on this CPU: DDP and FSDP2 over gloo, phase by phase.

    python tests/benchmarks/sharding.py [--processes 2] [--strategy ddp] [--strategy fsdp] [--wide]

Prints one JSON document: for each strategy and phase the bytes that the model of ``predict/sharding.py`` gives, the
highest rank's measured peak (c10's counter, read every half millisecond), and their relative difference. The task is
the built-in demo; ``--wide`` makes its blocks larger, so that parameters and not activations are most of what is held.
Every rank trains on the same longest rows, as the prediction assumes.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.distributed as dist
from torch import multiprocessing, nn

from tui_pilot.observe.native import open_native
from tui_pilot.plan.model import Launch, Plan
from tui_pilot.predict.inputs import rows_of
from tui_pilot.predict.passes import Target, planned
from tui_pilot.predict.prediction import predict_run
from tui_pilot.tasks.demo import DemoTask

BLOCKS, WIDTH = 8, 512


class Wide(DemoTask):
    """The demo's rows, and a model whose weights outweigh its activations."""

    def build_model(self) -> nn.Module:
        return Stack(self.plan.options["vocabulary"])

    def loss(self, model: nn.Module, batch: Any) -> Any:
        scores = model(batch["input_ids"])[:, :-1]
        return nn.functional.cross_entropy(scores.flatten(0, 1), batch["labels"][:, 1:].flatten(), reduction="sum")


class Stack(nn.Module):
    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(BLOCKS)
        )
        self.head = nn.Linear(WIDTH, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.embed(ids)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        out: torch.Tensor = self.head(hidden)
        return out


def task_of(plan: Plan, wide: bool) -> DemoTask:
    return Wide(plan) if wide else DemoTask(plan)


class Watch:
    """Peaks of named pieces of work."""

    def __init__(self) -> None:
        counter, why = open_native()
        if counter is None:
            raise SystemExit(why)
        from tui_pilot.observe.memory import _Poll

        self.poll, self.peaks = _Poll(counter), {}  # type: ignore[var-annotated]

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.poll.start(0.0005)
        yield
        self.peaks[name] = max(self.peaks.get(name, 0), self.poll.stop()[0])


def rank_main(rank: int, plan: Plan, wide: bool, port: int, folder: str) -> None:
    """One rank: the phases of the peak stage, each with the peak it measured."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    watch = Watch()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=plan.launch.processes)
    task = task_of(plan, wide)
    rows = rows_of(task, plan.batch.micro * planned(plan))
    with watch.phase("load"):
        torch.manual_seed(plan.seed)
        model = task.build_model()
        model = wrapped(model, plan.launch.strategy)
        optimizer = task.build_optimizer(model)
    total = max(1, sum(micro.count for micro in rows.window))

    def forward(micro: Any) -> torch.Tensor:
        loss = task.loss(model, micro.batch)
        return (loss[0] if isinstance(loss, tuple) else loss) / total

    def update() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for number in range(3):
        name = "first_step" if number == 0 else "steady_step"
        for place, micro in enumerate(rows.window):
            first = number == 0 and place == 0
            with watch.phase("forward" if first else name):
                loss = forward(micro)
            with watch.phase("backward" if first else name):
                loss.backward()
                del loss
        with watch.phase(name):
            update()
    model.eval()
    if rows.evaluation is not None:
        with watch.phase("evaluate"), torch.no_grad():
            forward(rows.evaluation)
    (Path(folder) / f"{rank}.json").write_text(json.dumps(watch.peaks))
    dist.barrier()
    dist.destroy_process_group()


def wrapped(model: nn.Module, strategy: str) -> nn.Module:
    if strategy == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard

    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    for block in max(lists, key=len):
        fully_shard(block)
    fully_shard(model)
    return model


def measured(plan: Plan, wide: bool, folder: Path) -> dict[str, int]:
    folder.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    multiprocessing.spawn(rank_main, (plan, wide, port, str(folder)), plan.launch.processes)  # type: ignore[no-untyped-call]
    ranks = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return {name: max(rank[name] for rank in ranks) for name in ranks[0]}


def main() -> None:
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--strategy", action="append", choices=["ddp", "fsdp"])
    parser.add_argument("--wide", action="store_true")
    arguments = parser.parse_args()
    options = {"vocabulary": 2048} if arguments.wide else {}
    found: dict[str, Any] = {"torch": torch.__version__, "processes": arguments.processes, "wide": arguments.wide}
    with tempfile.TemporaryDirectory() as place:
        for strategy in arguments.strategy or ["ddp", "fsdp"]:
            plan = Plan(options=options, launch=Launch(processes=arguments.processes, strategy=strategy))
            plan = dataclasses.replace(plan, batch=dataclasses.replace(plan.batch, micro=4, accumulation=2))
            made = predict_run(lambda plan: task_of(plan, arguments.wide), plan, Path.cwd(), Target(None), both=False)
            real = measured(plan, arguments.wide, Path(place) / strategy)
            found[strategy] = {
                row["phase"]: {
                    "model": row["allocated_peak"],
                    "measured": real[row["phase"]],
                    "difference": round(row["allocated_peak"] / real[row["phase"]] - 1, 4),
                }
                for row in made.phases
                if row["phase"] in real
            }
            if made.not_predicted:
                found[strategy]["not_predicted"] = made.not_predicted
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
