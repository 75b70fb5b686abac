"""Programs of `torch.export.save`, before and after decomposition, with PyTorch's outputs.

Each program is a `.pt2` archive and a `.json` file with its test cases: inputs, and the outputs of
PyTorch in eager mode. Cases of a program with state run in this order.

Stack traces and sample inputs are left out of the archives: they are most of their size, and name
folders of the machine that wrote them.
"""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")

import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim
from torch.utils._pytree import tree_flatten

FOLDER = Path(__file__).resolve().parent.parent / "fixtures" / "pt2"

torch.set_num_threads(1)

Inputs = tuple[Any, ...]


@dataclass
class Program:
    """A module, the inputs of its test cases, and the forms that it is exported in."""

    name: str
    module: nn.Module
    cases: list[Inputs]
    dynamic: Any = None
    decomposed: bool = False
    """Whether the program is also exported after `run_decompositions()`."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    refused: list[tuple[Inputs, str]] = field(default_factory=list)
    """Inputs that the program refuses, with a part of the message."""


class Convolutions(nn.Module):
    """Convolutions with batch norms, in-place activations and a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU6(inplace=True),
        )
        self.deep = nn.Conv2d(8, 8, 3, padding="same", groups=8)
        self.norm = nn.BatchNorm2d(8)
        self.act = nn.Hardswish(inplace=True)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        y = self.act(self.norm(self.deep(x)))
        y += x
        up = F.adaptive_avg_pool2d(F.max_pool2d(self.up(y), 2), 1)
        y = torch.cat([up, F.adaptive_avg_pool2d(y, (1, 1))], 1)
        return self.head(self.drop(torch.flatten(y, 1)))


class DynamicBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.first = nn.Linear(8, 12)
        self.second = nn.Linear(6, 4, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = self.norm(x).reshape(x.shape[0] * 2, 4).view(x.shape[0], -1)
        a, b = self.first(rows).chunk(2, dim=-1)
        y = self.second(F.gelu(a) * torch.sigmoid(b))
        positions = torch.arange(x.shape[0], dtype=torch.float32)
        return F.softmax(y + positions[:, None], dim=-1), y.transpose(0, 1)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)
        self.norm = nn.RMSNorm(16)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, 4, 4).permute(2, 0, 3, 1, 4)
        causal = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        masked = F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], mask, enable_gqa=True)
        heads = (causal + masked).transpose(1, 2).reshape(batch, length, width)
        return x + self.out(heads)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 6, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(12, 4, bias=False)
        self.rnn = nn.RNN(4, 3, nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, (h, c) = self.lstm(x)
        y, g = self.gru(y.transpose(0, 1))
        return self.rnn(y)[0], h, c, g


class Counter(nn.Module):
    """Buffers that calls update, one of them through a view."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("last", torch.ones(2, 3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = self.last.clone()
        self.total.add_(x.sum(0))
        self.last[0] = x[0]
        self.last[:, 1].mul_(2)
        return self.total * 2, before


class NarrowState(nn.Module):
    """bfloat16 state, which would drift if it was kept in a wider type."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.full((3,), 254.0, dtype=torch.bfloat16))
        self.register_buffer("rows", torch.ones(2, 3, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.count.add_(1)
        self.rows[1].add_(x.bfloat16(), alpha=0.0079)
        return self.count.float(), self.rows.float()


class InPlace(nn.Module):
    """Writes to tensors and to views of them."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.clone()
        column = y[:, 1]
        rows = y.view(2, 2, 3)
        flipped = y.t()
        column.fill_(5)
        y[0].mul_(2)
        flipped[2].add_(1)
        first, second = y.split(2)
        second.neg_()
        y.masked_fill_(y < -4, 0.5)
        z = torch.zeros(4, 3)
        z[1:3, ::2] = y[:2, ::2]
        z.relu_()
        # These reshapes share memory with `z`.
        z.t().reshape(3, 2, 2)[0].add_(3)
        z.flatten()[4:6].zero_()
        return y, column + 0, rows * 1, first - second, z


class Shapes(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = torch.einsum("bij,bkj->bik", x, x)
        b = torch.einsum("...ij,jk->...ki", x, y)
        c = torch.matmul(x[0, 0], y) + torch.matmul(y, y)[:, 0]
        d = F.pad(x, (1, 2), mode="reflect") + F.pad(x, (2, 1), mode="replicate")
        e = F.pad(x, (1, 1, 1, 0), value=0.5) - F.pad(x, (1, 1, 0, 1))
        f = F.interpolate(x, scale_factor=2, mode="linear", align_corners=False)
        g = F.interpolate(x[None], size=(5, 7), mode="nearest")
        h = F.interpolate(x[None], scale_factor=1.5, mode="bilinear", align_corners=True)
        i, j = torch.meshgrid(y[0], y[:, 1], indexing="xy")
        k = x.unflatten(2, (2, 2)).movedim(1, 3).roll(1, 0)
        m = F.one_hot(torch.arange(3), 4) + torch.diff(y.cumsum(0), dim=0).long()
        n = torch.stack([t.sum() for t in x.unbind(0)]) + torch.logsumexp(x, (1, 2))
        o = F.unfold(x[None], 2, padding=1)
        p = torch.cat(x.repeat(1, 2, 1).chunk(2, 0)).norm(dim=2, keepdim=True)
        p = torch.where(x > 0, x, 1.0).tile(1, 2, 1) - p
        return a, b, c, d, e, f, g, h, i, j, k, m, n, o, p


class Functions(nn.Module):
    """Element-wise functions that PyTorch decomposes."""

    def __init__(self) -> None:
        super().__init__()
        self.prelu = nn.PReLU(3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.cat([F.mish(x), F.selu(x), F.celu(x, 0.7), F.logsigmoid(x), F.softshrink(x)], 2)
        z = [F.threshold(x, 0.1, -2), F.rrelu(x), torch.frac(x), torch.logaddexp(x, -x)]
        v = torch.lerp(x, x.square(), 0.3) + torch.addcmul(x, x, x, value=0.5)
        w = torch.nan_to_num(x / x.clamp(min=0).clamp_max(0.4), posinf=9, neginf=-9)
        w = w + F.cosine_similarity(x, v, dim=1)[:, None]
        u = self.prelu(x) + F.silu(x) + F.elu(x) + F.leaky_relu(x) + F.hardtanh(x)
        return y, torch.hstack(z), v, w, u, 2 - x, x.std(), x.var(dim=1), 1 / x, x.isfinite()


class SharedWeights(nn.Module):
    """Weights that share memory, are not contiguous, or are lifted constants."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(6, 4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embedding.weight
        self.turned = nn.Parameter(torch.randn(3, 4).t())
        whole = torch.randn(8)
        self.register_buffer("front", whole[:4])
        self.register_buffer("back", whole[4:])

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.embedding(x) * torch.tensor([1.0, -1.0, 0.5, 2.0])
        with torch.no_grad():
            z = torch.sin(y) @ self.turned
        return {"logits": self.head(y + self.front * self.back), "angles": z}


class Branches(nn.Module):
    """Conditionals, one of them inside the other, with several outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("scale", torch.tensor([1.0, -2.0, 0.5, 3.0]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def inner(x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x[0, 0] > 1, torch.exp, torch.neg, (x,))

        def positive(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.linear(x), inner(x * self.scale)

        def negative(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = x - 1
            y[:, 0] = 7
            return y, x.t().reshape(3, 4)

        a, b = torch.cond(x.sum() > 0, positive, negative, (x,))
        return a + x, b


class Loops(nn.Module):
    """A loop that swaps tensors, a map with a fixed operand, and a scan with a conditional."""

    def forward(self, n: torch.Tensor, x: torch.Tensor, xs: torch.Tensor) -> tuple[Any, ...]:
        def goes_on(n: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return n > 0

        def body(n: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return n - 1, b.clone(), a * 0.5 + b

        def step(carried: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
            return carried * 0.5 + y, (carried - y).reshape(3, 1)

        count, a, b = while_loop(goes_on, body, (n, x, x + 1))
        mapped = map_over(lambda row, x: row.sin() + x, xs, x)
        last, steps = scan(step, x, xs)
        return count, a, b, mapped, last, steps


class DynamicLoop(nn.Module):
    def forward(self, xs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        start = torch.zeros(3)
        return scan(lambda total, x: (total + x, total * x), start, xs)


class SizesInBranches(nn.Module):
    """Sizes that branches and loops read, and integers that a loop swaps."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = x.shape[0]

        def goes_on(n: int, a: int, b: int, y: torch.Tensor) -> bool:
            return n < 5

        def body(n: int, a: int, b: int, y: torch.Tensor) -> tuple[Any, ...]:
            return n + 1, b.clone() if isinstance(b, torch.Tensor) else b, a, y * 0.5 + a

        chosen = torch.cond(x.sum() > 0, lambda y: y * rows + y.shape[0], lambda y: y - rows, (x,))
        *_, looped = while_loop(goes_on, body, (rows - rows, rows, rows * 2, x))
        return chosen, looped


class Views(nn.Module):
    """Writes through views, and conversions that are views in one case and copies in another."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = x * 2
        # A copy: the transposed tensor is not contiguous.
        flat = h.t().reshape(-1)
        flat.add_(1)
        # A view.
        rows = h.reshape(3, -1)
        rows[0] = 5
        dropped = self.drop(y * 1)
        dropped += 1
        part = y * 3
        part.narrow(1, 2, 3).copy_(y[:, :3])
        copied = y.to(torch.float32, copy=True)
        copied.mul_(0)
        same = part.to(torch.float32)
        same[1] = 4
        return h, flat, dropped, part, y + copied, y.narrow(1, -3, 3), part.mT * 1


class Similarity(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        wide = torch.linspace(-1, 1, 5, dtype=torch.float64)
        return (
            F.cosine_similarity(x, y, dim=0),
            F.cosine_similarity(x[None], y, dim=1),
            F.cosine_similarity(x, x + 1, dim=-1),
            (wide * 1e9).long(),
        )


class Guards(nn.Module):
    """Conditions on sizes, on an integer in a tensor, and on elements."""

    def forward(
        self, x: torch.Tensor, d: dict[str, torch.Tensor], n: torch.Tensor, m: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        rows, y = x.shape[0], d["Y"]
        torch._check(rows > 3)
        halves = x.view(rows // 2, 2, -1)
        count = n.item()
        torch._check(count >= 1)
        torch._check(count <= 3)
        only = m.item()
        torch._check(only == 3)
        torch._assert_async((x > -9).all(), "x is above -9")
        chosen = torch.cond(rows > 6, lambda t: t * 2, lambda t: t - 1, (y,))
        return halves.sum(1), x + y, chosen, y[:count] * only


class Memory(nn.Module):
    """Writes through views of rare kinds, into state without elements, and by operators."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.ones(4))
        self.register_buffer("seen", torch.zeros(4, dtype=torch.bool))
        self.register_buffer("none", torch.zeros(0, 4))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.total.real.add_(x)
        self.seen |= mask
        self.none.add_(1)
        squares = x * 1
        squares **= 2
        first, _ = torch.unsafe_chunk(squares, 2)
        squares += 1
        turned = torch.einsum("ij->ji", squares.view(2, 2))
        grid = torch.meshgrid(squares, x, indexing="ij")[0]
        return self.total * 1, self.seen & mask, squares, first * 1, turned * 2, grid * 1


class Arrangements(nn.Module):
    """Views of several kinds, writes through them, and rearrangements of elements."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = x * 1
        torch.hsplit(h, 2)[1].add_(1)
        torch.vsplit(h, [1, 3])[1].mul_(2)
        h.as_strided((2, 2), (5, 2), 1).neg_()
        z = y * 1
        torch.dsplit(z, [1])[0].zero_()
        torch.atleast_3d(x[0] * 1).add_(1)
        turned = h.clone().t_()
        turned.unsqueeze_(0).transpose_(0, 1).squeeze_(1)
        filled = h.clone().fill_diagonal_(3.0)
        high = torch.cat([h, h]).fill_diagonal_(-1.0, wrap=True)
        wide, _ = torch.broadcast_tensors(x[:1], h)
        return (
            h,
            z,
            turned * 2,
            torch.cat([filled, high]),
            torch.cat([torch.rot90(y, k, (1, 2)).flatten() for k in range(-1, 3)]),
            torch.block_diag(x[0], y[0], x.sum()),
            torch.diag_embed(y, 1, 0, -2) + torch.diag_embed(y, -1, 0, -2),
            torch.diag(x, -1) + torch.diag(x[0, :3], 2)[0, :3],
            torch.diagflat(y[0, :2], -1),
            torch.combinations(x[:, 0], 3) * 2,
            torch.combinations(x[:, 0], 2, with_replacement=True),
            torch.cartesian_prod(x[0], y[0, 0], x[1, :2]),
            torch.dstack([x, h]),
            torch.fft.fftshift(x) - torch.fft.ifftshift(h, 1),
            torch.fliplr(x) + torch.flipud(h) + wide,
            torch.take(x, torch.tensor([[0, 5], [-1, 2]])),
            torch.atleast_2d(x.sum()),
        )


class Outputs(nn.Module):
    """Out variants, which overwrite the tensors that are passed for their outputs."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, b = torch.zeros_like(x), torch.zeros(3, 3)
        torch.add(x, y, alpha=2, out=a)
        torch.matmul(x, y.t(), out=b)
        torch.clamp(x, -0.5, 0.5, out=a[:, :])
        values, indices = torch.empty(3, 4), torch.empty(3, 4, dtype=torch.long)
        torch.sort(y, 1, out=(values, indices))
        torch.mul(x[0], 2, out=a[1])
        torch.softmax(x, 1, out=values)
        count = torch.tensor([7, -7, 3])
        count.floor_divide_(torch.tensor(2)).__ilshift__(2)
        return a, b, values, indices, count


class Statistics(nn.Module):
    def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
        holes = x.masked_fill(n > 2, float("nan"))
        q = torch.tensor([0.0, 0.3, 1.0])
        modes = ["linear", "lower", "higher", "nearest", "midpoint"]
        return (
            torch.stack([torch.quantile(x, 0.35, interpolation=mode) for mode in modes]),
            torch.quantile(x, q, dim=1, keepdim=True),
            torch.nanquantile(holes, q, dim=-1),
            torch.nanquantile(holes, 0.6, dim=0, keepdim=True),
            torch.quantile(holes, 0.5, dim=1).isnan(),
            torch.nansum(holes) + torch.nanmean(holes, 1),
            torch.nanmean(holes, (0, 1), keepdim=True),
            torch.nansum(n, 1),
            torch.cat(torch.std_mean(x, 1)) + torch.cat(torch.var_mean(x, 0))[0],
            torch.stack([*torch.std_mean(x), *torch.var_mean(x, unbiased=False)]),
            torch.renorm(x, 1, 0, 2.0) + torch.renorm(x, 2, 1, 0.7),
            torch.cat(torch.aminmax(x, dim=1)) + torch.stack(torch.aminmax(x))[0],
            torch.count_nonzero(n, dim=1) + torch.count_nonzero(n),
            torch.trapezoid(x, dx=0.5) + torch.trapezoid(x, n.cumsum(1).float())[0],
            torch.cumulative_trapezoid(x, n[0].cumsum(0).float(), dim=1),
            torch.cumulative_trapezoid(x, dx=2, dim=0),
            torch.cat(torch.gradient(x, spacing=0.5, dim=(0, 1))),
            torch.pdist(x) + torch.pdist(x, 1.0),
            torch.msort(x) + x.trace(),
            torch.isclose(x, x + n * 1e-6, rtol=1e-6),
            torch.isclose(holes, holes, equal_nan=True),
            torch.isin(n, torch.tensor([1, 3])) & ~torch.isin(n, 4, invert=False),
            torch.heaviside(x - 0.5, n.float()) + torch.sgn(x) + torch.deg2rad(x),
        )


class Edges(nn.Module):
    """Calls whose results depend on zeros, NaNs, negative indices, order and narrow types."""

    def forward(self, x: torch.Tensor, low: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ranks = [torch.linalg.matrix_rank(low, atol=atol) for atol in (0.0, 1e3)]
        y = x[:, 0].repeat(2)
        parts = torch.tensor_split(y, [3, 1])
        y.mul_(2)
        return (
            torch.stack(ranks),
            F.embedding_bag(torch.tensor([[0, 1], [2, 1]]), x, padding_idx=-2),
            torch.trapezoid(torch.full((40,), 1000.0).half() + x[0, 0].half() * 0).float(),
            torch.renorm(x.masked_fill(x > 1, float("nan")), 2, 0, 1.0).nan_to_num(7.0),
            torch.linalg.vecdot(x.half() * 200, x.half() * 200).clamp(max=6e4).float(),
            parts[0] * 1,
            parts[2] * 1,
        )


class Special(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        p = x.abs() + 0.1
        positive = torch.cat([p, torch.zeros(1, 4)])
        return (
            torch.xlogy(positive, positive) + torch.xlogy(2.0, positive + 1),
            torch.special.xlog1py(positive, positive) + torch.special.xlog1py(positive, 3.0),
            torch.sinc(positive) + torch.special.entr(positive),
            torch.logaddexp2(x, -x) + torch.float_power(p, x).float(),
            torch.special.ndtr(x) + torch.special.log_ndtr(x * 3),
            torch.mvlgamma(p + 2, 3) + torch.special.gammaln(p) + torch.special.i0(x),
            torch.special.gammainc(p, p) + torch.special.psi(p) + torch.rad2deg(x) * 0.01,
        )


class Losses(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        classes, sign = torch.tensor([2, 0, -100]), torch.tensor([1.0, -1.0, 1.0])
        p, q, weight = x.sigmoid(), y.softmax(1), torch.tensor([0.5, 1.0, 2.0, 0.1])
        image = x.view(1, 3, 2, 2)
        pixels = torch.tensor([[[0, 2], [1, 1]]])
        return (
            F.l1_loss(x, y, reduction="none"),
            F.smooth_l1_loss(x, y, beta=0.3) + F.huber_loss(x, y, delta=0.4, reduction="sum"),
            F.kl_div(x.log_softmax(1), q, reduction="batchmean"),
            F.kl_div(x, y, log_target=True, reduction="none"),
            F.cross_entropy(x, classes) + F.cross_entropy(x, q, weight, label_smoothing=0.1),
            F.cross_entropy(x, classes, weight, label_smoothing=0.2),
            F.cross_entropy(x, classes, weight, reduction="none"),
            F.cross_entropy(image, pixels, label_smoothing=0.1, reduction="none"),
            F.nll_loss(x, classes, weight) + F.nll_loss(image, pixels, reduction="sum"),
            F.binary_cross_entropy(p, q, weight) + F.binary_cross_entropy_with_logits(x, q),
            F.binary_cross_entropy_with_logits(x, q, weight, pos_weight=weight),
            F.cosine_embedding_loss(x, y, sign, 0.1) + F.soft_margin_loss(x, y.sign()),
            F.triplet_margin_loss(x, y, x + q, 0.5, swap=True, reduction="none"),
            F.margin_ranking_loss(x[:, 0], y[:, 0], sign, 0.2),
            F.hinge_embedding_loss(x, y.sign(), 0.5),
            F.poisson_nll_loss(x, q) + F.poisson_nll_loss(p, q, log_input=False),
            F.pairwise_distance(x, y, 1.0, keepdim=True),
        )


class Matrices(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        definite = x @ x.mT + torch.eye(4)
        lu, _ = torch.linalg.lu_factor(definite)
        sign, log = torch.slogdet(x)
        values, vectors = torch.linalg.eigh(definite)
        u, s, vh = torch.linalg.svd(y, full_matrices=False)
        return (
            torch.kron(y[0], x[0]) + torch.kron(y[0, 0], torch.ones(16))[0],
            torch.tensordot(y, x, ([-1], [1])) + torch.inner(y, x),
            torch.tensordot(y, x[0, :3], 2) + torch.inner(y[:, 0], x[0, 0]),
            torch.linalg.multi_dot([x[0, 0], x[0], x[1], x[1, :, 0]]),
            torch.addr(x[0], x[0, 0], x[1, 1], beta=0.5, alpha=2),
            torch.linalg.cross(y[..., :3], y[..., 1:]) + torch.cross(y, y + x[0, :3], 1)[..., :3],
            torch.vander(x[0, 0], 3) + torch.vander(x[0, 1, :], increasing=True)[:, :3],
            torch.linalg.vecdot(x, x + 1, dim=1) + torch.vdot(x[0, 0], x[1, 1]),
            torch.linalg.matrix_power(x, 3),
            torch.linalg.matrix_power(definite, -2),
            torch.matrix_exp(x * 0.3),
            torch.linalg.det(x) + torch.logdet(definite) + sign + log,
            torch.inverse(definite) + torch.linalg.solve(definite, x),
            torch.linalg.cholesky(definite) + lu.triu(),
            values + torch.linalg.eigvalsh(definite),
            vectors @ torch.diag_embed(values) @ vectors.mT,
            u @ torch.diag_embed(s) @ vh + torch.linalg.svdvals(y)[:, :1, None],
            torch.linalg.matrix_norm(x, "nuc") + torch.linalg.matrix_norm(y[:, :2], 2)[:2],
            torch.linalg.matrix_norm(y, 1, keepdim=True) + torch.linalg.matrix_norm(y, -torch.inf),
            torch.linalg.matrix_norm(y, dim=(0, 2)) + torch.linalg.cond(definite)[0] * 0.01,
            torch.linalg.matrix_rank(y[..., :1] * y[..., :3].sum(1, keepdim=True)),
            torch.linalg.matrix_rank(y, atol=0.9) + torch.linalg.matrix_rank(y, rtol=0.5),
            torch.norm(y[0], p="nuc") + torch.norm(x, p="fro", dim=(0, 2)),
            torch.linalg.norm(y, 1, (1, 2)) - torch.linalg.norm(y, 2, (0, 1))[:3],
        )


class Signal(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        windows = [
            torch.hann_window(9),
            torch.hamming_window(9, False),
            torch.hamming_window(9, True, 0.6, 0.3),
            torch.blackman_window(9),
            torch.bartlett_window(9, periodic=False),
            torch.kaiser_window(9, True, beta=7.0),
        ]
        options = {"return_complex": True}
        narrow = torch.stft(x, 8, 3, 6, windows[0][:6], center=False, onesided=False, **options)
        return (
            torch.stack(windows),
            torch.view_as_real(torch.stft(x, 8, window=torch.hann_window(8), **options)),
            torch.view_as_real(narrow),
            torch.stft(x[0], 8, normalized=True, pad_mode="constant", **options).abs(),
            torch.logspace(-1, 2, 7),
        )


class Sampling(nn.Module):
    def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pooled, indices = F.max_pool2d(x, 2, return_indices=True)
        theta = x[:, 0, :2, :3]
        table = x.flatten(0, 1).flatten(1)
        return (
            F.max_unpool2d(pooled, indices, 2),
            F.affine_grid(theta, [1, 2, 3, 4], align_corners=True),
            F.affine_grid(theta, [1, 2, 3, 4], align_corners=False),
            F.embedding_bag(n, table, mode="mean"),
            F.embedding_bag(n.flatten(), table, torch.tensor([0, 2, 2]), mode="sum"),
        )


def programs() -> list[Program]:
    torch.manual_seed(7)
    batch = Dim("batch", min=1, max=16)
    mask = torch.ones(6, 6, dtype=torch.bool).tril(1)
    mask[3] = False
    random = torch.randn(3, 4)
    branching = [random.abs(), -random.abs(), random.abs() + 2]
    return [
        Program("convolutions", Convolutions(), [(torch.randn(2, 3, 12, 12),)], decomposed=True),
        Program(
            "dynamic_batch",
            DynamicBatch(),
            [(torch.randn(count, 8),) for count in (3, 1, 16)],
            dynamic=({0: batch},),
            decomposed=True,
        ),
        Program("attention", Attention(), [(torch.randn(2, 6, 16), mask)], decomposed=True),
        Program("recurrent", Recurrent(), [(torch.randn(2, 4, 5),)]),
        Program("counter", Counter(), [(torch.randn(4, 3),) for _ in range(3)], decomposed=True),
        Program("in_place", InPlace(), [(torch.randn(4, 3),)], decomposed=True),
        Program("shapes", Shapes(), [(torch.randn(2, 3, 4), torch.randn(4, 4))]),
        Program("functions", Functions(), [(torch.randn(2, 3, 4) * 2,)]),
        Program("shared_weights", SharedWeights(), [(torch.tensor([[1, 5, 0]]),)]),
        Program(
            "views",
            Views(),
            [(torch.randn(3, count), torch.randn(4, 10)) for count in (5, 2)],
            dynamic=({1: Dim("columns", min=2, max=12)}, None),
        ),
        Program("similarity", Similarity(), [(torch.randn(4, 6), torch.randn(1, 6))]),
        Program("branches", Branches(), [(x,) for x in branching], decomposed=True),
        Program(
            "loops",
            Loops(),
            [(torch.tensor(n), torch.randn(3), torch.randn(5, 3)) for n in (3, 0)],
            decomposed=True,
        ),
        Program(
            "dynamic_loop",
            DynamicLoop(),
            [(torch.randn(count, 3),) for count in (4, 2, 9, 0)],
            dynamic=({0: Dim("rows", min=2, max=9)},),
        ),
        Program(
            "memory",
            Memory(),
            [(torch.randn(4), torch.randn(4) > 0) for _ in range(3)],
        ),
        Program(
            "guards",
            Guards(),
            [guarded(rows, rows, n) for rows, n in ((6, 2), (8, 1), (4, 3))],
            dynamic=({0: Dim.DYNAMIC}, {"Y": {0: Dim.DYNAMIC}}, None, None),
            decomposed=True,
            refused=[
                (guarded(5, 5, 2), "(x.size()[0] // 2)"),
                (guarded(4, 6, 2), ".size()[0] == x.size()[0]"),
                (guarded(2, 2, 2), "x.size()[0] >= 4"),
                (guarded(6, 6, 4), "u0 <= 3"),
                (guarded(6, 6, 0), "u0 >= 1"),
                (guarded(6, 6, 2, 5), " <= 3"),
                ((torch.full((6, 2), -9.0), *guarded(6, 6, 2)[1:]), "x is above -9"),
            ],
        ),
        Program(
            "narrow_state", NarrowState(), [(torch.ones(3) * n,) for n in range(1, 9)]
        ),
        Program(
            "sizes_in_branches",
            SizesInBranches(),
            [(torch.ones(count, 2) * sign,) for count, sign in ((5, 1.0), (3, -1.0), (8, 0.5))],
            dynamic=({0: Dim("rows", min=2, max=9)},),
        ),
        Program("arrangements", Arrangements(), [(torch.randn(4, 4), torch.randn(3, 3, 2))]),
        Program("outputs", Outputs(), [(torch.randn(3, 4), torch.randn(3, 4))]),
        Program("statistics", Statistics(), [(torch.randn(4, 5), torch.randint(0, 5, (4, 5)))]),
        Program("special", Special(), [(torch.randn(3, 4),)]),
        Program("losses", Losses(), [(torch.randn(3, 4), torch.randn(3, 4))]),
        Program("matrices", Matrices(), [(torch.randn(2, 4, 4), torch.randn(3, 3, 4))]),
        Program("signal", Signal(), [(torch.randn(2, 24),)]),
        Program(
            "sampling", Sampling(), [(torch.randn(1, 2, 4, 4), torch.randint(0, 2, (2, 3)))]
        ),
        Program("edges", Edges(), [(torch.randn(3, 4), torch.randn(6, 2) @ torch.randn(2, 6))]),
    ]


def guarded(rows: int, others: int, n: int, m: int = 3) -> Inputs:
    x, y = torch.randn(rows, 2), torch.randn(others, 2)
    return x, {"Y": y}, torch.tensor(n), torch.tensor(m)


def described(value: Any) -> dict[str, Any]:
    """A tensor as JSON."""
    tensor = value if isinstance(value, torch.Tensor) else torch.tensor(value)
    dtype = str(tensor.dtype).removeprefix("torch.")
    # Numbers print with as many digits as their dtype needs.
    values = [float(f"{v:.9g}") if isinstance(v, float) else v for v in tensor.flatten().tolist()]
    return {"dtype": dtype, "shape": list(tensor.shape), "values": values}


def slim(archive: bytes) -> bytes:
    """Leaves out stack traces and sample inputs."""
    source = zipfile.ZipFile(io.BytesIO(archive))
    written = io.BytesIO()
    writer = torch._C.PyTorchFileWriter(written)
    for name in source.namelist():
        _, _, path = name.partition("/")
        data = source.read(name)
        # The writer adds its own version and byte order.
        if path.startswith(("data/sample_inputs", ".data/")) or path == "byteorder":
            continue
        if path.startswith("models/"):
            program = json.loads(data)
            strip(program)
            data = json.dumps(program, separators=(",", ":")).encode()
        writer.write_record(path, data, len(data))
    writer.write_end_of_file()
    return written.getvalue()


def strip(value: Any) -> None:
    if isinstance(value, dict):
        if "target" in value and "metadata" in value:
            value["metadata"] = {}
        if "module_call_graph" in value:
            value["module_call_graph"] = value["module_call_graph"][:1]
        for item in value.values():
            strip(item)
    elif isinstance(value, list):
        for item in value:
            strip(item)


def save(program: torch.export.ExportedProgram, path: Path) -> None:
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    path.write_bytes(slim(buffer.getvalue()))


def export(program: Program) -> None:
    module = program.module.eval()
    first = program.cases[0]
    exported = torch.export.export(module, first, program.kwargs, dynamic_shapes=program.dynamic)
    save(exported, FOLDER / f"{program.name}.pt2")
    if program.decomposed:
        save(exported.run_decompositions(), FOLDER / f"{program.name}_core.pt2")
    cases = []
    for case in program.cases:
        inputs = [described(value) for value in tree_flatten(case)[0]]
        with torch.no_grad():
            outputs = tree_flatten(module(*case))[0]
        cases.append({"inputs": inputs, "outputs": [described(value) for value in outputs]})
    refused = []
    for case, why in program.refused:
        message = refusal(exported, case)
        assert why in message, message
        inputs = [described(value) for value in tree_flatten(case)[0]]
        refused.append({"inputs": inputs, "why": why})
    written = {"cases": cases} | ({"refused": refused} if refused else {})
    text = json.dumps(written, separators=(",", ":"))
    (FOLDER / f"{program.name}.json").write_text(text + "\n")


def refusal(program: torch.export.ExportedProgram, inputs: Inputs) -> str:
    """The message with which PyTorch refuses inputs."""
    try:
        program.module()(*inputs)
    except (AssertionError, RuntimeError) as error:
        return str(error)
    raise ValueError("the inputs are not refused")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for program in programs():
        export(program)


if __name__ == "__main__":
    main()
