"""Registers the names and schemas of the operators when torch is imported. Other modules implement them.

`operators.py` implements those of kernels, and `array_operators.py` those of cells that declare axes.

torch imports this module through an entry point of the group `torch.backends`. A program of `torch.export` or
AOTInductor therefore loads in a process that does not import glassgate. The names of the arguments must not change,
because saved programs contain them.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

_CALL = "Tensor data, Tensor? batch_sizes, Tensor? resets, Tensor[] given"
_ARRAY_CALL = "Tensor[] rows, Tensor[] operands, Tensor? batch_sizes, Tensor? resets"
_ARRAY_OPTIONS = "str step, str weights, bool reverse, bool all_states"
_SCHEMAS = (
    f"layer({_CALL}, str plans, bool all_states, bool save, ScalarType dtype) -> Tensor[]",
    f"layer_backward({_CALL}, Tensor[] flat, Tensor[] d_results, int[] reached, str plans, bool needs_d_data) "
    "-> Tensor[]",
    f"arrays({_ARRAY_CALL}, {_ARRAY_OPTIONS}, bool save) -> Tensor[]",
    f"arrays_backward({_ARRAY_CALL}, Tensor saved, Tensor[] d_results, {_ARRAY_OPTIONS}) -> Tensor[]",
)
_LAYERS, _ARRAYS = ".operators", ".array_operators"


def _lazy(name: str, module: str) -> Callable[..., Any]:
    """Return a function of a module of this package. The first call imports the module."""
    return lambda *args, **kwargs: getattr(import_module(module, __package__), name)(*args, **kwargs)


_library = torch.library.Library("glassgate", "DEF")
for _schema in _SCHEMAS:
    _library.define(_schema, tags=(torch.Tag.pt2_compliant_tag,))
for _name, _devices, _compute, _fake in (
    ("layer", ("CPU", "CUDA"), _lazy("forward", _LAYERS), _lazy("fake_forward", _LAYERS)),
    ("layer_backward", ("CPU", "CUDA"), _lazy("backward", _LAYERS), _lazy("fake_backward", _LAYERS)),
    ("arrays", ("CPU", "CUDA"), _lazy("forward", _ARRAYS), _lazy("fake_forward", _ARRAYS)),
    ("arrays_backward", ("CPU", "CUDA"), _lazy("backward", _ARRAYS), _lazy("fake_backward", _ARRAYS)),
):
    for _device in _devices:
        _library.impl(_name, _compute, _device)
    torch.library.register_fake(f"glassgate::{_name}", _fake, lib=_library)
for _name, _gradient, _save, _module in (
    ("layer", "layer_gradient", "save_layer", _LAYERS),
    ("layer_backward", "layer_backward_gradient", "save_layer_backward", _LAYERS),
    ("arrays", "gradient", "save", _ARRAYS),
):
    torch.library.register_autograd(
        f"glassgate::{_name}", _lazy(_gradient, _module), setup_context=_lazy(_save, _module), lib=_library
    )


def registered() -> None:
    """The entry point that torch calls. It does nothing, because importing this module registers the operators."""
