"""The sheet as markdown: it fits a terminal, it is a table on a forge, and foreign text is only text."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from sheet_documents import PLAN, reason, row, shown

from tui_pilot.errors import RunFolderError
from tui_pilot.sheet.build import from_shown
from tui_pilot.sheet.markdown import cells, render
from tui_pilot.sheet.write import FORMATS, file_name, free_name, text, write_document

HOSTILE = "[/x] [INST] <script>a|b</script> `code` **bold** \x1b[31mred\x1b[0m \x1b]0;title\x07 \u202ereversed # head"


def failed() -> dict[str, Any]:
    show = shown(run="20261201-190000-llama8b-full-3f9a")
    show["state"], show["verdict"] = "failed", "fail"
    row(show, "first_step").update(
        verdict="fail", reasons=[reason("oom", "gpu 3 asked 112.0 MiB, 74.0 MiB were free, in optimizer.step")]
    )
    return show


@pytest.mark.parametrize("shows", [[shown()], [shown("cpu")], [shown(), failed()], [failed()], []])
def test_no_line_is_wider_than_a_terminal_and_tables_are_even(shows: list[dict[str, Any]]) -> None:
    lines = render(from_shown(shows)).splitlines()
    assert max(cells(line) for line in lines) <= 80
    widths = [
        {cells(line) for line in block.splitlines()}
        for block in re.findall(r"(?:^\|.*\n)+", "\n".join(lines) + "\n", re.M)
    ]
    assert all(len(each) == 1 for each in widths)


def test_it_says_what_a_reader_needs() -> None:
    show = shown()
    row(show, "examples").update(
        verdict="warn",
        reasons=[reason("response_truncated", "37 of 3,200 rows", "warn")],
        mark="pass",
        note="rare in use",
    )
    page = re.sub(r"\s*\|\n\|\s*\|\s*", " ", render(from_shown([show])))
    assert page.startswith("# Selection sheet: llama8b-lora\n")
    for wanted in (
        "run llama8b-lora-77c1: may be retained, no decision yet",
        "34.7 GiB needed on each",
        "1 micro x 2 accumulation x 8 replicas = 16 rows an update",
        "steady_step",
        "examples marked pass, rare in use",
        "checkpoint 512.0 MiB, export (adapter) 160.0 MiB",
        "update 1.3s; evaluation 19.8s",
        "val loss \\<= 1.25",
        "37 rows cut, 4,102 response tokens lost",
        "### Memory per GPU, at steady_step",
        "memory.activation_checkpointing True (less activation memory): not measured",
    ):
        assert wanted in page, wanted


def test_nothing_retained_is_the_first_thing_said() -> None:
    page = render(from_shown([failed()]))
    assert page.splitlines()[2].startswith("Nothing is retained: first_step is FAIL")
    assert "not retained" in page


def test_an_override_is_printed() -> None:
    show = failed()
    row(show, "first_step").update(mark="warn", note="other process on the GPU")
    show["state"] = "finished"
    page = render(from_shown([show]))
    assert "- first_step: FAIL (oom), marked warn: other process on the GPU" in page


def test_foreign_text_is_only_text() -> None:
    plan = dataclasses.replace(PLAN, name=HOSTILE, expected=HOSTILE + "\n| a | b |\n|---|---|")
    show = shown(plan=plan)
    row(show, "examples").update(verdict="warn", reasons=[reason("x", HOSTILE, "warn")], mark="pass", note=HOSTILE)
    show["notes"] = [{"text": "# not a head\n" + HOSTILE}]
    page = render(from_shown([show]))
    assert not any(ord(each) < 32 and each != "\n" for each in page)
    assert "\u202e" not in page
    assert re.search(r"(?<!\\)<script", page) is None
    assert re.search(r"(?<!\\)`", page) is None
    assert [line for line in page.splitlines() if line.startswith("# ")] == [page.splitlines()[0]]
    for line in page.splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) in (3, 5, 6, 7)


def test_it_is_never_written_over_a_file(tmp_path: Path) -> None:
    document = from_shown([shown()])
    first = write_document(document, tmp_path)
    assert first.name == "sheet-llama8b-lora.md"
    first.write_text("mine")
    assert free_name(document, tmp_path, "md") == "sheet-llama8b-lora-2.md"
    second = write_document(document, tmp_path)
    assert second.name == "sheet-llama8b-lora-2.md"
    assert first.read_text() == "mine"
    assert second.read_text() == render(document)


def test_json_is_the_same_document(tmp_path: Path) -> None:
    document = from_shown([shown(), failed()])
    path = write_document(document, tmp_path, "json")
    assert path.suffix == ".json"
    assert json.loads(path.read_text()) == json.loads(json.dumps(document))


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot be written"):
        write_document(from_shown([shown()]), tmp_path / "file" / "below")


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(RunFolderError, match="no format 'pdf'"):
        text(from_shown([shown()]), "pdf")
    assert "pdf" not in FORMATS


def test_a_name_from_outside_never_leaves_the_folder() -> None:
    assert file_name({"title": "../../etc/passwd\x1b[0m"}) == "sheet-etc-passwd-0m"
    assert file_name({"title": "日本"}) == "sheet-run"


def test_json_holds_no_character_that_a_terminal_obeys() -> None:
    said = "\x1b[31m \x9b2J \u202e \u2028 \ud800 日本"
    document = from_shown([shown(plan=dataclasses.replace(PLAN, expected=said))])
    written = text(document, "json")
    assert not any((ord(each) < 32 and each != "\n") or 0x7F <= ord(each) < 0xA0 for each in written)
    assert "\u202e" not in written and "日本" in written
    assert json.loads(written)["configurations"][0]["expected_result"] == said


def test_only_sampled_peaks_are_called_floors() -> None:
    on_gpu, on_cpu = (render(from_shown([shown(device)])) for device in ("cuda", "cpu"))
    assert "| allocated | reserved | device used ≥ |" in on_gpu
    assert re.search(r"\| +allocated ≥ \| +host \|", on_cpu)


def test_what_changed_from_the_parent_is_printed() -> None:
    show = shown()
    show["parent"] = "20261201-190000-llama8b-full-3f9a"
    show["changed"] = {"launch.processes": [8, 1], "code of pilot-tui": ["a" * 64, "b" * 64]}
    page = re.sub(r"\s*\|\n\|\s*\|\s*", " ", render(from_shown([show])))
    assert "llama8b-full-3f9a; changed: launch.processes 8, now 1" in page and "a" * 12 in page and "a" * 13 not in page


def test_control_answers_and_an_exact_resume_are_printed() -> None:
    show = shown()
    row(show, "reload")["inputs"] = {"control_answers": ["The rear cable.", "   "]}
    show["facts"]["resume"] = {"bit_equal": True, "tolerance": 0.0}
    page = render(from_shown([show]))
    assert "| control 1      | The rear cable." in page and "(blank, 3 characters)" in page
    assert "losses to the bit" in page
