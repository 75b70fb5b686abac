"""The list of GPUs."""

import pytest

import torchlet


def test_devices_are_listed() -> None:
    if not torchlet.vulkan.is_available():
        try:
            assert all(device.unusable for device in torchlet.vulkan.devices())
        except torchlet.Error as error:
            assert str(error)
        pytest.skip("no Vulkan device")
    devices = torchlet.vulkan.devices()
    assert any(device.unusable is None for device in devices)
    for device in devices:
        assert device.name and device.memory > 0 and device.version.count(".") == 2
        assert device.properties["limits"]["tensor"] > 0
