"""The event feed: one line per thing that happened, newest last. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tui_pilot.events import schema
from tui_pilot.text import duration, loss, rate
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.parts import facts
from tui_pilot.ui.parts.headline import clock
from tui_pilot.ui.parts.phases import SHORT

Event = Mapping[str, Any]


def worth(feed: Sequence[Event]) -> list[Event]:
    """The feed without what a person need not read: clean ends of stages, beginnings whose end is there too."""
    ended: set[tuple[object, object]] = set()
    kept: list[Event] = []
    for event in reversed(feed):
        kind, key = event.get("kind"), (event.get("phase"), event.get("attempt", 1))
        if kind == schema.PHASE_ENDED:
            ended.add(key)
        clean = kind == schema.STAGE_ENDED and event.get("exit_code") == 0 and not event.get("signal")
        if not clean and not (kind == schema.PHASE_STARTED and key in ended):
            kept.append(event)
    return kept[::-1]


def feed_line(event: Event, narrow: bool = False, began: float | None = None) -> Line:
    """``19:33:18  load  pass  11.9s  ...``; narrow leaves the columns away and counts from the run's beginning."""
    at = str(event.get("at", ""))[11:19]
    mono = event.get("mono")
    if narrow and began is not None and isinstance(mono, (int, float)) and mono >= began:
        at = clock(mono - began)
    who, word, role, took, text = _told(event)
    if narrow:
        if who == word or (who == "batch" and word == "update") or text.startswith("update "):
            who = "" if text else who
        if text.startswith(f"{word} "):
            word = took = ""
        if word == "pass":
            text = ""
        said = " ".join(part for part in (who, word, took, text) if part)
        return ((f"{at} ", "dim"), (said, role if role in ("fail", "warn") else "text"))
    return (
        (f" {at}  ", "dim"),
        (f"{paint.left(who, 11)}  ", "text"),
        (f"{paint.left(word, 9)}", role),
        (f"{took:>6}  ", "text"),
        (text, "text"),
    )


def _told(event: Event) -> tuple[str, str, str, str, str]:
    """Who, word, role of the word, duration, sentence."""
    kind = event.get("kind")
    phase = str(event.get("phase") or "")
    if kind == schema.PHASE_STARTED:
        return phase, "started", "running", "", SHORT.get(phase, "")
    if kind == schema.PHASE_ENDED:
        verdict = str(event.get("verdict") or "")
        reasons = event.get("reasons") or []
        first = reasons[0] if reasons and isinstance(reasons[0], Mapping) else {}
        noted = first.get("severity") == "note"
        text = "" if noted else str(first.get("text", ""))
        text = text or facts.sentence(phase, event.get("inputs") or {})
        word = "FAIL" if verdict == "fail" else verdict.replace("_", " ")
        role = paint.ROLE_OF.get(verdict, "text")
        return phase, word, "text" if role == "pass" else role, duration(_float(event.get("duration_s")), ""), text
    if kind == schema.UPDATE:
        lr = _float(event.get("lr"))
        text = f"update {event.get('update')}, loss {_loss(event.get('loss'))}"
        text += f", lr {rate(lr)}" if lr is not None else ""
        return phase or str(event.get("stage", "")), "update", "text", duration(_float(event.get("seconds")), ""), text
    if kind == schema.VALIDATION:
        metrics = event.get("metrics") or {}
        said = ", ".join(f"{key} {_loss(value)}" for key, value in metrics.items())
        return "validation", "", "text", "", f"update {event.get('update')}: {said}"
    if kind == schema.MARK:
        word = str(event.get("verdict") or "cleared")
        return phase, "mark", "text", "", f"{word}, by hand: {event.get('note') or 'no note'}"
    if kind == schema.NOTE:
        return phase or "note", "note", "text", "", str(event.get("text", ""))
    if kind == schema.DECISION:
        return "decision", "", "text", "", f"{event.get('decision')}: {event.get('note') or ''}"
    if kind == schema.REQUEST:
        return "request", "", "text", "", str(event.get("what", "")).replace("_", " ")
    if kind == schema.TEST_QUEUED:
        return phase or "resume", "queued", "warn", "", str(event.get("text", ""))
    if kind == schema.STAGE_ENDED:
        code, signal = event.get("exit_code"), event.get("signal")
        how = f"signal {signal}" if signal else f"exit {code}"
        bad = bool(signal) or code not in (0, None)
        text = str(event.get("text") or "")
        return (
            "supervisor",
            "",
            "fail" if bad else "text",
            "",
            f"stage {event.get('stage')} ended, {text if text.startswith(how) else f'{how}  {text}'}".rstrip(),
        )
    if kind == schema.RUN_STARTED:
        if event.get("again"):
            return "run", "again", "running", "", "a resume test of this ended run; its rows stay"
        return "run", "started", "running", "", str(event.get("run", ""))
    if kind == schema.RUN_ENDED:
        return "run", str(event.get("state", "")), "text", "", str(event.get("text") or "")
    if kind == schema.CLEANED:
        return "clean", "", "text", "", "payloads removed, manifests stay"
    level = str(event.get("level", "info"))
    text = " ".join(str(event.get(key)) for key in ("text", "advice") if event.get(key))
    return "notice", level if level != "info" else "", {"warn": "warn", "error": "fail"}.get(level, "text"), "", text


def _float(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _loss(value: Any) -> str:
    return loss(float(value)) if isinstance(value, (int, float)) else str(value)
