"""What ``?`` shows: the words of the room and of its open pane, and every key with what it does now. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from textual.binding import Binding, BindingType

from tui_pilot.ui import actions, paint
from tui_pilot.ui.paint import Line
from tui_pilot.ui.room import Room

Key = tuple[str, str, str | None]
"""A key, what it does, and why it cannot now."""

MOVES: tuple[Key, ...] = (
    ("1-6, H L", "room; previous, next room", None),
    ("arrows, h j k l", "move; g and G first and last", None),
    ("pgup pgdn", "a page, as ctrl+u and ctrl+d", None),
    ("esc", "close what is on top; it never leaves", None),
)

LAST: tuple[Key, ...] = (
    ("ctrl+l", "draw everything again, if something else wrote here", None),
    ("ctrl+c", "does not leave; says which key does", None),
)

PANES = {
    "pilot detail": "everything known of one phase. reasons say what was seen, what was expected, where, and what to "
    "do. known says how each number was got: exact, sampled (a floor), predicted (~) or NA.",
    "pilot gpus": "one bar a GPU. Allocated (tall) in reserved (half) in used (low) in usable, never summed. The thin "
    "line is the highest of the phase, the thick one of the run.",
    "pilot curve": "loss, learning rate and validation (v) by update. A column is the mean of the updates in it.",
    "pilot events": "what happened, newest last. / leaves only the lines that have your words.",
    "examples reasons": "what was found over every row. The reason chosen here is what the list of rows holds.",
    "examples rows": "the rows of the chosen reason, or all. trained on is how much of the response the loss still "
    "sees, lost what the cut took. esc goes back to the reasons.",
    "examples tokens": "one row as the model gets it. The sign before each line says whether the loss sees it; a line "
    "never mixes the two.",
    "runs list": "one line a run. The sign is the verdict's; a letter before it says that the run is picked for c. "
    "changed is as long as there is room for, and whole in the pane below.",
    "runs run": "the selected run: every phase's sign, what failed, what was changed in full, its training loss.",
    "runs comparison": "the trials of one comparison. Told apart means: three seeds, one sign, more than two standard "
    "errors.",
    "runs picked": "the picked runs, a column each; of plan and verdicts only what differs. Single runs are never told "
    "apart.",
    "sheet preview": "the file, line by line, as e writes it.",
    "sheet side": "what decides about a rental: the need, the GPUs that have room for it, what three, seven or thirty "
    "days hold.",
}
"""What the open pane shows, by room and pane."""

NAMES = {
    "slash": "/", "question_mark": "?", "colon": ":", "left_square_bracket": "[", "right_square_bracket": "]",
    "equals_sign": "=", "pageup": "pgup", "pagedown": "pgdn", "escape": "esc", "up": "↑", "down": "↓", "left": "←",
    "right": "→", "less_than_sign": "<", "greater_than_sign": ">", "plus": "+", "minus": "-", "comma": ",",
    "full_stop": ".",
}  # fmt: skip


def key_name(keys: str) -> str:
    """``left_square_bracket,K`` is ``[ K``."""
    return " ".join(NAMES.get(each.strip(), each.strip()) for each in keys.split(","))


def bound(bindings: Iterable[BindingType]) -> list[tuple[str, str, str]]:
    """Bindings as ``(key, what it does, action)``."""
    return [
        (key_name(each.key), each.description or each.action, each.action)
        for each in bindings
        if isinstance(each, Binding)
    ]


def paragraphs(text: str) -> list[str]:
    """Lines that end a sentence end a paragraph; others go on, so that any width reads well."""
    out: list[str] = []
    for row in text.split("\n"):
        if out and not out[-1].endswith((".", ":", "!")):
            out[-1] += f" {row}"
        else:
            out.append(row)
    return out


def page(room: Room, why_not: Callable[[str], str | None]) -> tuple[str, Callable[[int], list[Line]]]:
    """The title, and what makes the lines for a width."""
    pane = room.open_pane()
    said = PANES.get(f"{room.room} {pane}", "")
    own = bound(vars(type(room)).get("BINDINGS", ()))
    panes: list[Key] = [
        ("enter", room.enter_word, None),
        ("tab", room.tab_word, room.why_no_tab()),
        ("z", "this pane alone", room.why_no_zoom()),
    ]
    everywhere: list[Key] = [(each.key, each.long, why_not(each.name)) for each in actions.ACTIONS]
    keys = (
        (f"keys of {room.title}", [(key, does, None) for key, does, _ in own]),
        ("keys that move", [*MOVES, *panes]),
        ("keys of every room", [*everywhere, *LAST]),
    )
    title = f"help: {room.title}, {pane}" if said else f"help: {room.title}"
    return title, lambda width: lines(room.help_text, f"This pane: {said}" if said else "", keys, width)


def lines(words: str, pane: str, keys: Sequence[tuple[str, Sequence[Key]]], width: int) -> list[Line]:
    """The page: ``pane`` is the sentence of the open pane, ``keys`` are sections of keys under their heads."""
    out: list[Line] = []
    for text in [*([pane] if pane else []), *paragraphs(words)]:
        out += [((f" {row}", "text"),) for row in paint.wrap(text, width - 2)]
    column = 16 if width >= 60 else 9
    for title, listed in keys:
        if listed:
            out += [paint.EMPTY, ((f" {title}", "head"),)]
        for key, does, why in listed:
            rows = [(row, "text") for row in paint.wrap(does, width - column - 4)]
            if why:
                rows += [(row, "dim") for row in paint.wrap(f"not now: {why}", width - column - 4)]
            names = paint.wrap(key, column)
            for n in range(max(len(rows), len(names))):
                row, role = rows[n] if n < len(rows) else ("", "text")
                name = names[n] if n < len(names) else ""
                out.append(((f"  {paint.left(name, column)} ", "head"), (row, role)))
    return out
