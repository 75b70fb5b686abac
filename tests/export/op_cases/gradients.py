"""Gradient operators, called directly as training programs do."""

from __future__ import annotations

from typing import Any, Iterator

import torch

from .table import Case, Run, bf16, case, f16, f32, f64, last, longs, values

A = torch.ops.aten
ALL = [True, True, True]


def gradient(name: str, operator: Any, run: Run, *inputs: torch.Tensor, **options: Any) -> Case:
    """A case whose gradient operator is not decomposed."""
    return case(name, run, inputs, preserve=[operator], **options)


def convolutions() -> Iterator[Case]:
    backward = A.convolution_backward.default
    for name, size, weight, chosen in (
        ("plain", (2, 2, 6, 5), (3, 2, 3, 3), {}),
        ("stride", (1, 2, 7, 6), (3, 2, 3, 3), {"stride": [2, 2]}),
        ("padding", (1, 2, 5, 5), (3, 2, 3, 3), {"padding": [1, 1]}),
        ("dilation", (1, 2, 7, 7), (3, 2, 3, 3), {"dilation": [2, 2], "padding": [1, 2]}),
        ("groups", (1, 4, 5, 5), (6, 2, 3, 3), {"groups": 2}),
        (
            "depthwise",
            (2, 4, 6, 6),
            (4, 1, 3, 3),
            {"groups": 4, "stride": [2, 1], "padding": [1, 1]},
        ),
        ("one_dimension", (2, 3, 9), (4, 3, 3), {"stride": [2], "padding": [1]}),
        ("three_dimensions", (1, 2, 4, 5, 4), (3, 2, 2, 3, 2), {"padding": [0, 1, 0]}),
        (
            "transposed",
            (1, 3, 4, 4),
            (3, 2, 3, 3),
            {"transposed": True, "stride": [2, 2], "padding": [1, 1]},
        ),
        (
            "transposed_groups",
            (1, 4, 3, 4),
            (4, 2, 2, 3),
            {"transposed": True, "groups": 2, "output_padding": [1, 0], "stride": [2, 1]},
        ),
    ):
        yield convolution(name, size, weight, **chosen)
    yield convolution("double", (1, 2, 5, 5), (3, 2, 3, 3), dtype=f64)
    yield convolution("half", (1, 2, 5, 5), (3, 2, 3, 3), dtype=f16)
    for name, mask in (
        ("input", [True, False, False]),
        ("weight", [False, True, False]),
        ("bias", [False, False, True]),
    ):
        yield convolution(f"only_{name}", (1, 2, 5, 5), (3, 2, 3, 3), mask=mask)
    yield case(
        "convolution_channels_last",
        lambda g, x, w: A.convolution_backward(
            g, x, w, [3], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, ALL
        ),
        (last(values(f32, 2, 3, 3, 3)), last(values(f32, 2, 2, 5, 5)), values(f32, 3, 2, 3, 3)),
        preserve=[backward],
    )


def convolution(name: str, size: tuple[int, ...], weight: tuple[int, ...], **chosen: Any) -> Case:
    dtype, mask = chosen.pop("dtype", f32), chosen.pop("mask", ALL)
    rank = len(size) - 2
    stride, padding = chosen.get("stride", [1] * rank), chosen.get("padding", [0] * rank)
    dilation, extra = chosen.get("dilation", [1] * rank), chosen.get("output_padding", [0] * rank)
    transposed, groups = chosen.get("transposed", False), chosen.get("groups", 1)
    x, w = values(dtype, *size, scale=1.0), values(dtype, *weight, scale=0.5)
    like = torch.convolution(x, w, None, stride, padding, dilation, transposed, extra, groups)
    channels = like.shape[1]

    def run(grad, x, w):
        made = A.convolution_backward(
            grad, x, w, [channels], stride, padding, dilation, transposed, extra, groups, mask
        )
        return tuple(one for one, wanted in zip(made, mask) if wanted)

    inputs = (values(dtype, *like.shape, scale=1.0), x, w)
    return gradient(f"convolution_{name}", A.convolution_backward.default, run, *inputs)


