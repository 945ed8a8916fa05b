"""Guards for torch.compile: a compiled graph is reused only if the values that a cell's step reads are unchanged.

A compiled graph contains the equations of the cell as text. The compiler adds a guard for each value that the traced
code reads. It traces the code in this module, which reads the attributes, class attributes and globals that the step
of the cell reads.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from types import CodeType, FunctionType, ModuleType
from typing import Any

from torch.nn import Module

from glassgate.cell import Cell
from glassgate.engines.meaning import constant
from glassgate.engines.symbolic.watch import globals_of

_Path = tuple[tuple[bool, Any], ...]
"""The path from a cell to a value: steps by attribute name (True, name) or by key (False, key)."""
_SCALARS = (bool, int, float, str)
_DEPTH, _MOST_VALUES = 5, 500


def guarded(cell: Cell) -> tuple[CodeType, ...]:
    """The code objects of the steps of the cell and of its inner cells. Tracing this adds guards for all values."""
    for path, value in _values(cell):
        if _at(cell, path) != value:
            raise AssertionError("a value changed while it was read")
    for path, names in _globals(cell):
        for name, value in names:
            if type(_at(cell, path)).step.__globals__[name] != value:
                raise AssertionError("a global changed while it was read")
    return tuple([type(_at(cell, path)).step.__code__ for path, _ in _globals(cell)])


def _at(cell: Any, path: _Path) -> Any:
    value = cell
    for by_name, key in path:
        value = getattr(value, key) if by_name else value[key]
    return value


@constant
def _values(cell: Cell) -> tuple[tuple[_Path, Any], ...]:
    """The numbers and strings in the attributes of a cell and of its class."""
    return tuple(
        (path, value)
        for path, value in islice(_reachable(cell, (), 0), _MOST_VALUES)
        if type(value) in _SCALARS and value == value
    )


@constant
def _globals(cell: Cell) -> tuple[tuple[_Path, tuple[tuple[str, Any], ...]], ...]:
    """For the cell and each inner cell, the numbers and strings that its step reads from globals."""
    scalars = []
    for path, each in ((), cell), *islice(_reachable(cell, (), 0), _MOST_VALUES):
        if isinstance(each, Cell) and isinstance(step := getattr(type(each), "step", None), FunctionType):
            values = {name: step.__globals__.get(name) for name in sorted(globals_of(step.__code__))}
            scalars.append((path, tuple((name, v) for name, v in values.items() if type(v) in _SCALARS and v == v)))
    return tuple(scalars)


def _reachable(value: Any, path: _Path, depth: int) -> Iterator[tuple[_Path, Any]]:
    """All values that can be reached from a value by attributes and keys, each with its path."""
    inside: list[tuple[tuple[bool, Any], Any]] = []
    if isinstance(value, list | tuple):
        inside = [((False, k), v) for k, v in enumerate(value)]
    elif isinstance(value, dict):
        inside = [((False, key), v) for key, v in value.items() if isinstance(key, str | int)]
    elif hasattr(value, "__dict__") and not isinstance(value, type | FunctionType | ModuleType | Module | Mapping):
        names = dict.fromkeys(vars(value))
        names |= {name: None for c in type(value).__mro__ for name, v in vars(c).items() if type(v) in _SCALARS}
        inside = [((True, name), getattr(value, name)) for name in names if not name.startswith("__")]
    for step, each in inside:
        yield (*path, step), each
        if depth < _DEPTH:
            yield from _reachable(each, (*path, step), depth + 1)
