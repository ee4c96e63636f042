"""The documents as the tests of this folder read them: fenced blocks, inline code, tables, links."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCUMENTS = (README, ROOT / "tui_pilot" / "README.md", ROOT / "tui_pilot" / "gates" / "README.md")

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def text(path: Path = README) -> str:
    return path.read_text("utf-8")


def blocks(language: str, source: str | None = None) -> list[str]:
    """Contents of the fenced blocks of one language; an empty name: blocks without one."""
    found = _FENCE.findall(text() if source is None else source)
    return [re.sub(rf"^{indent}", "", body, flags=re.MULTILINE) for indent, name, body in found if name == language]


def inline(source: str) -> list[str]:
    """Inline code outside fenced blocks, with a table's escaped bars made plain."""
    return [each.replace("\\|", "|") for each in _INLINE.findall(_FENCE.sub("", source))]


def code(source: str | None = None) -> list[str]:
    """Every line of fenced blocks without a language, and every inline piece."""
    whole = text() if source is None else source
    return [*(line for block in blocks("", whole) for line in block.splitlines()), *inline(whole)]


def section(title: str) -> str:
    """What stands under one heading, down to the next of the same or a higher level."""
    lines = text().splitlines()
    start = next(n for n, line in enumerate(lines) if line.lstrip("#").strip() == title and line.startswith("#"))
    level = len(lines[start]) - len(lines[start].lstrip("#"))
    body: list[str] = []
    for line in lines[start + 1 :]:
        if line.startswith("#") and len(line) - len(line.lstrip("#")) <= level and line.lstrip("#").startswith(" "):
            break
        body.append(line)
    return "\n".join(body)


def table(title: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its head."""
    rows = [line for line in section(title).splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
    return cells[2 : next((n for n, row in enumerate(cells[2:], 2) if len(row) != len(cells[0])), len(cells))]


def links(source: str) -> list[str]:
    return _LINK.findall(_FENCE.sub("", source))