def poolings() -> Iterator[Case]:
    for dtype, name in ((f32, "f32"), (f64, "f64"), (f16, "f16")):
        yield average2d(f"avg_pool2d_{name}", values(dtype, 2, 3, 6, 8), [2, 2])
    yield average2d("avg_pool2d_overlapping", values(f32, 1, 2, 7, 6), [3, 3], stride=[1, 2])
    yield average2d(
        "avg_pool2d_padding", values(f32, 1, 2, 6, 6), [3, 3], stride=[2, 2], padding=[1, 1]
    )
    yield average2d(
        "avg_pool2d_inside",
        values(f32, 1, 2, 6, 6),
        [3, 3],
        stride=[2, 2],
        padding=[1, 1],
        counted=False,
    )
    yield average2d("avg_pool2d_ceil", values(f32, 1, 2, 7, 6), [3, 2], stride=[2, 2], ceil=True)
    yield average2d("avg_pool2d_divisor", values(f32, 1, 2, 6, 6), [2, 3], divisor=5)
    yield average2d("avg_pool2d_no_batch", values(f32, 3, 6, 6), [2, 2])
    yield average2d("avg_pool2d_channels_last", last(values(f32, 2, 3, 6, 6)), [2, 2])
    x = values(f32, 1, 2, 4, 5, 6)
    yield gradient(
        "avg_pool3d",
        A.avg_pool3d_backward.default,
        lambda g, x: A.avg_pool3d_backward(
            g, x, [2, 3, 2], [2, 1, 2], [1, 1, 0], False, False, None
        ),
        values(f32, *A.avg_pool3d(x, [2, 3, 2], [2, 1, 2], [1, 1, 0], False, False).shape),
        x,
    )
    for name, size, to in (
        ("even", (2, 3, 6, 8), (3, 2)),
        ("uneven", (1, 2, 7, 5), (3, 4)),
        ("one", (2, 3, 5, 4), (1, 1)),
    ):
        yield gradient(
            f"adaptive_avg_pool2d_{name}",
            A._adaptive_avg_pool2d_backward.default,
            A._adaptive_avg_pool2d_backward.default,
            values(f32, *size[:2], *to),
            values(f32, *size),
        )
    yield gradient(
        "adaptive_avg_pool3d",
        A._adaptive_avg_pool3d_backward.default,
        A._adaptive_avg_pool3d_backward.default,
        values(f32, 1, 2, 2, 3, 2),
        values(f32, 1, 2, 5, 4, 3),
    )
    yield gradient(
        "max_pool2d_overlapping",
        A.max_pool2d_with_indices_backward.default,
        lambda g, x: A.max_pool2d_with_indices_backward(
            g,
            x,
            [3, 3],
            [1, 2],
            [1, 0],
            [1, 1],
            False,
            A.max_pool2d_with_indices(x, [3, 3], [1, 2], [1, 0])[1],
        ),
        values(f32, 2, 2, 6, 3),
        values(f32, 2, 2, 6, 7),
    )
    yield gradient(
        "max_pool3d",
        A.max_pool3d_with_indices_backward.default,
        lambda g, x: A.max_pool3d_with_indices_backward(
            g,
            x,
            [2, 2, 2],
            [2, 1, 2],
            [0, 0, 0],
            [1, 1, 1],
            False,
            A.max_pool3d_with_indices(x, [2, 2, 2], [2, 1, 2])[1],
        ),
        values(f32, 1, 2, 2, 3, 2),
        values(f32, 1, 2, 5, 4, 4),
    )
    for rank, operator, forward, size, to in (
        (2, A.adaptive_max_pool2d_backward.default, A.adaptive_max_pool2d, (2, 3, 6, 7), (3, 4)),
        (
            3,
            A.adaptive_max_pool3d_backward.default,
            A.adaptive_max_pool3d,
            (1, 2, 5, 4, 6),
            (2, 2, 4),
        ),
    ):
        yield gradient(
            f"adaptive_max_pool{rank}d",
            operator,
            lambda g, x, run=operator, forward=forward, to=to: run(g, x, forward(x, to)[1]),
            values(f32, *size[:2], *to),
            values(f32, *size),
        )
    yield from fractional()


