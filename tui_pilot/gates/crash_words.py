"""Messages of libraries that name something else than what is wrong, and the code that says it."""

from __future__ import annotations

import re
from typing import Final

_WORDS: Final[tuple[tuple[re.Pattern[str], str, str], ...]] = (
    (
        re.compile(r"max_steps must be set to a positive value|num_samples should be a positive integer value"),
        "no_update",
        "The loader yields no batch, so the campaign would end without an update; the library's own words are",
    ),
    (
        re.compile(r"Attempting to unscale FP16 gradients"),
        "trainable_half_precision",
        "Trainable tensors are fp16 under a loss scaler; expected float32. torch says",
    ),
    (
        re.compile(r"optimizer got an empty parameter list"),
        "trainable_set_differs",
        "Nothing is trainable: 0 parameters take a gradient; expected some. torch says",
    ),
    (
        re.compile(
            r"loaded state dict (?:contains a parameter group that doesn't match|has a different number of param)"
        ),
        "optimizer_not_restored",
        "The optimizer holds other tensors than the one that was saved, so its state fits nowhere. torch says",
    ),
)


def translated(text: str) -> tuple[str, str] | None:
    """``(code, sentence)`` for an error whose own words mislead; None for one that says what it means."""
    for words, code, sentence in _WORDS:
        if words.search(text):
            return code, sentence
    return None
