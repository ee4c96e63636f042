"""Facts of one GPU that no prediction can know: ``python gpu_probes.py OUT.json``, in a process of its own.

Each probe says what it found, why it was left out, or what went wrong; none stops the others. Bytes.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch.nn import functional

from tui_pilot.devices.nvml import Nvml
from tui_pilot.observe import host_memory
from tui_pilot.observe.live import Live
from tui_pilot.observe.memory import Meter
from tui_pilot.observe.refused import Refusals

MIB = 1 << 20
NEEDS_CUDA = "needs a CUDA GPU"
BACKENDS = ("math", "flash", "efficient", "cudnn")


class LeftOut(Exception):
    """A probe that says nothing here, and why."""


def gpu() -> torch.device:
    if not torch.cuda.is_available():
        raise LeftOut(NEEDS_CUDA)
    return torch.device("cuda", 0)


def used_by_nvml() -> int | None:
    """What NVML says the first visible GPU has in use."""
    nvml = Nvml()
    inventory = nvml.open()
    uuid = "GPU-" + str(torch.cuda.get_device_properties(0).uuid).removeprefix("GPU-")
    found = next((each for each in inventory.gpus if each.uuid == uuid), None)
    used = nvml.read(found).used if found is not None else None
    nvml.close()
    return used


def context() -> dict[str, Any]:
    """The CUDA context: what appears outside torch with the first tensor."""
    device = gpu()
    before = used_by_nvml()
    kept = torch.ones(1, device=device)
    torch.cuda.synchronize()
    after, reserved = used_by_nvml(), torch.cuda.memory_reserved(device)
    outside = None if before is None or after is None else after - before - reserved
    free, total = torch.cuda.mem_get_info(device)
    return {"nvml_before": before, "nvml_after": after, "reserved": reserved, "context": outside,
            "cuda_total": total, "cuda_used": total - free, "kept": kept.numel()}  # fmt: skip


def workspaces() -> dict[str, Any]:
    """cuBLAS's workspace: allocated bytes that stay after the first product of each thread, against the constant."""
    from tui_pilot.predict import constants

    device = gpu()
    torch.cuda.empty_cache()
    left = torch.ones(256, 256, device=device, requires_grad=True)
    right = torch.ones(256, 256, device=device, requires_grad=True)
    start = torch.cuda.memory_allocated(device)
    out = left @ right
    forward = torch.cuda.memory_allocated(device) - start - out.numel() * 4
    out.sum().backward()
    held = 3 * out.numel() * 4  # the product and two gradients
    both = torch.cuda.memory_allocated(device) - start - held
    capability = torch.cuda.get_device_capability(device)
    return {"forward": forward, "forward_and_backward": both, "assumed_each": constants.cublas_workspace(capability)}


def attention() -> dict[str, Any]:
    """The kernel that torch takes for each shape, the predictor's choice, and the peak of forward and backward."""
    from tui_pilot.predict.attention import choose

    device = gpu()
    capability = torch.cuda.get_device_capability(device)
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        for masked in (False, True):
            for width in (64, 128):
                shape = (1, 16, 1024, width)
                q, k, v = (torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3))
                mask = torch.ones(1024, 1024, device=device, dtype=torch.bool).tril() if masked else None
                taken = int(torch._fused_sdp_choice(q, k, v, attn_mask=mask, is_causal=not masked))
                start = torch.cuda.memory_allocated(device)
                torch.cuda.reset_peak_memory_stats(device)
                out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=not masked)
                forward = torch.cuda.max_memory_allocated(device) - start
                out.sum().backward()
                both = torch.cuda.max_memory_allocated(device) - start
                chosen = choose(capability, dtype, (width, width), mask=masked)
                name = BACKENDS[taken] if taken < len(BACKENDS) else str(taken)
                rows.append({"dtype": str(dtype), "masked": masked, "width": width, "taken": name, "predicted": chosen,
                             "forward_peak": forward, "peak": both, "one": q.numel() * q.element_size()})  # fmt: skip
    return {"rows": rows, "agree": sum(row["taken"] == row["predicted"] for row in rows), "of": len(rows)}


