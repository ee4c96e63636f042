"""The screen on recorded real runs: what every room says at three sizes, and that the pictures are not out of date."""

from __future__ import annotations

import json
import re

import pytest
from make_screenshots import SHOTS, TARGET, Shot, recorded_runs, svg_of, texts_of
from record_run import RECORDED

from tui_pilot.events.reader import Reader
from tui_pilot.events.schema import PHASES

SIZES = ((80, 24), (120, 36), (200, 50))


@pytest.mark.parametrize("shot", SHOTS, ids=lambda shot: shot.name)
async def test_the_pictures_show_the_screen_as_it_is(shot: Shot) -> None:
    kept = (TARGET / f"{shot.name}.svg").read_text("utf-8")
    svg, _ = await svg_of(shot)
    assert kept == svg, "out of date: python tests/make_screenshots.py makes them again"


def test_every_picture_has_its_recording_and_none_names_a_machine() -> None:
    assert {path.stem for path in TARGET.glob("*.svg")} == {shot.name for shot in SHOTS}
    for path in [*TARGET.glob("*.svg"), *RECORDED.rglob("*.json*")]:
        assert not re.search(r"/(?:tmp|root|work|venv)/", path.read_text("utf-8")), path
    assert sum(path.stat().st_size for path in RECORDED.rglob("*") if path.is_file()) < 1_500_000


@pytest.mark.parametrize(("width", "height"), SIZES)
async def test_a_finished_cpu_run_says_all_that_matters(width: int, height: int) -> None:
    _, text = await svg_of(Shot("", "demo", width, height))
    lines = text.splitlines()
    assert "✓ FINISHED pass   15 pass" in lines[1] and lines[1].endswith("ended 3 min ago")
    rows = [line[3:].split()[:2] for line in lines[3:18]]
    assert rows == [[phase, "pass"] for phase in PHASES]
    assert "no accelerator" in text  # what stands where the GPUs would: the reason, memory, the loss
    assert re.search(r"alloc(ated)? +\[▆+ *\] +[\d.]+", text) and re.search(r"host +\[▆+ *\] +[\d.]+", text)
    assert "5.622 ┤" in text and "3.785 ┤" in text
    assert "resume, pass, attempt 2" in text
    assert "loading took twice as long" in text


async def test_a_broken_run_leads_the_eye_from_line_2_to_the_row_to_its_reason() -> None:
    _, text = await svg_of(Shot("", "demo-broken", 120, 36))
    lines = text.splitlines()
    assert "✗ FAILED at examples: end token unsupervised   5 pass, 10 fail" in lines[1]
    row = next(line for line in lines if line.startswith(">"))
    assert row.startswith(">✗ examples    FAIL") and "end_token_unsupervis" in row and "+2" in row
    assert "→ Mask padding by length, not by id" in text
    assert "examples/audit.jsonl" in text and "/home/you" not in text


async def test_a_live_run_says_where_it_is() -> None:
    shot = next(each for each in SHOTS if each.upto is not None)
    _, text = await svg_of(shot)
    lines = text.splitlines()
    assert "► RUNNING   10/15 batch, update 5 of 6, loss 4.399 " in lines[1]
    assert any(line.startswith(">► batch       running") and "update 5 of 6" in line for line in lines)
    assert "following the run" in text and "batch so far, live" in text
    assert lines[-1].startswith(" s stop")


async def test_marks_notes_and_attempts_stand_in_the_detail() -> None:
    keys = ("g", *["j"] * PHASES.index("batch"), "enter")
    _, text = await svg_of(Shot("", "demo", 120, 36, keys))
    assert "mark p      pass, by hand: the last update averages 5 rows" in text
    keys = ("g", *["j"] * PHASES.index("resume"), "enter")
    _, text = await svg_of(Shot("", "demo", 120, 36, keys))
    assert "note        loading took twice as long the second time" in text
    assert re.search(r"attempt 1   pass, [\d.]+s", text)
    assert "optimizer state       15.1 MiB" in text and "losses                4.085, 3.907, 3.785" in text


async def test_numbers_have_their_units_in_every_phase() -> None:
    keys = ("g", "enter", *["escape", "j", "enter"] * (len(PHASES) - 1))
    texts = (await texts_of(Shot("", "demo", 120, 50, keys)))[1::3]
    for phase, text in zip(PHASES, texts, strict=True):
        assert f"{phase}: all detail" in text
        assert not re.search(r"\d\.\d{5,}", text), f"{phase}: a raw number\n{text}"
        assert not re.search(r"\b\d{1,3}(,\d{3}){2,} bytes|_bytes", text), phase


async def test_memory_room_unfolds_the_phase_that_sets_the_need() -> None:
    _, text = await svg_of(Shot("", "demo", 120, 36, ("3",)))
    assert "set by steady_step" in text.splitlines()[1]
    assert re.search(r">✓ steady_step +109\.3 +[\d.]+ .*sets the need", text)
    _, text = await svg_of(Shot("", "demo", 200, 50, ("3",)))
    assert re.search(r"\d Hz, [\d,]+ readings: a floor", text) and "unchecked: no accelerator" in text
    _, text = await svg_of(Shot("", "demo", 120, 36, ("3", "c", "g")))
    assert "── host, peak of each phase, MiB" in text and ">✓ stack" in text


async def test_runs_room_lists_variants_below_their_parents() -> None:
    _, text = await svg_of(Shot("", "desk", 120, 36, ("5", "j")))
    lines = text.splitlines()
    assert re.search(r"14 runs: 8 finished, 3 failed, 1 diverged, 1 stopped, 1 lost", lines[1])
    names = [line[3:31] for line in lines[4:] if line[3:31].strip().startswith(("├", "└"))]
    assert [name.split()[1] for name in names if "desk-" in name] == ["desk-9b08", "desk-8b5c", "desk-5303"]
    assert "changed     from desk-ebbd" in text and "batch.micro 4 → 8" in text
    assert "phases      ✓✓✓" in text


def test_the_recordings_are_whole_runs() -> None:
    for folder in (RECORDED / name for name in recorded_runs()):
        facts = json.loads((folder / "run.json").read_text("utf-8"))
        assert facts["schema"] == 1 and facts["host"] == "box" and facts["argv"][0] == "pilot-tui"
        reader = Reader(folder / "events")
        assert (folder / "plan.json").exists() and reader.poll() and not reader.broken, folder.name
