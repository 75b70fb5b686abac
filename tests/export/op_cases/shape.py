"""Data movement without arithmetic: views, copies, concatenation, slicing, padding."""

from __future__ import annotations

from typing import Iterator

import torch
import torch.nn.functional as F
from torch.export import Dim

from .table import ALL, Case, boolean, case, each, f16, f32, i32, i64, last, u8, values

A = torch.ops.aten
SHAPE = (2, 3, 4)


def views() -> Iterator[Case]:
    x = values(f32, *SHAPE)
    for name, run in {
        "view": lambda x: x.view(6, 4),
        "view_inferred": lambda x: x.view(3, -1),
        "reshape_flat": lambda x: x.reshape(-1),
        "flatten": lambda x: x.flatten(1),
        "unflatten": lambda x: x.unflatten(2, (2, 2)),
        "permute": lambda x: x.permute(2, 0, 1),
        "permute_negative": lambda x: x.permute(-1, 0, -2),
        "permute_same": lambda x: x.permute(0, 1, 2),
        "transpose": lambda x: x.transpose(0, 2),
        "transpose_negative": lambda x: x.transpose(-1, -2),
        "movedim": lambda x: x.movedim(0, -1),
        "unsqueeze_first": lambda x: x.unsqueeze(0),
        "unsqueeze_last": lambda x: x.unsqueeze(-1),
        "slice": lambda x: x[:, 1:3],
        "slice_step": lambda x: x[:, :, ::2],
        "slice_negative": lambda x: x[:, -2:, :-1],
        "slice_beyond": lambda x: x[:, 1:100],
        "slice_empty": lambda x: x[:, 2:2],
        "select": lambda x: x[:, 1],
        "select_negative": lambda x: x.select(-1, -1),
        "diagonal": lambda x: x.diagonal(0, 1, 2),
        "diagonal_offset": lambda x: x.diagonal(1, 0, 2),
        "diagonal_negative_offset": lambda x: x.diagonal(-1, -2, -1),
        "unfold": lambda x: x.unfold(2, 2, 1),
        "unfold_step": lambda x: x.unfold(1, 2, 2),
        "as_strided": lambda x: torch.as_strided(x, (3, 2), (4, 1), 1),
        "as_strided_overlapping": lambda x: torch.as_strided(x, (3, 4), (1, 2)),
        "narrow": lambda x: x.narrow(1, 1, 2),
        "narrow_copy": lambda x: A.narrow_copy(x, 2, 1, 2),
        "expand_new_dim": lambda x: x.expand(2, 2, 3, 4),
    }.items():
        yield case(name, lambda x, r=run: r(x).clone(), (x,))
    one = values(f32, 1, 3, 1)
    for name, run in {
        "squeeze": lambda x: x.squeeze(),
        "squeeze_dim": lambda x: x.squeeze(0),
        "squeeze_dims": lambda x: x.squeeze((0, -1)),
        "squeeze_nothing": lambda x: x.squeeze(1),
        "expand": lambda x: x.expand(2, 3, 4),
        "expand_kept": lambda x: x.expand(-1, -1, 5),
    }.items():
        yield case(name, lambda x, r=run: r(x) + 0, (one,))
    yield case("t", lambda x: x.t() + 0, (values(f32, 2, 3),))
    yield case("view_alone", lambda x: x.view(4, 6), (x,))
    yield case("permute_alone", lambda x: x.permute(2, 1, 0), (x,))
    yield from each(
        "permute", lambda x: x.permute(2, 0, 1).contiguous(), ALL, lambda d: (values(d, *SHAPE),)
    )
    yield from each(
        "slice", lambda x: x[:, 1:].clone(), (f16, u8, i64, boolean), lambda d: (values(d, *SHAPE),)
    )
    yield case(
        "permute_deep",
        lambda x: x.permute(4, 1, 3, 0, 2).contiguous(),
        (values(f32, 2, 1, 3, 2, 2),),
    )
    yield case(
        "permute_channels_last",
        lambda x: x.permute(0, 2, 3, 1) * 1,
        (last(values(f32, 1, 3, 2, 4)),),
    )
    yield case("view_empty", lambda x: x.view(3, 0) + 1, (torch.empty(0, 3),))
    yield case("view_to_zero_dim", lambda x: x.view(()) * 2, (torch.tensor([3.0]),))
    yield case(
        "view_dynamic",
        lambda x: x.view(x.shape[0] * 3, 2) * 1,
        *[(values(f32, n, 6),) for n in (4, 1, 8)],
        dynamic=({0: Dim("n", min=1, max=8)},),
    )
    yield case(
        "slice_dynamic",
        lambda x: x[1 : x.shape[0] - 1] * 1,
        *[(values(f32, n, 2),) for n in (5, 4, 8)],
        dynamic=({0: Dim("n", min=4, max=8)},),
    )
    yield case(
        "transpose_dynamic",
        lambda x: x.transpose(0, 1).contiguous(),
        *[(values(f32, n, 2),) for n in (5, 1, 8)],
        dynamic=({0: Dim("n", min=1, max=8)},),
    )
    yield case("alias", lambda x: A.alias_copy(x) + 1, (x,))
    yield case("detach", lambda x: A.detach_copy(x) + 1, (x,))


