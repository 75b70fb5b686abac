"""`torch.compile(model, backend="torchlet")` has the results of PyTorch's eager mode."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import FIXTURES

import torchlet

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Forgets the graphs of other tests, and turns gradients off."""
    torch.manual_seed(0)
    torch.compiler.reset()
    gc.collect()
    with torch.no_grad():
        yield


def compiled(function: Callable[..., Any], dynamic: Any = None, **options: Any) -> Any:
    """Compiles for the CPU."""
    options = {"device": "cpu", **options}
    return torch.compile(function, backend="torchlet", dynamic=dynamic, options=options)


def assert_same(found: Any, expected: Any) -> None:
    """Asserts that nested outputs have the same structure, values, types and strides."""
    if isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        assert found.numel() == 0 or found.stride() == expected.stride()
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        assert_same(list(found.values()), list(expected.values()))
    elif isinstance(expected, (list, tuple)):
        assert type(found) is type(expected) and len(found) == len(expected)
        for one, other in zip(found, expected):
            assert_same(one, other)
    else:
        assert found == expected and type(found) is type(expected)


class Small(nn.Module):
    """A convolution, a batch norm and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.linear = nn.Linear(8, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.linear(self.norm(self.convolution(image)).relu().mean((2, 3)))


@torch.library.custom_op("torchlet_test::unknown", mutates_args=())
def unknown(x: torch.Tensor) -> torch.Tensor:
    """An operator that torchlet does not have."""
    return x * 3


unknown.register_fake(torch.empty_like)


def loaded_programs() -> int:
    """The number of loaded programs."""
    from torchlet._compile import Program

    gc.collect()
    return sum(len(it._loaded) for it in gc.get_objects() if type(it) is Program)


@pytest.fixture
def programs(fresh: None) -> Callable[[], int]:
    """Returns a function that counts the programs that a test has loaded."""
    # Dynamo keeps the graphs behind graph breaks of other tests.
    others = loaded_programs()
    return lambda: loaded_programs() - others


def test_a_model_has_its_results() -> None:
    model, image = Small().eval(), torch.randn(2, 3, 9, 9)
    run = compiled(model)
    assert_same(run(image), model(image))
    with torch.inference_mode():
        assert_same(run(image), model(image))
    assert "torchlet" in torch.compiler.list_backends()
    # The method form, and all default options.
    model.compile(backend="torchlet")
    assert_same(model(image), run(image))


def test_growing_batches_need_few_programs(programs: Callable[[], int]) -> None:
    model = Small().eval()
    run = compiled(model)
    for batch in (1, 2, 3, 9, 100, 5, 64):
        image = torch.randn(batch, 3, 9, 9)
        assert_same(run(image), model(image))
    # Static for 1 and 2, dynamic for up to 16 and 128.
    assert programs() <= 4


def test_sizes_are_inputs_and_outputs() -> None:
    def function(x: torch.Tensor, n: int) -> Any:
        y = x[:, :n].reshape(-1)
        return y * n, y.shape[0] + 1, [x.shape[1], None, "text", 2.5]

    run = compiled(function, dynamic=True)
    for rows, columns, n in ((3, 8, 4), (5, 9, 2), (70, 6, 5), (4, 9, -2)):
        x = torch.randn(rows, columns)
        assert_same(run(x, n), function(x, n))


def test_negative_numbers_and_expressions() -> None:
    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        return x[:, n:] * n + x.shape[0] % 3

    run = compiled(function, dynamic=True)
    for rows, columns, n in ((5, 9, -2), (7, 8, -3), (5, 40, -20), (6, 5, 2)):
        x = torch.randn(rows, columns)
        assert_same(run(x, n), function(x, n))


def test_programs_for_fixed_sizes(programs: Callable[[], int]) -> None:
    def function(x: torch.Tensor) -> Any:
        # The scale of the resize is a float that is computed from sizes.
        y = functional.interpolate(x, size=(x.shape[2] + 3, 7), mode="bilinear")
        return y, x.shape[0] / 3

    run = compiled(function, dynamic=True)
    for size in (5, 6, 5, 8):
        x = torch.randn(2, 3, size, size)
        assert_same(run(x), function(x))
    assert programs() == 3


def test_graph_breaks() -> None:
    printed = []

    @torch.compiler.disable
    def report(x: torch.Tensor) -> None:
        printed.append(float(x.sum()))

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        report(y)
        if y.sum() > 0:
            return y.sin()
        return y.cos() - 1

    run = compiled(function)
    for x in (torch.ones(3), -torch.ones(3)):
        assert_same(run(x), function(x))
    assert printed == [6, 6, -6, -6]


def test_nested_inputs_and_outputs() -> None:
    def function(items: dict[str, Any], *more: torch.Tensor) -> Any:
        a, (b, c) = items["a"], items["bc"]
        return {"sum": a + b, "pair": (c, [more[0] * 2, a + b])}

    run = compiled(function)
    items = {"a": torch.randn(3), "bc": (torch.randn(3), torch.randn(2))}
    more = torch.randn(1)
    assert_same(run(items, more), function(items, more))


def test_without_outputs_and_inputs() -> None:
    cell = torch.zeros(3)

    def store(x: torch.Tensor) -> None:
        cell.copy_(x + 1)

    assert compiled(store)(torch.ones(3)) is None
    assert cell.tolist() == [2, 2, 2]
    assert_same(compiled(lambda: torch.arange(5) * 2)(), torch.arange(5) * 2)
    assert_same(compiled(lambda x: (x + 1).shape[0])(torch.ones(3)), 3)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool", "float64", "float16"])
def test_dtypes(dtype: str) -> None:
    def function(x: torch.Tensor) -> Any:
        return x + x, x == x.flip(0), torch.where(x > 0, x, 0)

    x = torch.tensor([[0, 1, 2], [3, 0, 1]]).to(getattr(torch, dtype))
    assert_same(compiled(function)(x), function(x))


def test_empty_and_scalar_tensors() -> None:
    def function(x: torch.Tensor) -> Any:
        return x * 2, x.sum()

    run = compiled(function)
    for x in (torch.zeros(0, 3), torch.tensor(2.5), torch.zeros(3, 0)):
        assert_same(run(x), function(x))


def test_inputs_of_any_layout() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        return (x * y).relu()

    x = torch.randn(2, 3, 4, 5)
    for given in (
        x.permute(0, 2, 3, 1),
        x.to(memory_format=torch.channels_last),
        x[:, :, ::2],
        x.flip(0),
        x[:, :1].expand(2, 3, 4, 5),
    ):
        torch.compiler.reset()
        assert_same(compiled(function)(given, given[:1]), function(given, given[:1]))


def test_strides_of_outputs() -> None:
    def function(x: torch.Tensor) -> Any:
        y = x + 1
        large = x @ x.t()
        return y.t(), large[:, ::2], large.sum(0).expand(4, 3), y.unsqueeze(1)

    x = torch.randn(3, 4)
    assert_same(compiled(function)(x), function(x))
    convolution = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    image = torch.randn(1, 3, 8, 8).to(memory_format=torch.channels_last)
    found = compiled(convolution)(image)
    assert_same(found, convolution(image))
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_outputs_share_memory_as_in_pytorch() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x * 2
        return x, x[1:], z, z.view(-1)[2:], z.t(), y.mul_(3), y

    inputs = [(torch.arange(6.0).view(2, 3), torch.ones(4)) for _ in range(2)]
    found, expected = compiled(function)(*inputs[0]), function(*inputs[1])
    assert_same(found, expected)
    assert found[0] is inputs[0][0] and found[6] is inputs[0][1]
    for outputs in (found, expected):
        for output in outputs:
            output += 1
    assert_same(found, expected)
    assert_same(inputs[0], inputs[1])


def test_inputs_are_overwritten() -> None:
    def function(cache: torch.Tensor, new: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        cache.index_copy_(1, at, new)
        cache[:, 0].add_(1)
        return cache.sum(1)

    run = compiled(function)
    caches = torch.zeros(2, 5, 3), torch.zeros(2, 5, 3)
    for at in range(3):
        new, index = torch.randn(2, 1, 3), torch.tensor([at])
        assert_same(run(caches[0], new, index), function(caches[1], new, index))
    assert_same(*caches)


def test_buffers_are_overwritten(programs: Callable[[], int]) -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(3)
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return self.norm(x) * self.count

    models = Counter(), Counter()
    models[1].load_state_dict(models[0].state_dict())
    run = compiled(models[0])
    for training in (True, True, False, False):
        for model in models:
            model.train(training)
        x = torch.randn(4, 3)
        assert_same(run(x), models[1](x))
        assert_same(models[0].state_dict(), dict(models[1].state_dict()))
    assert programs() == 2


def test_changed_weights_are_noticed(programs: Callable[[], int]) -> None:
    model, image = Small().eval(), torch.randn(2, 3, 9, 9)
    run = compiled(model)
    assert_same(run(image), model(image))
    assert_same(run(image), model(image))
    changes: list[Callable[[], Any]] = [
        lambda: model.linear.weight.mul_(2),
        lambda: model.load_state_dict(Small().state_dict()),
        lambda: setattr(model.linear, "weight", nn.Parameter(torch.randn(5, 8))),
        lambda: setattr(model.linear.bias, "data", torch.randn(5)),
        lambda: model.norm.running_var.fill_(3),
        lambda: nn.init.normal_(model.convolution.weight),
    ]
    for change in changes:
        change()
        for _ in range(2):
            assert_same(run(image), model(image))
    with torch.inference_mode():
        for _ in range(2):
            assert_same(run(image), model(image))
            model.linear.weight.mul_(2)
    # Programs of freed weights were freed. Two graphs are left, one for each mode.
    assert programs() == 2


def test_weights_that_change_between_calls_are_inputs() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("scale", torch.ones(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) * self.scale

    from torchlet._compile import Program

    loaded = []
    original = Program._load
    model, x = Scaled().eval(), torch.randn(2, 4)
    run = compiled(model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Program, "_load", lambda *args: loaded.append(0) or original(*args))
        for _ in range(5):
            assert_same(run(x), model(x))
            model.scale += 1
    assert len(loaded) == 3


def test_writes_through_data_need_freeze_false() -> None:
    model, x = nn.Linear(4, 4), torch.randn(2, 4)
    run = compiled(model, freeze=False)
    for _ in range(3):
        assert_same(run(x), model(x))
        model.weight.data.mul_(2)
        model.bias.detach().numpy()[:] = 1


def test_weights_of_inference_mode() -> None:
    with torch.inference_mode():
        model, x = nn.Linear(4, 4), torch.randn(2, 4)
        run = compiled(model)
        for _ in range(2):
            assert_same(run(x), model(x))
            model.weight.mul_(2)


def test_instances_share_a_graph(programs: Callable[[], int]) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x).tanh()

    blocks = nn.ModuleList(Block() for _ in range(4))
    x = torch.randn(2, 4)
    expected = x
    for block in blocks:
        expected = block(expected)
        block.compile(backend="torchlet", options={"device": "cpu"})
    for _ in range(2):
        found = x
        for block in blocks:
            found = block(found)
        assert_same(found, expected)
    assert programs() == 4
    del blocks, block
    torch.compiler.reset()


def test_constants_in_the_code() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor([1.0, 2.0, 3.0]) + torch.ones(3)

    x = torch.randn(2, 3)
    assert_same(compiled(function)(x), function(x))


def test_floats_that_vary() -> None:
    def function(x: torch.Tensor, scale: float) -> torch.Tensor:
        return x * scale

    run = compiled(function)
    for scale in (1.5, 2.5, 3.5):
        x = torch.randn(3)
        assert_same(run(x, scale), function(x, scale))


def test_gradients_are_refused() -> None:
    model, x = nn.Linear(4, 4), torch.randn(2, 4)
    run = compiled(model)
    with torch.enable_grad(), pytest.raises(torchlet.Error, match="requires gradients.*no_grad"):
        run(x)
    with torch.enable_grad(), pytest.raises(torchlet.Error, match="requires gradients"):
        compiled(lambda x: x * 2)(x.clone().requires_grad_())
    model.requires_grad_(False)
    with torch.enable_grad():
        assert_same(run(x), model(x))

    def inside(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return x * 2

    with torch.enable_grad():
        assert_same(compiled(inside)(x.clone().requires_grad_()), x * 2)


def test_unsupported_graphs_are_refused() -> None:
    x = torch.randn(3, 4)
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    cases = [
        (lambda x: unknown(x) + 1, "torchlet_test.unknown"),
        (lambda x: x + torch.rand(4), "random numbers of aten.rand"),
        (lambda x: functional.dropout(x, 0.5), "random numbers of"),
        (lambda x: x.to("meta") + 1, "a tensor on device meta"),
        (lambda x: layer(x[None]), "set_fastpath_enabled"),
    ]
    for function, reason in cases:
        torch.compiler.reset()
        run = compiled(function)
        for _ in range(2):
            with pytest.raises(torchlet.Error, match=reason) as raised:
                run(x)
            assert 'options={"fallback": True}' in str(raised.value)
            assert raised.value.name in ("NotSupported", "OperatorMissing")


def test_unsupported_graphs_fall_back_on_request() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x += 1
        return unknown(x) * 2

    run = compiled(function, fallback=True)
    x = torch.randn(3, 3)
    warns = pytest.warns(UserWarning, match="runs in PyTorch: .*torchlet_test.unknown")
    for expectation in (warns, contextlib.nullcontext()):
        given = x.clone(), x.clone()
        with expectation:
            found = run(given[0])
        assert_same(found, function(given[1]))
        assert_same(*given)
    model = nn.Linear(3, 3)
    with torch.enable_grad(), pytest.warns(UserWarning, match="requires gradients"):
        compiled(model, fallback=True)(x).sum().backward()
    assert model.weight.grad is not None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"devise": "cpu"}, "unknown option 'devise'.*'device', 'fallback', 'freeze'"),
        ({"fallback": 1}, "option 'fallback'.*expected bool, found 1"),
        ({"device": "tpu"}, "tpu"),
        ({"threads": 0}, "threads"),
    ],
)
def test_invalid_options(options: dict[str, Any], reason: str) -> None:
    run = torch.compile(lambda x: x + 1, backend="torchlet", options=options)
    with pytest.raises(torchlet.Error, match=reason):
        run(torch.ones(3))


def test_modes_are_refused() -> None:
    run = torch.compile(lambda x: x + 1, backend="torchlet", mode="max-autotune")
    with pytest.raises(torchlet.Error, match="mode='max-autotune'"):
        run(torch.ones(3))


def test_threads_run_a_compiled_model() -> None:
    from concurrent.futures import ThreadPoolExecutor

    model, images = Small().eval(), [torch.randn(2, 3, 9, 9) for _ in range(8)]
    run = compiled(model, threads=1)
    expected = [model(image) for image in images]

    def infer(image: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return run(image)

    infer(images[0])
    with ThreadPoolExecutor(4) as pool:
        assert_same(list(pool.map(infer, images)), expected)


def test_control_flow() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() * 2, (x,))

    run = compiled(function)
    for x in (torch.ones(3), -torch.ones(3)):
        assert_same(run(x), function(x))


def test_exported_programs_are_loaded() -> None:
    model, image = Small().eval(), torch.randn(2, 3, 9, 9)
    batch = torch.export.Dim("batch", max=8)
    program = torch.export.export(model, (image,), dynamic_shapes=({0: batch},))
    for loaded in (program, program.run_decompositions()):
        module = torchlet.load(loaded, backend="cpu", threads=1)
        for batch in (2, 5):
            image = torch.randn(batch, 3, 9, 9)
            (output,) = module(image)
            assert_same(output, model(image))
    for wrong in ("model.pt2", model, None):
        with pytest.raises(TypeError, match="open files with torchlet.Module"):
            torchlet.load(wrong)


@pytest.mark.skipif(not torchlet.vulkan.is_available(), reason="no Vulkan device")
def test_gpus() -> None:
    model, image = Small().eval(), torch.randn(2, 3, 9, 9)
    assert_same(compiled(model, device="vulkan")(image), model(image))
    program = torch.export.export(model, (image,))
    module = torchlet.load(program, backend="vulkan")
    assert "VulkanBackend" in module["forward"]._info.backends
    assert_same(module(image)[0], model(image))


def test_examples_of_the_book_run(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (FIXTURES.parents[1] / "docs" / "from-pytorch.md").read_text(encoding="utf-8")
    blocks = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    assert len(blocks) == 5
    monkeypatch.chdir(tmp_path)
    variables: dict[str, Any] = {}
    for block in blocks:
        exec(block, variables)
    assert variables["logits"].shape == (1, 10)
