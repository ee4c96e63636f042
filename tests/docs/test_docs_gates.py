"""The page of reason codes is the table of reason codes."""

from __future__ import annotations

import subprocess
import sys

from documents import ROOT, text

from tui_pilot.events.schema import PHASES
from tui_pilot.gates.cases import CASES
from tui_pilot.gates.codes import CODES, Code
from tui_pilot.gates.judge import thresholds
from tui_pilot.gates.table import COMMAND, KEYS, page, silent_codes, whole_page
from tui_pilot.plan.keys import dotted, leaves
from tui_pilot.plan.model import Plan

PAGE = ROOT / "tui_pilot" / "gates" / "README.md"


def test_the_page_is_up_to_date() -> None:
    assert text(PAGE) == whole_page(), f"the table changed: {COMMAND}"


def test_the_command_prints_the_page() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tui_pilot.gates.table"], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == whole_page()


def test_every_code_stands_under_each_of_its_phases() -> None:
    parts = {part.partition("\n")[0]: part for part in text(PAGE).split("\n## ")}
    for name, code in CODES.items():
        for phase in code.phases:
            assert f"| `{name}` | {code.severity} |" in parts["Any phase" if phase == "any" else phase], name


def test_a_code_is_at_work_in_the_tests_of_its_cases() -> None:
    sources = [path.read_text("utf-8") for path in sorted((ROOT / "tests" / "cases").glob("test_*.py"))]
    for code, cases in CASES.items():
        assert code in CODES
        for case in cases.split():
            name = f"def test_d{int(case[1:]):02d}_" if case[0] == "D" else f"def test_{case.replace('.', '_')}_"
            assert any(name in source and f'"{code}"' in source for source in sources), (code, case)


def test_every_threshold_is_listed_and_its_key_is_a_key_of_the_plan() -> None:
    known = {dotted(path) for path, _ in leaves(Plan())}
    for phase in PHASES:
        for name in thresholds(phase, Plan()):
            row = next(line for line in text(PAGE).splitlines() if line.startswith(f"| {phase} | `{name}` |"))
            assert KEYS.get(name, "fixed") in row
    assert set(KEYS.values()) <= known


def test_a_code_that_nothing_looks_for_is_said_so() -> None:
    codes = {"seen": Code(("load",), "fail", "Mend it."), "never": Code(("load",), "warn", "Look.")}
    silent = silent_codes(codes, ['reasons.append(reason("seen", text))'])
    assert silent == ["never"]
    assert "says nothing:\n`never`." in page(codes, silent)
    assert "In the table only" not in page(codes, [])