def fractional() -> Iterator[Case]:
    """Gradient of fractional max pooling: flows back to the maximum of each random window."""
    for rank, size, to in ((2, (2, 3, 9, 8), [4, 3]), (3, (1, 2, 6, 5, 7), [3, 2, 4])):
        forward, backward = (
            (A.fractional_max_pool2d, A.fractional_max_pool2d_backward)
            if rank == 2
            else (A.fractional_max_pool3d, A.fractional_max_pool3d_backward)
        )
        for dtype, name in ((f32, "f32"), (f64, "f64")):
            samples, kernel = torch.rand(*size[:2], rank).to(dtype), [2] * rank
            run = lambda g, x, s, f=forward, b=backward, k=kernel, t=to: b(
                g, x, k, t, f(x, k, t, s)[1]
            )  # noqa: E731
            yield gradient(
                f"fractional{rank}d_{name}",
                backward.default,
                run,
                values(dtype, *size[:2], *to),
                values(dtype, *size),
                samples,
            )


def average2d(
    name, x, kernel, stride=(), padding=(0, 0), ceil=False, counted=True, divisor=None
) -> Case:
    chosen = (kernel, list(stride), list(padding), ceil, counted, divisor)
    like = A.avg_pool2d(x, *chosen)
    grad = values(x.dtype, *like.shape)
    if (
        like.dim() == 4
        and like.is_contiguous(memory_format=torch.channels_last)
        and not like.is_contiguous()
    ):
        grad = last(grad)
    return gradient(
        name,
        A.avg_pool2d_backward.default,
        lambda g, x: A.avg_pool2d_backward(g, x, *chosen),
        grad,
        x,
    )


def norms() -> Iterator[Case]:
    layer, group = A.native_layer_norm_backward.default, A.native_group_norm_backward.default

    def of_layer(dims, eps=1e-5):
        def run(grad, x, w, b):
            mean, deviation = A.native_layer_norm(x, dims, w, b, eps)[1:]
            return layer(grad, x, dims, mean, deviation, w, b, ALL)

        return run

    for dtype, name in ((f32, "f32"), (f64, "f64")):
        inputs = (
            values(dtype, 3, 4, 70),
            values(dtype, 3, 4, 70),
            values(dtype, 70),
            values(dtype, 70),
        )
        yield gradient(f"layer_norm_{name}", layer, of_layer([70]), *inputs)
    inputs = (values(f32, 5, 3, 4), values(f32, 5, 3, 4), values(f32, 3, 4), values(f32, 3, 4))
    yield gradient("layer_norm_two_dimensions", layer, of_layer([3, 4]), *inputs)

    def unweighted(grad, x):
        mean, deviation = A.native_layer_norm(x, [6], None, None, 1e-5)[1:]
        return layer(grad, x, [6], mean, deviation, None, None, [True, False, False])[0]

    yield gradient("layer_norm_unweighted", layer, unweighted, values(f32, 4, 6), values(f32, 4, 6))

    def of_group(groups, mask=ALL):
        def run(grad, x, w, b):
            n, c, plane = x.shape[0], x.shape[1], x[0, 0].numel()
            mean, deviation = A.native_group_norm(x, w, b, n, c, plane, groups, 1e-5)[1:]
            made = group(grad, x, mean, deviation, w, n, c, plane, groups, mask)
            return tuple(one for one, wanted in zip(made, mask) if wanted)

        return run

    for groups in (1, 2, 6):
        inputs = (values(f32, 2, 6, 3, 5), values(f32, 2, 6, 3, 5), values(f32, 6), values(f32, 6))
        yield gradient(f"group_norm_{groups}", group, of_group(groups), *inputs)
    inputs = (values(f64, 2, 4, 7), values(f64, 2, 4, 7), values(f64, 4), values(f64, 4))
    yield gradient("group_norm_f64", group, of_group(2), *inputs)
    inputs = (values(f32, 2, 4, 7), values(f32, 2, 4, 7), values(f32, 4), values(f32, 4))
    yield gradient("group_norm_weights", group, of_group(2, [False, True, True]), *inputs)

    def nowhere(grad, x, mean, deviation, w):
        # These temporaries are dead by now; their memory is reused for the gradients.
        return group(grad, x, mean, deviation, w.exp().sin(), 2, 4, 0, 2, [False, True, True])[1:]

    inputs = (
        values(f32, 2, 4, 0),
        values(f32, 2, 4, 0),
        values(f32, 2, 2),
        values(f32, 2, 2),
        values(f32, 4),
    )
    yield gradient("group_norm_nowhere", group, nowhere, *inputs)


