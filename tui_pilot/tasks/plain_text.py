"""Rows without a chat template: prompt and completion as one text, and whole documents."""

from __future__ import annotations

from tui_pilot.tasks.base import Span
from tui_pilot.tasks.chat import TrainOn
from tui_pilot.tasks.tokens import Encoded, Tokens, masked


def encode_completion(tokens: Tokens, prompt: str, completion: str, train_on: TrainOn) -> Encoded:
    """Prompt and completion tokenized together, as the model will meet them; the prompt carries no label.

    Where the prompt's own ids are not the first ids of the whole (a token holds the end of one and the start of the
    other), the mask goes by characters and the row is remarked: at inference the prompt would be cut differently.
    """
    pieces = tokens.pieces(prompt + completion)
    alone = tokens.ids(prompt)
    remarks = [] if pieces.ids[: len(alone)] == alone else ["prompt_not_prefix"]
    lead = len(tokens.before)
    first = lead + pieces.tokens(len(prompt), len(pieces.text))[0]
    ids = _closed(tokens, [*tokens.before, *pieces.ids])
    spans: list[Span] = [(lead, first, "user", 0)] if first > lead else []
    spans.append((first, len(ids), "assistant", 1))
    return Encoded(ids, masked(ids, [(lead if train_on == "all" else first, len(ids))]), spans, remarks)


def encode_document(tokens: Tokens, text: str) -> Encoded:
    """A document with its end token. All of it is to be learned, so it is one span as an assistant's turn is."""
    lead = len(tokens.before)
    ids = _closed(tokens, [*tokens.before, *tokens.pieces(text).ids])
    return Encoded(ids, masked(ids, [(lead, len(ids))]), [(lead, len(ids), "assistant", 0)])


def _closed(tokens: Tokens, ids: list[int]) -> list[int]:
    """With an end token, once; a tokenizer without one leaves the row open, which the examples gate reports."""
    if tokens.eos is None or (ids and ids[-1] == tokens.eos):
        return ids
    return [*ids, tokens.eos]
