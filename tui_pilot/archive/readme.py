"""The archive's own README: what it is, how to check it, how to load what is in it, how to run it again. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from tui_pilot.archive.names import CONCLUSION, METRICS
from tui_pilot.campaign.comparison import FILE as COMPARISON
from tui_pilot.text import harmless

Json = Mapping[str, Any]


def text(head: Json, made: Container[str]) -> str:
    """For somebody who has this file and nothing else; ``head`` is the manifest without its files."""
    return harmless(
        "\n".join([*_what(head, made), *_check(head), *_load(head), *_again(head)]) + "\n", keep_newlines=True
    )


def _what(head: Json, made: Container[str]) -> list[str]:
    rows = [
        (
            "`run/plan.yaml`",
            "the plan as it was resolved, every value with its origin; `run/plan.json`: the same for programs",
        ),
        ("`run/written.yaml`", "the plan as the person wrote it, where a file was given"),
        ("`run/run.json`", "when, by which command line, and the hashes of code, data and model"),
        ("`run/events/`", "everything that happened, one JSON object a line; every figure comes from here"),
        (f"`{METRICS}`", "losses, rates, validation, durations and memory of the same events"),
        ("`run/reference/`", "control rows, and what the trained model answered to them"),
        ("`run/code/`", "the training side of pilot-tui as it ran"),
        ("`run/logs/`", "what each stage printed"),
    ]
    if head["kind"] == "trial":
        rows.append((f"`{COMPARISON}`", "every trial of the comparison that this run is one of, where it was at hand"))
    if head["artifact"]:
        rows.insert(0, ("`run/artifact/`", f"what evaluation loads: export kind {head['artifact']['kind']}"))
    if ":" in str(head["task"]):
        rows.append(("`task/`", "the task's own file and the modules it imports"))
    if CONCLUSION in made:
        rows.insert(0, (f"`{CONCLUSION}`", "what was asked, seen and decided, on one page"))
    return [
        f"# Archive of run {head['run']}",
        "",
        f"Written by pilot-tui from a run of the plan {head['name']!r}: {head['state']}, verdict {head['verdict']}.",
        "",
        "| file | holds |",
        "|---|---|",
        *(f"| {name} | {words} |" for name, words in rows),
        "",
        "`MANIFEST.json` has the SHA-256 of every file.",
        "",
    ]


def _check(head: Json) -> list[str]:
    base = head["not_packed"]["model"]
    model = f" --model ./{base['folder']}" if base else ""
    lines = [
        "## Check it",
        "",
        "```",
        f"pilot-tui archive --verify FILE{model}",
        "```",
        "",
        "checks every hash, then loads the artifact in a new process with the code that lies here, asks the control",
        "rows again and compares the answers. That runs `run/code/` and `task/` of this archive: with a file from",
        "somebody you do not know, `--hashes-only` looks without running anything. It needs pilot-tui and a Python",
        "with torch.",
        "",
        "Without pilot-tui: unpack it (it is a zip file) and hold each SHA-256 of the manifest against `sha256sum`.",
        "",
    ]
    if base:
        lines += [
            f"The base model is not packed. It is the folder {base['folder']!r} with these files:",
            "",
            *(f"- `{name}` {digest}" for name, digest in base["files"].items()),
            "",
        ]
    return lines


def _load(head: Json) -> list[str]:
    if not head["artifact"]:
        return ["## Load it", "", "No artifact is packed: this is the record alone.", ""]
    how = {
        "adapter": "an adapter for the base model named above, in the layout of the peft library",
        "merged": "a whole model with the adapter merged in",
        "full": "a whole model",
    }.get(str(head["artifact"]["kind"]), "what the task writes")
    return [
        "## Load it",
        "",
        f"`run/artifact/` holds {how}.",
        "`.safetensors` files open with the safetensors library; `.pt` files hold tensors alone and open with",
        "`torch.load(file, weights_only=True)`. Nothing here needs unsafe loading.",
        "",
    ]


def _again(head: Json) -> list[str]:
    data = head["not_packed"]["data"]
    checked = head["software_checked"]
    named = ", ".join(f"{key} {value}" for key, value in checked["on"].items() if value)
    stack = ", ".join(
        f"{name} {version}" for name, version in sorted(head["software"].items()) if isinstance(version, str)
    )
    word = "Checked" if checked["value"] else "Not checked"
    lines = [
        "## Run it again",
        "",
        "1. Install pilot-tui and the stack below in a Python with torch.",
        "2. Put the data" + (" and the base model" if head["not_packed"]["model"] else "") + " beside the plan.",
        "3. Copy `run/written.yaml`, or `run/plan.yaml`, as `pilot.yaml`; set its paths to where your files are.",
        "4. `pilot-tui run pilot.yaml --headless`, then compare with `pilot-tui metrics latest`.",
        "",
        f"Software: {stack or 'not recorded'}.",
        f"{word} on {named or 'an unknown machine'}, and on no other GPU.",
        "",
    ]
    if data:
        lines += ["The data is not packed. By name and SHA-256:", ""]
        lines += [f"- data.{key}: `{entry['name']}` {entry['sha256']}" for key, entry in data.items()]
        lines += [""]
    return lines
