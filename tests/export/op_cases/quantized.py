"""Quantize, dequantize and related operators with scale and zero point."""

from __future__ import annotations

import contextlib
import io
from typing import Iterator

import torch

with contextlib.redirect_stdout(io.StringIO()):
    # Imported to register operators: out variants, `embedding_byte`, quantize and dequantize.
    import executorch.kernels.quantized  # noqa: F401
    from executorch.exir.passes import _quant_patterns_and_replacements  # noqa: F401
    from torchao.quantization.pt2e.quantizer import Quantizer  # noqa: F401

from .table import Case, case, each, f16, f32, f64, i8, i16, i32, i64, specials, u8, values

Q = torch.ops.quantized_decomposed
RANGES = {i8: (-128, 127), u8: (0, 255), i16: (-32768, 32767), i32: (-(2**31), 2**31 - 1)}
SHAPE = (3, 5)


def ties() -> torch.Tensor:
    """Values halfway between two quantization steps of 0.5, and beyond both ends of the range."""
    return torch.tensor(
        [
            [0.25, 0.75, 1.25, -0.25, -0.75],
            [-1.25, 63.9, 64.0, -64.2, 500.0],
            [-500.0, 0.0, -0.0, 0.1, 31.25],
        ]
    )


def per_tensor() -> Iterator[Case]:
    for dtype, (low, high) in RANGES.items():
        zero = 10 if dtype == u8 else 3
        yield from each(
            "quantize_per_tensor",
            lambda x, z=zero, l=low, h=high, d=dtype: Q.quantize_per_tensor(x, 0.05, z, l, h, d),
            (dtype,),
            lambda d: [(values(f32, *SHAPE),), (values(f32, *SHAPE, scale=20.0),)],
        )
        yield from each(
            "dequantize_per_tensor",
            lambda x, z=zero, l=low, h=high, d=dtype: Q.dequantize_per_tensor(x, 0.05, z, l, h, d),
            (dtype,),
            lambda d: (
                [(values(d, *SHAPE),), (specials(d, *SHAPE),)] if d != i32 else (values(d, *SHAPE),)
            ),
        )
    beyond = torch.tensor(
        [
            [3e8, -3e8, 1e30, -1e30, float("inf")],
            [float("-inf"), float("nan"), 1.07e8, -1.07e8, 107374182.35],
        ]
    )
    for name, zero in (("", 0), ("_zero", 7)):
        run = lambda x, z=zero: Q.quantize_per_tensor(x, 0.05, z, -(2**31), 2**31 - 1, i32)
        yield case(f"quantize_per_tensor_beyond{name}", run, (beyond,))
    yield case(
        "quantize_per_tensor_ties",
        lambda x: Q.quantize_per_tensor(x, 0.5, 0, -128, 127, i8),
        (ties(),),
    )
    yield case(
        "quantize_per_tensor_narrow",
        lambda x: Q.quantize_per_tensor(x, 0.1, -1, -7, 7, i8),
        (values(f32, *SHAPE),),
    )
    yield case(
        "quantize_per_tensor_scale_input",
        lambda x, s, z: Q.quantize_per_tensor.tensor(x, s, z, -128, 127, i8),
        (values(f32, *SHAPE), torch.tensor(0.04, dtype=f64), torch.tensor(-3)),
    )
    yield case(
        "dequantize_per_tensor_scale_input",
        lambda x, s, z: Q.dequantize_per_tensor.tensor(x, s, z, -128, 127, i8),
        (values(i8, *SHAPE), torch.tensor(0.04, dtype=f64), torch.tensor(-3)),
    )
    yield case(
        "dequantize_per_tensor_half",
        lambda x: Q.dequantize_per_tensor(x, 0.05, 3, -128, 127, i8, out_dtype=f16),
        (values(i8, *SHAPE),),
    )
    yield case(
        "quantize_dequantize",
        lambda x: Q.dequantize_per_tensor(
            Q.quantize_per_tensor(x, 0.05, 3, -128, 127, i8), 0.05, 3, -128, 127, i8
        ),
        (values(f32, *SHAPE),),
    )
    yield case(
        "choose_qparams",
        lambda x: Q.choose_qparams.tensor(x, -128, 127, 1e-5, i8),
        (values(f32, *SHAPE),),
        (values(f32, *SHAPE).abs(),),
        (torch.zeros(SHAPE),),
        rtol=1e-6,
    )
    yield case(
        "choose_qparams_u8",
        lambda x: Q.choose_qparams.tensor(x, 0, 255, 1e-5, u8),
        (values(f32, *SHAPE),),
        rtol=1e-6,
    )


