"""The files of a task of one's own: its own, and the modules beside it that it imports. Read, never imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def with_modules(file: Path) -> list[Path]:
    """``file`` and every module or package of its folder that it imports, directly or through another of them."""
    folder = file.parent
    found: dict[Path, None] = {file: None}
    waiting = [file]
    while waiting:
        for name in _imported(waiting.pop(), folder):
            for path in _files_of(folder, name):
                if path not in found:
                    found[path] = None
                    waiting.append(path)
    return list(found)


def _imported(file: Path, folder: Path) -> Iterator[str]:
    """First parts of imported names; of a relative import the names it can mean in the folder."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name.split(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0]


def _files_of(folder: Path, name: str) -> list[Path]:
    module, package = folder / f"{name}.py", folder / name
    if module.is_file():
        return [module]
    if (package / "__init__.py").is_file():
        return sorted(path for path in package.rglob("*.py") if path.is_file())
    return []
