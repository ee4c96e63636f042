"""Every room as it looks, from recorded runs, held against ``snapshots/``: ``python tests/make_snapshots.py`` renews.

One start of the screen for each run; the same start is taken through its rooms and sizes.
"""

from __future__ import annotations

import difflib
import unicodedata

import pytest
from make_screenshots import ROOMS
from make_snapshots import GROUPS, SNAPSHOTS, Group, take
from rich.cells import cell_len


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
async def test_rooms_look_as_they_did(group: Group) -> None:
    changed = []
    for name, text in (await take(group)).items():
        path = SNAPSHOTS / f"{name}.txt"
        kept = path.read_text("utf-8") if path.exists() else ""
        if kept != text:
            lines = difflib.unified_diff(kept.splitlines(), text.splitlines(), name, f"{name} now", lineterm="", n=1)
            changed.append("\n".join(lines))
    if changed:
        how = f"If this is meant: python tests/make_snapshots.py {group.name}"
        pytest.fail("\n\n".join([*changed, how]), pytrace=False)


def test_every_snapshot_belongs_to_a_group() -> None:
    names = [name for group in GROUPS for name in group.names()]
    assert {path.stem for path in SNAPSHOTS.glob("*.txt")} == set(names) and len(names) == len(set(names))


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_no_room_cuts_its_headline_or_its_keys_and_nothing_foreign_acts(group: Group) -> None:
    for name in group.names():
        text = (SNAPSHOTS / f"{name}.txt").read_text("utf-8")
        room, size = name.removeprefix(f"{group.name}-").split("-")
        width, height = (int(part) for part in size.split("x"))
        shown = text.split("\n")[2 : 2 + height]
        assert f"[{ROOMS.index(room) + 1} {room.title()}]" in shown[0], name
        assert shown[-1].endswith("? help  q leave"), name
        assert "…" not in shown[1] or group.name == "hostile", f"{name}: {shown[1]}"
        assert all(cell_len(line) <= width for line in shown), name
        bad = {
            hex(ord(each)) for each in text if unicodedata.category(each) in ("Cc", "Cf", "Co", "Cs") and each != "\n"
        }
        assert not bad, f"{name}: {bad}"