def simulator() -> dict[str, Any]:
    """The allocator simulator against the allocator: the same blocks taken and given back, counters after each."""
    from tui_pilot.predict.allocator import Allocator

    device = gpu()
    torch.cuda.empty_cache()
    base = (torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device))
    simulated = Allocator()
    chance = random.Random(0)
    held: list[tuple[torch.Tensor, Any]] = []
    differ: list[dict[str, Any]] = []
    for step in range(2_000):
        if held and chance.random() < 0.45:
            tensor, block = held.pop(chance.randrange(len(held)))
            del tensor
            simulated.release(block)
        else:
            count = int(2 ** chance.uniform(6, 27))
            held.append((torch.empty(count, dtype=torch.uint8, device=device), simulated.malloc(count)))
        real = (torch.cuda.memory_allocated(device) - base[0], torch.cuda.memory_reserved(device) - base[1])
        if real != (simulated.allocated, simulated.reserved) and len(differ) < 20:
            differ.append({"step": step, "real": real, "simulated": (simulated.allocated, simulated.reserved)})
    peak = torch.cuda.max_memory_reserved(device)
    # Segments that torch already had may take the first blocks: then reserved differs by what they held.
    return {"steps": 2_000, "steps_that_differ": differ, "base": base, "reserved_peak": peak}


def refusal() -> dict[str, Any]:
    """An allocation that cannot fit: what the observer was told, and the size of the snapshot."""
    device = gpu()
    seen = Refusals(device)
    asked = 4 * torch.cuda.mem_get_info(device)[1]
    try:
        torch.empty(asked, dtype=torch.uint8, device=device)
    except torch.OutOfMemoryError as error:
        text = str(error).split("\n")[0]
    else:
        raise LeftOut("the device gave four times its memory")
    last = seen.last
    if last is None:
        return {"observer": seen.why or "was not called", "text": text}
    return {"asked": asked, "told": last.asked, "free": last.free, "allocated": last.allocated, "text": text,
            "snapshot": last.snapshot is not None}  # fmt: skip


def pinned() -> dict[str, Any]:
    """Pinned host memory, as torch counts it."""
    gpu()
    before = host_memory.pinned_begins(True)
    held = torch.empty(48 * MIB, dtype=torch.uint8, pin_memory=True)
    return {"before": before, "after": host_memory.pinned(), "asked": held.numel()}


def overhead() -> dict[str, Any]:
    """A measured window with the live thread beside it against a bare step, paired; the ratio of their medians."""
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    width = 2048 if device.type == "cuda" else 256
    layers = [torch.nn.Linear(width, width) for _ in range(8)]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(512 if device.type == "cuda" else 64, width, device=device)
    meter, said = Meter(device, 0), []
    live = Live(meter.highest, lambda phase, look: said.append(look))

    def step() -> None:
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def timed(work: Callable[[], None]) -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    def measured() -> None:
        with meter.window():
            step()

    for _ in range(3):
        step()
    pairs = []
    live.begin("overhead")
    for _ in range(20 if device.type == "cuda" else 5):
        bare = timed(step)
        pairs.append((timed(measured), bare))
    live.end()
    ratios = sorted(with_ / bare for with_, bare in pairs)
    return {"device": str(device), "pairs": len(pairs), "median_ratio": ratios[len(ratios) // 2], "ratios": ratios}


PROBES: dict[str, Callable[[], dict[str, Any]]] = {
    each.__name__: each for each in (context, workspaces, attention, simulator, pinned, overhead, refusal)
}


def run() -> dict[str, Any]:
    """Every probe's answer."""
    found: dict[str, Any] = {}
    for name, probe in PROBES.items():
        try:
            found[name] = probe()
        except LeftOut as why:
            found[name] = {"left_out": str(why)}
        except Exception as error:
            found[name] = {"failed": f"{type(error).__name__}: {error}"[:400]}
    return found


def facts() -> dict[str, Any]:
    """What the figures are of."""
    found: dict[str, Any] = {"torch": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip}
    found["alloc_conf"] = os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or os.environ.get("PYTORCH_ALLOC_CONF")
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        found |= {"name": properties.name, "capability": [properties.major, properties.minor]}
        found |= {"total": properties.total_memory, "cudnn": torch.backends.cudnn.version()}
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps({"torch": facts(), "probes": run()}))
