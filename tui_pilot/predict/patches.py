"""What a training step needs so that it runs under fake CPU tensors; each undone when its context ends.

- ``Module._apply`` swaps tensors under a fake mode and then refuses at times: replaced by a plain re-wrap.
- transformers reads mask values only of real tensors: the batch's own values are kept as constants and may be read.
- ``from_pretrained`` reads no weights: the config says every shape.
- Optimizers choose by the type of a parameter, which a fake one does not have.
- A gradient scaler reads whether a gradient was infinite: here none is.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

Quietly = Callable[[], contextlib.AbstractContextManager[Any]]
_DTYPES = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
Mapped = Callable[[torch.Tensor], None]
CONSTANT_ELEMENTS = 1 << 20
"""Values of the batch, and what is computed from them alone, are kept up to this size."""


@contextmanager
def attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """One attribute replaced while the context is open."""
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def fakeable(foreach: bool, quietly: Quietly = contextlib.nullcontext, mapped: Mapped | None = None) -> Iterator[None]:
    """Everything a step under a fake mode needs. ``foreach``: what an optimizer left to itself takes on the target.

    ``quietly``: a context in which nothing is followed; reading weights makes no tensor beside those of the files.
    ``mapped`` is told every tensor that ``from_pretrained`` would leave where its file is mapped.
    """
    from torch._subclasses import fake_tensor

    with contextlib.ExitStack() as stack:
        stack.enter_context(attribute(fake_tensor, "CONSTANT_NUMEL_LIMIT", CONSTANT_ELEMENTS))
        stack.enter_context(attribute(nn.Module, "_apply", _rewrapping()))
        stack.enter_context(attribute(torch.amp.GradScaler, "_maybe_opt_step", _always_step))
        for module in [each for name, each in sys.modules.items() if name.startswith("torch.optim.")]:
            if hasattr(module, "_default_to_fused_or_foreach"):
                stack.enter_context(attribute(module, "_default_to_fused_or_foreach", _default(foreach)))
        _hugging_face(stack, quietly, mapped)
        yield


def _default(foreach: bool) -> Callable[..., tuple[bool, bool]]:
    def choose(params: Any, differentiable: bool, use_fused: bool = False) -> tuple[bool, bool]:
        return use_fused and not differentiable, foreach and not differentiable and not use_fused

    return choose


def _always_step(self: Any, optimizer: Any, optimizer_state: Any, *args: Any, **keywords: Any) -> Any:
    return optimizer.step(*args, **keywords)


def _rewrapping() -> Callable[..., nn.Module]:
    """``_apply`` by new tensors in the old places; tied ones stay tied over one outermost call."""
    memo: dict[int, tuple[Any, Any]] = {}
    shared: set[int] = set()
    depth = [0]

    def once(old: Any, fn: Callable[[Any], Any]) -> Any:
        if id(old) not in memo:
            with torch.no_grad():
                new = fn(old)
            if new is not old and isinstance(old, nn.Parameter):
                grad = old.grad
                new = nn.Parameter(new, requires_grad=old.requires_grad)
                if grad is not None:
                    with torch.no_grad():
                        new.grad = fn(grad)
                for name, value in vars(old).items():
                    if name not in ("fake_mode", "fake_device", "constant", "_is_param") and not hasattr(new, name):
                        setattr(new, name, value)
            if id(old) not in shared:  # not kept: the old one goes before the next one is made
                return new
            memo[id(old)] = (old, new)
        return memo[id(old)][1]

    def _apply(self: nn.Module, fn: Callable[[Any], Any], recurse: bool = True) -> nn.Module:
        if not depth[0]:
            shared.update(_met_twice(self))
        depth[0] += 1
        try:
            if recurse:
                for module in self.children():
                    module._apply(fn)  # type: ignore[no-untyped-call]
            for places in (self._parameters, self._buffers):
                for name, old in places.items():
                    if old is not None:
                        places[name] = once(old, fn)
        finally:
            depth[0] -= 1
            if not depth[0]:
                memo.clear()
                shared.clear()
        return self

    return _apply


def _met_twice(model: nn.Module) -> set[int]:
    """Ids of the tensors that stand in several places of a model."""
    every = [
        id(each)
        for module in model.modules()
        for places in (module._parameters, module._buffers)
        for each in places.values()
        if each is not None
    ]
    return {each for each in every if every.count(each) > 1} if len(every) > len(set(every)) else set()


def _hugging_face(stack: contextlib.ExitStack, quietly: Quietly, mapped: Mapped | None) -> None:
    """Models from their configs, and masks as their values say; nothing where the library is not loaded."""
    from tui_pilot.tasks import hf

    stack.enter_context(attribute(hf, "safe_weights", lambda folder: []))
    chat_models = sys.modules.get("tui_pilot.tasks.sft")
    if chat_models is not None:  # it compares the tokenizer with the table of the weights: neither need be here
        stack.enter_context(attribute(chat_models.SftTask, "_check_vocabulary", lambda *_: None))
    if "transformers" not in sys.modules:
        return
    try:
        from transformers import masking_utils, modeling_utils
    except ImportError:  # an older one, or one that lacks torch
        return
    kind: Any = modeling_utils.PreTrainedModel
    original = vars(kind)["from_pretrained"]

    def made(cls: Any, *args: Any, **keywords: Any) -> Any:
        with quietly():
            found = _from_config(cls, *args, **keywords)
        if mapped is not None and args:
            for tensor in _as_in_files(found[0] if isinstance(found, tuple) else found, args[0]):
                mapped(tensor)
        return found

    kind.from_pretrained = classmethod(made)  # followed from here on, as what the model holds
    stack.callback(setattr, kind, "from_pretrained", original)
    tracing = getattr(masking_utils, "is_tracing", None)
    if tracing is not None:
        stack.enter_context(attribute(masking_utils, "is_tracing", _unless_constant(tracing)))
    packed = getattr(masking_utils, "find_packed_sequence_indices", None)
    if packed is not None:
        stack.enter_context(attribute(masking_utils, "find_packed_sequence_indices", _if_known(packed)))


def _from_config(cls: type[Any], folder: Any, *args: Any, config: Any = None, **keywords: Any) -> Any:
    """``from_pretrained`` without weights: the same class, dtype and attention, every tensor new."""
    if config is None or isinstance(config, str):
        config = cls.config_class.from_pretrained(config or folder)
    dtype = keywords.get("dtype", keywords.get("torch_dtype"))
    dtype = getattr(config, "dtype", None) if dtype in (None, "auto") else dtype
    how: dict[str, Any] = {"dtype": dtype or torch.float32}
    attention = keywords.get("attn_implementation")
    if attention:  # a flash package need not be installed here; its kernel is taken by name
        how["attn_implementation"] = "sdpa" if str(attention).startswith("flash") else attention
    for name, value in keywords.items():
        if hasattr(config, name) and name not in ("dtype", "torch_dtype", "attn_implementation"):
            setattr(config, name, value)
    model = cls._from_config(config, **how)
    model.eval()
    nothing: dict[str, Any] = dict.fromkeys(("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"), ())
    return (model, nothing) if keywords.get("output_loading_info") else model


def _as_in_files(model: nn.Module, folder: Any) -> Iterator[torch.Tensor]:
    """Tensors that the safetensors files hold under the same name in the same dtype: they are read without a copy."""
    held: dict[str, str] = {}
    for path in sorted(Path(str(folder)).glob("*.safetensors")):
        with contextlib.suppress(OSError, ValueError, KeyError):
            with path.open("rb") as file:
                head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            held |= {name: entry["dtype"] for name, entry in head.items() if name != "__metadata__"}
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    for name, tensor in model.state_dict(keep_vars=True).items():
        dtype = held.get(name) or held.get(name.removeprefix(prefix)) or held.get(prefix + name)
        if dtype is not None and _DTYPES.get(dtype) == tensor.dtype:
            yield tensor


def _unless_constant(original: Callable[..., bool]) -> Callable[..., bool]:
    def is_tracing(tensor: Any = None) -> bool:
        return False if getattr(tensor, "constant", None) is not None else original(tensor)

    return is_tracing


def _if_known(original: Callable[..., Any]) -> Callable[..., Any]:
    """Documents in one row are told by their places; places that no value is known of count up from 0."""

    def find_packed_sequence_indices(position_ids: Any) -> Any:
        return original(position_ids) if getattr(position_ids, "constant", None) is not None else None

    return find_packed_sequence_indices


@contextmanager
def random_states(note: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Activation checkpoints keep the random state on the host: a CPU target counts it, and no operator shows it."""
    original = torch.get_rng_state

    def get_rng_state() -> torch.Tensor:
        state = original()
        note(state)
        return state

    with attribute(torch, "get_rng_state", get_rng_state), attribute(torch.random, "get_rng_state", get_rng_state):
        yield
