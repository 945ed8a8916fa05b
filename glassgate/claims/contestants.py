"""The cells that are compared, each with as many units as a number of parameters allows."""

import importlib.util
from pathlib import Path
from types import ModuleType

import glassgate as gg
from glassgate.tasks.errors import UserError

CELLS: dict[str, type[gg.Cell]] = {
    "rnn": gg.cells.RNN,
    "gru": gg.cells.GRU,
    "lstm": gg.cells.LSTM,
    "peephole": gg.cells.PeepholeLSTM,
    "mgu": gg.cells.MGU,
    "janet": gg.cells.JANET,
}
"""By the name on the command line; another is `FILE.py:Class`."""


def cell_of(name: str) -> gg.Cell:
    """The cell of that name.

    Raises:
        UserError: no such cell, no such file, or what the file names is no cell
    """
    if name in CELLS:
        return CELLS[name]()
    file, colon, kind = name.rpartition(":")
    if not colon or not file.endswith(".py"):
        raise UserError(f"cells must be of {', '.join(CELLS)}, or FILE.py:Class for one of your own, got {name!r}")
    found = getattr(_module(Path(file)), kind, None)
    if not (isinstance(found, type) and issubclass(found, gg.Cell)):
        what = "nothing of that name" if found is None else f"{type(found).__name__} {kind}"
        raise UserError(f"{file}: {kind} must be a subclass of glassgate.Cell, got {what}")
    try:
        return found()
    except TypeError as error:
        raise UserError(f"{name}: the cell must be made without arguments, got {error}") from None


def _module(file: Path) -> ModuleType:
    if not file.is_file():
        raise UserError(f"{file}: no such file; give the Python file that defines the cell")
    spec = importlib.util.spec_from_file_location(f"glassgate_cell_of_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's own file raises is told as it is
        raise UserError(f"{file}: cannot be loaded: {type(error).__name__}: {error}") from error
    return module


def hidden_size(cell: gg.Cell, features: int, parameters: int) -> int:
    """The most units with which one layer of the cell has no more than so many parameters.

    Raises:
        UserError: not even one unit fits
    """
    units = 0
    while _count(cell, features, units + cell.heads) <= parameters:
        units += cell.heads
    if units == 0:
        needed = _count(cell, features, cell.heads)
        raise UserError(
            f"--parameters must be {needed} or more for one unit of {type(cell).__name__}, got {parameters}"
        )
    return units


def _count(cell: gg.Cell, features: int, units: int) -> int:
    total = 0
    for shape in cell.shapes(features, units).values():
        product = 1
        for extent in shape:
            product *= extent
        total += product
    return total
