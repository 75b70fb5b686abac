"""Operators that the exporter decomposes by default, and arithmetic on symbolic sizes."""

from __future__ import annotations

import math
from typing import Iterator

import torch
from torch.export import Dim

from .table import (
    Case,
    boolean,
    case,
    f16,
    f32,
    f64,
    i32,
    i64,
    last,
    longs,
    positive,
    specials,
    u8,
    values,
)

A = torch.ops.aten
Q = torch.ops.quantized_decomposed
SHAPE = (3, 4)


def preserved() -> Iterator[Case]:
    x, y = values(f32, *SHAPE), positive(f32, *SHAPE)
    for name, operator, run, inputs in (
        ("floor_divide", A.floor_divide.default, torch.floor_divide, (x, y)),
        ("logit", A.logit.default, lambda x: torch.logit(x, 0.1), (torch.rand(SHAPE),)),
        (
            "masked_fill",
            A.masked_fill.Scalar,
            lambda x, m: x.masked_fill(m, -2.5),
            (x, values(boolean, 4)),
        ),
        ("rsub", A.rsub.Scalar, lambda x: torch.rsub(x, 3.0, alpha=2.0), (x,)),
        ("sub_scalar", A.sub.Scalar, lambda x: A.sub.Scalar(x, 3.0, 2.0), (x,)),
        ("add_scalar", A.add.Scalar, lambda x: A.add.Scalar(x, 3.0, 2.0), (x,)),
        ("mul_scalar", A.mul.Scalar, lambda x: A.mul.Scalar(x, 3.0), (x,)),
        ("div_scalar", A.div.Scalar, lambda x: A.div.Scalar(x, 3.0), (x,)),
        (
            "div_scalar_floor",
            A.div.Scalar_mode,
            lambda x: A.div.Scalar_mode(x, 0.75, rounding_mode="floor"),
            (x,),
        ),
        (
            "div_scalar_trunc",
            A.div.Scalar_mode,
            lambda x: A.div.Scalar_mode(x, 0.75, rounding_mode="trunc"),
            (x,),
        ),
        ("stack", A.stack.default, lambda x, y: torch.stack([x, y], -1), (x, y)),
        ("tril", A.tril.default, lambda x: x.tril(1), (x,)),
        ("tril_batch", A.tril.default, lambda x: x.tril(-1), (values(i64, 2, 3, 4),)),
        ("var_unbiased", A.var.dim, lambda x: torch.var(x, [1], True, True), (x,)),
        ("var_biased", A.var.dim, lambda x: torch.var(x, [0], False, False), (x,)),
        ("ones", A.ones.default, lambda x: (x + 1, torch.ones(2, 3)), (x,)),
        ("zeros", A.zeros.default, lambda x: (x + 1, torch.zeros(2, 3, dtype=i64)), (x,)),
        ("arange", A.arange.default, lambda x: (x + 1, torch.arange(6)), (x,)),
        ("arange_float", A.arange.default, lambda x: (x + 1, torch.arange(3.5)), (x,)),
        ("lift_fresh_copy", A.lift_fresh_copy.default, A.lift_fresh_copy.default, (x,)),
        (
            "embedding_2bit_to_half",
            Q.embedding_2bit.dtype,
            lambda w, s, i: Q.embedding_2bit.dtype(w, s, None, -2, 1, i, dtype=f16),
            (torch.randint(0, 256, (6, 4), dtype=u8), torch.rand(6), longs(0, 5)),
        ),
        (
            "conj_physical",
            A._conj_physical.default,
            A._conj_physical.default,
            (torch.complex(x, y),),
        ),
        (
            "linear",
            A.linear.default,
            torch.nn.functional.linear,
            (x, values(f32, 2, 4), values(f32, 2)),
        ),
        ("softplus", A.softplus.default, torch.nn.functional.softplus, (x,)),
        ("addmv", A.addmv.default, torch.addmv, (values(f32, 3), x, values(f32, 4))),
    ):
        yield case(name, run, inputs, preserve=[operator])
    yield case(
        "convolution_backward",
        convolution_backward,
        (values(f32, 1, 3, 3, 3), values(f32, 1, 2, 5, 5), values(f32, 3, 2, 3, 3)),
    )
    yield case(
        "max_pool_backward", max_pool_backward, (values(f32, 1, 2, 2, 2), values(f32, 1, 2, 4, 4))
    )
    yield case(
        "batch_norm_training",
        lambda x: A._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5),
        (values(f32, 2, 3, 4),),
    )
    yield case(
        "index_put_in_place",
        lambda x, i, v: torch.index_put(x * 1, (i,), v) + 1,
        (x, longs(2, 0), values(f32, 2, 4)),
        reinplace=True,
    )


