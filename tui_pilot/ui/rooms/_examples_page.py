"""The Examples room as lines: reasons, rows and facts at the left, what the loss sees at the right. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tui_pilot.gates.verdict import ORDER
from tui_pilot.store.state import Row
from tui_pilot.text import count, plural
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line, Span
from tui_pilot.ui.rooms import _lengths, _tokens
from tui_pilot.ui.rooms._audit import Record, Survey
from tui_pilot.ui.snapshot import Snapshot

PANES = ("reasons", "rows", "tokens")
PANE_TITLE = {"reasons": "reasons, over every row", "rows": "rows", "tokens": "what the loss sees"}
REASON_LINES = 8
DETAIL_LINES = 8


@dataclass(frozen=True)
class Found:
    """One line of the list of reasons; ``code`` None stands for all rows."""

    code: str | None
    verdict: str | None
    rows: int | None
    text: str = ""
    advice: str = ""


@dataclass(frozen=True)
class Page:
    """Everything the room shows at one moment. ``matches`` is how many rows the list has, ``row_at`` the selected one;
    ``record_of`` reads the record of the n-th row of the list."""

    width: int
    height: int
    row: Row
    facts: Mapping[str, Any]
    survey: Survey | None
    found: Sequence[Found]
    reason_at: int
    matches: int | None
    row_at: int
    rows_shown: Sequence[Record | None]
    rows_top: int
    record: Record | None
    tokens: _tokens.TokenRow | None
    token_lines: Sequence[Line]
    token_top: int
    view: str
    pane: str
    words: str = ""
    wide: bool = False
    classes: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    max_length: int | None = None

    @property
    def reason(self) -> Found:
        return self.found[self.reason_at]


def reasons_of(row: Row, survey: Survey | None, rows: int) -> list[Found]:
    """All rows first, then what the gate said, worst first, then codes that only the audit's records carry."""
    out = [Found(None, row.verdict, rows)]
    counted = survey.reasons if survey else {}
    listed = [each for each in row.reasons if isinstance(each, Mapping)]
    ranked = sorted(listed, key=lambda each: -_rank(each.get("severity")))
    seen: set[str] = set()
    for each in ranked:
        code = str(each.get("code"))
        if code in seen:
            continue
        seen.add(code)
        where = each.get("where") or {}
        rows_named = where.get("rows_count")
        number = counted.get(code) if counted.get(code) else rows_named
        severity = str(each.get("severity"))
        out.append(Found(code, severity, number, str(each.get("text") or ""), str(each.get("advice") or "")))
    for code, number in sorted(counted.items(), key=lambda item: -item[1]):
        if code not in seen:
            out.append(Found(code, "note", number))
    return out


def _rank(severity: Any) -> int:
    return ORDER.index(severity) if severity in ORDER else -1


def left_width(width: int) -> int:
    """Cells of the left stack; the rest is for the tokens."""
    return 41 if width < 160 else 50


def token_width(page_width: int, one_pane: bool, beside_source: bool) -> int:
    """Cells of the token lines."""
    right = page_width if one_pane else page_width - left_width(page_width) - 1
    return right - right // 3 - 1 if beside_source else right


