"""Which attention kernel a GPU takes: its capability, the dtype, a mask and the head's width decide."""

from __future__ import annotations

from collections import Counter

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[pilot]'")

from tui_pilot.predict import constants  # noqa: E402
from tui_pilot.predict.attention import choose, gpu_kernels  # noqa: E402

AMPERE, ADA, HOPPER, TURING, BLACKWELL = (8, 0), (8, 9), (9, 0), (7, 5), (12, 0)
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


@pytest.mark.parametrize(
    ("capability", "dtype", "widths", "mask", "wanted"),
    [
        (AMPERE, BF16, (128, 128), False, "flash"),
        (AMPERE, FP16, (64, 64), False, "flash"),
        (AMPERE, BF16, (128, 128), True, "efficient"),
        (AMPERE, FP32, (128, 128), False, "efficient"),
        (AMPERE, BF16, (192, 128), False, "efficient"),
        (AMPERE, BF16, (320, 320), False, "efficient"),
        (AMPERE, BF16, (256, 256), False, "flash"),
        (ADA, BF16, (256, 256), False, "efficient"),
        (BLACKWELL, BF16, (128, 128), False, "flash"),
        (HOPPER, BF16, (128, 128), False, "cudnn"),
        (HOPPER, BF16, (128, 128), True, "cudnn"),
        (HOPPER, BF16, (256, 256), False, "flash"),
        (HOPPER, FP32, (128, 128), False, "efficient"),
        (TURING, FP16, (64, 64), False, "efficient"),
        (TURING, BF16, (64, 64), False, "math"),
    ],
)
def test_the_kernel_of_a_gpu(
    capability: tuple[int, int], dtype: torch.dtype, widths: tuple[int, int], mask: bool, wanted: str
) -> None:
    assert choose(capability, dtype, widths, mask=mask) == wanted


@pytest.mark.parametrize("capability", [AMPERE, HOPPER, TURING])
@pytest.mark.parametrize("masked", [False, True])
def test_every_kernel_has_a_backward_under_fake_tensors(capability: tuple[int, int], masked: bool) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    seen: Counter[str] = Counter()
    with gpu_kernels(capability, seen), FakeTensorMode():
        query = torch.empty(2, 8, 33, 20, dtype=BF16, requires_grad=True)
        key, value = (torch.empty(2, 8, 33, 20, dtype=BF16, requires_grad=True) for _ in range(2))
        mask = torch.ones(2, 1, 33, 33, dtype=torch.bool) if masked else None
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        assert out.shape == query.shape
        out.sum().backward()
        assert query.grad is not None and query.grad.shape == query.shape
    assert sum(seen.values()) == 1


def test_grouped_keys_run_under_every_kernel() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    for capability, dtype in ((AMPERE, BF16), (AMPERE, FP32), (HOPPER, BF16)):
        with gpu_kernels(capability, Counter()), FakeTensorMode():
            query = torch.empty(1, 8, 32, 16, dtype=dtype, requires_grad=True)
            key = torch.empty(1, 2, 32, 16, dtype=dtype, requires_grad=True)
            out = torch.nn.functional.scaled_dot_product_attention(query, key, key, is_causal=True, enable_gqa=True)
            out.sum().backward()
            assert key.grad is not None and key.grad.shape == key.shape


def test_the_scratch_of_flash_is_padded_to_its_tiles() -> None:
    query, key = torch.empty(1, 32, 2048, 128, dtype=BF16), torch.empty(1, 8, 2048, 128, dtype=BF16)
    assert constants.flash_backward(query, query) == (32 << 20) + (32 * 2048 * 4)
    assert constants.flash_backward(query, key) == (32 << 20) + (32 * 2048 * 4) + (32 << 20)
    short = torch.empty(1, 1, 1, 8, dtype=BF16)
    assert constants.flash_backward(short, short) == 128 * 32 * 4 + 128 * 4