def convolution_backward(grad, x, weight):
    return A.convolution_backward(
        grad, x, weight, [3], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True]
    )


def max_pool_backward(grad, x):
    _, indices = A.max_pool2d_with_indices(x, [2, 2])
    return A.max_pool2d_with_indices_backward(
        grad, x, [2, 2], [2, 2], [0, 0], [1, 1], False, indices
    )


def without_dim_order() -> Iterator[Case]:
    x = values(f32, 1, 3, 2, 4)
    for name, run, inputs in (
        ("to_half", lambda x: x.to(f16), (x,)),
        ("to_int", lambda x: x.to(i32), (x,)),
        ("to_half_channels_last", lambda x: x.to(f16), (last(x),)),
        ("clone", lambda x: x.clone(), (x,)),
        ("clone_channels_last", lambda x: x.clone(), (last(x),)),
        ("clone_to_channels_last", lambda x: x.clone(memory_format=torch.channels_last), (x,)),
        (
            "clone_to_contiguous",
            lambda x: x.clone(memory_format=torch.contiguous_format),
            (last(x),),
        ),
        ("full_like", lambda x: torch.full_like(x, 2.0), (x,)),
    ):
        yield case(name, run, inputs, dim_order=False)


def symbolic() -> Iterator[Case]:
    """Arithmetic on symbolic sizes, which programs compute with scalars instead of tensors."""
    n = Dim("n", min=1, max=8)

    def branch(compare):
        return lambda x: torch.cond(compare(x.shape[0]), lambda x: x * 2, lambda x: x - 1, (x,))

    for name, run in {
        "less": branch(lambda n: n < 4),
        "less_equal": branch(lambda n: n <= 4),
        "greater": branch(lambda n: n > 4),
        "greater_equal": branch(lambda n: n >= 4),
        "equal": branch(lambda n: torch.sym_not(n != 4)),
        "not": branch(lambda n: torch.sym_not(n < 4)),
        "negated": lambda x: x * -x.shape[0],
        "ceil": lambda x: x * math.ceil(x.shape[0] / 3),
        "floor": lambda x: x * math.floor(x.shape[0] / 3),
        "trunc": lambda x: x * math.trunc(x.shape[0] / 3),
        "round": lambda x: x * round(x.shape[0] / 3),
        "to_int": lambda x: x * torch.sym_int(x.shape[0] * 0.4),
        "mod_of_negative": lambda x: x * ((2 - x.shape[0]) % 3),
        "floordiv_of_negative": lambda x: x * ((2 - x.shape[0]) // 3),
    }.items():
        yield case(name, run, *[(values(f32, k, 3),) for k in (4, 1, 8)], dynamic=({0: n},))


def library() -> Iterator[Case]:
    """Operators that the exporter decomposes unless `preserve` lists them."""
    x, y = values(f32, *SHAPE), positive(f32, *SHAPE)
    half, double = x.half(), x.double()
    scalar, three = torch.tensor(1.0009), values(f32, 2, 3, 7)
    spread = torch.randn(3000, dtype=f64).float()
    for name, operator, run, inputs in (
        ("cumprod", A.cumprod.default, lambda x: torch.cumprod(x, 1), (x,)),
        ("cumprod_first", A.cumprod.default, lambda x: torch.cumprod(x, 0), (double,)),
        ("cumprod_int", A.cumprod.default, lambda x: torch.cumprod(x, -1), (values(i32, 2, 3, 4),)),
        (
            "cumprod_long",
            A.cumprod.default,
            lambda x: torch.cumprod(x, 0),
            (torch.rand(600) * 0.1 + 0.95,),
        ),
        ("hypot", A.hypot.default, torch.hypot, (x, y)),
        ("hypot_specials", A.hypot.default, torch.hypot, (specials(f32, 15, 1), specials(f32, 15))),
        ("hypot_half", A.hypot.default, torch.hypot, (half, scalar)),
        ("atan2_half_number", A.atan2.default, torch.atan2, (half, scalar)),
        ("fmod_half_number", A.fmod.Tensor, torch.fmod, (half, scalar)),
        ("remainder_half_number", A.remainder.Tensor, torch.remainder, (half, scalar)),
        ("pow_half_number", A.pow.Tensor_Tensor, torch.pow, (y.half(), scalar)),
        ("pow_half_root", A.pow.Tensor_Scalar, lambda x: torch.pow(x, 0.5), (specials(f16, 15),)),
        ("logit_half", A.logit.default, torch.logit, (torch.rand(40).half(),)),
        (
            "logit_half_bounded",
            A.logit.default,
            lambda x: torch.logit(x, 0.1),
            (torch.rand(40).half(),),
        ),
        ("asinh_large", A.asinh.default, torch.asinh, (torch.tensor([3e38, -1e30, 1e-30, 2.0]),)),
        ("acosh_large", A.acosh.default, torch.acosh, (torch.tensor([3e38, 1e30, 1.0, 2.0]),)),
        ("norm", A.linalg_vector_norm.default, lambda x: A.linalg_vector_norm(x, 2, [1]), (x,)),
        (
            "norm_one",
            A.linalg_vector_norm.default,
            lambda x: A.linalg_vector_norm(x, 1, [0], True),
            (x,),
        ),
        (
            "norm_zero",
            A.linalg_vector_norm.default,
            lambda x: A.linalg_vector_norm(x, 0),
            (specials(f32, 15),),
        ),
        (
            "norm_three",
            A.linalg_vector_norm.default,
            lambda x: A.linalg_vector_norm(x, 3.0),
            (double,),
        ),
        (
            "norm_largest",
            A.linalg_vector_norm.default,
            lambda x: A.linalg_vector_norm(x, float("inf"), [1]),
            (half,),
        ),
        (
            "norm_least",
            A.linalg_vector_norm.default,
            lambda x: A.linalg_vector_norm(x, float("-inf"), [0]),
            (x,),
        ),
        ("eye", A.eye.default, lambda x: (x + 1, torch.eye(3)), (x,)),
        ("eye_wide", A.eye.m, lambda x: (x + 1, torch.eye(2, 4, dtype=i64)), (x,)),
        (
            "adaptive_avg_pool1d",
            A.adaptive_avg_pool1d.default,
            lambda x: A.adaptive_avg_pool1d(x, [3]),
            (three,),
        ),
        ("zeros_like", A.zeros_like.default, lambda x: (x + 1, torch.zeros_like(x)), (x,)),
        ("clamp_min", A.clamp_min.default, lambda x: A.clamp_min(x, 0.25), (specials(f32, 15),)),
        (
            "trilinear",
            A._trilinear.default,
            trilinear,
            (values(f32, 2, 3), values(f32, 4, 3, 5), values(f32, 2, 5)),
        ),
        # Reducing all values, eager mode's variance is off by 0.5 % here; hence `var_mean`.
        (
            "variance_large_mean",
            A.var_mean.correction,
            lambda x: torch.var_mean(x)[0],
            (1e6 + spread,),
        ),
        (
            "variance_large_mean_rows",
            A.var.correction,
            lambda x: torch.var(x, 0),
            (torch.randn(300, 4) + 1e5,),
        ),
        (
            "quantize_nan",
            None,
            lambda x: Q.quantize_per_tensor(x, 0.1, 3, -128, 127, torch.int8),
            (specials(f32, 15),),
        ),
        (
            "quantize_nan_u8",
            None,
            lambda x: Q.quantize_per_tensor(x, 0.1, 3, 0, 255, u8),
            (specials(f32, 15),),
        ),
    ):
        yield case(name, run, inputs, preserve=[operator] if operator else [])
    large = torch.tensor([3e9, -3e9, 1e19, float("nan"), float("inf"), 300.7, -1.5, 70000.0, 5e9])
    for name, dtype in (
        ("u8", u8),
        ("i8", torch.int8),
        ("i16", torch.int16),
        ("i32", i32),
        ("i64", i64),
    ):
        yield case(f"out_of_range_{name}", lambda x, dtype=dtype: x.to(dtype), (large,))
        yield case(
            f"out_of_range_double_{name}", lambda x, dtype=dtype: x.to(dtype), (large.double(),)
        )
    # Cumulative products that leave the range of fp32 and return to it.
    beyond = torch.tensor([[1e30, 1e30, 1e-30, 2.0], [1e-30, 1e-30, 1e30, 1.0]])
    preserve = [A.cumprod.default]
    yield case("cumprod_beyond", lambda x: torch.cumprod(x, 1), (beyond,), preserve=preserve)
    yield case(
        "cumprod_beyond_first",
        lambda x: torch.cumprod(x, 0),
        (beyond.T.contiguous(),),
        preserve=preserve,
    )
    yield case(
        "clamp_min_nan",
        lambda x: A.clamp_min(x, float("nan")),
        (beyond,),
        preserve=[A.clamp_min.default],
    )
    operands = values(f32, 2, 3), values(f32, 4, 2, 3), values(f32, 4, 3)
    yield case(
        "trilinear_unordered", trilinear_unordered, operands, preserve=[A._trilinear.default]
    )


def trilinear(a, b, c):
    return A._trilinear(a, b, c, [1, 3], [0], [1, 2], [2, 3])


def trilinear_unordered(a, b, c):
    return A._trilinear(a, b, c, [2, 0], [3], [-2, 1], [3])


FAMILIES = {
    "library": library,
    "preserved": preserved,
    "aten_copy": without_dim_order,
    "symbolic": symbolic,
}
