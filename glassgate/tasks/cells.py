"""The `cell` option: a name of `glassgate.cells`, a class in a Python file, or a `gg.Cell` object."""

import importlib.util
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from glassgate.tasks.errors import OptionError

if TYPE_CHECKING:
    import glassgate as gg

# The lower-case names of `glassgate.cells`, listed here so that help is available before torch is loaded.
CELLS = (
    "activatedgru", "activatedlstm", "cifg", "clippedlstm", "ctrnn", "gru", "grup", "gruv3", "indrnn", "janet",
    "layernormgru", "layernormlstm", "lstm", "mgu", "mingru", "minlstm", "peepholelstm", "rnn", "slstm",
)  # fmt: skip

RENAMED = {"gruv1": "gruv3"}
"""Former names of cells, with their present names."""

HELP = "lstm, gru, rnn, ..., or FILE.py:Class"


def check(value: Any) -> "str | gg.Cell":
    """Check a value of the option, and return it as a lower-case name, `FILE.py:Class`, or a cell made of equations.

    Args:
        value: a name in any case, `FILE.py:Class`, a `gg.Cell` object, or a result of `as_json`

    Raises:
        OptionError: any other value, or a cell that cannot be stored
    """
    if isinstance(value, str):
        name = value.lower()
        if name in RENAMED:
            warnings.warn(f"cell: {name} is now {RENAMED[name]}; use {RENAMED[name]}", FutureWarning, stacklevel=2)
            return RENAMED[name]
        if name in CELLS:
            return name
        file, _, class_name = value.rpartition(":")
        if not file.endswith(".py") or not class_name.isidentifier():
            raise OptionError(f"cell: expected one of {', '.join(CELLS)}, or FILE.py:Class, got {value!r}")
        return value

    import glassgate as gg

    try:
        if isinstance(value, Mapping):
            return gg.cell_from_json(json.dumps(value))
        return gg.cell_from_json(gg.cell_to_json(value))
    except ValueError as error:
        raise OptionError(f"cell: {error}") from None
    except TypeError as error:
        reason = str(error).removesuffix("; it runs on the reference engine")
        raise OptionError(f"cell: expected a name, FILE.py:Class or a gg.Cell that can be stored: {reason}") from None


def as_json(value: "str | gg.Cell") -> Any:
    """Return the JSON form of the option's value: a name, or the equations of the cell."""
    if isinstance(value, str):
        return value

    import glassgate as gg

    return json.loads(gg.cell_to_json(value))


def build_cell(value: "str | gg.Cell") -> "gg.Cell":
    """Return the cell for a value of the option, without executing a file.

    Raises:
        OptionError: the value names a file
    """
    import glassgate as gg

    if isinstance(value, gg.Cell):
        return value
    types: dict[str, type[gg.Cell]] = {each.lower(): getattr(gg.cells, each) for each in gg.cells.__all__}
    if value not in types:
        raise OptionError(f"cell: expected the equations of {value}, got only its name; train again")
    return types[value]()


def from_file(location: str) -> "gg.Cell":
    """Execute a Python file and return a cell of a class in it.

    Args:
        location: `FILE.py:Class`

    Raises:
        OptionError: the file is missing or fails, has no such class, or the class needs arguments
    """
    import glassgate as gg

    file, _, class_name = location.rpartition(":")
    cell_type = getattr(_load_module(Path(file)), class_name, None)
    if not (isinstance(cell_type, type) and issubclass(cell_type, gg.Cell)):
        got = "nothing of that name" if cell_type is None else f"{type(cell_type).__name__} {class_name}"
        raise OptionError(f"{file}: {class_name} must be a subclass of glassgate.Cell, got {got}")
    try:
        return cell_type()
    except TypeError as error:
        raise OptionError(f"{location}: the cell must be made without arguments, got {error}") from None


def _load_module(file: Path) -> ModuleType:
    if not file.is_file():
        raise OptionError(f"{file}: no such file; give the Python file that defines the cell")
    spec = importlib.util.spec_from_file_location(f"glassgate_cell_of_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the user's file may raise anything
        raise OptionError(f"{file}: cannot be loaded: {type(error).__name__}: {error}") from error
    return module
