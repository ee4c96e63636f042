"""Numbers and foreign text made fit to show: bytes, durations, counts; control characters made visible. Pure."""

from __future__ import annotations

import math
import re
import unicodedata

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
_UNSEEN = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]")


def size(count: int | None, unknown: str = "NA") -> str:
    """Bytes as people read them: GiB with one decimal, below 1 GiB MiB, below 1 MiB KiB. Unknown is never 0."""
    if count is None:
        return unknown
    if abs(count) >= GIB:
        return f"{count / GIB:,.1f} GiB"
    if abs(count) >= MIB:
        return f"{count / MIB:,.1f} MiB"
    if abs(count) >= KIB:
        return f"{count / KIB:,.1f} KiB"
    return f"{count:,} B"


def duration(seconds: float | None, unknown: str = "–") -> str:
    """``0.41s``, ``12.8s``, ``1:47``, ``2h05``."""
    if seconds is None:
        return unknown
    if seconds < 1:
        return f"{seconds:.2f}s"
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}"


def ago(seconds: float) -> str:
    """An age in words: ``3 s ago``, ``42 min ago``, ``5 h ago``, ``2 days ago``."""
    if seconds < 90:
        return f"{max(0, round(seconds))} s ago"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min ago"
    if seconds < 36 * 3600:
        return f"{round(seconds / 3600)} h ago"
    return f"{round(seconds / 86400)} days ago"


def count(number: int | None, unknown: str = "–") -> str:
    """``3,200``."""
    return unknown if number is None else f"{number:,}"


def rate(value: float | None, unknown: str = "–") -> str:
    """A learning rate: ``1.0e-4``."""
    if value is None:
        return unknown
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def loss(value: float | None, unknown: str = "–") -> str:
    """Three decimals; a value that is not finite is said in words."""
    if value is None:
        return unknown
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return f"{value:.3f}"


def plural(number: int, one: str, many: str | None = None) -> str:
    """``1 row``, ``37 rows``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def harmless(text: str, keep_newlines: bool = False) -> str:
    """Foreign text with every control, bidirectional and line-separator character made visible.

    Nothing of it can move a cursor, colour a terminal or reverse a line: C0 and C1 controls become their control
    pictures or ``\\xNN``, format characters (bidi marks, zero-width joiners outside emoji) become ``\\uNNNN``.
    """
    out: list[str] = []
    for character in text:
        code = ord(character)
        if character == "\n" and keep_newlines:
            out.append(character)
        elif code < 0x20:
            out.append(chr(0x2400 + code))
        elif code == 0x7F:
            out.append("\u2421")
        elif 0x80 <= code < 0xA0:
            out.append(f"\\x{code:02x}")
        elif 0xD800 <= code <= 0xDFFF:
            out.append(f"\\u{code:04x}")
        elif unicodedata.category(character) in ("Cf", "Zl", "Zp"):
            out.append(f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}")
        else:
            out.append(character)
    return "".join(out)


def cut(text: str, width: int, mark: str = "…") -> str:
    """At most ``width`` characters, the cut marked."""
    return text if len(text) <= width else text[: max(0, width - len(mark))] + mark


def harmless_json(document: str) -> str:
    """A JSON text without characters that a terminal may obey or a reader cannot see: the same document, escaped.

    Controls below 0x20 are escaped by JSON itself; these are DEL, C1 controls, bidirectional and invisible marks,
    separators and lone surrogates. Outside its strings JSON is ASCII, so every one of them stands in a string.
    """
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", document)
