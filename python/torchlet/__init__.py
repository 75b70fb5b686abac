"""Runs PyTorch programs of `torch.export` (`.pt2` files) and ExecuTorch (`.pte` files), without a
C++ runtime.

    import torchlet

    module = torchlet.Module("model.pt2")
    logits, = module.forward(image)

`torchlet.load` loads a `torch.export.ExportedProgram` without a file, and
`torch.compile(model, backend="torchlet")` compiles a model. `torchlet.vulkan` lists GPUs.

`torchlet.runtime` and `torchlet.portable_lib` are compatible with ExecuTorch's Python API.
"""

from torchlet import vulkan
from torchlet._errors import Error
from torchlet._module import Method, Module, Profile, ProfileEntry, StateTensor, load
from torchlet._predictor import Predictor
from torchlet._torchlet import MethodInfo, Tensor, ValueInfo, __version__

__all__ = [
    "Error",
    "Method",
    "MethodInfo",
    "Module",
    "Predictor",
    "Profile",
    "ProfileEntry",
    "StateTensor",
    "Tensor",
    "ValueInfo",
    "__version__",
    "load",
    "vulkan",
]
