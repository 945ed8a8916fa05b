"""Registers the names and schemas of the operators when torch is imported. `operators.py` implements them.

torch imports this module through an entry point of the group `torch.backends`. A program of `torch.export` or
AOTInductor therefore loads in a process that does not import glassgate. The names of the arguments must not change,
because saved programs contain them.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

_CALL = "Tensor[] tensors, Tensor? batch_sizes, Tensor? resets, str layer, ScalarType dtype"
_OPERATORS = (
    ("layer", f"({_CALL}) -> Tensor[]", "layer"),
    ("layer_forward", f"({_CALL}, bool save) -> Tensor[]", "fake_layer_forward"),
    ("layer_backward", f"({_CALL}, bool[] needed, int[] reached) -> Tensor[]", "fake_layer_backward"),
)
"""The name and the schema of each operator, and the function that returns its results for fake tensors."""


def _lazy(name: str) -> Callable[..., Any]:
    """Return a function of the module `operators`. The first call imports the module."""
    return lambda *args, **kwargs: getattr(import_module(".operators", __package__), name)(*args, **kwargs)


library = torch.library.Library("glassgate", "DEF")
for _name, _schema, _fake in _OPERATORS:
    library.define(_name + _schema, tags=(torch.Tag.pt2_compliant_tag,))
    for _device in ("CPU", "CUDA"):
        library.impl(_name, _lazy(_name), _device)
    torch.library.register_fake(f"glassgate::{_name}", _lazy(_fake), lib=library)
library.impl("layer", _lazy("layer"), "Autograd")


def registered() -> None:
    """The entry point that torch calls. It does nothing, because importing this module registers the operators."""
