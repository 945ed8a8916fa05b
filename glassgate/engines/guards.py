"""What torch.compile looks at before it uses a compiled graph again: the values that the equations in it were made of.

A compiled graph holds equations as text. The compiler guards whatever value the code that it traces reads, so that code
here reads the attributes, class attributes and globals of a cell's step.
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
"""How a value is reached from a cell: by attributes (True) and by keys (False)."""
_NUMBERS = (bool, int, float, str)
_DEPTH, _MOST = 5, 500


def guarded(cell: Cell) -> tuple[CodeType, ...]:
    """The code of the cell's steps; where this is compiled, the compiler looks at it and at all values again."""
    for path, value in _values(cell):
        if _at(cell, path) != value:
            raise AssertionError("a value changed while it was looked at")
    for path, names in _of_globals(cell):
        for name, value in names:
            if type(_at(cell, path)).step.__globals__[name] != value:
                raise AssertionError("a global changed while it was looked at")
    return tuple([type(_at(cell, path)).step.__code__ for path, _ in _of_globals(cell)])


def _at(cell: Any, path: _Path) -> Any:
    value = cell
    for by_name, key in path:
        value = getattr(value, key) if by_name else value[key]
    return value


@constant
def _values(cell: Cell) -> tuple[tuple[_Path, Any], ...]:
    """The numbers and names in a cell's attributes and those of its class."""
    return tuple(
        (path, value) for path, value in islice(_all(cell, (), 0), _MOST) if type(value) in _NUMBERS and value == value
    )


@constant
def _of_globals(cell: Cell) -> tuple[tuple[_Path, tuple[tuple[str, Any], ...]], ...]:
    """For the cell and each cell in it, the numbers and names that its step takes from globals."""
    found = []
    for path, each in ((), cell), *islice(_all(cell, (), 0), _MOST):
        if isinstance(each, Cell) and isinstance(step := getattr(type(each), "step", None), FunctionType):
            numbers = {name: step.__globals__.get(name) for name in sorted(globals_of(step.__code__))}
            found.append((path, tuple((name, v) for name, v in numbers.items() if type(v) in _NUMBERS and v == v)))
    return tuple(found)


def _all(value: Any, path: _Path, depth: int) -> Iterator[tuple[_Path, Any]]:
    """Everything in a value, with the way to it."""
    inside: list[tuple[tuple[bool, Any], Any]] = []
    if isinstance(value, list | tuple):
        inside = [((False, k), v) for k, v in enumerate(value)]
    elif isinstance(value, dict):
        inside = [((False, key), v) for key, v in value.items() if isinstance(key, str | int)]
    elif hasattr(value, "__dict__") and not isinstance(value, type | FunctionType | ModuleType | Module | Mapping):
        names = dict.fromkeys(vars(value))
        names |= {name: None for c in type(value).__mro__ for name, v in vars(c).items() if type(v) in _NUMBERS}
        inside = [((True, name), getattr(value, name)) for name in names if not name.startswith("__")]
    for step, each in inside:
        yield (*path, step), each
        if depth < _DEPTH:
            yield from _all(each, (*path, step), depth + 1)
