"""Registers the operators of cells that declare axes; `engines/llvm_cpu/arrays/operators.py` implements them.

`schema.py` imports this module, so saved programs load in every process. The names of the arguments must not change.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

_CALL = "Tensor[] rows, Tensor[] operands, Tensor? batch_sizes, Tensor? resets"
_OPTIONS = "str step, str weights, bool reverse, bool all_states"
_MODULE = "glassgate.engines.llvm_cpu.arrays.operators"


def _lazy(name: str) -> Callable[..., Any]:
    """Return a function of the module with the implementation. The first call imports the module."""
    return lambda *args, **kwargs: getattr(import_module(_MODULE), name)(*args, **kwargs)


_library = torch.library.Library("glassgate", "FRAGMENT")
_tags = (torch.Tag.pt2_compliant_tag,)
_library.define(f"arrays({_CALL}, {_OPTIONS}, bool save) -> Tensor[]", tags=_tags)
_library.define(f"arrays_backward({_CALL}, Tensor saved, Tensor[] d_results, {_OPTIONS}) -> Tensor[]", tags=_tags)
_library.impl("arrays", _lazy("forward"), "CPU")
_library.impl("arrays_backward", _lazy("backward"), "CPU")
torch.library.register_fake("glassgate::arrays", _lazy("fake_forward"), lib=_library)
torch.library.register_fake("glassgate::arrays_backward", _lazy("fake_backward"), lib=_library)
torch.library.register_autograd("glassgate::arrays", _lazy("gradient"), setup_context=_lazy("save"), lib=_library)
