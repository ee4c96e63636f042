"""Starts stages as processes forked from one that has torch already: the same code and the same exits, seconds sooner.

Reads one JSON request a line: ``{"argv", "cwd", "env", "out", "ranks"}``; answers with the exit code (negative: the
signal). ``ranks``: the environment of each of several processes that belong together; as torchrun does it, the first
that fails ends the others. The stage's own files are imported in the child, from the run's copy.
"""

import importlib
import importlib.util
import json
import os
import runpy
import signal
import sys

import torch
import torch._dynamo  # what torch itself imports when the first optimizer is made

assert torch.__version__ and not [name for name in sys.modules if name.startswith("tui_pilot")]

for name in sys.argv[1:]:
    if importlib.util.find_spec(name.partition(".")[0]):
        importlib.import_module(name)


def child(request: dict, rank: dict) -> None:
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update({**request["env"], **rank})
    out = os.open(request["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.argv = request["argv"]
    sys.path[0] = os.path.dirname(request["argv"][0])
    code = 0
    try:
        runpy.run_path(request["argv"][0], run_name="__main__")
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    while line := sys.stdin.readline():
        request = json.loads(line)
        pids = set()
        for rank in request.get("ranks") or [{}]:
            pid = os.fork()
            if pid == 0:
                child(request, rank)
            pids.add(pid)
        answers.write(f"{ended(pids)}\n")
        answers.flush()


def ended(pids: set[int]) -> int:
    """The first exit code that is not 0, else 0."""
    code = 0
    while pids:
        pid, status = os.wait()
        pids.discard(pid)
        if status and not code:
            code = os.waitstatus_to_exitcode(status)
            for other in pids:
                os.kill(other, signal.SIGKILL)
    return code


if __name__ == "__main__":
    main()
