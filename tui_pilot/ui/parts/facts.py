"""What a phase ran on and what was seen, in the words and units people read. Pure.

The stages write plain numbers under plain keys; here bytes become sizes, losses get three decimals, rates their
exponent, and lists of ids are named by their first ones. A task's own keys are shown as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tui_pilot.text import duration, loss, plural, rate, size

Inputs = Mapping[str, Any]
SHOWN_IDS = 3
FULL_ITEMS = 40
SHORT_TEXT = 60
NAMES = {
    "bytes": "size",
    "disk_free_bytes": "disk free",
    "disk_need_bytes": "disk needed",
    "optimizer_state_bytes": "optimizer state",
    "parameter_bytes": "parameters take",
    "row_ids": "rows",
    "longest_row_ids": "longest rows",
    "steps_limit": "steps at most",
    "lr": "learning rate",
}


def facts(inputs: Inputs, full: bool = False) -> list[tuple[str, str]]:
    """``(name, value)`` of everything that can be said in a line; ``full`` says everything there is."""
    out: list[tuple[str, str]] = []
    for key, value in inputs.items():
        if value is None and not full:
            continue
        text = value_text(str(key), value, full)
        if text:
            out.append((NAMES.get(str(key)) or str(key).removesuffix("_bytes").replace("_", " "), text))
    return out


def value_text(key: str, value: Any, full: bool = False) -> str:
    """One value in its unit, told by its key."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return number_text(key, value)
    if isinstance(value, (list, tuple)):
        return _list(key, value, full)
    if isinstance(value, Mapping):
        limit = FULL_ITEMS if full else SHOWN_IDS + 1
        said = [f"{name} {value_text(f'{key}_{name}', item, full)}" for name, item in list(value.items())[:limit]]
        return ", ".join(said) + (f", {len(value) - limit:,} more" if len(value) > limit else "")
    text = str(value)
    if not text.strip():
        return f"(blank, {plural(len(text), 'character')})" if text else "(empty)"
    text = text if full else " ".join(text.split())
    return text if full or len(text) <= SHORT_TEXT else f"{text[: SHORT_TEXT - 1].rstrip()}…"


def number_text(key: str, value: float) -> str:
    """A number as its key asks: bytes, seconds, losses, learning rates, shares, counts."""
    words = key.lower().split("_")
    if ("bytes" in words or "resident" in words) and isinstance(value, int):
        return size(value)
    if words[-1] in ("seconds", "duration"):
        return duration(float(value))
    if words[-1] == "lr" or "rate" in words or "rates" in words:
        return rate(float(value))
    if ("loss" in words or "losses" in words) and (value == 0 or abs(value) >= 0.0005) and "relative" not in words:
        return loss(float(value))
    if words[-1] in ("share", "recovered"):
        return f"{value:.0%}"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def _list(key: str, value: list[Any] | tuple[Any, ...], full: bool) -> str:
    if not value:
        return "none"
    if key == "shape":
        return " x ".join(f"{item:,}" if isinstance(item, int) else str(item) for item in value)
    if any(isinstance(item, Mapping) for item in value) and not full:
        return ""
    limit = FULL_ITEMS if full else SHOWN_IDS if len(value) > SHOWN_IDS + 1 else SHOWN_IDS + 1
    said = [value_text(key, item, full) for item in value[:limit]]
    if len(set(said)) == 1 and len(value) > 1 and len(value) <= limit:
        return f"{said[0]}, {len(value)} times"
    return ", ".join(said) + (f", {len(value) - limit:,} more" if len(value) > limit else "")


def sentence(phase: str, inputs: Inputs) -> str:
    """What was seen when the phase passed, in one line; empty where its inputs do not say it."""
    writer = _SENTENCES.get(phase)
    try:
        said = writer(inputs) if writer is not None else ""
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        said = ""
    return said or ", ".join(f"{name} {text}" for name, text in facts(inputs)[:4])