def tables() -> Iterator[Case]:
    dense = A.embedding_dense_backward.default
    for name, padding, mean in (("sums", -1, False), ("padding", 2, False), ("means", -1, True)):
        yield gradient(
            f"embedding_{name}",
            dense,
            lambda g, i, padding=padding, mean=mean: dense(g, i, 5, padding, mean),
            values(f32, 2, 3, 70),
            longs(1, 2, 2, 4, 2, 1).reshape(2, 3),
        )
    yield gradient(
        "embedding_f64",
        dense,
        lambda g, i: dense(g, i, 4, -1, False),
        values(f64, 3, 4),
        torch.tensor([3, 0, 3], dtype=torch.int32),
    )


def columns() -> Iterator[Case]:
    fold = A.col2im.default
    for name, channels, size, chosen in (
        ("plain", 2, (4, 6), ([2, 2], [1, 1], [0, 0], [2, 2])),
        ("overlapping", 2, (5, 6), ([3, 2], [1, 1], [0, 0], [1, 1])),
        ("padding", 1, (5, 5), ([3, 3], [1, 1], [1, 2], [2, 1])),
        ("dilation", 2, (7, 6), ([2, 3], [2, 1], [0, 1], [1, 2])),
    ):
        kernel, dilation, padding, stride = chosen
        x = torch.nn.functional.unfold(
            values(f32, 2, channels, *size), kernel, dilation, padding, stride
        )
        yield gradient(
            f"col2im_{name}", fold, lambda x, size=size, chosen=chosen: fold(x, size, *chosen), x
        )
    yield gradient(
        "col2im_no_batch",
        fold,
        lambda x: fold(x, [4, 4], [2, 2], [1, 1], [0, 0], [2, 2]),
        values(f32, 8, 4),
    )
    yield gradient(
        "col2im_f64",
        fold,
        lambda x: fold(x, [4, 4], [2, 2], [1, 1], [0, 0], [1, 1]),
        values(f64, 1, 4, 9),
    )


def paddings() -> Iterator[Case]:
    """Gradients of reflection and replication padding.

    Training programs call the replication gradient; reflection is preserved from decomposition
    here.
    """
    for kind in ("reflection", "replication"):
        for rank, size, pads in (
            (1, (2, 3, 5), [2, 1]),
            (2, (2, 2, 4, 3), [1, 2, 0, 3]),
            (3, (1, 2, 3, 4, 2), [1, 1, 0, 2, 2, 0]),
        ):
            forward = getattr(A, f"{kind}_pad{rank}d")
            backward = getattr(A, f"{kind}_pad{rank}d_backward").default
            run = lambda g, x, f=backward, p=pads: f(g, x, p)  # noqa: E731
            for name, dtype, cut in (("f32", f32, 0), ("f64", f64, 0), ("no_batch", f32, 1)):
                x = values(dtype, *size[cut:])
                yield gradient(
                    f"{kind}{rank}d_{name}",
                    backward,
                    run,
                    values(dtype, *forward(x, pads).shape),
                    x,
                )
    cropped = A.replication_pad2d_backward.default
    yield gradient(
        "replication2d_cropped",
        cropped,
        lambda g, x: cropped(g, x, [-1, 2, 1, -2]),
        values(f32, 1, 2, 4, 6),
        values(f32, 1, 2, 5, 5),
    )
    channels = last(values(f32, 2, 3, 6, 5)), last(values(f32, 2, 3, 4, 4))
    yield gradient(
        "replication2d_channels_last", cropped, lambda g, x: cropped(g, x, [1, 0, 1, 1]), *channels
    )


