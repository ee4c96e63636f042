"""``pilot-tui archive``: a run as one file, and that file checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tui_pilot.commands.options import json_option, runs_option
from tui_pilot.commands.output import say, write_json, write_lines
from tui_pilot.errors import EXIT_GATE_FAILED, EXIT_OK, EXIT_PLAN_WRONG, EXIT_UNCHECKED, PilotError
from tui_pilot.run_folder import find_run, short_id

VERDICTS = {EXIT_OK: "pass", EXIT_GATE_FAILED: "fail", EXIT_UNCHECKED: "unchecked"}


@click.command()
@click.argument("run", required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The new file.")
@click.option("--with", "beside", multiple=True, type=click.Path(path_type=Path), help="A file that your task reads.")
@click.option("--without-artifact", is_flag=True, help="The record alone, where no artifact is left.")
@click.option("--verify", metavar="FILE", type=click.Path(path_type=Path), help="Check an archive and replay it.")
@click.option("--model", type=click.Path(path_type=Path), help="With --verify: the base model's folder.")
@click.option("--data", type=click.Path(path_type=Path), help="With --verify: the folder of the data files.")
@click.option("--python", metavar="PATH", help="With --verify: the Python to replay with.")
@click.option("--hashes-only", is_flag=True, help="With --verify: look, run nothing of it.")
@json_option
@runs_option
def archive(
    *,
    run: str | None,
    output: Path | None,
    beside: tuple[Path, ...],
    without_artifact: bool,
    verify: Path | None,
    model: Path | None,
    data: Path | None,
    python: str | None,
    hashes_only: bool,
    as_json: bool,
    runs: Path,
) -> int:
    """Pack a run as one file: model or adapter, plan, revisions, events, metrics, code, hashes, how to rerun.

    --verify FILE checks every hash, then asks the control rows again from that file alone. This runs the code in it;
    --hashes-only does not.
    """
    if verify is not None:
        if run is not None or output is not None or beside or without_artifact:
            raise _wrong("--verify FILE checks an archive; RUN, -o and --with write one.")
        return _verify(verify, model, data, python, hashes_only, as_json)
    if run is None or output is None:
        raise _wrong("An archive needs a run and a file: pilot-tui archive RUN -o FILE.")
    if model or data or python or hashes_only:
        raise _wrong("--model, --data, --python and --hashes-only belong to --verify FILE.")
    return _pack(run, output, beside, without_artifact, as_json, runs)


def _wrong(text: str) -> PilotError:
    return PilotError(
        text, "pilot-tui archive --help says how.", code="usage", title="The command line is wrong",
        exit_code=EXIT_PLAN_WRONG,
    )  # fmt: skip


def _pack(run: str, output: Path, beside: tuple[Path, ...], without_artifact: bool, as_json: bool, runs: Path) -> int:
    from tui_pilot.archive.pack import pack
    from tui_pilot.report import conclusion, page
    from tui_pilot.text import plural, size

    folder = find_run(runs, run)
    done = pack(
        folder, output, beside=beside, need_artifact=not without_artifact,
        page=lambda one: page.render(conclusion.document([one], alone=True)),
    )  # fmt: skip
    if as_json:
        write_json(done)
    else:
        write_lines([f"sha256 {done['sha256']}  {done['archive']}"])
    say(f"{short_id(folder.id)}: {plural(done['files'], 'file')}, {size(done['bytes'])}")
    base = done["not_packed"]["model"]
    if base:
        say(f"not packed: the base model {base['folder']}, {plural(len(base['files']), 'file')} named by hash")
    if done["not_packed"]["data"]:
        say(f"not packed: {plural(len(done['not_packed']['data']), 'data file')}, named by hash")
    if done["artifact"] is None:
        say("no artifact is packed: nothing in it can be replayed")
    return EXIT_OK


def _verify(
    file: Path, model: Path | None, data: Path | None, python: str | None, hashes_only: bool, as_json: bool
) -> int:
    from tui_pilot.archive.check import look
    from tui_pilot.archive.replay import Replay, replay, scratch
    from tui_pilot.text import plural

    for option, folder in (("--model", model), ("--data", data)):
        if folder is not None and not folder.is_dir():
            raise _wrong(f"{option}: {folder} is no folder.")
    with scratch() as place:
        checked = look(file, place)
        say(
            f"{plural(checked.checked, 'file')} as written"
            + (f", {len(checked.problems)} not" if checked.problems else "")
        )
        answered: Replay | None = None
        if not checked.problems and not hashes_only:
            answered = replay(place, checked.manifest, model=model, data=data, python=python, tell=say)
    code = EXIT_OK
    if checked.problems or (answered is not None and answered.equal is False):
        code = EXIT_GATE_FAILED
    elif answered is None or answered.equal is None:
        code = EXIT_UNCHECKED
    document = _document(file, checked, answered, code, hashes_only)
    if as_json:
        write_json(document)
    else:
        write_lines(_lines(document))
    return code


def _document(file: Path, checked: Any, answered: Any, code: int, hashes_only: bool) -> dict[str, Any]:
    manifest = checked.manifest
    told = None
    if answered is not None:
        told = {
            "equal": answered.equal, "text": answered.text, "rows": answered.rows,
            "changed_rows": answered.changed_rows,
            "loss_recorded": answered.loss_recorded, "loss_replayed": answered.loss_replayed,
            "answers": answered.answers, "python": answered.python, "here": answered.here,
            "recorded_on": answered.recorded_on, "notes": answered.notes,
        }  # fmt: skip
    return {
        "archive": str(file),
        "sha256": checked.sha256,
        "bytes": checked.bytes,
        "run": manifest.get("run"),
        "name": manifest.get("name"),
        "verdict": VERDICTS[code],
        "exit_code": code,
        "files": {"checked": checked.checked, "problems": checked.problems},
        "replay": told,
        "replay_left_out": "--hashes-only" if hashes_only else None,
        "not_packed": manifest.get("not_packed"),
        "software_checked": _checked_here(manifest.get("software_checked"), told),
    }


def _checked_here(found: Any, told: dict[str, Any] | None) -> dict[str, Any] | None:
    """Where the run's stack was checked, and whether this machine has that device and torch: null without a replay.

    A stack that was checked on one GPU is not checked on another.
    """
    if not isinstance(found, dict):
        return None
    here, recorded = (told["here"], told["recorded_on"]) if told is not None else ({}, {})
    same = [here.get(key) == recorded.get(key) for key in ("device_name", "torch")]
    return {**found, "here": bool(found.get("value")) and all(same) if here.get("torch") else None}


def _lines(document: dict[str, Any]) -> list[str]:
    lines = [f"run {document['run'] or 'unknown'}, archive sha256 {document['sha256']}"]
    for problem in document["files"]["problems"]:
        lines.append(f"FAIL  {problem['file']}: {problem['why']}")
    if not document["files"]["problems"]:
        lines.append(
            f"pass  hashes: {document['files']['checked']} files are as written, none is a pickle, none is missing"
        )
    told = document["replay"]
    if told is not None:
        word = {True: "pass ", False: "FAIL ", None: "unchecked"}[told["equal"]]
        lines.append(f"{word} replay: {told['text']}")
        rows = ", ".join(f"{row} {'CHANGED' if row in told['changed_rows'] else 'equal'}" for row in told["rows"])
        if told["equal"] is not None and rows:
            lines.append(
                f"      control rows: {rows if told['equal'] is False and told['changed_rows'] else _all(told)}"
            )
            lines.append(f"      control loss: {told['loss_recorded']} recorded, {told['loss_replayed']} here")
        where = told["here"].get("device_name") or told["here"].get("device")
        if where:
            was = told["recorded_on"].get("device_name") or told["recorded_on"].get("device")
            here, recorded = told["here"].get("torch"), told["recorded_on"].get("torch")
            lines.append(f"      here: {where}, torch {here}; recorded: {was}, torch {recorded}")
        if (document["software_checked"] or {}).get("here") is False:
            never = not document["software_checked"].get("value")
            why = "it never was" if never else "device or torch is another"
            lines.append(f"      the run's software stack is not checked on this machine: {why}")
        lines += [f"      {note}" for note in told["notes"]]
    elif document["replay_left_out"]:
        lines.append("unchecked replay: left out, nothing of the archive was run")
    return lines


def _all(told: dict[str, Any]) -> str:
    numbers = ", ".join(str(row) for row in told["rows"])
    return f"{numbers} {'equal' if told['equal'] else 'asked; the loss or the tensors differ'}"
