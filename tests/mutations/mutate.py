"""Plants each kind of fault alone into the small demo task and says which gate caught it.

    python tests/mutations/mutate.py [WORD ...]      only plants whose name or case number holds a word

Exit 0: every plant was caught by the gate it belongs to, by no other one, and the task without a plant raised nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from lab import ONE_THREAD, Lab, warm_process  # noqa: E402
from plants import DATA, OVERFIT, PEAK, PLANTS, RELOAD, RESUME, TRAIN, Plant  # noqa: E402

from tui_pilot.store.state import RunState  # noqa: E402

ALL = (DATA, OVERFIT, PEAK, TRAIN, RESUME, RELOAD)
NOTHING = Plant("nothing planted", "", {}, stages=ALL)
PLAN = {
    "name": "name: mutation",
    "task": "task: planted.py:Planted",
    "data": "data: {unit: conversation_id, max_length: 512}",
    "batch": "batch: {micro: 2, accumulation: 2}",
    "budget": "budget: {updates: 8}",
    "optimizer": "optimizer: {lr: 3.0e-3, warmup: 2}",
    "evaluate": "evaluate: {rows: 8}",
    "pilot": "pilot: {steady: 3, timed: 4, reference: 2}",
    "gates": "gates: {stop_on_fail: false, overfit: {rows: 2, steps: 200, lr: 1.0e-2}}",
}


@dataclass
class Found:
    """What became of one plant: reasons by phase, and what is wrong with them."""

    plant: Plant
    reasons: dict[str, set[str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def line(self) -> str:
        told = "; ".join(f"{phase}: {', '.join(sorted(codes))}" for phase, codes in self.reasons.items()) or "nothing"
        return f"{'ok  ' if not self.wrong else 'WRONG'} {self.plant.cases:10} {self.plant.name}: {told}" + "".join(
            f"\n      {each}" for each in self.wrong
        )


def planted(plant: Plant, folder: Path, warm: subprocess.Popen[str]) -> Found:
    """Run the plant's stages and compare what the gates said with where it belongs."""
    lines = dict(PLAN)
    for line in plant.plan.splitlines():
        lines[line.partition(":")[0]] = line
    small = (HERE / "small_task.py").read_text()
    code = f"{small}\n\n{plant.before}class Planted(Small):\n{plant.code}\n"
    lab = Lab(folder)
    lab.prepare("\n".join(lines.values()) + "\n", {"planted.py": code})
    return judge(plant, lab.warm_stage(warm, *plant.stages), lab)


def judge(plant: Plant, state: RunState, lab: Lab) -> Found:
    """The plant's own gate must have spoken, and no other one."""
    found = Found(plant)
    for row in state.rows:
        codes = {each["code"] for each in row.reasons if each["severity"] != "note"}
        if row.verdict in ("not_run", "skipped", None) or not codes:
            continue
        found.reasons[row.phase] = codes
        known = plant.caught.get(row.phase, set()) | plant.also.get(row.phase, set())
        strange = [each for each in row.reasons if each["severity"] != "note" and each["code"] not in known]
        if strange and row.phase not in plant.caught:
            found.wrong += [f"{row.phase}: {each['code']}: {each['text']}" for each in strange]
        elif any(each["code"] == "crash" for each in strange):
            found.wrong += [f"{row.phase}: {each['text']}" for each in strange]
    for phase, wanted in plant.caught.items():
        if not wanted & found.reasons.get(phase, set()):
            found.wrong.append(f"{phase} did not say {' or '.join(sorted(wanted))}")
    if not any(row.verdict for row in state.rows):
        found.wrong.append(f"nothing ran: {lab.code.stdout.decode()[-400:]}")
    return found


def run(plants: Sequence[Plant]) -> Iterator[Found]:
    """Every plant in turn, in processes forked from one that has torch."""
    os.environ.update(ONE_THREAD)
    with warm_process() as warm:
        for plant in plants:
            with tempfile.TemporaryDirectory() as name:
                yield planted(plant, Path(name), warm)


def main(words: Sequence[str]) -> int:
    """Print a line per plant and a last one with the counts."""
    chosen = [each for each in PLANTS if not words or any(word in f"{each.cases} {each.name}" for word in words)]
    wrong = 0
    for found in run([*chosen, *([] if words else [NOTHING])]):
        print(found.line(), flush=True)
        wrong += bool(found.wrong)
    alarms = "" if words else ", and nothing planted raised nothing" if not wrong else ""
    print(f"{len(chosen)} plants, {wrong} wrong{alarms}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
