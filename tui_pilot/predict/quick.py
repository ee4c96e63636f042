"""Fake tensors whose operators are worked out once for each shape, so that 32 alike layers cost little more than one.

torch's own mode remembers too, but asks every tensor for a dozen properties at each call. This one asks for what tells
two calls of a dense, fixed-shape program apart; whatever is unusual (values kept, other layouts, symbolic sizes,
subclasses) goes torch's way. ``tests/predict/test_quick.py`` holds the two against each other, event by event.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

#: Results of these depend on more than shapes, or change the shape of what they are given.
_BY_VALUE = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view)
_DEVICE: Final = torch.ops.prim.device.default
_PLAIN = (bool, int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None))

_NEW, _VIEW, _SAME = "new", "view", "same"
Recipe = tuple[Any, ...]
"""How one result is made again: ``(_SAME, argument)``, or ``(_NEW | _VIEW, argument, shape, strides, ...)``."""


class QuickFakeMode(FakeTensorMode):  # type: ignore[no-untyped-call]
    """A FakeTensorMode for dense tensors on one device; same results, several times as fast on repeated layers."""

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self._recipes: dict[Any, tuple[bool, list[Recipe | None]] | None] = {}
        """By call; None: looked at, and not to be remembered."""

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What the operator gives, from memory where a call like this one was seen."""
        if func is _DEVICE:
            return args[0].fake_device
        flat: list[FakeTensor] = []
        key = self._key(func, args, kwargs, flat)
        if key is None:
            return super().dispatch(func, types, args, kwargs or {})
        known = self._recipes.get(key)
        if known is not None:
            many, recipes = known
            made = [None if recipe is None else self._made(recipe, flat) for recipe in recipes]
            return tuple(made) if many else made[0]
        result = super().dispatch(func, types, args, kwargs or {})
        if key not in self._recipes:
            changed = self._key(func, args, kwargs, []) != key
            self._recipes[key] = None if changed else _recipes(func, result, flat)
        return result

    def _key(self, func: Any, args: Any, kwargs: Any, flat: list[FakeTensor]) -> Any:
        """What tells this call from others; None where it is not one to be remembered. ``flat`` takes its tensors."""
        parts: list[Any] = [func, torch.get_default_dtype()]
        if torch.is_inference_mode_enabled() or not self._parts(args, parts, flat):
            return None
        if kwargs:
            parts.extend(kwargs)
            if not self._parts(kwargs.values(), parts, flat):
                return None
        return tuple(parts)

    def _parts(self, values: Any, parts: list[Any], flat: list[FakeTensor]) -> bool:
        for value in values:
            kind = type(value)
            if kind is FakeTensor:
                if value.constant is not None or value.fake_mode is not self or value.layout is not torch.strided:
                    return False
                dtype = value.dtype
                if dtype.is_complex:  # conjugates are views by a flag
                    return False
                flat.append(value)
                parts += (value.shape, value.stride(), value.storage_offset(), dtype)
            elif kind is list or kind is tuple:
                parts += (kind, len(value))
                if not self._parts(value, parts, flat):
                    return False
            elif isinstance(value, _PLAIN):
                # 1, 1.0 and True are one key and three different results.
                parts += (kind, value)
            else:
                return False
        return True

    def _made(self, recipe: Recipe, flat: list[FakeTensor]) -> FakeTensor:
        if recipe[0] is _SAME:
            return flat[recipe[1]]
        kind, place, shape, stride, offset, dtype, device = recipe
        tensor = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
        if kind is _VIEW:
            tensor.set_(flat[place].untyped_storage(), offset, shape, stride)
        return FakeTensor(self, tensor, device)


def _recipes(func: Any, result: Any, flat: list[FakeTensor]) -> tuple[bool, list[Recipe | None]] | None:
    """How the results are made again; None where that is not known."""
    if any(tag in func.tags for tag in _BY_VALUE) or func.namespace != "aten":
        return None
    many = isinstance(result, (tuple, list))
    results = list(result) if many else [result]
    found: list[Recipe | None] = []
    for number, each in enumerate(results):
        recipe = None if each is None else _recipe(each, flat, results[:number])
        if each is not None and recipe is None:
            return None
        found.append(recipe)
    # A list stays a list where torch's own operators give one: nobody tells it from a tuple but by its type.
    return None if type(result) is list else (many, found)


def _recipe(result: Any, flat: list[FakeTensor], before: list[Any]) -> Recipe | None:
    if type(result) is not FakeTensor or result.constant is not None or result.layout is not torch.strided:
        return None
    for place, given in enumerate(flat):
        if given is result:
            return (_SAME, place)
    shape, stride, offset = tuple(result.shape), result.stride(), result.storage_offset()
    rest = (shape, stride, offset, result.dtype, result.fake_device)
    storage = result.untyped_storage()
    for place, given in enumerate(flat):
        if given.untyped_storage()._cdata == storage._cdata:
            return (_VIEW, place, *rest)
    if any(isinstance(each, torch.Tensor) and each.untyped_storage()._cdata == storage._cdata for each in before):
        return None
    reach = 0 if 0 in shape else 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    if offset or result.dtype.is_complex or storage.nbytes() != reach * result.element_size():
        return None
    return (_NEW, None, *rest)
