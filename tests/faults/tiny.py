"""A task of a few thousand parameters, torch alone, that breaks where it is told to: the fault tests' own task file.

``TINY_FAULTS`` in the environment, or ``options.faults`` of the plan, is a list of
``{"stage": "peak", "method": "loss", "call": 2, "do": "oom"}``: what to do in the n-th call (1 at first; absent: each)
of a method in a stage (absent: any), on one rank (absent: any). ``hold`` writes ``held-<stage>.<rank>`` beside this
file and waits for ``go``, so that a test knows where a process stands; ``fill`` fills the disk of the runs folder.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from tui_pilot.tasks import IGNORE, Task

HERE = Path(__file__).resolve().parent
PAD, BEGIN, END, SPARE = range(4)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
CUDA_TEXT = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB"
CPU_TEXT = (
    "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "1073741824 bytes. Error code 12 (Cannot allocate memory)"
)


def fill(path: Path) -> None:
    """Take every byte that the disk of a file has left."""
    for piece in (1 << 16, 1 << 12, 1):
        try:
            with path.open("ab", buffering=0) as stream:
                while stream.write(b"f" * piece) == piece:
                    pass
        except OSError:
            pass


class Net(nn.Module):
    """Token and place to the next token."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(4 + len(LETTERS), width), nn.Embedding(16, width)
        self.inner, self.head = nn.Linear(width, width), nn.Linear(width, 4 + len(LETTERS))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.token(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        return self.head(functional.gelu(self.inner(hidden)))


# What torch's own optimizers import at their first call takes as long as torch itself; nothing here is compiled.
for each in vars(torch.optim.Optimizer).values():
    if hasattr(each, "__wrapped__"):
        setattr(each.__wrapped__, "__dynamo_disable", each.__wrapped__)


class Breaking(torch.optim.Optimizer):
    """Adam by hand; its steps and states go through the task's faults."""

    def __init__(self, task: "Tiny", parameters: list[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": task.plan.optimizer.lr, "betas": (0.9, 0.999), "eps": 1e-8})
        self.strike = task.strike

    @torch.no_grad()
    def step(self, closure=None):  # type: ignore[no-untyped-def]
        self.strike("step")
        for group in self.param_groups:
            low, high = group["betas"]
            for tensor in (each for each in group["params"] if each.grad is not None):
                state = self.state[tensor]
                if not state:
                    state |= {"step": 0, "mean": torch.zeros_like(tensor), "square": torch.zeros_like(tensor)}
                state["step"] += 1
                state["mean"].lerp_(tensor.grad, 1 - low)
                state["square"].mul_(high).addcmul_(tensor.grad, tensor.grad, value=1 - high)
                mean = state["mean"] / (1 - low ** state["step"])
                square = state["square"] / (1 - high ** state["step"])
                tensor.sub_(group["lr"] * mean / (square.sqrt() + group["eps"]))

    def state_dict(self):  # type: ignore[no-untyped-def]
        self.strike("state_dict")
        return super().state_dict()


class Tiny(Task):
    """Twenty-four rows: a letter, and as its answer the letters after it."""

    def __init__(self, plan):  # type: ignore[no-untyped-def]
        super().__init__(plan)
        planned = list(plan.options.get("faults") or [])
        stage, rank = sys.argv[2], os.environ.get("RANK", "0")
        self.faults = [
            fault
            for fault in [*planned, *json.loads(os.environ.get("TINY_FAULTS", "[]"))]
            if fault.get("stage", stage) == stage and str(fault.get("rank", rank)) == rank
        ]
        self.name = f"{stage}.{rank}"
        self.calls: dict[str, int] = {}
        rows = [{"id": f"row-{n}", "letter": n, "answer": self.answer_of(n)} for n in range(24)]
        self.splits = {"train": rows[:18], "validation": rows[18:]}

    @staticmethod
    def answer_of(number: int) -> list[int]:
        return [4 + (number + step) % len(LETTERS) for step in range(1, 3 + number % 3)]

    def strike(self, method: str) -> str | None:
        """Do what is planned for this call."""
        self.calls[method] = self.calls.get(method, 0) + 1
        for fault in self.faults:
            if fault["method"] == method and fault.get("call", self.calls[method]) == self.calls[method]:
                return self.do(fault["do"])
        return None

    def do(self, what: str) -> str:
        if what == "oom":
            raise torch.OutOfMemoryError(CUDA_TEXT)
        if what == "cpu_oom":
            raise RuntimeError(CPU_TEXT)
        if what == "crash":
            raise ValueError("planted")
        if what == "fill":
            fill(Path(sys.argv[1]).resolve().parents[1] / "filler")
        if what == "hold":
            (HERE / f"held-{self.name}").write_text(str(os.getpid()))
            while not (HERE / "go").exists():
                time.sleep(0.02)
        return what

    def records(self, split):  # type: ignore[no-untyped-def]
        return self.splits.get(split, [])

    def unit(self, record):  # type: ignore[no-untyped-def]
        return record["id"]

    def source_text(self, record):  # type: ignore[no-untyped-def]
        return self.decode(record["answer"])

    def encode(self, record):  # type: ignore[no-untyped-def]
        self.strike("encode")
        prompt = [BEGIN, 4 + record["letter"]]
        return {
            "input_ids": [*prompt, *record["answer"], END],
            "labels": [IGNORE] * len(prompt) + [*record["answer"], END],
        }

    def spans(self, record, example):  # type: ignore[no-untyped-def]
        return [(1, 2, "user", 0), (2, len(example["input_ids"]), "assistant", 1)]

    def special_ids(self):  # type: ignore[no-untyped-def]
        return {"bos": BEGIN, "end": END, "pad": PAD}

    def build_model(self):  # type: ignore[no-untyped-def]
        self.strike("build_model")
        return Net()

    def build_optimizer(self, model):  # type: ignore[no-untyped-def]
        return Breaking(self, list(model.parameters()))

    def loss(self, model, batch):  # type: ignore[no-untyped-def]
        done = self.strike("loss" if model.training else "evaluation_loss")
        logits, targets = model(batch["input_ids"])[:, :-1], batch["labels"][:, 1:]
        total = functional.cross_entropy(logits.transpose(1, 2), targets, ignore_index=IGNORE, reduction="sum")
        if total.requires_grad:
            total.register_hook(lambda gradient: [self.strike("backward"), None][1])
        return total * float("nan") if done == "nan" else total

    def predict(self, model, batch):  # type: ignore[no-untyped-def]
        self.strike("predict")
        return model(batch["input_ids"]).argmax(dim=-1)

    def decode(self, ids):  # type: ignore[no-untyped-def]
        return "".join(["<pad>", "<begin>", "<end>", "<spare>", *LETTERS][each] for each in ids)

    def save_artifact(self, model, folder):  # type: ignore[no-untyped-def]
        self.strike("save_artifact")
        super().save_artifact(model, folder)

    def load_artifact(self, folder):  # type: ignore[no-untyped-def]
        self.strike("load_artifact")
        return super().load_artifact(folder)
