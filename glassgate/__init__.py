"""Glassgate: recurrent layers for PyTorch with readable gates and states, at the speed of fused kernels."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING

from glassgate import display
from glassgate.extras import MissingPackageFinder

if TYPE_CHECKING:
    from glassgate import blocks as blocks
    from glassgate import cells as cells
    from glassgate import constraints as constraints
    from glassgate import dynamics as dynamics
    from glassgate import functional as functional
    from glassgate import gates as gates
    from glassgate import init as init
    from glassgate.cell import Cell as Cell
    from glassgate.cell import Parameter as Parameter
    from glassgate.cell_axes import Gate as Gate
    from glassgate.cell_axes import State as State
    from glassgate.checking import check as check
    from glassgate.constraints import constrain as constrain
    from glassgate.conversion import convert as convert
    from glassgate.conversion import restore as restore
    from glassgate.engines.cell_json import cell_from_json as cell_from_json
    from glassgate.engines.cell_json import cell_to_json as cell_to_json
    from glassgate.engines.choose import EngineError as EngineError
    from glassgate.engines.choose import engine as engine
    from glassgate.engines.source import source as source
    from glassgate.export.audio import from_nam as from_nam
    from glassgate.export.audio import from_rtneural as from_rtneural
    from glassgate.export.audio import to_nam as to_nam
    from glassgate.export.audio import to_rtneural as to_rtneural
    from glassgate.export.c_model import to_c as to_c
    from glassgate.export.onnx_import import from_onnx as from_onnx
    from glassgate.export.onnx_model import to_onnx as to_onnx
    from glassgate.glass.ablate import ablate as ablate
    from glassgate.glass.draw import draw as draw
    from glassgate.glass.edit import edit as edit
    from glassgate.glass.edit import hold as hold
    from glassgate.glass.edit import patch as patch
    from glassgate.glass.edit import replace as replace
    from glassgate.glass.edit import scale as scale
    from glassgate.glass.record import record as record
    from glassgate.layers.cells import GRUCell as GRUCell
    from glassgate.layers.cells import LSTMCell as LSTMCell
    from glassgate.layers.cells import RecurrentCell as RecurrentCell
    from glassgate.layers.cells import RNNCell as RNNCell
    from glassgate.layers.drop_in import GRU as GRU
    from glassgate.layers.drop_in import LSTM as LSTM
    from glassgate.layers.drop_in import RNN as RNN
    from glassgate.layers.explain import explain as explain
    from glassgate.layers.stack import Recurrent as Recurrent
    from glassgate.sessions.session import freeze as freeze
    from glassgate.sessions.session import load_session as load_session
    from glassgate.shapes import ShapeError as ShapeError

__version__ = "0.1.0"

# The module that defines each public name; "glassgate" for submodules. A module is imported when one of its names is
# first used. Therefore the command line starts without torch.
_MODULES = {
    "ablate": "glassgate.glass.ablate",
    "blocks": "glassgate",
    "Cell": "glassgate.cell",
    "cell_from_json": "glassgate.engines.cell_json",
    "cell_to_json": "glassgate.engines.cell_json",
    "cells": "glassgate",
    "check": "glassgate.checking",
    "constrain": "glassgate.constraints",
    "constraints": "glassgate",
    "convert": "glassgate.conversion",
    "draw": "glassgate.glass.draw",
    "dynamics": "glassgate",
    "edit": "glassgate.glass.edit",
    "engine": "glassgate.engines.choose",
    "EngineError": "glassgate.engines.choose",
    "explain": "glassgate.layers.explain",
    "freeze": "glassgate.sessions.session",
    "from_nam": "glassgate.export.audio",
    "from_onnx": "glassgate.export.onnx_import",
    "from_rtneural": "glassgate.export.audio",
    "functional": "glassgate",
    "Gate": "glassgate.cell_axes",
    "gates": "glassgate",
    "GRU": "glassgate.layers.drop_in",
    "GRUCell": "glassgate.layers.cells",
    "hold": "glassgate.glass.edit",
    "init": "glassgate",
    "load_session": "glassgate.sessions.session",
    "LSTM": "glassgate.layers.drop_in",
    "LSTMCell": "glassgate.layers.cells",
    "Parameter": "glassgate.cell",
    "patch": "glassgate.glass.edit",
    "record": "glassgate.glass.record",
    "Recurrent": "glassgate.layers.stack",
    "RecurrentCell": "glassgate.layers.cells",
    "replace": "glassgate.glass.edit",
    "restore": "glassgate.conversion",
    "RNN": "glassgate.layers.drop_in",
    "RNNCell": "glassgate.layers.cells",
    "scale": "glassgate.glass.edit",
    "ShapeError": "glassgate.shapes",
    "source": "glassgate.engines.source",
    "State": "glassgate.cell_axes",
    "to_c": "glassgate.export.c_model",
    "to_nam": "glassgate.export.audio",
    "to_onnx": "glassgate.export.onnx_model",
    "to_rtneural": "glassgate.export.audio",
}

__all__ = list(_MODULES)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = _MODULES[name]
        value = import_module(f"{module}.{name}") if module == __name__ else getattr(import_module(module), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted([*__all__, "__version__"])


def _html(drawable: object) -> str:
    """Return the HTML of a cell or layer for notebooks."""
    html: str = import_module("glassgate.glass.diagrams.notebook").html(drawable)
    return html


display.formatter = _html
sys.meta_path.append(MissingPackageFinder())


class _ImportHook(MetaPathFinder):
    """Imports the module `follower` immediately after the module `trigger`."""

    def __init__(self, trigger: str, follower: str) -> None:
        self._trigger, self._follower = trigger, follower

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == self._trigger else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_import(module: ModuleType) -> None:
            execute(module)
            sys.meta_path.remove(self)
            import_module(self._follower)

        spec.loader.exec_module = execute_and_import  # type: ignore[method-assign]
        return spec


# Importing torch registers the custom operators, so that torch can load exported programs that use them. Importing
# torch's ONNX exporter registers their translation to ONNX.
for _trigger, _follower in (
    ("torch", "glassgate.engines.torch_op.schema"),
    ("torch.onnx._internal.exporter._torchlib.ops", "glassgate.export.torch_onnx"),
):
    if _trigger in sys.modules:
        import_module(_follower)
    else:
        sys.meta_path.insert(0, _ImportHook(_trigger, _follower))
