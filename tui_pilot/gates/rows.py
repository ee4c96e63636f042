"""What one example shows of itself: faults of a single row, from its ids, labels and spans alone. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from tui_pilot.gates.content import Lost, Message, breaks_off, fold, squeeze
from tui_pilot.gates.entities import entities
from tui_pilot.gates.label_kinds import IGNORE, kind_of

EXPLAINS = frozenset({"length_cap", "wrong_role_supervised", "turn_unsupervised", "message_lost"})
"""Faults after which the supervised text must differ from the source: no words are lost besides."""


@dataclass(frozen=True)
class Expected:
    """What the plan and the task say a right row looks like.

    ``ends`` are the ids that end a turn or a document, ``bos_counts`` the accepted numbers of leading BOS ids,
    ``roles`` the roles to train on (None: all), ``last_only`` whether only the last such turn is. ``classes`` is the
    number of classes, 0 where rows carry no class, and ``names`` their names. ``marker`` is the text by which the task
    finds where its response begins.
    """

    ends: frozenset[int] = frozenset()
    bos: int | None = None
    bos_counts: tuple[int, ...] = (1,)
    pad: int | None = None
    roles: frozenset[str] | None = None
    last_only: bool = False
    max_length: int | None = None
    classes: int = 0
    names: Sequence[str] = ()
    table: int | None = None
    positions: int | None = None
    marker: str | None = None


@dataclass
class RowFacts:
    """One row as the loss gets it (``ids``, ``labels``) and as it would be uncut (``full_*``).

    ``messages`` are the roles of the file's conversation and ``conversation`` its messages; ``text`` is the uncut row
    decoded. ``words`` are the row's labels by word, ``padding`` the labels that stand on padding after collating.
    """

    row: Any
    split: str
    ids: Sequence[int]
    labels: Any
    full_ids: Sequence[int] | None = None
    full_labels: Sequence[int] | None = None
    spans: Sequence[tuple[int, int, str, int]] | None = None
    full_spans: Sequence[tuple[int, int, str, int]] | None = None
    source: str | None = None
    supervised_text: str | None = None
    messages: Sequence[str] | None = None
    conversation: Sequence[Message] | None = None
    text: str | None = None
    lost: Sequence[Lost] = ()
    normalised: bool = False
    words: Sequence[Any] | None = None
    padding: int = 0

    @property
    def whole(self) -> Sequence[int]:
        return self.ids if self.full_ids is None else self.full_ids

    @property
    def cut(self) -> bool:
        return len(self.whole) > len(self.ids)


@dataclass
class RowReport:
    """Counts of a row for the audit, and its faults as ``(code, detail)``.

    ``ends`` are the end tokens of the row from its first label on, and how many of them are supervised. ``kind`` says
    what the labels are where they do not stand at the places of the ids (see ``kind_of``).
    """

    tokens: int = 0
    length: int = 0
    supervised: int = 0
    lost: int = 0
    roles: dict[str, int] = field(default_factory=dict)
    ends: tuple[int, int] = (0, 0)
    kind: str | None = None
    faults: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def add(self, code: str, **detail: Any) -> None:
        self.faults.append((code, detail))


def supervised_places(labels: Sequence[int]) -> list[int]:
    """Places whose label counts in a shifted loss: place 0 has nothing before it that could predict it."""
    return [place for place, label in enumerate(labels) if label != IGNORE and place]


def places_of(ids: Sequence[int], wanted: Collection[int]) -> list[int]:
    """Where any of a few ids stands in a row, in order."""
    found: list[int] = []
    for token in wanted:
        place = -1
        for _ in range(ids.count(token)):
            place = ids.index(token, place + 1)
            found.append(place)
    return sorted(found)


def inspect(facts: RowFacts, expected: Expected) -> RowReport:
    """All counts and faults of one row."""
    report = RowReport(tokens=len(facts.whole), length=len(facts.ids))
    report.kind = None if expected.classes else kind_of(facts.labels, facts.ids, facts.spans is not None)
    if report.kind in ("none", "numbers"):
        report.supervised = 1
        _check_cap(facts, expected, report)
    elif report.kind == "sequence":
        _check_sequence(facts, expected, report)
    elif isinstance(facts.labels, (list, tuple)):
        if expected.classes and not _names_tokens(facts):
            report.supervised = sum(1 for label in facts.labels if label != IGNORE)
            _check_class(facts, expected, report, facts.labels)
        else:
            _check_tokens(facts, expected, report)
    else:
        report.supervised = 0 if facts.labels == IGNORE else 1
        _check_class(facts, expected, report, [facts.labels])
    if expected.positions is not None and len(facts.ids) > expected.positions:
        report.add("length_beyond_model", tokens=len(facts.ids), positions=expected.positions)
    if expected.table is not None and facts.ids and max(facts.ids) >= expected.table:
        report.add("id_out_of_table", id=max(facts.ids), table=expected.table)
    _check_target(facts, expected, report)
    if facts.padding:
        report.add("padding_supervised", count=facts.padding)
    return report


def _check_target(facts: RowFacts, expected: Expected, report: RowReport) -> None:
    """An answer without words teaches to stop at once; one that only calls tools has something to say."""
    if facts.source is not None and not facts.source.strip():
        report.add("empty_target")
        return
    turns = [
        turn
        for turn, message in enumerate(facts.conversation or ())
        if message.role in (expected.roles or ()) and not message.text.strip() and not message.calls
    ]
    last = max((turn for turn, each in enumerate(facts.conversation or ()) if each.role == "assistant"), default=None)
    if expected.last_only:
        turns = [turn for turn in turns if turn == last]
    if turns:
        report.add("empty_target", turn=turns[0])


def _check_sequence(facts: RowFacts, expected: Expected, report: RowReport) -> None:
    """A target beside the input: every label counts, and the end token is one of them."""
    counted = [label for label in facts.labels if label != IGNORE]
    full = facts.full_labels if facts.full_labels is not None else facts.labels
    due = sum(1 for label in full if label != IGNORE)
    report.supervised, report.lost = len(counted), max(0, due - len(counted))
    if report.lost:
        report.add("response_truncated", lost=report.lost, of=due)
    elif expected.ends and len(facts.labels) not in (len(facts.ids), expected.max_length):
        report.ends = (1, 1) if any(label in expected.ends for label in counted) else (0, 0)
        if not report.ends[0]:
            report.add("missing_end_token")
    _check_cap(facts, expected, report)
    _check_bos(facts, expected, report)
    _check_text(facts, report)


def _names_tokens(facts: RowFacts) -> bool:
    pairs = [(label, token) for label, token in zip(facts.labels, facts.ids, strict=False) if label != IGNORE]
    return bool(pairs) and all(label == token for label, token in pairs)


def _check_class(facts: RowFacts, expected: Expected, report: RowReport, labels: Sequence[Any]) -> None:
    if facts.cut:
        report.add("input_truncated", lost=len(facts.whole) - len(facts.ids), of=len(facts.whole))
    _check_cap(facts, expected, report)
    if not expected.classes:
        return
    if labels and not report.supervised and isinstance(facts.labels, (list, tuple)):
        report.add("no_supervised_token", before_cut=0, tokens=report.tokens)
    if facts.words is not None and not facts.cut:
        have, due = entities(labels, expected.names), entities(facts.words, expected.names)
        if have != due:
            report.add("entities_inflated" if have > due else "entities_lost", seen=have, expected=due)
    for label in labels:
        if label == IGNORE:
            continue
        if isinstance(label, float) and math.isnan(label):
            report.add("label_out_of_range", value="nan", classes=expected.classes)
        elif isinstance(label, float) and not label.is_integer():
            report.add("loss_mismatch", value=label)
        elif isinstance(label, (int, float)) and not 0 <= label < expected.classes:
            report.add("label_out_of_range", value=label, classes=expected.classes)
        elif not isinstance(label, (int, float)):
            report.add("loss_mismatch", value=str(label))
        else:
            continue
        return


def _check_tokens(facts: RowFacts, expected: Expected, report: RowReport) -> None:
    places = supervised_places(facts.labels)
    report.supervised = len(places)
    full_labels = facts.full_labels if facts.full_labels is not None else facts.labels
    full_supervised = len(supervised_places(full_labels)) if facts.cut else report.supervised
    report.lost = max(0, full_supervised - report.supervised)
    if not places:
        report.add("no_supervised_token", before_cut=full_supervised, tokens=report.tokens, **_marker(facts, expected))
    elif report.lost:
        report.add("response_truncated", lost=report.lost, of=full_supervised)
    _check_cap(facts, expected, report)
    if len(facts.labels) != len(facts.ids):
        report.add("span_shifted", labels=len(facts.labels), ids=len(facts.ids), shift=None)
    shift = _shift(facts.ids, facts.labels, places)
    if shift:
        report.add("span_shifted", shift=shift)
    _check_bos(facts, expected, report)
    _check_end(facts, expected, report, places, shift or len(facts.labels) - len(facts.ids))
    _check_roles(facts, expected, report, places)
    _check_text(facts, report)


def _marker(facts: RowFacts, expected: Expected) -> dict[str, Any]:
    """How often the response marker stands in the row's text, where the task names it."""
    if expected.marker is None:
        return {}
    return {"marker": expected.marker, "in_text": None if facts.text is None else facts.text.count(expected.marker)}


