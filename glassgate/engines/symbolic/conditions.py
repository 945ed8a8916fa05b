"""Conditions on the values that a step reads, compiled to one function that takes well below a microsecond."""

from abc import get_cache_token
from collections.abc import Callable
from operator import is_
from types import CellType
from typing import Any

import torch
from torch import Tensor

from glassgate.engines.torch_names import has_global_hook

_FUNCTION = """
def hold({parameters}):
    try:
        return {condition}
    except (KeyError, AttributeError, ValueError, RuntimeError):
        return False  # a value was deleted, or another thread changes it in this moment
"""


class Conditions:
    """Conditions that hold when they are added, as Python expressions.

    Args:
        root: the cell, which is not stored.
    """

    def __init__(self, root: Any) -> None:
        self._root, self._values, self._names = id(root), dict[str, Any](), dict[int, str]()
        self._conditions: dict[str, str] = {}
        self._compiled: Callable[[Any], bool] | None = None
        self.add("type({cell}) is {cls}", "the class of the cell", cell=root, cls=type(root))

    def __len__(self) -> int:
        return len(self._conditions)

    def add(self, condition: str, where: str, **values: Any) -> None:
        """Add a condition.

        Args:
            condition: an expression, with the names of the values in braces.
            where: a description of the value that the condition compares.
            values: the values, which are stored unless a value is the cell.
        """
        names = {name: self._name(value) for name, value in values.items()}
        self._conditions.setdefault(condition.format(**names), where)

    def _name(self, value: Any) -> str:
        if id(value) == self._root:
            return "cell"
        name = self._names.setdefault(id(value), f"v{len(self._names)}")
        self._values[name] = value
        return name

    @property
    def hold(self) -> Callable[[Any], bool]:
        """A function of the cell that returns whether all conditions still hold."""
        if self._compiled is None:
            self._compiled = self._compile(" and ".join(self._conditions))
        return self._compiled

    def first_change(self, cell: Any) -> str | None:
        """The description of the first condition that no longer holds; None if all hold."""
        if self.hold(cell):
            return None
        for condition, where in self._conditions.items():
            if not self._compile(condition)(cell):
                return where
        return None  # another thread has undone its change

    def _compile(self, condition: str) -> Callable[[Any], bool]:
        parameters, names = ", ".join(["cell", *(f"{name}={name}" for name in self._values)]), {**self._values}
        exec(_FUNCTION.format(parameters=parameters, condition=condition), _GLOBALS, names)
        function: Callable[[Any], bool] = names["hold"]
        return function


def _is_empty(variable: CellType) -> bool:
    """Whether a variable of an enclosing function has no value yet."""
    try:
        return variable.cell_contents is None and False
    except ValueError:
        return True


def _is_unset(slot: Any, value: Any) -> bool:
    """Whether a slot of an instance has no value."""
    try:
        return slot.__get__(value) is None and False
    except AttributeError:
        return True


def tensor_content(tensor: Tensor) -> tuple[Any, ...]:
    """The properties and the exact numbers of a small tensor."""
    numbers = tensor.detach().reshape(-1).view(torch.uint8).tolist()
    return tensor.requires_grad, tensor.dtype, tensor.shape, tensor.stride(), numbers


def array_content(array: Any) -> tuple[Any, ...]:
    """The properties and the exact numbers of a small array of NumPy."""
    return array.dtype, array.shape, array.strides, array.tobytes()


_GLOBALS = {
    "all": all,
    "array_content": array_content,
    "get_cache_token": get_cache_token,
    "get_default_dtype": torch.get_default_dtype,
    "has_global_hook": has_global_hook,
    "is_": is_,
    "is_empty": _is_empty,
    "is_unset": _is_unset,
    "len": len,
    "map": map,
    "tensor_content": tensor_content,
    "type": type,
}
