"""Every kind of dropout off for a while: modules, the functional form, and the one inside attention."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn import functional

_MODULES = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


@contextmanager
def no_dropout(model: nn.Module) -> Iterator[None]:
    """Training mode stays as it is; only the noise goes. Restored also when the body raises."""
    rates = [(module, module.p) for module in model.modules() if isinstance(module, _MODULES)]
    plain, attention = functional.dropout, functional.scaled_dot_product_attention

    def keep(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return input

    def quiet(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, **rest: Any) -> Any:
        return attention(query, key, value, attn_mask, 0.0, **rest)

    for module, _ in rates:
        module.p = 0.0
    functional.dropout = keep
    functional.scaled_dot_product_attention = quiet  # type: ignore[assignment]
    try:
        yield
    finally:
        functional.dropout, functional.scaled_dot_product_attention = plain, attention
        for module, rate in rates:
            module.p = rate