def activations() -> Iterator[Case]:
    silu = A.silu_backward.default
    for dtype, name in ((f32, "f32"), (f64, "f64"), (f16, "f16"), (bf16, "bf16")):
        yield gradient(
            f"silu_{name}", silu, silu, values(dtype, 3, 5), values(dtype, 3, 5, scale=4.0)
        )
    far = torch.tensor([0.0, -0.0, 90.0, -90.0, 1e30, -1e30, float("nan"), float("inf")])
    yield gradient("silu_far", silu, silu, torch.ones(8), far)


def resamplings() -> Iterator[Case]:
    """Gradients of resampling.

    Training programs call the antialiased gradient; the others are preserved from decomposition
    here.
    """
    small, large = [2, 2, 4, 5], [1, 3, 7, 6]
    nearest = A.upsample_nearest2d_backward.default
    for name, size, out, dtype in (
        ("f32", small, [8, 10], f32),
        ("f64", small, [7, 3], f64),
        ("same", small, [4, 5], f32),
    ):
        run = lambda g, s=size, o=out: nearest(g, o, s)  # noqa: E731
        yield gradient(f"nearest_{name}", nearest, run, values(dtype, *size[:2], *out))
    yield gradient(
        "nearest_scale",
        nearest,
        lambda g: nearest(g, [6, 7], small, 1.5, 1.5),
        values(f32, 2, 2, 6, 7),
    )
    for name, backward in (
        ("bilinear", A.upsample_bilinear2d_backward.default),
        ("bicubic", A.upsample_bicubic2d_backward.default),
        ("antialiased", A._upsample_bilinear2d_aa_backward.default),
    ):
        for kind, size, out, corners, scales, dtype in (
            ("larger", small, [9, 8], False, (None, None), f32),
            ("smaller", large, [3, 4], False, (None, None), f32),
            ("corners", small, [7, 11], True, (None, None), f32),
            ("one", large, [1, 1], True, (None, None), f32),
            ("scale", small, [6, 7], False, (1.5, 1.5), f32),
            ("f64", small, [9, 3], False, (None, None), f64),
        ):
            run = lambda g, f=backward, o=out, s=size, c=corners, x=scales: f(g, o, s, c, *x)
            yield gradient(f"{name}_{kind}", backward, run, values(dtype, *size[:2], *out))
    linear = A.upsample_bilinear2d_backward.default
    channels = last(values(f32, 2, 3, 5, 7))
    yield gradient(
        "bilinear_channels_last", linear, lambda g: linear(g, [5, 7], [2, 3, 3, 4], False), channels
    )
    yield from lines_and_volumes()


