"""Control flow whose condition is a view, and state outside of the memory plan."""

from __future__ import annotations

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchBackendConfig
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from torch import nn
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan

from common import Fixture, Manifest, seed

FOLDER = "flow"


def positive(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


def negative(x: torch.Tensor) -> torch.Tensor:
    return x - 3


class OnView(nn.Module):
    """The condition is a view of a computed bool."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        any_large = (x > 0.5).any().view(1)
        return torch.cond(any_large.squeeze(0), positive, negative, (x,)) + 1


class OnReshape(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond((x.sum(0, keepdim=True) > 0).reshape(()), positive, negative, (x,))


class OnSelect(nn.Module):
    """The condition is one element of a bool tensor that is also an output."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        large = x > 0
        return torch.cond(large[1], positive, negative, (x,)), large


class OnGiven(nn.Module):
    """One condition is a view of an input, another a view of an element of an input."""

    def forward(self, flag: torch.Tensor, flags: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        y = torch.cond(flag.view(()), positive, negative, (x,))
        return torch.cond(flags.select(0, 2).reshape(1).squeeze(), negative, positive, (y,))


class NestedOnViews(nn.Module):
    """Nested conditions that are all views, with values that live across the branches."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        flat, doubled = x.reshape(-1), x * 2
        outer = (flat.sum() > 0).view(1)

        def inner(x, doubled):
            condition = (doubled.amax() > 3).reshape(1, 1)
            return torch.cond(
                condition.view(()), lambda x, d: x + d, lambda x, d: x * d, (x, doubled)
            )

        def other(x, doubled):
            condition = (x.amin() < -2).unsqueeze(0)
            return torch.cond(
                condition.squeeze(),
                lambda x, d: d - x,
                lambda x, d: torch.relu(x) - d,
                (x, doubled),
            )

        y = torch.cond(outer.squeeze(), inner, other, (x, doubled))
        return y, doubled.view(2, 2), outer, torch.cond(outer.view(()), negative, positive, (y,))


class CondInMap(nn.Module):
    """A condition that is a view, inside the body of a `map`."""

    def forward(self, xs: torch.Tensor) -> torch.Tensor:
        def each(x):
            return torch.cond((x.sum() > 0).view(1).squeeze(), positive, negative, (x,))

        return map_over(each, xs)


class CondInScan(nn.Module):
    def forward(self, start: torch.Tensor, xs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def step(carry, x):
            large = (carry.sum() > 1).reshape(1)
            new = torch.cond(
                large.squeeze(), lambda c, x: c - x, lambda c, x: c + x * 2, (carry, x)
            )
            return new, new.view(4).clone()

        return scan(step, start, xs)


class CountedCond(nn.Module):
    """A buffer selects the branch and is updated after it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.cond((self.count.view(()) > 1.5).reshape(1).squeeze(), positive, negative, (x,))
        self.count.add_(1.0)
        return y + self.count


class Counter(nn.Module):
    """Two buffers with equal initial values, a constant equal to them, and views of a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("up", torch.arange(4.0))
        self.register_buffer("down", torch.arange(4.0))
        self.register_buffer("constant", torch.arange(4.0))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.up.view(2, 2) * x + self.constant.view(2, 2)
        self.up.add_(1.0)
        self.down.sub_(x.sum())
        return y, self.up * 2, self.down.view(2, 2) + x


class Ring(nn.Module):
    """Ring buffer of the last inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ring", torch.full((3, 2), 0.5))
        self.register_buffer("place", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.ring.index_copy_(0, self.place, x)
        self.place.copy_((self.place + 1) % 3)
        return torch.relu(self.ring.sum(0))


class Stream(nn.Module):
    """Streaming convolution: each call passes the next chunk; a buffer keeps the overlap."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(3, 4, 3)
        self.register_buffer("past", torch.full((1, 3, 2), 0.25))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        window = torch.cat([self.past, x], dim=2)
        self.past.copy_(window[:, :, -2:])
        return torch.relu(self.conv(window))


class Recurrent(nn.Module):
    """Uninitialized state, with more activations than fit beside it in a shared memory plan."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("hidden", torch.zeros(2, 4))
        self.linear = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.linear(torch.cat([x, self.hidden.view(2, 4)], 1)))
        self.hidden.copy_(y * 0.5 + self.hidden)
        z = torch.sigmoid(y) * y
        return (z + y * 2) @ (z - y).T


class Decaying(nn.Module):
    """Uninitialized state that a delegate reads and computes, and `copy_` writes back."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.zeros(1))
        self.register_buffer("offset", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.scale.mul_(self.offset + 2).add_(x)
        self.offset.mul_(-0.5).add_(1)
        return self.scale + x, self.offset * 2


def unplanned(*initialized: str) -> ExecutorchBackendConfig:
    return ExecutorchBackendConfig(
        passes=[InitializedMutableBufferPass(list(initialized))] if initialized else [],
        memory_planning_pass=MemoryPlanningPass(alloc_mutable_buffers=False),
        emit_mutable_buffer_names=True,
    )


def fixtures() -> list[Fixture]:
    def program(name: str, module: nn.Module, cases: list[tuple], **options) -> Fixture:
        return Fixture.forward(f"{FOLDER}/{name}", module.requires_grad_(False), cases, **options)

    def state(
        name: str, module: nn.Module, cases: list[tuple], *initialized: str, **options
    ) -> Fixture:
        note = "the mutable buffers are not memory planned"
        config = unplanned(*initialized)
        return program(
            f"unplanned_{name}", module, cases, sequence=True, config=config, note=note, **options
        )

    up, down = torch.tensor([1.0, 2.0, 0.5, 3.0]), torch.tensor([-1.0, -2.5, 0.25, -3.0])
    square = up.view(2, 2)
    yes, no = torch.tensor([True]), torch.tensor([False])
    flags = torch.tensor([True, False, True])
    squares = [(square,), (-square,), (square * 2,), (square.T.contiguous() - 2,)]
    xs = torch.randn(4, 2, 2)
    return [
        program("cond_on_view", OnView(), [(up,), (down,)]),
        program("cond_on_reshape", OnReshape(), [(up,), (down,)]),
        program("cond_on_select", OnSelect(), [(up,), (down,)]),
        program("cond_on_given", OnGiven(), [(yes, flags, up), (no, flags, up), (yes, ~flags, up)]),
        program("cond_nested_on_views", NestedOnViews(), squares),
        program("cond_in_map", CondInMap(), [(xs,), (xs * -2,)]),
        program("cond_in_scan", CondInScan(), [(square, xs), (-square, xs)]),
        program("cond_on_state", CountedCond(), [(up,), (down,), (up,), (down,)], sequence=True),
        state("counter", Counter(), [(square,), (-square,), (square * 2,)], "up", "down"),
        state("ring", Ring(), [(torch.randn(1, 2),) for _ in range(5)], "ring", "place"),
        state("stream", Stream(), [(torch.randn(1, 3, 4),) for _ in range(4)], "past"),
        state("recurrent", Recurrent(), [(torch.randn(2, 4),) for _ in range(4)]),
        state("cond", CountedCond(), [(up,), (down,), (up,), (down,)], "count"),
        state(
            "delegated",
            Decaying(),
            [(up[at : at + 1],) for at in range(4)],
            partitioner=XnnpackPartitioner(),
        ),
    ]


def main() -> None:
    seed(7)
    manifest = Manifest("flow")
    for fixture in fixtures():
        try:
            manifest.write(fixture)
        except Exception as error:
            print(f"{fixture.path}: not exported: {type(error).__name__}: {str(error)[:300]}")
    manifest.save()


if __name__ == "__main__":
    main()
