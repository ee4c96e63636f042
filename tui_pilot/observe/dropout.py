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
    rates: list[tuple[nn.Module, str, float]] = [
        (module, "p", module.p) for module in model.modules() if isinstance(module, _MODULES)
    ]
    rates += [(module, "dropout", module.dropout) for module in model.modules() if isinstance(module, nn.RNNBase)]
    plain, attention = functional.dropout, functional.scaled_dot_product_attention

    def keep(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return input

    def quiet(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, *more: Any, **rest: Any
    ) -> Any:
        return attention(query, key, value, attn_mask, 0.0, *more, **rest)

    for module, name, _ in rates:
        setattr(module, name, 0.0)
    functional.dropout = keep
    functional.scaled_dot_product_attention = quiet
    try:
        yield
    finally:
        functional.dropout, functional.scaled_dot_product_attention = plain, attention
        for module, name, rate in rates:
            setattr(module, name, rate)
