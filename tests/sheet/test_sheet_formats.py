"""Every format of the sheet has the same content: four give the document back, the pages give its words back."""

from __future__ import annotations

import copy
import csv
import html.parser
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from sheet_documents import reason, row, shown

from tui_pilot.plan.model import Rental
from tui_pilot.run_folder import RunFolder
from tui_pilot.sheet import blocks
from tui_pilot.sheet.build import document, from_shown
from tui_pilot.sheet.formats import parse
from tui_pilot.sheet.values import facts_of
from tui_pilot.sheet.write import FORMATS, text

RECORDED = Path(__file__).resolve().parents[1] / "recorded"
HOSTILE = '=cmd|"/c calc"!A0 </script><script>alert(1)</script> \u202ereversed $x$ |pipe| *stars* \x1b[31m'


def gpu_runs() -> dict[str, Any]:
    broken = shown(run="20261201-190000-llama8b-full-3f9a")
    broken["state"], broken["verdict"], broken["text"] = "diverged", "fail", "loss is not finite at update 41"
    broken["metrics"] = {"loss": [[1, 2.0], [40, 9.0], [41, float("nan")]], "validation": []}
    row(broken, "first_step").update(verdict="fail", reasons=[reason("oom", HOSTILE)])
    show = shown()
    show["metrics"] = {"loss": [[1, 2.05], [200, 1.1]], "validation": [[100, {"loss": 1.3}], [200, {"loss": 1.2}]]}
    return from_shown([show, broken])


@pytest.fixture(scope="module", params=["gpu", "demo", "demo-broken", "desk-lost"])
def found(request: pytest.FixtureRequest) -> dict[str, Any]:
    name = str(request.param)
    made = gpu_runs() if name == "gpu" else document([RunFolder(RECORDED / name)])
    return copy.deepcopy(made)


def squeezed(value: str) -> str:
    """A text without blanks: where a page breaks a line is not content. Other control characters are shown, so stay."""
    return re.sub(r"[ \n]+", "", value)


def words(found: dict[str, Any]) -> list[Any]:
    """What a page must say, block by block."""
    out: list[Any] = []
    for block in blocks.of(found):
        if isinstance(block, blocks.Table):
            out.append([[squeezed(cell) for cell in cells] for cells in (block.head, *block.rows)])
        elif isinstance(block, blocks.Bullets):
            out += [squeezed(each) for each in block.texts]
        else:
            out.append(squeezed(block.text))
    return out


def visible(value: Any) -> Any:
    from tui_pilot.text import harmless

    return [visible(each) for each in value] if isinstance(value, list) else squeezed(harmless(value))


@pytest.mark.parametrize("format", ["json", "yaml", "csv"])
def test_the_document_comes_back(found: dict[str, Any], format: str) -> None:
    written = text(found, format)
    assert parse(written, format) == json.loads(json.dumps(found))
    assert "\x1b" not in written and "\u202e" not in written


def test_markdown_says_the_same(found: dict[str, Any]) -> None:
    assert from_markdown(text(found, "md")) == visible(words(found))


def test_no_cell_of_the_csv_is_a_formula(found: dict[str, Any]) -> None:
    rows = list(csv.reader(io.StringIO(text(found, "csv"))))
    assert rows[0] == ["section", "run", "key", "value"]
    assert not [cell for cells in rows for cell in cells if cell[:1] in ("=", "+", "@")]
    assert any(cells[0] == "fact" and cells[2] == "verdict" for cells in rows)


def test_html_says_the_same_in_one_file(found: dict[str, Any]) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install '.[report]'")
    written = text(found, "html")
    assert parse(written, "html") == json.loads(json.dumps(found))
    page = Page()
    page.feed(written)
    assert page.found == visible(words(found))
    assert page.scripts == [{"type": "application/json", "id": "sheet"}]
    assert not re.findall(r"(?:src|href)=\"(?!#)[^\"]*\"|@import|url\((?!#)", written)
    assert 'name="viewport"' in written and "prefers-color-scheme" in written and "<svg" in written


def test_without_the_plotting_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from tui_pilot.errors import PilotError

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PilotError, match=r"\[report\]"):
        text(gpu_runs(), "html")


def test_all_formats_are_tried_here() -> None:
    assert FORMATS == ("md", "json", "yaml", "csv", "html")


def test_a_diverged_run_stays_with_its_update() -> None:
    found = gpu_runs()
    assert found["configurations"][1]["curve"]["diverged"]
    assert any("diverged, loss is not finite at update 41" in line["text"] for line in found["seen_and_kept"])
    assert "diverged there" in " ".join(words_of_facts(found))


def test_the_packages_of_the_plan_stand_on_the_sheet() -> None:
    found = from_shown([shown()])
    assert [each["days"] for each in found["packages"]] == list(Rental().packages)
    page = text(found, "md")
    assert "## Packages of hours" in page and "~" in page and "| - margin" not in page.replace("\\-", "-")[:200]
    assert "= for jobs" in page.replace("\\", "")


def words_of_facts(found: dict[str, Any]) -> list[str]:
    return [value for item in found["configurations"] for _, value in facts_of(item)]


def from_markdown(page: str) -> list[Any]:
    out: list[Any] = []
    for block in page.strip("\n").split("\n\n"):
        lines = block.splitlines()
        if lines[0].startswith("|"):
            out.append(_table(lines))
        elif lines[0].startswith("- "):
            texts: list[str] = []
            for line in lines:
                if line.startswith("- "):
                    texts.append(line[2:])
                else:
                    texts[-1] += line[2:]
            out += [squeezed(_plain(each)) for each in texts]
        else:
            out.append(squeezed(_plain("".join(lines).lstrip("#"))))
    return out


def _table(lines: list[str]) -> list[list[str]]:
    rows: list[list[str]] = []
    for line in (lines[0], *lines[2:]):
        cells = [cell[1:-1] for cell in re.split(r"(?<!\\)(?:\\\\)*\|", line)[1:-1]]
        if len(rows) > 1 and (not cells[0].strip() or not any(cell.strip() for cell in cells[1:])):
            rows[-1] = [a + b for a, b in zip(rows[-1], cells, strict=True)]
        else:
            rows.append(cells)
    return [[squeezed(_plain(cell)) for cell in cells] for cells in rows]


def _plain(value: str) -> str:
    return re.sub(r"\\([\\`*<>\[\]|~&$#+=.)-])", r"\1", value)


class Page(html.parser.HTMLParser):
    """The words of our own HTML, block by block, without plots and data."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[Any] = []
        self.scripts: list[dict[str, str | None]] = []
        self.buffer = ""
        self.deep = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("svg", "style", "script", "title", "figcaption"):
            self.deep += 1
            if tag == "script":
                self.scripts.append(dict(attrs))
        elif tag == "table":
            self.found.append([])
        elif tag == "tr":
            self.found[-1].append([])
        self.buffer = ""

    def handle_endtag(self, tag: str) -> None:
        if tag in ("svg", "style", "script", "title", "figcaption"):
            self.deep -= 1
        elif tag in ("h1", "h2", "h3", "p", "li") and not self.deep:
            self.found.append(squeezed(self.buffer))
        elif tag in ("td", "th"):
            self.found[-1][-1].append(squeezed(self.buffer))

    def handle_data(self, data: str) -> None:
        if not self.deep:
            self.buffer += data
