"""The names and schemas of the CPU engine's operators, known as soon as torch is; what they compute is op.py's."""

from collections.abc import Callable
from typing import Any

import torch

_CALL = "Tensor data, Tensor? batch_sizes, Tensor? resets, Tensor[] given"
_SCHEMAS = (
    f"layer({_CALL}, str form, bool all_states, bool save) -> Tensor[]",
    f"layer_backward({_CALL}, Tensor[] flat, Tensor[] d_results, int[] reached, str form, bool data_too) -> Tensor[]",
)


def _later(name: str) -> Callable[..., Any]:
    """A function of op.py, which is loaded when the function is first called."""

    def call(*args: Any, **kwargs: Any) -> Any:
        from glassgate.engines import op

        return getattr(op, name)(*args, **kwargs)

    return call


_library = torch.library.Library("glassgate", "DEF")
for _schema in _SCHEMAS:
    _library.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))
_library.impl("layer", _later("_forward_of_operator"), "CPU")
_library.impl("layer_backward", _later("_backward"), "CPU")
torch.library.register_fake("glassgate::layer", _later("_fake_forward"), lib=_library)
torch.library.register_fake("glassgate::layer_backward", _later("_fake_backward"), lib=_library)
torch.library.register_autograd(
    "glassgate::layer", _later("_backward_of_operator"), setup_context=_later("_remember"), lib=_library
)
torch.library.register_autograd(
    "glassgate::layer_backward", _later("_backward_twice"), setup_context=_later("_remember_backward"), lib=_library
)

layer = torch.ops.glassgate.layer
layer_backward = torch.ops.glassgate.layer_backward
