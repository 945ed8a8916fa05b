"""Guards for torch.compile: a compiled graph is reused only if the values that a cell's step reads are unchanged.

A compiled graph contains the equations of the cell as text. torch.compile does not trace the step itself. It adds
guards only for values that traced code reads. Therefore it traces `add_guards`, which reads the numbers and strings in
the attributes, class attributes and globals of a cell and its inner cells.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from types import CodeType, FunctionType, ModuleType
from typing import Any

from torch.nn import Module

from glassgate.cell import Cell
from glassgate.engines.symbolic.code_names import globals_of
from glassgate.engines.traced_cells import assume_constant

_Path = tuple[tuple[bool, Any], ...]
"""The path from a cell to a value. Each item is an attribute (True, name) or a key of a container (False, key)."""
_SCALARS = (bool, int, float, str)
_MAX_DEPTH, _MAX_VALUES = 5, 500
"""The maximum depth of the search for values with a guard, and the maximum number of values that it visits."""


def add_guards(cell: Cell) -> tuple[CodeType, ...]:
    """Read all values, so that torch.compile adds guards for them.

    Returns:
        The code objects of the steps of the cell and of its inner cells.
    """
    for path, value in _values(cell):
        if _value_at(cell, path) != value:
            raise AssertionError("a value changed while it was read")
    for path, scalars in _globals(cell):
        for name, value in scalars:
            if type(_value_at(cell, path)).step.__globals__[name] != value:
                raise AssertionError("a global changed while it was read")
    return tuple([type(_value_at(cell, path)).step.__code__ for path, _ in _globals(cell)])


def _value_at(cell: Any, path: _Path) -> Any:
    value = cell
    for is_attribute, key in path:
        value = getattr(value, key) if is_attribute else value[key]
    return value


@assume_constant
def _values(cell: Cell) -> tuple[tuple[_Path, Any], ...]:
    """The numbers and strings in the attributes of a cell and of its class, each with its path. NaN is omitted."""
    return tuple(
        (path, value)
        for path, value in islice(_reachable_values(cell, (), 0), _MAX_VALUES)
        if type(value) in _SCALARS and value == value
    )


@assume_constant
def _globals(cell: Cell) -> tuple[tuple[_Path, tuple[tuple[str, Any], ...]], ...]:
    """For the cell and each inner cell, the numbers and strings that its step reads from globals."""
    by_cell = []
    for path, inner in ((), cell), *islice(_reachable_values(cell, (), 0), _MAX_VALUES):
        if isinstance(inner, Cell) and isinstance(step := getattr(type(inner), "step", None), FunctionType):
            values = {name: step.__globals__.get(name) for name in sorted(globals_of(step.__code__))}
            by_cell.append((path, tuple((name, v) for name, v in values.items() if type(v) in _SCALARS and v == v)))
    return tuple(by_cell)


def _reachable_values(value: Any, path: _Path, depth: int) -> Iterator[tuple[_Path, Any]]:
    """Yield all values that can be reached from a value by attributes and keys, each with its path."""
    children: list[tuple[tuple[bool, Any], Any]] = []
    if isinstance(value, list | tuple):
        children = [((False, k), v) for k, v in enumerate(value)]
    elif isinstance(value, dict):
        children = [((False, key), v) for key, v in value.items() if isinstance(key, str | int)]
    elif hasattr(value, "__dict__") and not isinstance(value, type | FunctionType | ModuleType | Module | Mapping):
        names = dict.fromkeys(vars(value))
        names |= {name: None for c in type(value).__mro__ for name, v in vars(c).items() if type(v) in _SCALARS}
        children = [((True, name), getattr(value, name)) for name in names if not name.startswith("__")]
    for item, child in children:
        yield (*path, item), child
        if depth < _MAX_DEPTH:
            yield from _reachable_values(child, (*path, item), depth + 1)
