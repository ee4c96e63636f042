"""Writes the page of reason codes, ``gates/README.md``, from the table itself; ``COMMAND`` is the line to type.

The page can then never say another severity or advice than the verdict does. Standard library only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tui_pilot.events.schema import PHASES
from tui_pilot.gates.batch import TOLERANCE
from tui_pilot.gates.cases import CASES
from tui_pilot.gates.codes import CODES, Code
from tui_pilot.gates.judge import thresholds
from tui_pilot.plan.model import Plan

COMMAND = "python -m tui_pilot.gates.table > tui_pilot/gates/README.md"
PACKAGE = Path(__file__).resolve().parent.parent
ITSELF = ("gates/codes.py", "gates/table.py", "gates/cases.py")

#: The plan's key of a threshold that a person can set; the others belong to the arithmetic and are fixed.
KEYS = {
    "max_truncated": "gates.examples.max_truncated",
    "steps": "gates.overfit.steps",
    "max_seek_seconds": "gates.resume.max_seek_seconds",
}
MEANING = {
    "max_truncated": "share of rows that may lose a part of the response",
    "steps": "the most steps until the rows must be back; up to three times as many while 80% are and the loss falls",
    "recovered": "share of target ids that must come back",
    "growth_bytes": "memory may grow by this from the first update to the last (or by `growth_share`)",
    "growth_share": "the same as a share of what was allocated after the first; the larger of both counts",
    "relative_gradient_error": "accumulated gradient against the same rows one by one, by `precision`",
    "max_seek_seconds": "the longest way to the last update's rows in the data",
    "relative_loss": "control loss before export against after reload, by the artifact's dtype",
}

HEAD = f"""# Reason codes

Written by `{COMMAND}`; a test holds it against the table in `codes.py`.

A phase's verdict is the worst of its reasons: fail > unchecked > warn > pass. A note changes no verdict. The severity
here is the code's own; a single reason may be milder or harder where its sentence says so. The plan has the last word:

```yaml
gates: {{severity: {{near_duplicate: fail, names_generic: note}}}}
```

Cases are reported campaigns and data shapes (D): `11.05` is the test `test_11_05_...` in `tests/cases`.
"""


def page(codes: Mapping[str, Code], silent: Iterable[str]) -> str:
    """The whole page. ``silent``: codes that nothing looks for yet."""
    parts = [HEAD]
    for phase in ("any", *PHASES):
        rows = [(name, code) for name, code in codes.items() if phase in code.phases]
        if rows:
            parts.append(f"## {'Any phase' if phase == 'any' else phase}\n")
            parts.append(
                _table(("code", "severity", "what to do", "cases"), [_cells(name, code) for name, code in rows])
            )
    parts.append("## Thresholds\n\nWhat a phase was judged by stands in its row (`show RUN --json`, `thresholds`).\n")
    parts.append(_table(("phase", "threshold", "value", "set with", "is"), list(_thresholds())))
    found = sorted(silent)
    if found:
        parts.append(
            "## In the table only\n\nNothing looks for these yet, so their absence in a row says nothing:\n"
            + ", ".join(f"`{name}`" for name in found)
            + ".\n"
        )
    return "\n".join(parts)


def silent_codes(codes: Iterable[str], sources: Iterable[str]) -> list[str]:
    """Codes that no source text names as a string."""
    texts = list(sources)
    return [name for name in codes if not any(f'"{name}"' in text for text in texts)]


def package_sources(package: Path = PACKAGE) -> list[str]:
    """The package's modules as text, without the table itself."""
    own = {package / name for name in ITSELF}
    return [path.read_text("utf-8") for path in sorted(package.rglob("*.py")) if path not in own]


def whole_page() -> str:
    """The page as it stands in this package."""
    return page(CODES, silent_codes(CODES, package_sources()))


def _cells(name: str, code: Code) -> tuple[str, ...]:
    return f"`{name}`", code.severity, code.advice, CASES.get(name, "")


def _thresholds() -> Iterable[tuple[str, ...]]:
    for phase in PHASES:
        for name, value in thresholds(phase, Plan()).items():
            shown = TOLERANCE if name == "relative_gradient_error" else value
            key = f"`{KEYS[name]}`" if name in KEYS else "fixed"
            yield phase, f"`{name}`", _words(shown), key, MEANING[name]


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {each:g}" for name, each in value.items())
    return f"{value:g}" if isinstance(value, float) else f"{value:,}"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (head, tuple("---" for _ in head), *rows)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(whole_page())
