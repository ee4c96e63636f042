"""Which files may lie in an archive: nothing that runs code when it is read. Looked at, never loaded; no torch.

A torch file of tensors, numbers and strings is a pickle too, of a kind that names a handful of harmless builders. Its
opcodes are listed and each name is held against that handful; what names anything else is refused unread.
"""

from __future__ import annotations

import io
import json
import pickletools
import re
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import IO

DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)
"""What the zip reader raises on bytes that are no zip, each for its own reason."""
MOST_OPCODES = 20_000_000
MOST_HEADER = 100 << 20
DEEPEST = 3
TEXT_PICKLE = 1 << 20
"""Pickles without a magic number are text; only files up to this size are tried as one."""
PICKLE_NAMES = (".pkl", ".pickle", ".joblib", ".dill", ".cloudpickle")
HARMLESS = re.compile(
    r"collections OrderedDict"
    r"|torch\._utils _rebuild_(?:tensor|tensor_v2|tensor_v3|parameter)"
    r"|torch(?:\.cuda)? (?:Half|Float|Double|Char|Byte|Short|Int|Long|Bool|BFloat16|ComplexFloat|ComplexDouble)Storage"
    r"|torch\.storage (?:Untyped|Typed)Storage"
    r"|torch (?:Size|device|complex64|complex128|bool|u?int(?:8|16|32|64)|b?float(?:16|32|64|8_\w+))"
)
"""What safe loading (``weights_only``) builds a state of tensors with."""
NAMING = ("GLOBAL", "INST")
UNNAMED = ("STACK_GLOBAL", "EXT1", "EXT2", "EXT4")
"""Opcodes that take their class from the stack or a registry: torch writes none, and what they call cannot be told."""
_OBJECTS = re.compile(rb"'descr': *(?:'[|<>=]?O|\[.*'[|<>=]?O')")
_MAGIC = re.compile(rb"\x80[\x02-\x05]")


def why_refused(path: Path) -> str | None:
    """Why this file must not be packed or opened; None where it may. A file that cannot be read is an OSError."""
    with path.open("rb") as stream:
        return _why(stream, path.name, 0)


def _why(stream: IO[bytes], name: str, depth: int) -> str | None:
    head = stream.read(512)
    stream.seek(0)
    if not head:
        return None
    if name.lower().endswith(PICKLE_NAMES):
        return "it is a pickle by its name"
    if head.startswith(b"PK\x03\x04"):
        return _zip(stream, depth)
    if head.startswith(b"\x93NUMPY"):
        return "it is an array of Python objects, a pickle inside" if _OBJECTS.search(head) else None
    if head[:2] in (b"\x1f\x8b", b"BZ") or head[257:262] == b"ustar" or head[:6] == b"\xfd7zXZ\x00":
        return _tar(stream, depth)
    if _MAGIC.match(head) and not _is_safetensors(stream):
        return _named(stream) or "it is a pickle"
    return _text_pickle(stream)


def _zip(stream: IO[bytes], depth: int) -> str | None:
    if depth >= DEEPEST:
        return "it holds archives in archives, too deep to look into"
    try:
        with zipfile.ZipFile(stream) as found:
            names = found.namelist()
            if len(set(names)) != len(names):
                return "it is a zip file with two members of one name"
            tables = [each for each in names if each == "data.pkl" or each.endswith("/data.pkl")]
            scripts = [each for each in names if re.search(r"(?:^|/)(?:constants\.pkl|code/.*\.py)$", each)]
            if tables and scripts:
                return "it is TorchScript, whose code runs when it is loaded"
            for each in names:
                with found.open(each) as member:
                    if each in tables:
                        why = _foreign_names(member)
                    elif tables and re.search(r"(?:^|/)data/\d+$", each):
                        why = None  # the raw bytes of a tensor
                    else:
                        why = _why(io.BytesIO(member.read()), each, depth + 1)
                if why is not None:
                    return f"{why} ({each})" if each not in tables else why
    except DAMAGED as error:
        return f"it is a zip file that cannot be looked into: {error}"
    return None


def _tar(stream: IO[bytes], depth: int) -> str | None:
    """Members of a tar; a packed single file is looked at only where it is one."""
    if depth >= DEEPEST:
        return "it holds archives in archives, too deep to look into"
    try:
        with tarfile.open(fileobj=stream) as found:
            for member in found:
                inner = found.extractfile(member) if member.isfile() else None
                why = _why(io.BytesIO(inner.read()), member.name, depth + 1) if inner is not None else None
                if why is not None:
                    return f"{why} ({member.name})"
    except (tarfile.TarError, OSError, EOFError, ValueError):
        return None
    return None


def _foreign_names(stream: IO[bytes]) -> str | None:
    """Why a torch file's table is more than tensors, numbers and strings; None where it is not."""
    try:
        for number, (code, argument, _) in enumerate(pickletools.genops(stream)):
            if code.name in NAMING and not HARMLESS.fullmatch(str(argument)):
                return f"it holds objects that only unsafe loading could read: {str(argument).replace(' ', '.')}"
            if code.name in UNNAMED:
                return "it holds objects whose class cannot be told without running it"
            if number > MOST_OPCODES:
                return "its table is too long to look through"
    except Exception as error:  # pickletools raises whatever a damaged table meets first
        return f"its table cannot be read: {type(error).__name__}"
    return None


def _named(stream: IO[bytes]) -> str | None:
    """A plain pickle's first class or function, as a reason."""
    words: list[str] = []
    try:
        for code, argument, _ in pickletools.genops(stream):
            if code.name in NAMING:
                return f"it is a pickle that names {str(argument).replace(' ', '.')}"
            if code.name == "STACK_GLOBAL":
                return f"it is a pickle that names {'.'.join(words[-2:])}"
            if isinstance(argument, str) and "UNICODE" in code.name:
                words = [*words[-1:], argument]
    except Exception:  # damaged behind its first bytes: still no file to open
        return None
    return None


def _text_pickle(stream: IO[bytes]) -> str | None:
    """A pickle of the old text protocols has no magic number: it is one if its opcodes name something and end it."""
    data = stream.read(TEXT_PICKLE + 1)
    if len(data) > TEXT_PICKLE or not data.rstrip().endswith(b"."):
        return None
    names: list[str] = []
    end = 0
    try:
        for code, argument, place in pickletools.genops(data):
            if code.name in NAMING:
                names.append(str(argument).replace(" ", "."))
            end = (place or 0) + 1
    except Exception:  # no pickle at all: the usual case
        return None
    return f"it is a pickle that names {names[0]}" if names and end >= len(data.rstrip()) else None


def _is_safetensors(stream: IO[bytes]) -> bool:
    """Whether the file is what its format says: a length, then a JSON header of that length."""
    stream.seek(0)
    try:
        length = struct.unpack("<Q", stream.read(8))[0]
        found = length <= MOST_HEADER and isinstance(json.loads(stream.read(length)), dict)
    except (ValueError, struct.error, RecursionError):
        found = False
    stream.seek(0)
    return found