def per_channel() -> Iterator[Case]:
    for axis, size in ((0, 3), (1, 5), (-1, 5)):
        name = "last" if axis < 0 else axis
        scales, zeros = torch.rand(size) * 0.1 + 0.02, torch.randint(-5, 6, (size,))
        for dtype in (i8, u8):
            low, high = RANGES[dtype]
            shifted = zeros if dtype == i8 else zeros + 100
            tag = "i8" if dtype == i8 else "u8"
            yield case(
                f"quantize_per_channel_{name}_{tag}",
                lambda x, s, z, a=axis, l=low, h=high, d=dtype: Q.quantize_per_channel(
                    x, s, z, a, l, h, d
                ),
                (values(f32, *SHAPE), scales, shifted),
            )
            yield case(
                f"dequantize_per_channel_{name}_{tag}",
                lambda x, s, z, a=axis, l=low, h=high, d=dtype: Q.dequantize_per_channel(
                    x, s, z, a, l, h, d
                ),
                (values(dtype, *SHAPE), scales, shifted),
            )
    yield case(
        "dequantize_per_channel_no_zero_points",
        lambda x, s: Q.dequantize_per_channel(x, s, None, 0, -127, 127, i8),
        (values(i8, 3, 2, 2), torch.rand(3)),
    )
    yield case(
        "quantize_per_channel_4d",
        lambda x, s, z: Q.quantize_per_channel(x, s, z, 0, -127, 127, i8),
        (values(f32, 3, 2, 2, 2), torch.rand(3) * 0.1 + 0.02, torch.zeros(3, dtype=i64)),
    )


def per_token() -> Iterator[Case]:
    x = values(f32, 2, 3, 4)
    scales, zeros = torch.rand(2, 3, 1, dtype=f64) * 0.1 + 0.02, torch.randint(-5, 6, (2, 3, 1))
    yield case(
        "choose_qparams_per_token",
        lambda x: Q.choose_qparams_per_token_asymmetric(x, i8),
        (x,),
        (x.abs(),),
        rtol=1e-6,
    )
    yield case(
        "quantize_per_token",
        lambda x, s, z: Q.quantize_per_token(x, s, z, -128, 127, i8),
        (x, scales, zeros),
    )
    yield case(
        "quantize_per_token_f32_scale",
        lambda x, s, z: Q.quantize_per_token(x, s, z, -128, 127, i8),
        (x, scales.float(), zeros),
    )
    yield case(
        "dequantize_per_token",
        lambda x, s, z: Q.dequantize_per_token(x, s, z, -128, 127, i8, f32),
        (values(i8, 2, 3, 4), scales, zeros),
    )
    yield case("dynamic_quantization", dynamically, (values(f32, 3, 8),), atol=0.04)


def dynamically(x: torch.Tensor) -> torch.Tensor:
    scales, zeros = Q.choose_qparams_per_token_asymmetric(x, i8)
    return Q.dequantize_per_token(
        Q.quantize_per_token(x, scales, zeros, -128, 127, i8), scales, zeros, -128, 127, i8, f32
    )


def weights() -> Iterator[Case]:
    index = torch.tensor([[0, 5], [2, 2]])
    whole, groups = torch.rand(6) * 0.1, torch.rand(6, 2) * 0.1
    zeros = torch.randint(-3, 4, (6,)).float()
    yield case(
        "embedding_byte",
        lambda w, s, z, i: Q.embedding_byte(w, s, z, -128, 127, i),
        (values(i8, 6, 4), whole, zeros, index),
    )
    yield case(
        "embedding_byte_no_zero_points",
        lambda w, s, i: Q.embedding_byte(w, s, None, -128, 127, i),
        (values(i8, 6, 4), whole, index),
    )
    yield case(
        "embedding_byte_groups",
        lambda w, s, i: Q.embedding_byte(w, s, None, -128, 127, i),
        (values(i8, 6, 4), groups, index),
    )
    yield case(
        "embedding_byte_to_half",
        lambda w, s, i: Q.embedding_byte.dtype(w, s, None, -128, 127, i, dtype=f16),
        (values(i8, 6, 4), whole, index),
    )
    yield case(
        "embedding_4bit",
        lambda w, s, i: Q.embedding_4bit(w, s, None, -8, 7, i),
        (torch.randint(0, 256, (6, 4), dtype=u8), whole, index),
    )
    yield case(
        "embedding_4bit_groups",
        lambda w, s, i: Q.embedding_4bit(w, s, None, -8, 7, i),
        (torch.randint(0, 256, (6, 4), dtype=u8), groups, index),
    )
    yield case(
        "embedding_4bit_to_half",
        lambda w, s, i: Q.embedding_4bit.dtype(w, s, None, -8, 7, i, dtype=f16),
        (torch.randint(0, 256, (6, 4), dtype=u8), groups, index),
    )
    yield case(
        "embedding_2bit",
        lambda w, s, i: Q.embedding_2bit(w, s, None, -2, 1, i),
        (torch.randint(0, 256, (6, 4), dtype=u8), whole, index),
    )
    yield case(
        "mixed_linear",
        lambda x, w, s: Q.mixed_linear(x, w, s, None),
        (values(f32, 3, 4), values(i8, 5, 4), torch.rand(5)),
    )
    yield case(
        "mixed_mm",
        lambda x, w, s: Q.mixed_mm(x, w, s, None),
        (values(f32, 3, 4), values(i8, 4, 5), torch.rand(4)),
    )
    yield case(
        "add",
        lambda a, b: Q.add(a, 0.1, 2, -128, 127, b, 0.2, -3, -128, 127, 0.25, 1, -128, 127),
        (values(i8, *SHAPE), values(i8, *SHAPE)),
        atol=1,
    )


FAMILIES = {
    "quantized_tensor": per_tensor,
    "quantized_channel": per_channel,
    "quantized_token": per_token,
    "quantized_weight": weights,
}
