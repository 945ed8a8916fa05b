"""Registers the names and schemas of the operators when torch is imported. `operators.py` implements them.

torch imports this module through an entry point of the group `torch.backends`. A program of `torch.export` or
AOTInductor therefore loads in a process that does not import glassgate. The names of the arguments must not change,
because saved programs contain them.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

_CALL_ARGUMENTS = "Tensor data, Tensor? batch_sizes, Tensor? resets, Tensor[] given"
_SCHEMAS = (
    f"layer({_CALL_ARGUMENTS}, str plans, bool all_states, bool save, ScalarType dtype) -> Tensor[]",
    f"layer_backward({_CALL_ARGUMENTS}, Tensor[] flat, Tensor[] d_results, int[] reached, str plans, "
    "bool needs_d_data) -> Tensor[]",
)


def _lazy_function(module: str, name: str) -> Callable[..., Any]:
    """Return a function of a module in this package. The first call imports the module."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(import_module(f"{__package__}.{module}"), name)(*args, **kwargs)

    return call


_library = torch.library.Library("glassgate", "DEF")
for _schema in _SCHEMAS:
    _library.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))
for _name, _compute, _gradient, _save in (
    ("layer", "forward", "layer_gradient", "save_layer"),
    ("layer_backward", "backward", "layer_backward_gradient", "save_layer_backward"),
):
    for _device in ("CPU", "CUDA"):
        _library.impl(_name, _lazy_function("operators", _compute), _device)
    torch.library.register_autograd(
        f"glassgate::{_name}",
        _lazy_function("autograd", _gradient),
        setup_context=_lazy_function("autograd", _save),
        lib=_library,
    )
torch.library.register_fake("glassgate::layer", _lazy_function("fakes", "forward"), lib=_library)
torch.library.register_fake("glassgate::layer_backward", _lazy_function("fakes", "backward"), lib=_library)


import_module(f"{__package__}.array_schema")


def registered() -> None:
    """The entry point that torch calls. It does nothing, because importing this module registers the operators."""
