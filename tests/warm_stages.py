"""Starts stages as processes forked from one that has torch already: the same code and the same exits, seconds sooner.

Reads one JSON request a line: ``{"argv", "cwd", "env", "out"}``; answers with the exit code (negative: the signal).
The stage's own files are imported in the child, from the run's copy.
"""

import importlib
import importlib.util
import json
import os
import runpy
import sys

import torch
import torch._dynamo  # what torch itself imports when the first optimizer is made

assert torch.__version__ and not [name for name in sys.modules if name.startswith("tui_pilot")]

for name in sys.argv[1:]:
    if importlib.util.find_spec(name.partition(".")[0]):
        importlib.import_module(name)


def child(request: dict) -> None:
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    out = os.open(request["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
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
        pid = os.fork()
        if pid == 0:
            child(json.loads(line))
        answers.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n")
        answers.flush()


if __name__ == "__main__":
    main()
