"""One row as the loss sees it, in lines: position, role, mask in the gutter, text with its blanks made visible. Pure.

A line never mixes trained-on, masked and lost tokens, so the gutter alone tells the mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rich.cells import cell_len

from tui_pilot.text import count, harmless, plural
from tui_pilot.ui import paint
from tui_pilot.ui.paint import Line

IGNORE = -100
VIEWS = ("text", "tokens", "ids")
TRAINED, MASKED, LOST = "trained", "masked", "lost"
GUTTER = {TRAINED: ("┃", "trained"), MASKED: ("·", "dim"), LOST: ("×", "lost")}
ROLE = {TRAINED: "trained+underline", MASKED: "text", LOST: "lost"}
MARGIN = 19  # cells before the text: position, role, gutter
HEAD_LINES, TAIL_LINES = 4, 3
SPANS_SHOWN = 6


@dataclass(frozen=True)
class TokenRow:
    """A row's tokens, the lost ones at the end. ``kept`` of them enter the loss's batch; ``cut_at`` is None if all do.

    ``turns`` names for each token the number of its span, -1 outside; ``roles`` the role of each span.
    """

    ids: tuple[Any, ...]
    pieces: tuple[str, ...]
    states: tuple[str, ...]
    turns: tuple[int, ...]
    roles: tuple[str, ...]
    cut_at: int | None
    max_length: int | None
    source: str
    supervised_text: tuple[str, ...]
    label: str | None
    note: str | None
    line: int | None = None


def read(view: Mapping[str, Any]) -> TokenRow:
    """From the row's file in ``examples/rows``. Whatever is missing is left blank, never guessed."""
    ids, pieces = list(view.get("ids") or ()), [str(piece) for piece in view.get("pieces") or ()]
    labels = view.get("labels")
    label = None if isinstance(labels, (list, tuple)) or labels is None else str(labels)
    per_token = list(labels) if isinstance(labels, (list, tuple)) else []
    states = [TRAINED if n < len(per_token) and per_token[n] != IGNORE else MASKED for n in range(len(ids))]
    full_ids, full_pieces = view.get("full_ids"), view.get("full_pieces")
    cut_at = note = None
    if isinstance(full_ids, list) and len(full_ids) > len(ids):
        if full_ids[: len(ids)] == ids:
            cut_at = len(ids)
            states += [LOST] * (len(full_ids) - len(ids))
            lost = [str(piece) for piece in full_pieces or ()][len(ids) :]
            ids, pieces = list(full_ids), pieces + lost
        else:
            lost_count = len(full_ids) - len(ids)
            note = f"{plural(lost_count, 'token')} lost, and not from the end: what was cut is not shown"
    pieces += [""] * (len(ids) - len(pieces))
    turns, roles = _spans(view.get("spans") or (), len(ids))
    return TokenRow(
        tuple(ids),
        tuple(pieces[: len(ids)]),
        tuple(states),
        turns,
        roles,
        cut_at,
        view.get("max_length"),
        str(view.get("source") or ""),
        _supervised(view, pieces, states),
        label,
        note,
        view.get("line"),
    )


def _supervised(view: Mapping[str, Any], pieces: Sequence[str], states: Sequence[str]) -> tuple[str, ...]:
    """What is trained on as the task decoded it; where the task does not, the pieces of each supervised run."""
    given = view.get("supervised_text")
    if isinstance(given, str):
        return (given,) if given else ()
    if isinstance(given, (list, tuple)):
        return tuple(str(text) for text in given)
    runs = groupby(range(len(states)), key=lambda n: states[n])
    return tuple("".join(pieces[n] for n in places) for state, places in runs if state == TRAINED)


