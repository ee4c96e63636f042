"""What measuring costs: an instrumented training step against a bare one, paired, on a model of 30 million parameters.

    python tests/benchmarks/overhead.py [--shape 4x256] [--shape 1x16] [--pairs 15] [--threads 1] [--device cpu]

Prints one JSON document: for each shape (rows x tokens) and each way of measuring, the median over the pairs of wall
time and of the process's CPU time with it divided by without it, the spread of the pairs (quartiles), and the fastest
step with it divided by the fastest without (``least``, which other programs on the machine disturb least). ``nothing``
is a bare step against a bare step: what the machine itself makes of a ratio. Every round runs each way once, in an
order that rotates, and the bare step once; a pair is the two of one round.

On a CPU the ways are: c10's byte counter switched on (``flag``), the same with a thread that reads it every 1 ms or
5 ms, and a whole measured window as the stages open one (``window``). On a GPU, where the allocator counts anyway: the
window alone.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import nn

from tui_pilot.observe.memory import Meter

VOCABULARY, WIDTH, LAYERS, HEADS = 20_000, 384, 8, 6
WARM = 3


class Model(nn.Module):
    """A pre-norm transformer of 29.6 million parameters, causal."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
        out: torch.Tensor = self.head(self.layers(self.embed(ids), mask=mask, is_causal=True))
        return out


def flag() -> Any:
    """c10's switch; everything a step allocates is freed within it, so it may be turned between two steps."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    return ctypes.c_bool.in_dll(library, "FLAGS_caffe2_report_cpu_memory_usage")


class Ways:
    """The ways of measuring one step, by name."""

    def __init__(self, device: torch.device) -> None:
        self.meter = Meter(device, 0)
        self.switch = flag() if device.type == "cpu" else None
        self.poll = self.meter._poll

    def names(self) -> list[str]:
        return ["nothing", "window"] if self.switch is None else ["nothing", "flag", "poll 1 ms", "poll 5 ms", "window"]

    @contextmanager
    def counted(self) -> Iterator[None]:
        assert self.switch is not None
        self.switch.value = True
        try:
            yield
        finally:
            self.switch.value = False

    @contextmanager
    def polled(self, seconds: float) -> Iterator[None]:
        assert self.poll is not None
        with self.counted():
            self.poll.start(seconds)
            try:
                yield
            finally:
                self.poll.stop()

    @contextmanager
    def window(self) -> Iterator[None]:
        with self.counted() if self.switch is not None else nullcontext(), self.meter.window():
            yield

    def way(self, name: str) -> Any:
        if name == "flag":
            return self.counted()
        if name.startswith("poll"):
            return self.polled(int(name.split()[1]) / 1000)
        return self.window() if name == "window" else nullcontext()


def step_of(device: torch.device, rows: int, tokens: int) -> Callable[[], None]:
    """One whole update on the same batch; gradients are dropped at its end."""
    torch.manual_seed(0)
    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(0, VOCABULARY, (rows, tokens + 1), device=device)

    def step() -> None:
        out = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(out.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return step


def timed(step: Callable[[], None], around: Any) -> tuple[float, float]:
    """Wall and CPU seconds of one step, with opening and closing whatever is around it."""
    wall, cpu = time.perf_counter(), time.process_time()
    with around:
        step()
    return time.perf_counter() - wall, time.process_time() - cpu


def measured(device: torch.device, ways: Ways, shape: str, pairs: int) -> dict[str, Any]:
    rows, tokens = (int(part) for part in shape.split("x"))
    step = step_of(device, rows, tokens)
    for _ in range(WARM):
        step()
    names = ways.names()
    bare: list[tuple[float, float]] = []
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for number in range(pairs):
        order = ["bare", *names]
        turn = number % len(order)
        for name in order[turn:] + order[:turn]:
            seconds = timed(step, nullcontext() if name == "bare" else ways.way(name))
            (bare if name == "bare" else found[name]).append(seconds)
    result: dict[str, Any] = {
        "bare_seconds": round(statistics.median(wall for wall, _ in bare), 4),
        "pairs": pairs,
        "ratios": {},
    }
    for name in names:
        entry = {}
        for place, kind in enumerate(("wall", "cpu")):
            ratios = sorted(one[place] / other[place] for one, other in zip(found[name], bare, strict=True))
            low, middle, high = statistics.quantiles(ratios, n=4)
            entry[kind] = round(middle, 3)
            entry[f"{kind}_quartiles"] = [round(low, 3), round(high, 3)]
            entry[f"{kind}_least"] = round(min(one[place] for one in found[name]) / min(one[place] for one in bare), 3)
        result["ratios"][name] = entry
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", action="append", help="rows x tokens; several may be given")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device = torch.device(arguments.device)
    ways = Ways(device)  # before the first tensor: the counter knows only what it saw
    if ways.switch is not None:
        ways.switch.value = False
    shapes = arguments.shape or ["4x256", "1x16"]
    found = {shape: measured(device, ways, shape, arguments.pairs) for shape in shapes}
    print(
        json.dumps(
            {
                "torch": torch.__version__,
                "device": str(device) if device.type == "cpu" else torch.cuda.get_device_name(device),
                "threads": arguments.threads,
                "load_before": round(os.getloadavg()[0], 2),
                "parameters": sum(parameter.numel() for parameter in Model().parameters()),
                "shapes": found,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