def copies() -> Iterator[Case]:
    """Copying variants by their own names, which the exporter replaces by default."""
    x = values(f32, *SHAPE)
    for name, run, inputs in (
        ("t_copy", A.t_copy.default, (values(f32, 2, 3),)),
        ("transpose_copy", lambda x: A.transpose_copy.int(x, 0, -1), (x,)),
        ("permute_copy", lambda x: A.permute_copy(x, [1, 2, 0]), (x,)),
        ("view_copy", lambda x: A.view_copy(x, [4, 6]), (x,)),
        ("expand_copy", lambda x: A.expand_copy(x, [2, 2, 3, 4]), (x,)),
        ("select_copy", lambda x: A.select_copy.int(x, 1, -1), (x,)),
        ("slice_copy", lambda x: A.slice_copy.Tensor(x, 2, 1, 4, 2), (x,)),
        ("squeeze_copy_dim", lambda x: A.squeeze_copy.dim(x, 0), (values(f32, 1, 3),)),
        ("squeeze_copy_dims", lambda x: A.squeeze_copy.dims(x, [0, 2]), (values(f32, 1, 3, 1),)),
        ("unsqueeze_copy", lambda x: A.unsqueeze_copy(x, 1), (x,)),
        ("split_copy", lambda x: A.split_copy.Tensor(x, 2, 1), (x,)),
        ("split_with_sizes_copy", lambda x: A.split_with_sizes_copy(x, [1, 3], -1), (x,)),
        ("unbind_copy", lambda x: A.unbind_copy.int(x, 1), (x,)),
        ("diagonal_copy", lambda x: A.diagonal_copy(x, 0, 0, 1), (x,)),
        ("unfold_copy", lambda x: A.unfold_copy(x, 2, 3, 1), (x,)),
        ("as_strided_copy", lambda x: A.as_strided_copy(x, [2, 2], [4, 1], 2), (x,)),
        ("lift_fresh_copy", A.lift_fresh_copy.default, (x,)),
    ):
        operator = getattr(A, name.removesuffix("_dim").removesuffix("_dims"))
        yield case(
            name,
            run,
            inputs,
            preserve=[
                getattr(operator, overload)
                for overload in operator.overloads()
                if "out" not in overload
            ],
        )


def joins() -> Iterator[Case]:
    x = values(f32, *SHAPE)
    for dim in (0, 1, -1):
        name = "last" if dim < 0 else dim
        yield case(
            f"cat_{name}", lambda x, y, d=dim: torch.cat([x, y], d), (x, values(f32, *SHAPE))
        )
        yield case(
            f"stack_{name}", lambda x, y, d=dim: torch.stack([x, y], d), (x, values(f32, *SHAPE))
        )
    yield case(
        "cat_sizes",
        lambda *t: torch.cat(t, 1),
        (values(f32, 2, 1), values(f32, 2, 4), values(f32, 2, 2)),
    )
    yield case(
        "cat_empty",
        lambda *t: torch.cat(t, 0),
        (values(f32, 2, 3), torch.empty(0, 3), values(f32, 1, 3)),
    )
    yield case("cat_legacy_empty", lambda *t: torch.cat(t, 0), (torch.empty(0), values(f32, 2, 3)))
    yield case("cat_mixed", lambda *t: torch.cat(t, 0), (values(f32, 2), values(i32, 3)))
    yield case("cat_same_twice", lambda x: torch.cat([x, x], 1), (x,))
    yield case("cat_one", lambda x: torch.cat([x], 1), (x,))
    yield case("cat_many", lambda *t: torch.cat(t, 0), tuple(values(f32, 1, 2) for _ in range(9)))
    yield from each(
        "cat", lambda x, y: torch.cat([x, y], 1), ALL, lambda d: (values(d, 2, 2), values(d, 2, 3))
    )
    yield case(
        "cat_channels_last",
        lambda x, y: torch.cat([x, y], 1),
        (last(values(f32, 1, 2, 3, 4)), last(values(f32, 1, 3, 3, 4))),
    )
    yield case(
        "cat_dynamic",
        lambda x, y: torch.cat([x, y], 0),
        *[(values(f32, n, 2), values(f32, 3, 2)) for n in (4, 1, 8)],
        dynamic=({0: Dim("n", min=1, max=8)}, None),
    )
    for name, run in {
        "split": lambda x: x.split(2, 1),
        "split_even": lambda x: x.split(2, -1),
        "split_with_sizes": lambda x: x.split([1, 1, 2], 2),
        "chunk": lambda x: x.chunk(3, 2),
        "unbind": lambda x: x.unbind(1),
        "tensor_split": lambda x: x.tensor_split((1, 3), 2),
    }.items():
        yield case(name, lambda x, r=run: [part + 0 for part in r(x)], (x,))
        yield case(f"{name}_alone", lambda x, r=run: list(r(x)), (x,))
    yield case(
        "stack_zero_dims", lambda x, y: torch.stack([x, y]), (torch.tensor(1.0), torch.tensor(2.0))
    )


