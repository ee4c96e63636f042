"""A small text classifier on bytes, torch alone: hashed n-grams, averaged and maximised over the row, then two layers.

It needs no tokenizer and no download, learns short texts in seconds on a CPU, and can learn a few rows by heart, which
is what the phases want of it. Padding counts for nothing, so a row's answer is the same in any batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

FIRST_BYTE = 2
PAD, START = 0, 1
_FACTOR = 0x9E3779B1
_MASK = (1 << 31) - 1


class TextClassifier(nn.Module):
    """``(rows, length)`` byte ids and mask to ``(rows, classes)`` logits; about 2.2 million parameters.

    ``buckets`` is the size of the one table that n-grams of every order share; ``orders`` the lengths of n-grams.
    """

    def __init__(
        self, classes: int, width: int = 64, buckets: int = 1 << 15, orders: int = 4, hidden: int = 128
    ) -> None:
        super().__init__()
        self.buckets, self.orders = buckets, orders
        self.embed = nn.Embedding(buckets, width)
        # apart: in one norm the maxima, many times larger, would drown the means
        self.norm_mean, self.norm_top = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inner = nn.Linear(2 * width, hidden)
        self.head = nn.Linear(hidden, classes)
        self.checkpointing = False
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        if self.checkpointing and self.training:
            pooled: torch.Tensor = checkpoint(self.pool, input_ids, attention_mask, use_reentrant=False)
        else:
            pooled = self.pool(input_ids, attention_mask)
        hidden = functional.gelu(self.inner(pooled))
        logits: torch.Tensor = self.head(hidden)
        return logits

    def pool(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Mean and maximum over the row of its n-grams' vectors, each normed: ``(rows, 2 x width)``."""
        grams, real = self.grams(input_ids, attention_mask.bool())
        vectors = self.embed(grams)
        inside = real.unsqueeze(-1)
        mean = (vectors * inside).sum(1) / inside.sum(1).clamp(min=1)
        top = vectors.masked_fill(~inside, -1e4).amax(1)
        return torch.cat([self.norm_mean(mean), self.norm_top(top)], dim=-1)

    def grams(self, input_ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Buckets of the n-grams of every order that lie wholly inside their row, and which places hold one."""
        keys, inside = input_ids.long() + 1, mask
        buckets, real = [keys % self.buckets], [inside]
        for order in range(1, self.orders):
            if input_ids.shape[1] <= order:
                break
            keys = (keys[:, :-1] * _FACTOR + input_ids[:, order:] + 1 + order) & _MASK
            inside = inside[:, :-1] & mask[:, order:]
            # high bits: the low ones of a product hardly mix
            buckets.append((keys ^ (keys >> 15)) % self.buckets)
            real.append(inside)
        return torch.cat(buckets, dim=1), torch.cat(real, dim=1)


def byte_ids(text: str) -> list[int]:
    """The start mark and the text's UTF-8 bytes as ids; a row is never without a token."""
    return [START, *(FIRST_BYTE + byte for byte in text.encode("utf-8", "surrogatepass"))]


def byte_text(ids: Sequence[int]) -> str:
    """Ids as text; marks visible, a piece of a character as ``\\xNN``."""
    out, pending = [], bytearray()
    for number in ids:
        if FIRST_BYTE <= number < FIRST_BYTE + 256:
            pending.append(number - FIRST_BYTE)
            continue
        out.append(pending.decode("utf-8", "backslashreplace"))
        pending.clear()
        out.append({PAD: "<pad>", START: "<start>"}.get(number, f"<{number}>"))
    out.append(pending.decode("utf-8", "backslashreplace"))
    return "".join(out)


def byte_pieces(ids: Sequence[int]) -> list[str]:
    """One text per id; of a character of several bytes the last has it and the others have nothing."""
    pieces: list[str] = []
    pending: list[int] = []
    for number in ids:
        pending.append(number)
        whole = not _open([each - FIRST_BYTE for each in pending])
        pieces.append(byte_text(pending) if whole else "")
        pending = [] if whole else pending
    if pending:
        pieces[-1] = byte_text(pending)
    return pieces


def _open(values: Sequence[int]) -> bool:
    """Whether bytes are the beginning of one character of which more is due."""
    lead = values[0]
    due = 2 if 0xC2 <= lead < 0xE0 else 3 if 0xE0 <= lead < 0xF0 else 4 if 0xF0 <= lead < 0xF5 else 1
    return len(values) < due and all(0x80 <= value < 0xC0 for value in values[1:])
