"""GPUs through Vulkan.

    if torchlet.vulkan.is_available():
        module = torchlet.Module("model.pt2", backend="vulkan")
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from torchlet import _torchlet

__all__ = ["Device", "devices", "is_available"]


@dataclass(frozen=True)
class Device:
    """A Vulkan device.

    `TORCHLET_VULKAN_DEVICE` selects one by index or name for a process.
    """

    #: Its index in Vulkan's list.
    index: int
    name: str
    #: `"discrete"`, `"integrated"`, `"virtual"`, `"other"`, or `"cpu"` for software drivers.
    kind: str
    #: Size of its memory in bytes.
    memory: int
    #: The Vulkan version, such as `"1.3.275"`.
    version: str
    driver: str
    #: Why programs cannot run on it; `None` if they can.
    unusable: Optional[str]
    #: All properties, as `torchlet devices --json` prints them.
    properties: dict[str, Any]


def is_available() -> bool:
    """Whether a program can run on a Vulkan device, including software drivers."""
    return _torchlet.is_backend_available("VulkanBackend")


def devices() -> list[Device]:
    """The Vulkan devices of this machine, without opening any.

    Raises `torchlet.Error` if the package was built without Vulkan, or Vulkan is not installed.
    """
    names = ("index", "name", "kind", "memory", "version", "driver", "unusable")
    return [
        Device(*(listed[name] for name in names), properties=listed)
        for listed in _torchlet.devices("vulkan")
    ]
