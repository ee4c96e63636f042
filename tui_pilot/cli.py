"""``pilot-tui``: the command line. Each command lives in a module of its own that is imported when it is called, so
that ``--help`` answers at once; stdout is data, stderr is narration, and the exit code says how it went.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from tui_pilot.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_PLAN_WRONG, EXIT_TOOL_FAILED, PilotError
from tui_pilot.version import VERSION

#: name: (module, function, short help), in the order of `--help`. The screen itself (`open`) has no name to type.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "run": ("run", "run", "Start the whole pilot and open the screen on it; --headless: plain lines."),
    "check": ("check", "check", "Look at plan, stack, examples and splits: no training, no GPU."),
    "init": ("init_plan", "init", "Write a commented pilot.yaml by looking at the data."),
    "attach": ("open_screen", "attach", "Open the screen on a live run."),
    "stop": ("operate", "stop", "Stop a live run cleanly; its rows are kept."),
    "resume-test": ("resume_test", "resume_test", "Run the resume gate again, now, in a new process."),
    "verdict": ("operate", "verdict", "Put your own mark beside a phase's verdict."),
    "note": ("operate", "note", "Write an observation on a run."),
    "decide": ("operate", "decide", "Retain, reject or defer a configuration, with the reason."),
    "runs": ("show", "runs", "List all runs, with their sizes on disk."),
    "show": ("show", "show", "Show one run's rows."),
    "clean": ("clean", "clean", "Remove checkpoint and artifact payloads; manifests stay."),
    "sheet": ("sheet", "sheet", "Write the selection sheet of one or several runs."),
    "metrics": ("metrics", "metrics", "Losses, rates, durations and memory as CSV, from the event log."),
    "archive": ("archive", "archive", "Pack a run as one file; --verify FILE checks and replays it."),
    "conclusion": ("conclusion", "conclusion", "What was asked, ran, seen and decided, on one page."),
    "compare": ("compare", "compare", "Run the plan's compare section: every trial a run, then what seeds can say."),
    "schedule": ("schedule", "schedule", "What fits into 3, 7 or 30 days, from what a pilot measured."),
    "calc": ("calc", "calc", "Batch arithmetic: what follows from microbatch, accumulation, replicas."),
    "predict": ("predict", "predict", "Memory of each phase without a GPU, and which GPUs would hold it."),
    "fit": ("fit", "fit", "The largest microbatch that a GPU holds, by prediction; --run verifies it."),
    "gpus": ("gpus", "gpus", "Show GPUs, the Pythons found here with their torch, and how they match."),
    "open": ("open_screen", "open_target", ""),
}
PACKAGE = "tui_pilot.commands"


class Lazy(click.Group):
    """Finds a command by name and imports its module only then."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, (_, _, words) in COMMANDS.items() if words]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name, _ = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(f"{PACKAGE}.{module}"), name)
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][2]) for name in self.list_commands(ctx)])


@click.group(
    cls=Lazy,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="RUN is an id, a unique part of it, latest, or a run folder. Without a command: the screen, on PLAN or RUN, "
    "on the live run, on ./pilot.yaml, or on the built-in demo.",
)
@click.option("--runs", metavar="DIR", help="Where the runs are (default ./runs, or $PILOT_TUI_RUNS).")
@click.version_option(VERSION, prog_name="pilot-tui")
def cli(runs: str | None) -> None:
    """One complete step before a thousand trials: a fine-tuning pilot with a gate at every phase."""


def with_default(arguments: Sequence[str]) -> list[str]:
    """The arguments with ``open`` put in front of a PLAN or RUN that stands where a command could."""
    rest = list(arguments)
    head: list[str] = []
    while rest and (rest[0] == "--runs" or rest[0].startswith("--runs=")):
        taken = 1 if "=" in rest[0] else 2
        head += rest[:taken]
        rest = rest[taken:]
    if rest and (rest[0] in COMMANDS or rest[0] in ("-h", "--help", "--version")):
        return [*head, *rest]
    return [*head, "open", *rest]


def run_command(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code and never lets an exception through."""
    as_json = "--json" in arguments
    try:
        result: Any = cli.main(with_default(arguments), prog_name="pilot-tui", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else EXIT_OK
    except PilotError as error:
        return _say(error, as_json)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        return _say(_usage(error), as_json)
    except (KeyboardInterrupt, click.Abort):
        sys.stderr.write("interrupted\n")
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # whoever read our output has left: head, less
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except Exception as error:
        if os.environ.get("PILOT_TUI_DEBUG"):
            traceback.print_exc()
        words = f"pilot-tui itself failed: {type(error).__name__}: {error}."
        advice = "PILOT_TUI_DEBUG=1 shows where. Runs go on; pilot-tui runs lists them."
        return _say(PilotError(words, advice, code="internal", title="pilot-tui failed"), as_json)


def _usage(error: click.ClickException) -> PilotError:
    context = getattr(error, "ctx", None)
    advice = f"{context.command_path} --help says how." if context is not None else "pilot-tui --help says how."
    return PilotError(
        error.format_message(), advice, code="usage", title="The command line is wrong", exit_code=EXIT_PLAN_WRONG
    )


def _say(error: PilotError, as_json: bool) -> int:
    from tui_pilot.commands.output import error_document, write_json
    from tui_pilot.text import harmless

    try:
        if as_json:
            write_json(error_document(error))
        sys.stderr.write(harmless(str(error), keep_newlines=True) + "\n")
    except BrokenPipeError:
        return error.exit_code or EXIT_TOOL_FAILED
    return error.exit_code or EXIT_TOOL_FAILED


def main() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.exit(run_command(sys.argv[1:]))


if __name__ == "__main__":
    main()
