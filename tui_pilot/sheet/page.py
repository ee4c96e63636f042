"""The sheet as one HTML file: the same blocks as every page, plots inside, the document itself beside for programs.

It asks for nothing from anywhere, runs no script, and follows the reader's light or dark setting. On a phone a table
that is wider than the page scrolls alone.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping
from typing import Any

from tui_pilot.sheet import blocks, plots
from tui_pilot.text import harmless, harmless_json

Json = Mapping[str, Any]

STYLE = """
:root { color-scheme: light dark; --ink: #1d2126; --dim: #5b6570; --page: #fcfcfa; --line: #d9dcdf; --row: #f3f4f2;
  --good: #1b7f4d; --bad: #b3372f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6e8; --dim: #9ba4ad; --page: #16191d; --line: #363c43;
  --row: #1e2227; --good: #5cc48d; --bad: #ef8078; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 66rem; color: var(--ink); background: var(--page);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .75rem; }
h2 { font-size: 1.2rem; line-height: 1.3; margin: 2.25rem 0 .5rem; padding-top: .75rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.5rem 0 .4rem; color: var(--dim); }
p, ul { margin: .5rem 0; max-width: 46rem; }
ul { padding-left: 1.2rem; }
.scroll { overflow-x: auto; margin: .5rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: .3rem .7rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { color: var(--dim); font-weight: 600; white-space: nowrap; }
tbody tr:nth-child(odd) { background: var(--row); }
.right { text-align: right; white-space: nowrap; }
td:first-child { white-space: nowrap; }
.facts td:first-child { color: var(--dim); }
.facts td:last-child { overflow-wrap: anywhere; }
.long { min-width: 24rem; }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1rem;
  margin: 1rem 0; }
figure { margin: 0; max-width: 34rem; }
figure svg { display: block; width: 100%; height: auto; color: var(--ink); }
figcaption { color: var(--dim); font-size: .9rem; }
@media (max-width: 36rem) { body { padding: 1rem .75rem 2rem; } th, td { padding: .3rem .45rem; }
  .facts td:first-child { white-space: normal; min-width: 5.5rem; } }
@media print { body { max-width: none; } }
"""
GOOD, BAD = ("pass", "yes", "in"), ("FAIL", "NO", "out")


def as_html(document: Json) -> str:
    """The whole file. Raises a PilotError where the plotting library is not installed."""
    plots.available()
    title = html.escape(harmless(f"Selection sheet: {document.get('title') or 'no run'}"))
    data = harmless_json(json.dumps(document, ensure_ascii=False)).replace("<", "\\u003c")
    lines = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title>",
        f"<style>{STYLE}</style>",
        "</head>",
        "<body>",
        *_body(document),
        f'<script type="application/json" id="sheet">{data}</script>',
        "</body>",
        "</html>",
    ]
    return "\n".join(lines) + "\n"


def _body(document: Json) -> Iterator[str]:
    configurations = list(document.get("configurations") or ())
    seen = 0
    first = True
    for block in blocks.of(document):
        if isinstance(block, blocks.Heading) and block.level == 2 and seen < len(configurations):
            if seen == 0:
                yield from _losses(configurations)
            seen += 1
        yield from _block(block)
        if isinstance(block, blocks.Heading) and block.text.startswith("Memory, highest"):
            yield from _figure(plots.memory(configurations[seen - 1]), "Highest peak of each phase")
        if first and isinstance(block, blocks.Heading) and block.text == "Packages of hours":
            first = False
            yield from _figure(plots.packages(document["packages"]), "What is kept, what is packed, what stays unused")


def _losses(configurations: list[Json]) -> Iterator[str]:
    named = [(str(item["short"]), item["curve"]) for item in configurations if item["curve"]["loss"]]
    if named:
        yield from _figure(plots.losses(named), "Training loss (line) and validation loss (dots) over updates")


def _figure(svg: str, caption: str) -> Iterator[str]:
    yield f'<div class="plots"><figure>{svg}<figcaption>{html.escape(caption)}</figcaption></figure></div>'


def _block(block: blocks.Block) -> Iterator[str]:
    if isinstance(block, blocks.Heading):
        yield f"<h{block.level}>{_words(block.text)}</h{block.level}>"
    elif isinstance(block, blocks.Paragraph):
        yield f"<p>{_words(block.text)}</p>"
    elif isinstance(block, blocks.Bullets):
        yield "<ul>" + "".join(f"<li>{_words(each)}</li>" for each in block.texts) + "</ul>"
    else:
        facts = ' class="facts"' if block.head == ("item", "value") else ""
        yield f'<div class="scroll"><table{facts}><thead>{_row(block, block.head, "th")}</thead><tbody>'
        yield from (_row(block, cells, "td") for cells in block.rows)
        yield "</tbody></table></div>"


def _row(block: blocks.Table, cells: tuple[str, ...], tag: str) -> str:
    return "<tr>" + "".join(_cell(block, n, cell, tag) for n, cell in enumerate(cells)) + "</tr>"


def _cell(block: blocks.Table, place: int, cell: str, tag: str) -> str:
    names = ["right"] if place in block.right else []
    names += ["good"] if cell in GOOD and tag == "td" else ["bad"] if cell in BAD and tag == "td" else []
    # A sentence beside numbers keeps a width to be read at; the table scrolls instead.
    names += ["long"] if place and len(cell) > 24 and block.head != ("item", "value") else []
    styled = f' class="{" ".join(names)}"' if names else ""
    return f"<{tag}{styled}>{_words(cell)}</{tag}>"


def _words(text: str) -> str:
    return html.escape(harmless(" ".join(text.split("\n"))))