def lines_and_volumes() -> Iterator[Case]:
    """Resampling gradients in 1-D and 3-D, of `nearest-exact`, and of wider filters."""
    for rank, input, out, more in (
        (1, [2, 3, 5], [12], [7]),
        (2, [1, 2, 4, 5], [9, 8], [3, 5]),
        (3, [1, 2, 3, 4, 2], [7, 5, 4], [2, 8, 3]),
    ):
        kinds = [("exact", getattr(A, f"_upsample_nearest_exact{rank}d_backward").default)]
        if rank != 2:
            kinds.append(("nearest", getattr(A, f"upsample_nearest{rank}d_backward").default))
        for name, backward in kinds:
            for kind, size, dtype in (
                ("larger", out, f32),
                ("mixed", more, f32),
                ("same", input[2:], f32),
                ("f64", out, f64),
            ):
                run = lambda g, f=backward, s=size, i=input: f(g, s, i)  # noqa: E731
                yield gradient(
                    f"{name}{rank}d_{kind}", backward, run, values(dtype, *input[:2], *size)
                )
            scaled = [int(size * 1.7) for size in input[2:]]
            run = lambda g, f=backward, s=scaled, i=input, n=rank: f(g, s, i, *[1.7] * n)
            yield gradient(f"{name}{rank}d_scale", backward, run, values(f32, *input[:2], *scaled))
        if rank == 2:
            continue
        backward = {
            1: A.upsample_linear1d_backward.default,
            3: A.upsample_trilinear3d_backward.default,
        }[rank]
        for kind, size, corners, dtype in (
            ("larger", out, False, f32),
            ("mixed", more, False, f32),
            ("corners", out, True, f32),
            ("f64", more, True, f64),
        ):
            run = lambda g, f=backward, s=size, i=input, c=corners: f(g, s, i, c)  # noqa: E731
            yield gradient(f"linear{rank}d_{kind}", backward, run, values(dtype, *input[:2], *size))
        scaled = [int(size * 1.7) for size in input[2:]]
        run = lambda g, f=backward, s=scaled, i=input, n=rank: f(g, s, i, False, *[1.7] * n)
        yield gradient(f"linear{rank}d_scale", backward, run, values(f32, *input[:2], *scaled))
    size = [1, 2, 11, 9]
    for name, backward in (
        ("cubic", A._upsample_bicubic2d_aa_backward.default),
        ("lanczos", A._upsample_lanczos2d_aa_backward.default),
    ):
        for kind, out, dtype in (
            ("larger", [15, 13], f32),
            ("smaller", [3, 4], f32),
            ("one", [1, 1], f32),
            ("f64", [5, 17], f64),
        ):
            run = lambda g, f=backward, o=out: f(g, o, size, False)  # noqa: E731
            yield gradient(
                f"antialiased_{name}_{kind}", backward, run, values(dtype, *size[:2], *out)
            )


def distances() -> Iterator[Case]:
    """Gradients of pairwise distances, including equal rows and rows with equal elements."""
    backward, forward = A._cdist_backward.default, A._cdist_forward.default
    within, pairs = A._pdist_backward.default, A._pdist_forward.default
    norms = (
        ("zero", 0.0),
        ("half", 0.5),
        ("one", 1.0),
        ("more", 1.5),
        ("two", 2.0),
        ("many", 3.5),
        ("largest", float("inf")),
    )
    for dtype, suffix in ((f32, ""), (f64, "_f64")):
        for name, p in norms:
            a, b = values(dtype, 3, 4), values(dtype, 5, 4)
            b[1], b[2, 0] = a[0], a[1, 0]
            run = lambda g, a, b, p=p: backward(g, a, b, p, forward(a, b, p, None))  # noqa: E731
            yield gradient(f"between_{name}{suffix}", backward, run, values(dtype, 3, 5), a, b)
            x = values(dtype, 5, 4)
            x[3], x[4, 1] = x[0], x[2, 1]
            run = lambda g, x, p=p: within(g, x, p, pairs(x, p))  # noqa: E731
            yield gradient(f"within_{name}{suffix}", within, run, values(dtype, 10), x)
    run = lambda g, a, b: backward(g, a, b, 2.0, forward(a, b, 2.0, None))  # noqa: E731
    for name, first, second in (
        ("batches", (2, 1, 3, 4), (5, 6, 4)),
        ("wide", (40, 70), (50, 70)),
        ("nowhere", (3, 4), (0, 4)),
    ):
        a, b = values(f32, *first), values(f32, *second)
        made = forward(a, b, 2.0, None)
        yield gradient(f"between_{name}", backward, run, values(f32, *made.shape), a, b)
    turned = lambda g, a, b: run(g.mT, a.mT, b.mT)  # noqa: E731
    yield gradient(
        "between_turned", backward, turned, values(f32, 5, 3), values(f32, 4, 3), values(f32, 4, 5)
    )
    single = lambda g, x: within(g, x, 2.0, pairs(x, 2.0))  # noqa: E731
    yield gradient("within_single", within, single, values(f32, 0), values(f32, 1, 3))