def _stack(of: Inputs) -> str:
    free = f"; {size(of['disk_free_bytes'])} of disk free" if isinstance(of.get("disk_free_bytes"), int) else ""
    return f"python {of['python']}, torch {of['torch']}; {of['device']}{free}"


def _examples(of: Inputs) -> str:
    limit = f" of {of['max_length']:,} tokens" if of.get("max_length") else " tokens"
    return f"{plural(of['rows'], 'row')}, the longest {of['longest']:,}{limit}, trained on {of['train_on']}"


def _splits(of: Inputs) -> str:
    rows = ", ".join(f"{count:,} {name}" for name, count in of["rows"].items())
    return f"{rows} rows along {of['unit']}"


def _overfit(of: Inputs) -> str:
    fell = f"loss {loss(of['first_loss'])} to {loss(of['last_loss'])} in {plural(of['steps'], 'step')}"
    return f"{fell} on {plural(of['rows'], 'row')}, {of['recovered']:.0%} given back"


def _load(of: Inputs) -> str:
    trained, number = of["trainable_parameters"], of["parameters"]
    said = f"all {number:,} parameters" if trained == number else f"{trained:,} of {number:,} parameters"
    return f"{said} train, {of['precision']} on {of['device']}"


def _forward(of: Inputs) -> str:
    return f"{of['shape']} tokens, {of['supervised']:,} trained on, loss {loss(of['loss'])}"


def _backward(of: Inputs) -> str:
    return f"{of['shape']} tokens, {of['supervised']:,} trained on: a gradient wherever one is due"


def _first_step(of: Inputs) -> str:
    state = size(of["optimizer_state_bytes"]) if of.get("optimizer_state_bytes") else "no"
    return f"{of['optimizer']}: {state} state; gradient norm {of['gradient_norm']:.3g}, lr {rate(of['lr'])}"


def _steady_step(of: Inputs) -> str:
    losses = ", ".join(loss(value) for value in of["losses"][-4:])
    return f"{plural(of['updates'], 'update')} of {of['shape']} tokens, memory flat, loss {losses}"


def _batch(of: Inputs) -> str:
    said = f"{plural(of['updates'], 'update')} of {plural(of['effective_batch'], 'row')} counted, as planned"
    return f"{said}; gradient error {of['gradient_error']:.1e}" if of.get("gradient_error") is not None else said


def _evaluate(of: Inputs) -> str:
    metrics = ", ".join(f"{name} {number_text('loss', value)}" for name, value in of["metrics"].items())
    return f"{plural(of['rows'], 'row')}, the longest batch {of['shape']}; {metrics}"


def _checkpoint(of: Inputs) -> str:
    return f"step {of['step']}, {size(of['bytes'])}: {', '.join(of['states'])}"


def _export(of: Inputs) -> str:
    tested = f"; control loss {loss(of['control_loss'])}" if of.get("control_loss") is not None else ""
    return f"{of['kind']}, {plural(of['files'], 'file')}, {size(of['bytes'])}{tested}"


def _resume(of: Inputs) -> str:
    how = "equal to the bit" if of["bit_equal"] else f"equal within {of['tolerance']:g}"
    return f"{plural(of['updates_repeated'], 'update')} from {of['checkpoint']} repeated, {how}"


def _reload(of: Inputs) -> str:
    after = loss(of["control_loss_after"])
    same = "all answers equal" if of["answers_equal"] else "answers differ"
    return f"{plural(of['control_rows'], 'control row')}, {same}; loss {loss(of['control_loss_before'])}, then {after}"


_SENTENCES: dict[str, Callable[[Inputs], str]] = {
    "stack": _stack,
    "examples": _examples,
    "splits": _splits,
    "overfit": _overfit,
    "load": _load,
    "forward": _forward,
    "backward": _backward,
    "first_step": _first_step,
    "steady_step": _steady_step,
    "batch": _batch,
    "evaluate": _evaluate,
    "checkpoint": _checkpoint,
    "export": _export,
    "resume": _resume,
    "reload": _reload,
}
