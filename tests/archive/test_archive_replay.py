"""One real run of a task of one's own, archived; the replay uses the archive alone and says what it found by row."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from archives import Files, rebuild
from lab import Lab, pilot_tui

pytest.importorskip("torch", reason="torch is not installed: pip install '.[pilot]'")

TASK = """
import json
from pathlib import Path

from sizes import WIDTH
from torch import nn
from torch.nn import functional

from tui_pilot.tasks import IGNORE, Task


class Copies(Task):
    def records(self, split):
        rows = Path(self.plan.data.train).read_text().splitlines()
        found = [json.loads(row) for row in rows]
        return found[:24] if split == "train" else found[24:] if split == "validation" else []

    def encode(self, record):
        word = [ord(letter) for letter in record["word"]]
        return {"input_ids": [*word, 1, *word, 2], "labels": [IGNORE] * (len(word) + 1) + [*word, 2]}

    def build_model(self):
        return nn.Sequential(nn.Embedding(128, WIDTH), nn.Linear(WIDTH, 128))

    def loss(self, model, batch):
        logits, targets = model(batch["input_ids"])[:, :-1], batch["labels"][:, 1:]
        return functional.cross_entropy(logits.transpose(1, 2), targets, ignore_index=IGNORE, reduction="sum")

    def predict(self, model, batch):
        return model(batch["input_ids"]).argmax(-1)
"""
PLAN = """
name: copies
task: task.py:Copies
data: {train: words.jsonl}
batch: {micro: 4, accumulation: 2}
budget: {updates: 12}
optimizer: {lr: 1.0e-2, warmup: 0}
pilot: {steady: 1, timed: 2, reference: 1}
device: cpu
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of a run whose folder, task and data are then gone; the data lies elsewhere."""
    work = tmp_path_factory.mktemp("made")
    words = "".join(json.dumps({"id": n, "word": f"{n:04x}"[::-1]}) + "\n" for n in range(32))
    lab = Lab(work / "home")
    lab.folder.mkdir()
    run = lab.prepare(PLAN, {"task.py": TASK, "sizes.py": "WIDTH = 8\n", "words.jsonl": words})
    state = lab.stage("train", "reload", env={"OMP_NUM_THREADS": "1"})
    assert state.row("reload").verdict in ("pass", "warn", "unchecked"), state.row("reload").reasons
    done = pilot_tui(["archive", str(run.path), "-o", "run.zip", "--json"], work)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["not_packed"]["data"]["train"]["name"] == "words.jsonl"
    (work / "data").mkdir()
    shutil.move(work / "home" / "words.jsonl", work / "data")
    shutil.rmtree(work / "home")
    return work / "run.zip"


def test_the_archive_alone_gives_the_recorded_answers(archive: Path, tmp_path: Path) -> None:
    done = pilot_tui(["archive", "--verify", str(archive), "--json"], tmp_path, {"OMP_NUM_THREADS": "1"})
    found = json.loads(done.stdout)
    assert (done.returncode, found["verdict"]) == (0, "pass"), found
    assert found["replay"]["equal"] is True
    assert found["replay"]["rows"] == [0, 1, 2, 3]
    assert found["replay"]["loss_recorded"] == pytest.approx(found["replay"]["loss_replayed"])
    assert any("words.jsonl" in note for note in found["replay"]["notes"])
    assert list(tmp_path.iterdir()) == []


def other_weights(files: Files) -> None:
    """The artifact's tensors with other values, and hashes that are right everywhere."""
    import io

    import torch

    state = torch.load(io.BytesIO(files["run/artifact/weights.pt"]), weights_only=True)
    out = io.BytesIO()
    torch.save({name: tensor.flip(0) for name, tensor in state.items()}, out)
    files["run/artifact/weights.pt"] = out.getvalue()
    listing = json.loads(files["run/artifact/manifest.json"])
    entry = {"bytes": len(out.getvalue()), "sha256": hashlib.sha256(out.getvalue()).hexdigest()}
    listing["files"]["weights.pt"] = entry
    files["run/artifact/manifest.json"] = json.dumps(listing).encode()


def test_other_weights_are_found_by_their_answers(archive: Path, tmp_path: Path) -> None:
    bad = rebuild(archive, tmp_path / "bad.zip", other_weights)
    data = str(archive.parent / "data")
    done = pilot_tui(["archive", "--verify", str(bad), "--data", data, "--json"], tmp_path, {"OMP_NUM_THREADS": "1"})
    found = json.loads(done.stdout)
    assert (done.returncode, found["verdict"]) == (1, "fail")
    assert found["files"]["problems"] == []
    assert found["replay"]["equal"] is False
    assert found["replay"]["changed_rows"]


def test_hashes_only_runs_nothing(archive: Path, tmp_path: Path) -> None:
    def trap(files: Files) -> None:
        files["run/code/run_stage.py"] = f"open({str(tmp_path / 'trap')!r}, 'w')".encode()

    bad = rebuild(archive, tmp_path / "bad.zip", trap)
    done = pilot_tui(["archive", "--verify", str(bad), "--hashes-only"], tmp_path)
    assert done.returncode == 4
    assert "nothing of the archive was run" in done.stdout
    assert not (tmp_path / "trap").exists()


def test_a_damaged_archive_is_not_replayed(archive: Path, tmp_path: Path) -> None:
    data = archive.read_bytes()
    place = data.index(b"WIDTH") if b"WIDTH" in data else len(data) // 2
    (tmp_path / "bad.zip").write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    done = pilot_tui(["archive", "--verify", "bad.zip", "--json"], tmp_path)
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert len(found["files"]["problems"]) == 1
    assert found["replay"] is None


def test_data_that_is_not_the_runs(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "words.jsonl").write_text("{}\n")
    done = pilot_tui(["archive", "--verify", str(archive), "--data", ".", "--json"], tmp_path)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "base_differs"


@pytest.mark.parametrize(
    "line", [[], ["latest"], ["-o", "x"], ["x", "-o", "y", "--hashes-only"], ["x", "--verify", "y"]]
)
def test_a_command_line_that_says_neither(line: list[str], tmp_path: Path) -> None:
    done = pilot_tui(["archive", *line], tmp_path)
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []
