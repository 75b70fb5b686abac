"""Runs PyTorch programs that were exported with ExecuTorch (`.pte` files), without a C++ runtime.

    import torchlet

    module = torchlet.Module("model.pte")
    logits, = module.forward(image)

`torchlet.runtime` and `torchlet.portable_lib` are compatible with ExecuTorch's Python API.
"""

from torchlet._errors import Error
from torchlet._module import Method, Module, Profile, ProfileEntry, StateTensor
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
]