def _check_cap(facts: RowFacts, expected: Expected, report: RowReport) -> None:
    """A length in force that is not the planned one: told from the uncut row, or from an answer that breaks off."""
    length, planned = len(facts.ids), expected.max_length
    if planned is not None and length > planned:
        report.add("length_cap", effective=length, planned=planned, lost=0)
    elif facts.cut and planned is not None and length < planned:
        report.add("length_cap", effective=length, planned=planned, lost=len(facts.whole) - length)
    elif not facts.cut and facts.source is not None and facts.text is not None and length != planned:
        closed = any(token in expected.ends for token in facts.ids[-4:])
        whole = squeeze(facts.source) in squeeze(facts.supervised_text or "")
        rest = None if closed or whole else breaks_off(facts.source, facts.text)
        if rest is not None:
            report.add("length_cap", effective=length, planned=planned, lost=None, characters=rest)


def _shift(ids: Sequence[int], labels: Sequence[int], places: Sequence[int]) -> int:
    if not places or (places[-1] < len(ids) and [labels[each] for each in places] == [ids[each] for each in places]):
        return 0
    for shift in (1, -1):
        inside = [place for place in places if 0 <= place + shift < len(ids)]
        right = sum(1 for place in inside if labels[place] == ids[place + shift])
        if inside and right >= 0.9 * len(inside) and len(inside) >= len(places) - 1:
            return shift
    return 0


