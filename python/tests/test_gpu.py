"""Programs on a GPU, or on a software Vulkan driver, match PyTorch."""

from typing import Any

import pytest
from conftest import assert_close, cases, fixture

import torchlet
from torchlet import _torchlet
from torchlet.runtime import Runtime

pytestmark = pytest.mark.skipif(
    not Runtime.get().backend_registry.is_available("VulkanBackend"),
    reason="no Vulkan device",
)


@pytest.mark.parametrize("name", ["digits/digits.bpte", "models/mobilenet_v2.bpte"])
def test_programs_for_cpus_run_on_a_gpu(name: str) -> None:
    native = _torchlet.Module.open(str(fixture(name)), backend="vulkan")
    for method, inputs, expected in cases(native):
        assert "VulkanBackend" in native.method_info(method).backends
        assert_close(native.execute(method, inputs), expected, 1e-4, 1e-5)


def test_gpu_results_are_copied_to_the_host(image: Any) -> None:
    path = fixture("digits/digits.pte")
    results = [
        torchlet.Module(path, backend=backend).forward(image)[0] for backend in ("cpu", "vulkan")
    ]
    assert abs(results[0] - results[1]).max() < 1e-4
    module = torchlet.Module(path, backend="vulkan", profile=True)
    module.forward(image)
    assert "VulkanBackend" in module._repr_html_()
