"""When a trial stops, what a comparison says of its runs, and how it reads."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_pilot.campaign import comparison, plot, words
from tui_pilot.campaign.comparison import Seen
from tui_pilot.plan.model import StopRule
from tui_pilot.run_folder import RunFolder
from tui_pilot.store.fold import fold

RECORD: dict[str, Any] = {
    "id": "20261202-060000-small-comparison-aaaa", "name": "small", "metric": "loss", "direction": "min",
    "baseline": "base", "seeds": [0, 1, 2], "sets": {"base": {}, "half": {"optimizer.lr": 0.5}, "hot": {}},
    "order": [[id, seed] for seed in (0, 1, 2) for id in ("base", "half", "hot")], "held": {"data": "4 rows"},
    "planned": {"updates": 4, "validation_at": [2, 4], "validation_every": 2, "save_every": 9, "stop": {"x": None}},
    "not_matched": ["half: warm-up share: 1% -> 2%"], "cost": {"predicted": None, "why": "no measurement yet"},
}  # fmt: skip


def ran(id: str, seed: int, number: int = 0, end: str | None = "finished", last: float = 1.0, **more: Any) -> Seen:
    """A trial as its events tell it."""
    run = f"2026120{number}-000000-small-{id}-s{seed}-{seed}{number}aa"
    events: list[dict[str, Any]] = [{"kind": "run_started", "run": run, "run_kind": "trial", "mono": 1.0}]
    for update in range(1, 5):
        events.append({"kind": "update", "stage": "trial", "update": update, "loss": last + 1 / update})
        if update % 2 == 0:
            events.append({"kind": "validation", "update": update, "metrics": {"loss": last}})
    if "stop" in more:
        events.append({"kind": "facts", "name": "stop", "value": more["stop"]})
    if "code" in more:
        reasons = [{"code": more["code"], "severity": "fail", "text": "said"}]
        events.append({"kind": "phase_ended", "phase": "batch", "verdict": "fail", "reasons": reasons})
    if end is not None:
        events.append({"kind": "run_ended", "state": end, "mono": 11.0})
    return Seen(RunFolder(Path(run)), {"trial": id, "seed": seed, "comparison": RECORD["id"]}, fold(events))


def hot(seed: int) -> Seen:
    stop = {"code": "loss_above_start", "update": 3, "began": 1, "text": "above"}
    return ran("hot", seed, end="diverged", last=9.0, stop=stop, code="diverged")


def whole(gap: float = -0.1) -> list[Seen]:
    pairs = [[ran("base", seed, last=1 + seed / 10), ran("half", seed, last=1 + gap + seed / 9)] for seed in (0, 1, 2)]
    return [*(one for pair in pairs for one in pair), *(hot(seed) for seed in (0, 1, 2))]


def test_a_diverged_trial_stays_everywhere_with_its_step() -> None:
    document = comparison.build(RECORD, whole())
    assert document["state"] == "finished" and len(document["trials"]) == 9
    gone = [each for each in document["trials"] if each["id"] == "hot"]
    assert [each["diverged_at"] for each in gone] == [3, 3, 3] and gone[0]["stop_reason"] == "loss_above_start"
    entry = next(each for each in document["summary"] if each["id"] == "hot")
    assert entry["seeds"] == 0 and entry["final"]["mean"] is None and entry["ended"] == {"diverged": 3}
    text = "\n".join(words.after(document))
    assert "diverged at 3" in text and "hot, seed 1, diverged at update 3 of 4" in text.replace("\n  ", " ")
    assert all(len(line) <= 80 for line in text.splitlines())
    assert any("h" in line for line in plot.draw(document["trials"], 4, 60, 10))
    early = comparison.build(RECORD, [ran("base", 0), hot(0)])  # hot still waits at the other seeds
    assert float(plot.draw(early["trials"], 4, 60, 10)[0].split()[0]) <= 2  # the scale is base's, not hot's 10
    assert "not matched: warm-up share: 1% -> 2%" in text


@pytest.mark.parametrize("width", [56, 80, 120])
def test_the_pane_of_the_runs_room_holds_the_diverged_trial_too(width: int) -> None:
    from tui_pilot.ui import paint
    from tui_pilot.ui.rooms import _comparison_page

    document = comparison.build(RECORD, whole())
    said = [paint.plain(line) for line in _comparison_page.said_lines(document, width)]
    text = "\n".join(said)
    assert max(map(len, said)) <= width
    assert "b base" in text and "h half" in text and "9 finished" not in text
    assert "diverged at 3, 3, 3" in text and "hot diverged: above" in text
    drawn = [paint.plain(line) for line in _comparison_page.plot_lines(document, width, 12)]
    assert len(drawn) == 12 and max(map(len, drawn)) <= width
    assert any("o" in line for line in drawn) and any("B" in line for line in drawn)


def test_every_seed_and_paired_difference_is_shown_and_told_apart_by_the_rule() -> None:
    document = comparison.build(RECORD, whole())
    half = next(each for each in document["summary"] if each["id"] == "half")
    pair = next(each for each in half["paired_differences"] if each["against"] == "base")
    assert set(pair["differences"]) == set(half["values"]) == {"0", "1", "2"}
    assert half["told_apart_from"] == ["base"] and pair["better"] is True and document["next"] == []
    near = comparison.build(RECORD, whole(0.0))
    half = next(each for each in near["summary"] if each["id"] == "half")
    assert half["told_apart_from"] == []
    assert near["next"][0]["trials"] == ["base", "half"] and "not told apart" in near["next"][0]["text"]


def test_a_lost_run_is_listed_and_its_trial_waits_for_another() -> None:
    lost = ran("base", 0, end="lost")
    document = comparison.build(RECORD, [lost])
    mine = [each for each in document["trials"] if (each["id"], each["seed"]) == ("base", 0)]
    assert [(each["state"], each["counts"]) for each in mine] == [("lost", False), ("waiting", True)]
    assert comparison.must_run_again(lost) and document["state"] == "running"
    again = comparison.build(RECORD, [lost, ran("base", 0, 1)])
    mine = [each for each in again["trials"] if (each["id"], each["seed"]) == ("base", 0)]
    assert [(each["state"], each["counts"]) for each in mine] == [("lost", False), ("finished", True)]


@pytest.mark.parametrize(
    ("seen", "again"),
    [
        (ran("base", 0), False), (hot(0), False), (ran("base", 0, end="stopped"), True),
        (ran("base", 0, end="failed", code="killed"), True), (ran("base", 0, end="failed", code="crash"), False),
    ],
)  # fmt: skip
def test_only_what_says_nothing_of_its_setting_runs_again(seen: Seen, again: bool) -> None:
    assert comparison.must_run_again(seen) is again


@given(st.lists(st.floats(0.1, 5, allow_nan=False), min_size=1, max_size=30), st.floats(1.1, 4))
def test_a_loss_above_its_start_stops_at_the_third_in_a_row(losses: list[float], factor: float) -> None:
    torch_side = pytest.importorskip("tui_pilot.pilot.trial_rules")
    rules = torch_side.Rules(StopRule(loss_above_start=factor), "min")
    stopped = next((stop.update for n, value in enumerate(losses, 1) if (stop := rules.loss(n, value))), None)
    limit, expected = factor * losses[0], None
    for end in range(3, len(losses) + 1):
        if all(value > limit for value in losses[end - 3 : end]):
            expected = end
            break
    assert stopped == expected


def test_not_finite_and_no_progress() -> None:
    rules_of = pytest.importorskip("tui_pilot.pilot.trial_rules")
    rules = rules_of.Rules(StopRule(no_progress=2), "max", "accuracy")
    assert rules.loss(1, 2.0) is None
    stop = rules.loss(2, math.nan)
    assert stop.code == "not_finite" and stop.update == 2 and stop.diverged
    assert rules_of.Rules(StopRule(not_finite=False), "min").loss(1, math.inf) is None
    assert [rules.validation(at, value) for at, value in ((4, 0.5), (8, 0.6), (12, 0.6))] == [None, None, None]
    stop = rules.validation(16, 0.1)
    assert stop.code == "no_progress" and not stop.diverged and stop.began == 12 and "0.6 of update 8" in stop.text
    assert rules_of.validation_at(10, 4) == [4, 8, 10]


def test_an_identical_rerun_is_a_replicate_and_any_difference_a_new_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tui_pilot.devices.probe import Probe
    from tui_pilot.devices.pythons import Choice
    from tui_pilot.launch import start as starting
    from tui_pilot.plan.load import default_demo
    from tui_pilot.store.ledger import entry

    def made(torch: str = "2.99", parent: str | None = None, **changes: Any) -> dict[str, Any]:
        choice = Choice("/python", Probe("/python", version="3.11", torch=torch), "a test's", device="cpu")
        monkeypatch.setattr(starting, "choose", lambda planned="auto", explicit=None: choice)
        return entry(starting.prepare(default_demo(changes), tmp_path, argv=["x"], parent=parent)).as_json()

    first, again, other = made(), made(), made(**{"batch.micro": 2})
    assert first["replicate_of"] is None and again["replicate_of"] == first["run"] != again["run"]
    assert (
        other["replicate_of"] is None
        and "batch.micro" in other["changed"]
        and other["parent"] in (first["run"], again["run"])
    )
    newer = made("3.0", other["run"], **{"batch.micro": 2})
    assert newer["replicate_of"] is None and newer["changed"] == {"software torch": ["2.99", "3.0"]}


def test_the_key_of_the_runs_room_asks_only_for_what_can_be_compared(tmp_path: Path) -> None:
    from tui_pilot.plan.load import load
    from tui_pilot.ui import actions

    file = tmp_path / "pilot.yaml"
    file.write_text("task: demo\n", "utf-8")
    assert "no compare section" in str(actions.why_not_compare(load(file)))
    file.write_text("task: demo\ncompare: {trials: [{id: a}, {id: b}], seeds: [0, 1]}\n", "utf-8")
    loaded = load(file)
    assert actions.why_not_compare(loaded) is None and "2 settings x 2 seeds" in actions.compare_question(loaded)
    assert "--set seed" in str(actions.why_not_compare(load(file, {"seed": "3"})))
    assert "no plan" in str(actions.why_not_compare(None))
    file.unlink()
    assert "gone" in str(actions.why_not_compare(loaded))
