"""Fourier transforms and their complex results."""

from __future__ import annotations

from typing import Iterator

import torch
from torch.export import Dim

from .table import Case, case, each, f32, f64, values

A = torch.ops.aten
REALS = (f32, f64)


def parts(run):
    """Passes complex tensors in and out as pairs of real values, as models do."""
    return lambda *pairs: real(run(*(torch.view_as_complex(pair) for pair in pairs)))


def real(result: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(result) if result.is_complex() else result


def fourier() -> Iterator[Case]:
    for length in (1, 2, 3, 8, 12, 37, 64, 100):
        yield case(f"rfft_{length}", lambda x: real(torch.fft.rfft(x)), (values(f32, 2, length),))
    for n in (7, 8):
        yield case(
            f"irfft_{n}",
            parts(lambda x, n=n: torch.fft.irfft(x, n=n)),
            (values(f32, 3, n // 2 + 1, 2),),
        )
    yield from each(
        "rfft2_ortho",
        lambda x: real(torch.fft.rfft2(x, norm="ortho")),
        REALS,
        lambda d: (values(d, 2, 6, 5),),
    )
    yield from each(
        "irfft2",
        parts(lambda x: torch.fft.irfft2(x, s=(6, 5))),
        REALS,
        lambda d: (values(d, 2, 6, 3, 2),),
    )
    for norm in ("forward", "backward", "ortho"):
        yield case(
            f"fft_{norm}",
            parts(lambda x, norm=norm: torch.fft.fft(x, norm=norm)),
            (values(f32, 3, 10, 2),),
        )
        yield case(
            f"ifft_{norm}",
            parts(lambda x, norm=norm: torch.fft.ifft(x, norm=norm)),
            (values(f32, 3, 10, 2),),
        )
    yield case("fft_first_dim", parts(lambda x: torch.fft.fft(x, dim=0)), (values(f32, 9, 4, 2),))
    yield from each("fftn", parts(torch.fft.fftn), REALS, lambda d: (values(d, 3, 4, 5, 2),))
    yield case("rfft_middle", lambda x: real(torch.fft.rfft(x, dim=1)), (values(f32, 2, 6, 3),))
    yield case("rfft_padded", lambda x: real(torch.fft.rfft(x, n=10)), (values(f32, 2, 6),))
    yield case("fft_of_reals", lambda x: real(torch.fft.fft(x)), (values(f32, 2, 6),))
    yield case(
        "rfft_batches",
        lambda x: real(torch.fft.rfft(x)),
        *[(values(f32, k, 6),) for k in (3, 1, 5)],
        dynamic=({0: Dim("batch", min=1, max=5)},),
    )
    yield case("spectrogram", spectrogram, (values(f32, 1, 64),))
    # Prime lengths require more memory than the longest length.
    lengths, any_length = (64, 61, 37), ({1: Dim("n", min=2, max=64)},)
    reals = [(values(f32, 2, k),) for k in lengths]
    yield case("rfft_lengths", lambda x: real(torch.fft.rfft(x)), *reals, dynamic=any_length)
    pairs = [(values(f32, 2, k, 2),) for k in lengths]
    yield case("fft_lengths", parts(torch.fft.fft), *pairs, dynamic=any_length)


def spectrogram(x: torch.Tensor) -> torch.Tensor:
    frames = x.unfold(1, 16, 8) * torch.hann_window(16)
    return torch.fft.rfft(frames).abs().pow(2.0)


def complex_numbers() -> Iterator[Case]:
    def two(d):
        return values(d, 3, 4, 2), values(d, 4, 2)

    def one(d):
        return (values(d, 3, 4, 2),)

    for name, run in {
        "add": lambda x, y: x + y,
        "add_scaled": lambda x, y: torch.add(x, y, alpha=2.5),
        "sub": lambda x, y: x - y,
        "mul": lambda x, y: x * y,
        "div": lambda x, y: x / y,
    }.items():
        yield from each(f"complex_{name}", parts(run), REALS, two)
    for name, run in {
        "mul_number": lambda x: x * 2.5,
        "abs": torch.abs,
        "neg": torch.neg,
        "conj": lambda x: torch.conj(x).resolve_conj() * 1.0,
        "reciprocal": torch.reciprocal,
        "exp": torch.exp,
        "angle": torch.angle,
        "real": lambda x: x.real * 1.0,
        "imag": lambda x: x.imag * 1.0,
    }.items():
        yield from each(f"complex_{name}", parts(run), (f32,), one)
    rotate = lambda x, y: torch.view_as_real(
        torch.view_as_complex(x) * torch.view_as_complex(y)
    ).flatten(1)  # noqa: E731
    yield case("complex_rotary", rotate, (values(f32, 3, 4, 2), values(f32, 1, 4, 2)))
    yield case(
        "complex_eq",
        lambda x, y: torch.view_as_complex(x) == torch.view_as_complex(y),
        equal_pairs(),
    )
    yield case(
        "complex_of_reals",
        lambda x, y: real(torch.complex(x, y) * x),
        (values(f32, 3, 4), values(f32, 3, 4)),
    )
    yield from each(
        "polar",
        lambda r, a: real(torch.polar(r, a)),
        REALS,
        lambda d: (values(d, 3, 4).abs(), values(d, 4)),
    )
    large = torch.tensor([[3e30, 4e30], [0.0, 0.0], [float("inf"), float("nan")], [1e-30, 2e-30]])
    yield case("complex_abs_extremes", parts(torch.abs), (large,))
    integers = torch.tensor([2**24 + 1, 2**24 + 3, -3])
    yield case("complex_of_integers", lambda x: real(x.to(torch.complex128) - 2**24), (integers,))


def equal_pairs() -> tuple:
    x = values(f32, 4, 2)
    y = x.clone()
    y[1, 0] += 1.0
    y[2, 1] += 1.0
    return x, y


FAMILIES = {"fourier": fourier, "complex": complex_numbers}