def samplings() -> Iterator[Case]:
    """Gradients of `grid_sample` with respect to input and grid."""
    backward = A.grid_sampler_2d_backward.default
    x = values(f32, 2, 3, 4, 5)
    # Some coordinates lie outside; none lies midway between two pixels, where rounding decides.
    grid = values(f32, 2, 3, 4, 2, scale=1.3) + 0.013
    for mode, mode_name in enumerate(("bilinear", "nearest", "bicubic")):
        for padding, padding_name in enumerate(("zeros", "border", "reflection")):
            for corners, name in ((False, ""), (True, "_corners")):
                run = lambda g, x, p, a=(mode, padding, corners, [True, True]): backward(
                    g, x, p, *a
                )  # noqa: E731
                grad = values(f32, 2, 3, 3, 4)
                yield gradient(f"{mode_name}_{padding_name}{name}", backward, run, grad, x, grid)
    for name, mask in (("picture", [True, False]), ("places", [False, True])):
        which = mask.index(True)
        run = lambda g, x, p, m=mask, i=which: backward(g, x, p, 0, 0, False, m)[i]  # noqa: E731
        yield gradient(f"only_{name}", backward, run, values(f32, 2, 3, 3, 4), x, grid)
    double = [t.double() for t in (values(f32, 2, 3, 3, 4), x, grid)]
    yield gradient(
        "f64", backward, lambda g, x, p: backward(g, x, p, 2, 2, False, [True, True]), *double
    )
    channels = last(values(f32, 2, 3, 3, 4)), last(values(f32, 2, 3, 4, 5)), grid
    yield gradient(
        "channels_last",
        backward,
        lambda g, x, p: backward(g, x, p, 0, 1, True, [True, True]),
        *channels,
    )
    far = torch.tensor([1.0, -1.0, 0.0, 1e30, -1e30, float("inf"), -3.0, 3.0]).view(1, 2, 2, 2)
    one = values(f32, 1, 2, 2, 2), values(f32, 1, 2, 3, 3), far
    yield gradient(
        "far", backward, lambda g, x, p: backward(g, x, p, 0, 1, True, [True, True]), *one
    )
    backward = A.grid_sampler_3d_backward.default
    x, grid = values(f32, 2, 3, 3, 4, 5), values(f32, 2, 2, 3, 4, 3, scale=1.3) + 0.013
    for mode, mode_name in enumerate(("bilinear", "nearest")):
        for padding, padding_name in enumerate(("zeros", "border", "reflection")):
            for corners, name in ((False, ""), (True, "_corners")):
                run = lambda g, x, p, a=(mode, padding, corners, [True, True]): backward(
                    g, x, p, *a
                )  # noqa: E731
                grad = values(f32, 2, 3, 2, 3, 4)
                yield gradient(
                    f"volume_{mode_name}_{padding_name}{name}", backward, run, grad, x, grid
                )
    run = lambda g, x, p: backward(g, x, p, 0, 2, False, [False, True])[1]  # noqa: E731
    yield gradient("volume_only_places", backward, run, values(f32, 2, 3, 2, 3, 4), x, grid)
    double = [t.double() for t in (values(f32, 2, 3, 2, 3, 4), x, grid)]
    yield gradient(
        "volume_f64",
        backward,
        lambda g, x, p: backward(g, x, p, 0, 1, False, [True, True]),
        *double,
    )


FAMILIES = {
    "gradient_convolution": convolutions,
    "gradient_pooling": poolings,
    "gradient_norm": norms,
    "gradient_table": tables,
    "gradient_columns": columns,
    "gradient_padding": paddings,
    "gradient_activation": activations,
    "gradient_distances": distances,
    "gradient_resampling": resamplings,
    "gradient_sampling": samplings,
}