def _spans(spans: Sequence[Any], length: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    turns = [-1] * length
    roles: list[str] = []
    for number, span in enumerate(spans):
        start, end, role = int(span[0]), int(span[1]), str(span[2])
        roles.append(role)
        for place in range(max(0, start), min(length, end)):
            turns[place] = number
    return tuple(turns), tuple(roles)


def lines(row: TokenRow, width: int, view: str = "text", unfolded: bool = False) -> list[Line]:
    """All lines of a row in ``width`` cells; folded, long turns and the turns in the middle become one line each."""
    room = max(8, width - MARGIN)
    blocks = list(_blocks(row))
    out: list[Line] = []
    turns = [block.turn for block in blocks if block.turn >= 0]
    middle = set() if unfolded else _middle(turns, blocks)
    hidden: list[_Block] = []
    last_turn: int | None = None
    for block in blocks:
        if block.turn in middle:
            hidden.append(block)
            continue
        if hidden:
            out.append(_folded(hidden))
            hidden = []
        if block.state == LOST and row.cut_at == block.start:
            out.append(_cut(row, width))
        role = row.roles[block.turn] if block.turn >= 0 and block.turn != last_turn else ""
        last_turn = block.turn if block.turn >= 0 else last_turn
        out += _shortened(_block_lines(row, block, role, room, view), unfolded)
    if hidden:
        out.append(_folded(hidden))
    return out


@dataclass(frozen=True)
class _Block:
    """Tokens of one turn and one state, ``start`` to ``end``."""

    start: int
    end: int
    turn: int
    state: str


@dataclass(frozen=True)
class _Shown:
    """A line with the number of its first token."""

    start: int
    content: Line


def _blocks(row: TokenRow) -> Iterator[_Block]:
    for (turn, state), places in groupby(range(len(row.ids)), key=lambda n: (row.turns[n], row.states[n])):
        numbers = list(places)
        yield _Block(numbers[0], numbers[-1] + 1, turn, state)


def _middle(turns: Sequence[int], blocks: Sequence[_Block]) -> set[int]:
    """Turns to fold: neither the first three, nor the last two, nor one that lost something."""
    distinct = sorted(set(turns))
    if len(distinct) <= SPANS_SHOWN:
        return set()
    lost = {block.turn for block in blocks if block.state == LOST}
    return {turn for turn in distinct[3:-2] if turn not in lost}


def _folded(blocks: Sequence[_Block]) -> Line:
    tokens = sum(block.end - block.start for block in blocks)
    turns = len({block.turn for block in blocks})
    text = f"… {plural(tokens, 'token')}, {plural(turns, 'turn')}; enter unfolds"
    return ((" " * MARGIN, "text"), (text, "dim"))


def _cut(row: TokenRow, width: int) -> Line:
    limit = row.max_length if row.max_length is not None else row.cut_at
    text = f"╌╌╌╌╌╌ cut here: max_length {count(limit)} "
    return ((text + "╌" * max(0, width - len(text)), "warn"),)


def _shortened(shown: list[_Shown], unfolded: bool) -> list[Line]:
    content = [each.content for each in shown]
    if unfolded or len(shown) <= HEAD_LINES + TAIL_LINES + 1:
        return content
    tokens = shown[-TAIL_LINES].start - shown[HEAD_LINES].start
    fold: Line = ((" " * MARGIN, "text"), (f"… {plural(tokens, 'token')}", "dim"))
    return [*content[:HEAD_LINES], fold, *content[-TAIL_LINES:]]


def _block_lines(row: TokenRow, block: _Block, role: str, room: int, view: str) -> list[_Shown]:
    out: list[_Shown] = []
    for start, text in _wrapped(row, block, room, view):
        mark, mark_role = GUTTER[block.state]
        shown_role = role if not out else ""
        head = f"{start:>6} {paint.left(shown_role, 9)} "
        out.append(_Shown(start, ((head, "dim"), (mark, mark_role), (" ", "text"), (text, ROLE[block.state]))))
    return out


def _wrapped(row: TokenRow, block: _Block, room: int, view: str) -> Iterator[tuple[int, str]]:
    """First token and text of each line of a block."""
    if view == "text":
        yield from _text_lines(row, block, room)
        return
    line, start = "", block.start
    for place in range(block.start, block.end):
        shown = str(row.ids[place]) if view == "ids" else visible(row.pieces[place])
        joint = " " if view == "ids" else "|"
        grown = f"{line}{joint}{shown}" if line else shown
        if line and cell_len(grown) > room:
            yield start, line
            line, start = shown, place
        else:
            line = grown
        while cell_len(line) > room:
            head = _prefix(line, room)
            yield start, head
            line, start = line[len(head) :], place
        if view == "tokens" and "\n" in row.pieces[place] and line:
            yield start, line
            line, start = "", place + 1
    if line:
        yield start, line


def _text_lines(row: TokenRow, block: _Block, room: int) -> Iterator[tuple[int, str]]:
    """Text broken after newlines, else at the last blank that fits; a blank at an edge or a doubled one shows."""
    characters: list[tuple[str, int]] = [
        (each, place) for place in range(block.start, block.end) for each in row.pieces[place]
    ]
    begin = 0
    while begin < len(characters):
        end, cells, blank = begin, 0, None
        while end < len(characters):
            each = characters[end][0]
            cells += cell_len(visible(each)) if each != "\n" else 1
            if cells > room:
                break
            end += 1
            if each == " ":
                blank = end
            if each == "\n" and (end == len(characters) or characters[end][0] != "\n"):
                break
        else:
            blank = None
        stopped_by_width = end < len(characters) and cells > room
        if stopped_by_width and blank is not None and blank > begin:
            end = blank
        end = max(end, begin + 1)
        text = "".join(each for each, _ in characters[begin:end])
        yield characters[begin][1], visible(text, soft_end=stopped_by_width)
        begin = end


def visible(text: str, soft_end: bool = False) -> str:
    """Newlines ↵, tabs →, blanks at the edges and doubled ones ␣; every other control character harmless.

    ``soft_end``: the line was broken at its last blank for want of room, so that blank is no edge.
    """
    tail = text[-1:] if soft_end and text.endswith(" ") and not text.endswith("  ") else ""
    body = text[: len(text) - len(tail)]
    out: list[str] = []
    for n, each in enumerate(body):
        if each == " ":
            edge = n in (0, len(body) - 1) or body[n - 1] in " \n" or body[n + 1] in " \n"
            out.append("␣" if edge else " ")
        else:
            out.append({"\n": "↵", "\t": "→"}.get(each) or harmless(each))
    return "".join(out) + tail


def _prefix(text: str, room: int) -> str:
    end = len(text)
    while end > 1 and cell_len(text[:end]) > room:
        end -= 1
    return text[:end]


def comparison(row: TokenRow, width: int) -> list[Line]:
    """The source's own words, then what is trained on as the tokens decode; each trained-on text is looked up in it."""
    place = f"line {row.line:,}" if row.line is not None else ""
    out: list[Line] = [paint.rule("source, as in the file", place, width)]
    out += [((" " + text, "text"),) for text in _shown_text(row.source, width - 1)] or [((" not given", "dim"),)]
    out.append(paint.rule("trained on, decoded from the ids", "", width))
    if not row.supervised_text:
        words = " nothing in this row is trained on" if row.label is None else f" the class is trained on: {row.label}"
        out.append(((words, "dim"),))
    for number, text in enumerate(row.supervised_text, 1):
        if row.source:
            found = _squeezed(text) in _squeezed(row.source)
            said: Line = ((f" {number}: stands in the source", "dim"),)
            if not found:
                said = ((f" {number}: not in the source word for word (special tokens and blanks left out)", "warn"),)
            out.append(said)
        out += [((" ", "text"), ("┃ ", "trained"), (each, "trained")) for each in _shown_text(text, width - 3)]
    return out


def missing(row: TokenRow) -> int:
    """How many trained-on texts do not stand in the source word for word."""
    source = _squeezed(row.source)
    return sum(_squeezed(text) not in source for text in row.supervised_text)


def _shown_text(text: str, width: int) -> list[str]:
    return [piece for part in text.split("\n") for piece in paint.wrap(part, max(8, width))] if text else []


def _squeezed(text: str) -> str:
    """The words alone: the template's special tokens and blanks are not the source's."""
    kept: list[str] = []
    inside = ""
    for each in text:
        if each == "<":
            kept.append(inside)
            inside = each
        elif inside:
            inside += each
            if each == ">":
                inside = inside if not _is_special(inside) else ""
                kept.append(inside)
                inside = ""
        else:
            kept.append(each)
    return "".join("".join((*kept, inside)).split())


def _is_special(text: str) -> bool:
    return text in ("<s>", "</s>", "<eos>", "<bos>", "<pad>") or (text.startswith("<|") and text.endswith("|>"))
