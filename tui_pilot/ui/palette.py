"""What ``:`` lists: keys of every room, of this room, the rooms, the themes, and the way to plain lines. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tui_pilot.ui import actions, help
from tui_pilot.ui.overlays import KEY_WIDTH, Choice
from tui_pilot.ui.room import Room
from tui_pilot.ui.theme_names import THEMES

HERE = "here:"
"""Before the action of the open room in the ids."""
SHARED = ("enter", "tab", "pane_alone")
"""Keys that every room has and that are not moves."""


def choices(
    rooms: Sequence[Room], room: Room, why_not: Callable[[str], str | None], width: int
) -> tuple[list[Choice], dict[str, list[str]]]:
    """The list, and by id what is said below it: the sentence in full and why it cannot work now."""
    listed: list[Choice] = []
    more: dict[str, list[str]] = {}

    def add(id: str, key: str, does: str, why: str | None = None) -> None:
        beside = f"{does}   not now: {why}"
        shown = does if why is None else beside if len(beside) + KEY_WIDTH + 4 <= width else f"{does}   not now"
        listed.append((id, key, shown, why is None))
        more[id] = [does, *([f"not now: {why}"] if why else [])]

    own = {key for key, _, _ in help.bound(vars(type(room)).get("BINDINGS", ()))}
    for each in actions.ACTIONS:
        if each.name != "actions" and each.key not in own:  # a key that the room has for itself is listed as the room's
            add(each.name, each.key, each.long, why_not(each.name))
    shared = [each for each in help.bound(Room.BINDINGS) if each[2] in SHARED]
    for key, does, action in [*help.bound(vars(type(room)).get("BINDINGS", ())), *shared]:
        said = {"enter": room.enter_word, "tab": room.tab_word}.get(action, does)
        why = {"pane_alone": room.why_no_zoom, "tab": room.why_no_tab}.get(action, lambda: None)()
        add(f"{HERE}{action}", key, f"{room.title}: {said}", why)
    for n, one in enumerate(rooms):
        add(f"room({n})", str(n + 1), f"room {one.title}")
    for name in THEMES:
        add(f"theme('{name}')", "theme", f"theme {name}")
    add("plain", "--plain", "lines in place of a screen, for logs and screen readers")
    return listed, more
