"""Operators whose scalar arguments are computed from dynamic sizes at run time."""

from __future__ import annotations

from typing import Iterator

import torch
import torch.nn.functional as F
from torch.export import Dim

from .table import Case, case, f32, f64, positive, values

A = torch.ops.aten


def scalars_from_sizes() -> Iterator[Case]:
    n, m = Dim("n", min=2, max=16), Dim("m", min=3, max=9)
    images = [(values(f32, 2, 6, k, l),) for k, l in ((16, 9), (2, 3), (7, 4))]
    yield case("group_norm", lambda x: F.group_norm(x, 3), *images, dynamic=({2: n, 3: m},))
    yield case(
        "group_norm_batch",
        lambda x: F.group_norm(x, 2),
        *[(values(f64, k, 4, l),) for k, l in ((9, 3), (3, 9))],
        dynamic=({0: m, 2: Dim("l", min=3, max=9)},),
    )
    rows = [(values(f32, 4, k),) for k in (16, 2, 11)]
    yield case("layer_norm", lambda x: F.layer_norm(x, x.shape[1:]), *rows, dynamic=({1: n},))
    yield case(
        "topk_of_other",
        lambda x, y: tuple(torch.topk(x, y.shape[0], dim=1)),
        *[(values(f32, 3, 20), values(f32, k)) for k in (16, 2, 5)],
        dynamic=(None, {0: n}),
    )
    parts = [(values(f32, 2, k), values(f32, 2, k)) for k in (16, 2, 12)]
    yield case(
        "irfft", lambda a, b: torch.fft.irfft(torch.complex(a, b)), *parts, dynamic=({1: n}, {1: n})
    )


def gradients_of_sizes() -> Iterator[Case]:
    n = Dim("n", min=2, max=16)
    everything = [True, True, True]

    def layer(grad, x):
        shape = [x.shape[1]]
        mean, deviation = A.native_layer_norm(x, shape, None, None, 1e-5)[1:]
        return A.native_layer_norm_backward(
            grad, x, shape, mean, deviation, None, None, [True, False, False]
        )[0]

    def group(grad, x, w, b):
        mean, deviation = A.native_group_norm(x, w, b, 2, 4, x.shape[2], 2, 1e-5)[1:]
        return A.native_group_norm_backward(
            grad, x, mean, deviation, w, 2, 4, x.shape[2], 2, everything
        )

    def means(grad, indices, table):
        return A.embedding_dense_backward(grad, indices, table.shape[0], -1, True)

    preserve = {"preserve": [A.native_layer_norm_backward.default]}
    yield case(
        "layer_norm",
        layer,
        *[(values(f32, 3, k), values(f32, 3, k)) for k in (16, 2, 11)],
        dynamic=({1: n}, {1: n}),
        **preserve,
    )
    inputs = [
        (values(f32, 2, 4, k), values(f32, 2, 4, k), values(f32, 4), values(f32, 4))
        for k in (16, 2, 11)
    ]
    preserve = {"preserve": [A.native_group_norm_backward.default]}
    yield case("group_norm", group, *inputs, dynamic=({2: n}, {2: n}, None, None), **preserve)
    indices = torch.tensor([1, 0, 1, 1, 0, 1])
    inputs = [(values(f32, 6, 5), indices, positive(f32, k, 5)) for k in (16, 2, 11)]
    preserve = {"preserve": [A.embedding_dense_backward.default]}
    yield case("embedding_means", means, *inputs, dynamic=(None, None, {0: n}), **preserve)


FAMILIES = {"numbers_of_sizes": scalars_from_sizes, "gradients_of_sizes": gradients_of_sizes}