def _check_bos(facts: RowFacts, expected: Expected, report: RowReport) -> None:
    if expected.bos is None or not facts.ids:
        return
    count = 0
    for token in facts.ids:
        if token != expected.bos:
            break
        count += 1
    if count not in expected.bos_counts:
        report.add("bos_count", seen=count, expected=list(expected.bos_counts))


def _check_end(facts: RowFacts, expected: Expected, report: RowReport, places: Sequence[int], shift: int) -> None:
    if not expected.ends or facts.cut or shift:
        return
    # a label at place 0 never counts in a shifted loss, but it shows that the row was meant to be trained on
    counted = places
    places = places or [place for place in range(len(facts.labels[:1])) if facts.labels[place] != IGNORE]
    if not places:
        return
    spans = trained_spans(facts.spans, expected)
    all_ends = places_of(facts.ids, expected.ends)
    ends = [place for place in all_ends if place >= places[0]]
    report.ends = (len(ends), sum(1 for place in ends if facts.labels[place : place + 1] not in ([], [IGNORE])))
    if spans is None:
        ids = list(facts.ids)
        while ids and expected.pad is not None and ids[-1] == expected.pad and ids[-1] not in expected.ends:
            ids.pop()
        if not any(token in expected.ends for token in ids[places[0] :]):
            _no_end(facts, expected, report)
        elif not any(facts.labels[place] in expected.ends for place in places):
            report.add("end_token_unsupervised")
        return
    for start, end, _role, turn in spans:
        inside = [place for place in all_ends if start <= place < end]
        first = bisect_left(counted, max(1, start))
        if first == len(counted) or counted[first] >= end:  # nothing of this span carries a label
            continue
        if not inside:
            _no_end(facts, expected, report, turn=turn)
            return
        if all(facts.labels[place] == IGNORE for place in inside):
            report.add("end_token_unsupervised", turn=turn)
            return