def repeats() -> Iterator[Case]:
    x = values(f32, *SHAPE)
    for name, run in {
        "repeat": lambda x: x.repeat(2, 1, 3),
        "repeat_new_dim": lambda x: x.repeat(2, 1, 1, 2),
        "repeat_zero": lambda x: x.repeat(1, 0, 1),
        "tile": lambda x: x.tile(2),
        "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
        "flip": lambda x: x.flip(0, -1),
        "flip_one": lambda x: x.flip(1),
        "roll": lambda x: x.roll(1, 2),
        "roll_two": lambda x: x.roll((1, -2), (0, 2)),
        "roll_flat": lambda x: x.roll(5),
        "rot90": lambda x: x.rot90(1, (1, 2)),
        "tril": lambda x: x.tril(),
        "tril_above": lambda x: x.tril(1),
        "tril_below": lambda x: x.tril(-1),
        "triu": lambda x: x.triu(),
    }.items():
        yield case(name, run, (x,))
    for name, run in {
        "flip": lambda x: x.flip(0),
        "roll": lambda x: x.roll(1, 1),
        "repeat": lambda x: x.repeat(2, 2),
        "tril": lambda x: x.tril(),
    }.items():
        yield from each(name, run, (f16, u8, i64, boolean), lambda d: (values(d, 3, 3),))
    yield case("repeat_preserved", lambda x: x.repeat(2, 1, 3), (x,), preserve=[A.repeat.default])
    yield case("roll_preserved", lambda x: x.roll(1, 2), (x,), preserve=[A.roll.default])
    yield case(
        "repeat_interleave_tensor",
        lambda r: torch.repeat_interleave(r, output_size=6),
        (torch.tensor([2, 0, 3, 1]),),
        preserve=[A.repeat_interleave.Tensor],
    )
    yield case("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), (values(f32, 1, 8, 2, 3),))
    yield case("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), (values(f32, 1, 2, 4, 6),))
    yield case(
        "pixel_shuffle_preserved",
        lambda x: F.pixel_shuffle(x, 2),
        (values(f32, 1, 8, 2, 3),),
        preserve=[A.pixel_shuffle.default],
    )
    yield case(
        "pixel_unshuffle_preserved",
        lambda x: F.pixel_unshuffle(x, 2),
        (values(f32, 1, 2, 4, 6),),
        preserve=[A.pixel_unshuffle.default],
    )
    yield case("channel_shuffle", lambda x: F.channel_shuffle(x, 2), (values(f32, 1, 4, 2, 2),))
    yield case(
        "meshgrid",
        lambda x, y: torch.meshgrid(x, y, indexing="ij"),
        (values(f32, 2), values(f32, 3)),
    )


def padding() -> Iterator[Case]:
    x = values(f32, 1, 2, 4, 5)
    yield case("constant_pad", lambda x: F.pad(x, (1, 2, 0, 3)), (x,))
    yield case("constant_pad_value", lambda x: F.pad(x, (1, 1), value=-7.5), (x,))
    yield case("constant_pad_negative", lambda x: F.pad(x, (-1, 2, 1, -2)), (x,))
    yield case(
        "constant_pad_all_dims", lambda x: F.pad(x, (0, 1, 1, 0, 2, 0, 0, 1), value=1.0), (x,)
    )
    yield from each(
        "constant_pad",
        lambda x: F.pad(x, (1, 0, 2, 1), value=1),
        (f16, u8, i64, boolean),
        lambda d: (values(d, 2, 3),),
    )
    yield case(
        "constant_pad_channels_last",
        lambda x: F.pad(x, (1, 1, 1, 1)),
        (last(values(f32, 1, 3, 2, 3)),),
    )
    for mode in ("reflect", "replicate"):
        family = "reflection" if mode == "reflect" else "replication"
        for rank, pads in ((1, (2, 1)), (2, (2, 1, 1, 3)), (3, (1, 1, 0, 1, 1, 0))):
            operator = getattr(A, f"{family}_pad{rank}d").default
            shape = (1, 2, 4, 4, 5)[:2] + (4, 4, 5)[3 - rank :]
            run = lambda x, m=mode, p=pads: F.pad(x, p, mode=m)
            yield case(f"{family}_pad{rank}d", run, (values(f32, *shape),), preserve=[operator])
            yield case(
                f"{family}_pad{rank}d_no_batch",
                run,
                (values(f32, *shape[1:]),),
                preserve=[operator],
            )
            yield case(f"{family}_pad{rank}d_decomposed", run, (values(f32, *shape),))
    yield case(
        "reflection_pad2d_f16",
        lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
        (values(f16, 1, 2, 3, 3),),
        preserve=[A.reflection_pad2d.default],
    )
    yield case("circular_pad", lambda x: F.pad(x, (1, 2, 1, 0), mode="circular"), (x,))


FAMILIES = {"view": views, "copy": copies, "join": joins, "repeat": repeats, "padding": padding}
