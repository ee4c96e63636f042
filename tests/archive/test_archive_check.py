"""An archive is looked through before anything of it is used: each damage and each trick is named with its file."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from archives import Files, finished_run, rebuild

from tui_pilot.archive.check import Checked, look
from tui_pilot.archive.names import MANIFEST, why_unsafe
from tui_pilot.archive.pack import SEAL_BYTES, pack
from tui_pilot.errors import PilotError


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("archive")
    pack(finished_run(work / "runs"), work / "run.zip")
    return work / "run.zip"


def looked(path: Path, place: Path) -> Checked:
    place.mkdir()
    return look(path, place)


def test_an_archive_that_is_whole(archive: Path, tmp_path: Path) -> None:
    found = looked(archive, tmp_path / "out")
    assert found.problems == []
    assert found.checked == len(found.manifest["files"]) > 15
    assert (tmp_path / "out" / "run" / "artifact" / "weights.safetensors").is_file()


def test_one_flipped_byte_of_any_file_names_that_file(archive: Path, tmp_path: Path) -> None:
    data = archive.read_bytes()
    with zipfile.ZipFile(archive) as source:
        members = [member for member in source.infolist() if member.compress_size]
    kinds = {Path(member.filename).suffix for member in members}
    assert {".json", ".jsonl", ".yaml", ".csv", ".md", ".py", ".log", ".safetensors"} <= kinds
    for number, member in enumerate(members):
        start = member.header_offset + 30 + len(member.filename.encode())
        place = start + member.compress_size // 2
        damaged = tmp_path / "damaged.zip"
        damaged.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        found = looked(damaged, tmp_path / f"out-{number}")
        assert [problem["file"] for problem in found.problems] == [member.filename]


def test_one_flipped_byte_between_the_files_is_seen_too(archive: Path, tmp_path: Path) -> None:
    data = archive.read_bytes()
    with zipfile.ZipFile(archive) as source:
        table = source.start_dir
    for number, place in enumerate((6, table + 12, table + 40, len(data) - SEAL_BYTES - 10, len(data) - 1)):
        damaged = tmp_path / "damaged.zip"
        damaged.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert looked(damaged, tmp_path / f"out-{number}").problems


@pytest.mark.parametrize("cut", [0, 100, -1, -5000])
def test_a_file_that_was_cut_off(cut: int, archive: Path, tmp_path: Path) -> None:
    (tmp_path / "short.zip").write_bytes(archive.read_bytes()[:cut])
    assert looked(tmp_path / "short.zip", tmp_path / "out").problems


def _add(name: str, data: bytes = b"words") -> Callable[[Files], None]:
    return lambda files: files.update({name: data})


@pytest.mark.parametrize(
    "name", ["../out", "run/../../out", "/etc/out", "run//x", "a\\..\\out", "C:/out", "x/./y", "a\nb"]
)
def test_a_name_that_leads_out_is_refused_and_nothing_is_unpacked(name: str, archive: Path, tmp_path: Path) -> None:
    found = looked(rebuild(archive, tmp_path / "bad.zip", _add(name)), tmp_path / "out")
    assert [problem["file"] for problem in found.problems] == [name]
    assert list((tmp_path / "out").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.zip", "out"]


@pytest.mark.parametrize("mode", [0o120777, 0o020666, 0o010644, 0o040755])
def test_a_link_or_a_device_is_refused(mode: int, archive: Path, tmp_path: Path) -> None:
    bad = rebuild(archive, tmp_path / "bad.zip", _add("run/x", b"/etc/passwd"), attributes={"run/x": mode})
    found = looked(bad, tmp_path / "out")
    assert [problem["file"] for problem in found.problems] == ["run/x"]
    assert list((tmp_path / "out").iterdir()) == []


def test_a_file_that_is_a_folder_too(archive: Path, tmp_path: Path) -> None:
    def both(files: Files) -> None:
        files.update({"run/x": b"1", "run/x/y": b"2"})

    assert looked(rebuild(archive, tmp_path / "bad.zip", both), tmp_path / "out").problems[0]["file"] == "run/x"


def test_a_pickle_is_refused_though_its_hash_is_right(archive: Path, tmp_path: Path) -> None:
    bad = rebuild(archive, tmp_path / "bad.zip", _add("run/artifact/more.bin", pickle.dumps(print)))
    found = looked(bad, tmp_path / "out")
    assert found.problems[0]["file"] == "run/artifact/more.bin"
    assert "builtins.print" in found.problems[0]["why"]
    assert not (tmp_path / "out" / "run" / "artifact" / "more.bin").exists()


def test_files_beside_the_manifest_and_files_that_are_gone(archive: Path, tmp_path: Path) -> None:
    def change(files: Files) -> None:
        files["run/extra.txt"] = b"words"
        del files["run/plan.json"]

    found = looked(rebuild(archive, tmp_path / "bad.zip", change, listed=False), tmp_path / "out")
    assert {problem["file"] for problem in found.problems} == {"run/extra.txt", "run/plan.json"}


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"files": 3}', b"\xff\xfe", b"[" * 100_000])
def test_a_manifest_that_is_none(content: bytes, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as made:
        made.writestr(MANIFEST, content)
    assert looked(tmp_path / "bad.zip", tmp_path / "out").problems[0]["file"] == MANIFEST


def test_what_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "text.zip").write_text("words")
    assert looked(tmp_path / "text.zip", tmp_path / "out").problems
    with pytest.raises(PilotError) as caught:
        look(tmp_path / "none.zip", tmp_path)
    assert caught.value.exit_code == 2


def test_names_that_are_right() -> None:
    for name in ("run/code/a.py", "run/events/événement.jsonl", "run/a b.txt", "..a", "a.."):
        assert why_unsafe(name) is None