def _no_end(facts: RowFacts, expected: Expected, report: RowReport, **turn: int) -> None:
    """A row as long as the plan allows, of a task that cannot be asked for it uncut, was cut: that is another fault."""
    if len(facts.ids) == expected.max_length and facts.full_ids is None:
        report.lost = 1
        report.add("response_truncated", lost=1, of=report.supervised + 1)
    elif not any(code == "length_cap" for code, _ in report.faults):
        report.add("missing_end_token", **turn)


def trained_spans(
    spans: Sequence[tuple[int, int, str, int]] | None, expected: Expected
) -> list[tuple[int, int, str, int]] | None:
    """The spans that should carry labels; None where the task gives no spans or every role is trained."""
    if spans is None or expected.roles is None:
        return None
    chosen = [span for span in spans if span[2] in expected.roles]
    return chosen[-1:] if expected.last_only else chosen


def _check_roles(facts: RowFacts, expected: Expected, report: RowReport, places: Sequence[int]) -> None:
    if facts.spans is None:
        return
    role_at: list[tuple[str, int | None]] = [("template", None)] * max(
        len(facts.labels), *(span[1] for span in facts.spans), 0
    )
    for start, end, role, turn in facts.spans:
        role_at[start:end] = [(role, turn)] * max(0, end - start)
    found = Counter([role_at[place] for place in places])  # in the order of their first place
    counts: Counter[str] = Counter()
    for (role, _), count in found.items():
        counts[role] += count
    report.roles = dict(counts)
    wanted = trained_spans(facts.spans, expected)
    if wanted is None:
        return
    turns = {span[3] for span in wanted}
    strange = {each: count for each, count in found.items() if each[1] is not None and each[1] not in turns}
    if strange:
        wrong: Counter[str] = Counter()
        for (role, _), count in strange.items():
            wrong[role] += count
        report.add("wrong_role_supervised", counts=dict(wrong), turn=next(iter(strange))[1])
    if found.get(("template", None)):
        report.add("template_token_supervised", count=found["template", None])
    have = {turn for _, turn in found if turn is not None}
    # a turn that is place 0 alone has no token before it that could predict it
    silent = [
        span[3]
        for span in wanted
        if span[3] not in have and span[1] > 1 and not (facts.cut and span[1] >= len(facts.ids))
    ]
    if silent and have:
        report.add("turn_unsupervised", turn=silent[0], turns=silent, of=len(wanted))
    _check_messages(facts, report)


def _check_messages(facts: RowFacts, report: RowReport) -> None:
    """Messages of the file that have no span; turns after the last answer may be left out, nothing is learned there."""
    if facts.messages is None or facts.spans is None:
        return
    seen = Counter(role for role, _ in {(span[2], span[3]) for span in (facts.full_spans or facts.spans)})
    listed = list(facts.messages)
    while listed and listed[-1] != "assistant" and "assistant" in listed:
        listed.pop()
    whole, due = Counter(facts.messages), Counter(listed)
    missing = {role: [whole[role], seen.get(role, 0)] for role, count in due.items() if seen.get(role, 0) < count}
    if missing:
        report.add("message_lost", roles=missing)


def _check_text(facts: RowFacts, report: RowReport) -> None:
    if facts.lost:
        first = facts.lost[0]
        more = {"turns": [each.turn for each in facts.lost]} if len(facts.lost) > 1 else {}
        detail = {"turn": first.turn, "role": first.role, "characters": first.characters, "of": first.of}
        report.add("content_lost", **detail, piece=first.piece, **more)
    elif facts.normalised:
        report.add("text_normalised")
    told = not EXPLAINS.isdisjoint(code for code, _ in report.faults)
    if facts.source is None or facts.supervised_text is None or not report.supervised or facts.lost or told:
        return
    source, seen = squeeze(facts.source), squeeze(facts.supervised_text)
    if not source or facts.cut or report.lost or source in seen:
        return
    if fold(source) in fold(seen):
        if not facts.normalised:
            report.add("text_normalised")
        return
    kept = _common(source, seen)
    report.add("content_lost", characters=len(source) - kept, of=len(source))


def _common(source: str, seen: str) -> int:
    start = 0
    while start < min(len(source), len(seen)) and source[start] == seen[start]:
        start += 1
    end = 0
    while end < min(len(source), len(seen)) - start and source[-1 - end] == seen[-1 - end]:
        end += 1
    return start + end
