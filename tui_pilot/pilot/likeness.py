"""How alike two texts are: hashes of folded text, and runs of eight words that one has in common with the other."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

RUN = 8
NEAR_SHARE = 0.5
COMMON_SHARE, COMMON_ROWS = 0.5, 10
LEAST_WORDS = 3
LEAST_DIFFERENT = 4

_SIGNS = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORDS = re.compile(f"[{_SIGNS}]|[^\\W{_SIGNS}]+")
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]")
_ALIKE = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "-"})
# Marks of a sentence, never of a number or of arithmetic: 3*4 is not 3+4, 1.5 is not 15.
_MARKS = re.compile(r"(?<!\d)[.,;:!?\"'`…]+|[.,;:!?\"'`…]+(?!\d)")


def fold(text: str) -> str:
    """Text for leak hashes alone: composed, without accents' other forms, case and doubled blanks."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def smooth(text: str) -> str:
    """Folded further: without characters nobody sees, forms of quotes and dashes, and the marks of a sentence."""
    plain = _UNSEEN.sub("", unicodedata.normalize("NFKC", text)).translate(_ALIKE).casefold()
    return " ".join(_MARKS.sub(" ", plain).split())


def digest(text: str) -> bytes:
    """Twelve bytes that stand for a text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).digest()


def words_of(text: str) -> list[str]:
    """The words of a text, folded; a sign of Chinese or Japanese is a word of its own."""
    return _WORDS.findall(unicodedata.normalize("NFKC", text).casefold())


def runs_of(text: str) -> set[int]:
    """Hashes of every run of eight words; a run of few different ones (pixels, bits, a word repeated) tells nothing."""
    words = words_of(text)
    runs = (tuple(words[start : start + RUN]) for start in range(len(words) - RUN + 1))
    return {hash(run) for run in runs if len(set(run)) >= LEAST_DIFFERENT}


@dataclass(frozen=True)
class Like:
    """The left text that a right one resembles most: its place, the runs they share, and their share of the right's.

    ``whole``: the two are equal but for marks, quotes and characters nobody sees.
    """

    place: int
    runs: int
    share: float
    whole: bool = False


def likenesses(
    left: Sequence[str],
    right: Sequence[str],
    skip: Collection[int] = (),
    share: float = NEAR_SHARE,
    runs: int | None = None,
) -> dict[int, Like]:
    """Places of ``right`` that share at least ``share`` of their runs, or ``runs`` of them, with one text of ``left``.

    Runs that half of both sides have are a template's words and count for nothing, unless a text has no others.
    """
    own: dict[int, set[int]] = {n: runs_of(text) for n, text in enumerate(right) if n not in skip}
    wanted: dict[int, list[int]] = defaultdict(list)
    for number, values in own.items():
        for value in values:
            wanted[value].append(number)
    hits = [[value for value in runs_of(text) if value in wanted] for text in left]
    common = _common(hits, wanted, len(left), len(own))
    counted = {number: (values - common) or values for number, values in own.items()}
    found: dict[int, Like] = {}
    for place, matches in enumerate(hits):
        shared: Counter[int] = Counter()
        for value in matches:
            shared.update(number for number in wanted[value] if value in counted[number])
        for number, count in shared.items():
            part = count / len(counted[number])
            best = found.get(number)
            if (part >= share or (runs is not None and count >= runs)) and (best is None or part > best.share):
                found[number] = Like(place, count, part)
    return found | _whole(left, right, own)


def _common(hits: Sequence[Sequence[int]], wanted: dict[int, list[int]], left: int, right: int) -> set[int]:
    if left < COMMON_ROWS or right < COMMON_ROWS:
        return set()
    often = Counter(value for values in hits for value in values)
    enough = max(COMMON_ROWS, COMMON_SHARE * left), max(COMMON_ROWS, COMMON_SHARE * right)
    return {value for value, count in often.items() if count >= enough[0] and len(wanted[value]) >= enough[1]}


def _whole(left: Sequence[str], right: Sequence[str], numbers: Collection[int]) -> dict[int, Like]:
    wanted: dict[bytes, list[int]] = defaultdict(list)
    for number in numbers:
        text = smooth(right[number])
        if len(text.split()) >= LEAST_WORDS:
            wanted[digest(text)].append(number)
    found: dict[int, Like] = {}
    for place, text in enumerate(left):
        for number in wanted.get(digest(smooth(text)), ()) if wanted else ():
            found.setdefault(number, Like(place, 0, 1.0, whole=True))
    return found