def _parts(height: int) -> tuple[int, int]:
    """Lines of the list of reasons, and of the facts below the rows."""
    return min(REASON_LINES, max(3, height // 4)), max(4, height // 3)


def rows_room(height: int, found: int) -> int:
    """Rows that the list shows beside the tokens, with ``found`` reasons above it."""
    most, below = _parts(height)
    return max(1, height - min(most, found) - 2 - below - 3)


def draw(page: Page) -> list[Line]:
    """The whole room at 100 columns and more."""
    left = left_width(page.width)
    right = page.width - left - 1
    first = beside(reasons_stack(page, left, page.height), tokens_stack(page, right, page.height), left)
    return first[: page.height]


def one_pane(page: Page) -> list[Line]:
    """The pane that has the cursor, alone."""
    width, height = page.width, page.height
    if page.pane == "tokens":
        return tokens_stack(page, width, height)
    if page.pane == "rows":
        return row_lines(page, width, height)
    top = reason_lines(page, width, max(3, height // 2 - 2))
    below = fact_lines(page, width, max(4, height - len(top)))
    return [*top, *([paint.EMPTY] * (height - len(top) - len(below))), *below]


def empty(snapshot: Snapshot, width: int) -> list[Line]:
    """The room before anything was audited: why, and what to type."""
    row, plan = snapshot.state.row("examples"), snapshot.plan
    if row.running:
        progress = row.progress or {}
        done, total = progress.get("done"), progress.get("total")
        so_far = f": {done:,} of {plural(total, 'row')}" if isinstance(done, int) and isinstance(total, int) else ""
        said = [f"Every row is being looked at{so_far}."]
    elif row.verdict is None and snapshot.live:
        said = ["Not looked at yet: examples is the second phase of the run that goes on."]
    elif row.verdict in (None, "not_run"):
        name = plan.file.name if plan is not None and plan.file is not None else "pilot.yaml"
        said = [f"Not looked at yet. pilot-tui check {name} looks at every row, no GPU needed."]
        if plan is not None and plan.demo:
            said = ["Not looked at yet. This is the built-in demo: r runs it, and every row is looked at first."]
    else:
        said = [f"examples is {row.verdict}, and no row was audited."]
        said += [str(each.get("text") or "") for each in row.reasons]
    lines = [piece for text in said for piece in paint.wrap(text, max(20, width - 2))]
    return [paint.EMPTY, *(((" " + piece, "text"),) for piece in lines)]


def beside(lefts: Sequence[Line], rights: Sequence[Line], left: int) -> list[Line]:
    """Two stacks with one rule between; where a rule starts the stacks, the joint is a tee."""
    out: list[Line] = []
    for n in range(max(len(lefts), len(rights))):
        one = lefts[n] if n < len(lefts) else paint.EMPTY
        other = rights[n] if n < len(rights) else paint.EMPTY
        out.append((*paint.fit(one, left), ("┬" if n == 0 else "│", "rule"), *other))
    return out


def reasons_stack(page: Page, width: int, height: int) -> list[Line]:
    """Reasons, rows, facts: the left of the room."""
    most, least = _parts(height)
    top = reason_lines(page, width, most)
    below = fact_lines(page, width, least)
    room = height - len(top) - len(below)
    return [*top, *row_lines(page, width, room), *below]


def reason_lines(page: Page, width: int, most: int) -> list[Line]:
    """The list of reasons, a window of ``most`` lines around the selected one."""
    focused = page.pane == "reasons"
    out = [
        paint.rule(PANE_TITLE["reasons"], _tab(page, width, "rows"), width, "running" if focused else "head"),
        ((paint.left("   reason", width - 15) + paint.right("rows", 7) + paint.left(" verdict", 8), "dim"),),
    ]
    start = max(0, min(page.reason_at - most // 2, len(page.found) - most))
    for number in range(start, min(len(page.found), start + most)):
        out.append(_reason_line(page, number, width, focused))
    if len(page.found) == 1 and page.survey is not None and page.row.verdict not in (None, "running"):
        out.append((("   no reason was found in any row", "dim"),))
    return out


def _tab(page: Page, width: int, to: str) -> str:
    """Where ``tab`` goes, said while one pane is shown alone."""
    return f"tab: {to}" if width == page.width else ""


def _reason_line(page: Page, number: int, width: int, focused: bool) -> Line:
    each = page.found[number]
    chosen = number == page.reason_at
    sign, role = paint.glyph(each.verdict if each.verdict != "note" else "not_run")
    word = {"fail": "FAIL", "running": "running", None: "", "not_run": "not run"}.get(each.verdict, str(each.verdict))
    name = "all rows" if each.code is None else each.code
    body = paint.left(name, width - 18) + paint.right(count(each.rows), 7) + " "
    spans: tuple[Span, ...] = (
        (">" if chosen else " ", "text"),
        (sign + " ", role),
        (body, "text"),
        (paint.left(word, 7), role if each.verdict in ("fail", "warn", "unchecked") else "text"),
    )
    return paint.chosen(paint.fit(spans, width)) if chosen and focused else spans


def row_lines(page: Page, width: int, height: int) -> list[Line]:
    """The rows of the selected reason: as many as fit, read by offset."""
    focused = page.pane == "rows"
    title = "looking for rows ..." if page.matches is None else plural(page.matches, "row")
    if page.words:
        title += f" with “{page.words}”"
    ordered = ", most lost first" if page.reason.code is not None and page.matches else ""
    if width >= 60 and page.reason.code is not None:
        title = f"{page.reason.code}: {title}"
    out: list[Line] = [
        paint.rule(title + ordered, _tab(page, width, "tokens"), width, "running" if focused else "head"),
        ((paint.left("   row", width - 28) + paint.right("tokens", 8) + "  trained on   lost", "dim"),),
    ]
    shown = max(0, height - 3)
    for n, record in enumerate(page.rows_shown[:shown]):
        out.append(_row_line(record, page.rows_top + n == page.row_at, width, focused))
    out += [paint.EMPTY] * (height - 1 - len(out))
    place = ""
    if page.matches:
        last = min(page.matches, page.rows_top + shown)
        place = f"  {page.rows_top + 1:,}–{last:,} of {page.matches:,}"
    elif page.matches == 0:
        place = "  no row" + (": esc takes the filter away" if page.words else "")
    if page.matches and page.matches > shown:
        place = paint.left(place, width - 9) + "G: last"
    out.append(((place, "dim"),))
    return out[:height]


def _row_line(record: Record | None, chosen: bool, width: int, focused: bool) -> Line:
    if record is None:
        return (("  this record cannot be read", "warn"),)
    supervised, lost = record.get("supervised"), record.get("lost") or 0
    name = str(record.get("row"))
    if record.get("split") not in (None, "train"):
        name += f" {str(record['split'])[:3]}"
    kept = count(supervised) if not lost else f"{count(supervised)} of {count((supervised or 0) + lost)}"
    if len(kept) > 12:
        kept = kept.replace(" of ", "/")
    text = paint.left((">  " if chosen else "   ") + paint.clean(name), width - 28)
    text += paint.right(count(record.get("tokens")), 8)
    text += paint.right(kept, 12) + paint.right(count(lost) if lost else "–", 7)
    spans: Line = ((text, "text"),)
    return paint.chosen(paint.fit(spans, width)) if chosen and focused else spans


def fact_lines(page: Page, width: int, most: int) -> list[Line]:
    """Lengths of every row, classes where there are any, and what the gate counted."""
    out: list[Line] = []
    survey = page.survey
    if page.classes:
        out.append(paint.rule(f"{plural(len(page.classes), 'class', 'classes')}, rows of train", "", width))
        out += _lengths.classes(page.classes, width, max(2, most - 5))
    elif survey is not None and survey.lengths:
        out.append(paint.rule(f"length of all {count(survey.rows)} rows, tokens", "", width))
        out += _lengths.histogram(survey.lengths, page.max_length, width)[: max(2, most - 4)]
    else:
        out.append(paint.rule("length of all rows, tokens", "", width))
        out.append(((" counting ...", "dim"),))
    return [*out, *_counted(page, width)][:most]


def _counted(page: Page, width: int) -> list[Line]:
    facts = page.facts
    length = facts.get("length") or {}
    lines: list[Line] = []
    if length:
        named = "   ".join(f"{key} {count(length.get(key))}" for key in ("p50", "p95", "max"))
        cut = "after the cut: " if facts.get("response_tokens_lost") else ""  # the bars above are of whole rows
        lines.append(((f" {cut}{named}", "text"),))
    if facts.get("padding_share") is not None:
        lines.append(((f" padding {facts['padding_share']:.1%} of tokens in batches", "text"),))
    if facts.get("supervised_rows") is not None:
        said = f" trained on in {count(facts['supervised_rows'])} of {count(facts.get('rows'))} rows"
        lines.append(((said, "text"),))
    lost = facts.get("response_tokens_lost")
    if lost:
        lines.append(((f" {count(lost)} response tokens lost to the cut", "warn"),))
    return lines


def tokens_stack(page: Page, width: int, height: int) -> list[Line]:
    """The row under the cursor: what it is, its tokens, and what the gate says of it."""
    focused = page.pane == "tokens"
    others = ", ".join(each for each in _tokens.VIEWS if each != page.view)
    out: list[Line] = [
        paint.rule(PANE_TITLE["tokens"], f"view: {page.view}   i: {others}", width, "running" if focused else "head")
    ]
    if page.record is None:
        return [*out, ((" no row is selected", "dim"),)]
    out.append(((" " + _about(page.record, page.tokens, page.classes), "text"),))
    detail = detail_lines(page, width)[: max(2, min(DETAIL_LINES, height // 3))]
    room = height - len(out) - len(detail) - 3
    side = width // 3 if page.wide and page.tokens is not None else 0
    body = _token_body(page, room)
    head: Line = (("   pos role      m text", "dim"),)
    if side and page.tokens is not None:
        compared = _tokens.comparison(page.tokens, side)
        start = max(0, min(page.token_top, len(compared) - room - 1))
        body = beside_plain([head, *body], compared[start:], width - side - 1, room + 1)
    else:
        body = [head, *body]
    out += body
    out += [paint.EMPTY] * (height - len(out) - len(detail) - 2)
    legend = "  ┃ trained on   · masked   × lost to the cut   ␣ ↵ → blanks made visible"
    return [*out, ((legend, "dim"),), paint.rule("", "", width), *detail][:height]


def beside_plain(lefts: Sequence[Line], rights: Sequence[Line], left: int, height: int) -> list[Line]:
    """Two stacks of at most ``height`` lines."""
    return paint.beside(
        [lefts[n] if n < len(lefts) else paint.EMPTY for n in range(height)], list(rights)[:height], left, "│"
    )


def _token_body(page: Page, room: int) -> list[Line]:
    if page.tokens is None:
        said = (
            "The tokens of this row were not kept in the run folder:",
            "kept are the rows that a reason names, and a sample.",
        )
        return [((" " + each, "dim"),) for each in said]
    shown = list(page.token_lines[page.token_top : page.token_top + room])
    left = len(page.token_lines) - page.token_top - len(shown)
    if left > 0 and shown:
        more = f"{'':{_tokens.MARGIN}}… {plural(left + 1, 'line')} more below"
        shown[-1] = ((more, "dim"),)
    return shown


def _about(record: Record, tokens: _tokens.TokenRow | None, classes: Sequence[Mapping[str, Any]]) -> str:
    parts = [f"row {record.get('row')}", str(record.get("split") or "")]
    if record.get("unit") is not None:
        parts.append(f"unit {record['unit']}")
    total, length = record.get("tokens"), record.get("length")
    cut = f", cut to {count(length)}" if length is not None and total is not None and length < total else ""
    parts.append(f"{plural(int(total or 0), 'token')}{cut}")
    if tokens is not None:
        if tokens.roles:
            parts.append(plural(len(tokens.roles), "turn"))
        if tokens.label is not None:
            name = next((each.get("name") for each in classes if str(each.get("id")) == tokens.label), None)
            parts.append(f"label {tokens.label}" + (f" = {name}" if name is not None else ""))
    return "   ".join(part for part in parts if part)


def detail_lines(page: Page, width: int) -> list[Line]:
    """The reason in a sentence with its way out, the source beside what is trained on, and the person's mark."""
    out: list[Line] = []
    record = page.record or {}
    codes = [page.reason.code] if page.reason.code is not None else list(record.get("reasons") or ())
    by_code = {each.code: each for each in page.found}
    for code in codes[:3]:
        each = by_code.get(code)
        sign, role = paint.glyph(each.verdict if each and each.verdict != "note" else "not_run")
        text = f"{code}: {each.text} {each.advice}".rstrip(": ") if each else str(code)
        for n, piece in enumerate(paint.wrap(text, width - 4)):
            out.append(((f" {sign} ", role) if n == 0 else ("   ", "text"), (piece, "text")))
    if not codes and page.record is not None:
        out.append(((" ✓ ", "pass"), ("no reason names this row", "text")))
    if page.tokens is not None:
        if page.tokens.note:
            out.append((("   " + page.tokens.note, "warn"),))
        if not page.wide:
            out.append((("   source   ", "dim"), (_compared(page.tokens), "text")))
    if page.row.mark:
        note = f", by hand: {page.row.note}" if page.row.note else ", by hand, without a note"
        out.append((("   mark     ", "dim"), (f"{page.row.mark}{note}", "text")))
    return out


def _compared(tokens: _tokens.TokenRow) -> str:
    if not tokens.source:
        return "the task gives no source text to compare with"
    if not tokens.supervised_text:
        return "nothing of this row is trained on; the source stands below the tokens"
    missing = _tokens.missing(tokens)
    if missing:
        return f"{missing} of {plural(len(tokens.supervised_text), 'trained-on text')} not in the source; see below"
    return "every trained-on text stands in the source; both below the tokens"
