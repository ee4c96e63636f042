"""A tokenizer as the data sees it: ids with character places, what it puts before plain text, and its special ids."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from tui_pilot.errors import ModelError
from tui_pilot.tasks.base import IGNORE, Span


class Encoded(dict[str, Any]):
    """``input_ids`` and ``labels`` of one row; ``spans`` ride along as an attribute, outside what is collated.

    ``remarks`` are codes of what was unusual in the row (``edge_inside_token``, ``special_in_content`` ...).
    """

    def __init__(self, ids: list[int], labels: list[int], spans: list[Span], remarks: Sequence[str] = ()) -> None:
        super().__init__(input_ids=ids, labels=labels)
        self.spans = spans
        self.remarks = list(remarks)

    def cut(self, length: int | None) -> Encoded:
        """The first ``length`` tokens; spans end there too, and those behind are gone."""
        if length is None or len(self["input_ids"]) <= length:
            return self
        spans = [(start, min(end, length), role, turn) for start, end, role, turn in self.spans if start < length]
        return Encoded(self["input_ids"][:length], self["labels"][:length], spans, self.remarks)


@dataclass(frozen=True)
class Pieces:
    """A text's ids, and for each the characters ``[start, end)`` it came from."""

    text: str
    ids: list[int]
    offsets: list[tuple[int, int]]
    ends: list[int]

    def tokens(self, start: int, end: int) -> tuple[int, int]:
        """Places of the tokens that *end* inside the characters: one that crosses an edge belongs to what follows."""
        return bisect_right(self.ends, start), bisect_right(self.ends, end)

    def crosses(self, place: int) -> bool:
        """Whether a token holds characters from both sides of this character place."""
        token = bisect_right(self.ends, place)
        return token < len(self.ids) and self.offsets[token][0] < place < self.offsets[token][1]


class Tokens:
    """What the encoders need of a Hugging Face tokenizer; it must be a fast one, for the character places."""

    def __init__(self, tokenizer: Any) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise ModelError(
                f"the tokenizer ({type(tokenizer).__name__}) gives no character offsets, so roles cannot be told apart",
                "Use the fast tokenizer: the model folder needs a tokenizer.json.",
            )
        self.tokenizer = tokenizer
        self._backend = _backend(tokenizer)
        self.bos: int | None = tokenizer.bos_token_id
        self.eos: int | None = tokenizer.eos_token_id
        self.pad: int = next((one for one in (tokenizer.pad_token_id, self.eos) if one is not None), 0)
        added = getattr(tokenizer, "added_tokens_decoder", {})
        self.special: set[int] = {int(one) for one, token in added.items() if token.special}
        self.special |= {int(one) for one in tokenizer.all_special_ids}
        self.before = self._before()

    def pieces(self, text: str) -> Pieces:
        """The text's own ids, nothing added."""
        backend = self._backend
        if backend is not None and backend.truncation is None and backend.padding is None:
            encoding = backend.encode(text, add_special_tokens=False)
            ids, offsets = encoding.ids, encoding.offsets
        else:
            found = self.tokenizer(
                text,
                add_special_tokens=False,
                return_offsets_mapping=True,
                return_attention_mask=False,
                return_token_type_ids=False,
                verbose=False,  # no warning about length: the cut is made, and counted, by the caller
            )
            ids, offsets = list(found["input_ids"]), found["offset_mapping"]
        ends = [end for _, end in offsets]
        if ends != sorted(ends):  # one character of several ids may end before the one that began it
            ends = list(accumulate(ends, max))
        return Pieces(text, ids, offsets, ends)

    def ids(self, text: str) -> list[int]:
        """The text's own ids alone."""
        return list(
            self.tokenizer(text, add_special_tokens=False, return_attention_mask=False, verbose=False).input_ids
        )

    def decode(self, ids: Sequence[int]) -> str:
        """Ids as text, special tokens visible, spaces as they are."""
        if self._backend is not None:
            return str(self._backend.decode(list(ids), skip_special_tokens=False))
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def texts(self, ids: Sequence[int]) -> list[str]:
        """One text per id: parts of a character are empty, and its last id has the whole."""
        found, pending = [], []
        for one in ids:
            pending.append(one)
            text = self.decode(pending)
            if text.endswith("\ufffd") and len(pending) < 8 and one not in self.special:
                found.append("")
                continue
            found.append(text)
            pending = []
        if pending:
            found[-1] = self.decode(pending)
        return found

    def _before(self) -> list[int]:
        """Ids that the tokenizer puts before plain text: its BOS, or nothing.

        Found by asking, because a BOS token may exist without ever being written (it may be a turn marker).
        """
        bare = self.ids("a")
        full = list(self.tokenizer("a", add_special_tokens=True, return_attention_mask=False, verbose=False).input_ids)
        for start in range(len(full) - len(bare) + 1):
            if full[start : start + len(bare)] == bare:
                return full[:start]
        return []


def _backend(tokenizer: Any) -> Any:
    """The tokenizer below transformers' own layer, which costs as much as the work; None where a model changes it.

    Both give the same ids and texts as long as nothing between them is a model's own code.
    """
    for name in ("__call__", "_encode_plus", "_batch_encode_plus", "decode", "_decode"):
        method = getattr(type(tokenizer), name, None)
        if method is not None and not method.__module__.startswith("transformers.tokenization_utils"):
            return None
    return getattr(tokenizer, "backend_tokenizer", None)


def masked(ids: Sequence[int], ranges: Sequence[tuple[int, int]]) -> list[int]:
    """Labels: the ids inside the ranges, -100 outside."""
    labels = [IGNORE] * len(ids)
    for start, end in ranges:
        labels[start:end] = ids[start:end]
    return labels
