"""Detects when a cell must be traced again: compares each value that the step may read with its value at tracing."""

import builtins
import dis
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from enum import Enum
from functools import lru_cache, partial
from operator import call, is_
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassgate.cell import Cell, Noise, Parameter
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.purity import TRUSTED, top_package

_IMMUTABLE: tuple[Any, ...] = (type(None), type(...), bool, int, float, complex, str, bytes, range, slice)
_IMMUTABLE += (Enum, PurePath, re.Pattern, torch.dtype, torch.device, logging.Logger, CodeType)
_IMMUTABLE += (Parameter, Noise, Equations, BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)
_IMMUTABLE += (GetSetDescriptorType, MemberDescriptorType)
"""Types of immutable values."""
_ALWAYS_READ = frozenset(
    {"step", "project", "new_state", "gates", "state", "parameters", "noise", "recurrent", "heads"}
)
"""Attributes that a trace reads from every cell, even if no code of the step names them."""
_READERS = frozenset({"getattr", "hasattr", "vars", "__dict__", "eval", "exec", "__getattr__", "__getattribute__"})
"""Names of functions and attributes. Code that uses one of these can read attributes that it does not name."""
_TRANSPARENT = frozenset(
    {"builtins", "abc", "typing", "enum", "collections", "collections.abc", "dataclasses", "types", "numbers"}
    | {"argparse", "fractions", "decimal", "functools", "random", "_random", "torch", "numpy"}
)
"""Library modules whose objects can be watched, because their whole state is in attributes, items and numbers.
`purity.py` refuses draws of random numbers."""
_LIBRARIES = TRUSTED - {"glassgate"}
"""Packages whose code does not change."""
_MAX_ELEMENTS, _MAX_VALUES = 64, 4000
"""The maximum number of elements of a tensor or array that is compared, and of values of one cell."""


class Watch:
    """The attributes, globals, closures and functions that a cell's step may read, each with its current value.

    Attributes:
        refused: a description of the first value that cannot be watched, or None.
        codes: the code of all functions that the step may call.
    """

    refused: str | None

    def __init__(self, cell: Cell) -> None:
        self._names: frozenset[str] = frozenset()
        # A function that is found late may name attributes of an object that has already been visited.
        has_new_names = True
        while has_new_names:
            previous_names, self.refused = self._names, None
            self._groups: list[tuple[Callable[[Any], Any], tuple[Any, ...], tuple[Any, ...]]] = []
            self._descriptions: list[tuple[str, ...]] = []
            self._sizes: list[tuple[Sized, int, str]] = []
            self._contents: list[tuple[Callable[[Any], Any], Any, Any, str]] = []
            self._seen: dict[int, Any] = {}
            self.codes: list[CodeType] = []
            self._visit(cell, "")
            has_new_names = self._names != previous_names
        del self._seen
        self._large_groups = [group for group in self._groups if len(group[1]) > 1]
        single = [(get, keys[0], values[0]) for get, keys, values in self._groups if len(keys) == 1]
        self._single = tuple(zip(*single, strict=True)) or ((), (), ())
        self._sized, self._lengths = [sized for sized, _, _ in self._sizes], [size for _, size, _ in self._sizes]

    def is_unchanged(self) -> bool:
        """Whether all values are unchanged."""
        for get, keys, values in self._large_groups:
            if not all(map(is_, map(get, keys), values)):
                return False
        gets, keys, values = self._single
        if not all(map(is_, map(call, gets, keys), values)) or [*map(len, self._sized)] != self._lengths:
            return False
        return not self._contents or all([read(thing) == content for read, thing, content, _ in self._contents])

    def first_change(self) -> str | None:
        """A description of the first value that has changed; None if all are unchanged."""
        for (get, keys, values), descriptions in zip(self._groups, self._descriptions, strict=True):
            for key, value, where in zip(keys, values, descriptions, strict=True):
                if get(key) is not value:
                    return where
        for sized, size, where in self._sizes:
            if len(sized) != size:
                return where
        return next((where for read, thing, content, where in self._contents if read(thing) != content), None)

    def _watch(self, get: Callable[[Any], Any], keys: Iterable[Any], describe: Callable[[Any], str]) -> None:
        """Watch the value of `get(key)` for each key, and everything that it refers to."""
        keys = tuple(keys)
        values = tuple(map(get, keys))
        if keys:
            self._groups.append((get, keys, values))
            self._descriptions.append(tuple(map(describe, keys)))
        if sum(len(keys) for _, keys, _ in self._groups) > _MAX_VALUES:
            self._refuse(f"more than {_MAX_VALUES:,} values")
            return
        for key, value in zip(keys, values, strict=True):
            self._visit(value, describe(key))

    def _refuse(self, description: str) -> None:
        self.refused = self.refused or description

    def _visit(self, value: Any, where: str) -> None:
        """Watch everything that can change in a value and in the values that it refers to."""
        if isinstance(value, _IMMUTABLE) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        match value:
            case FunctionType():
                self._watch_function(value)
            case MethodType():
                self._visit((value.__func__, value.__self__), where)
            case partial():
                self._visit((value.func, value.args, value.keywords), where)
            case staticmethod() | classmethod():
                self._visit(value.__func__, where)
            case property():
                self._visit(value.fget, where)
            case type():
                self._watch_class(value)
            case ModuleType():
                self._watch_module(value)
            case Tensor():
                self._watch_tensor(value, where)
            case list() | tuple():
                if isinstance(value, list):
                    self._contents.append((_identities, value, _identities(value), where))
                for item in value:
                    self._visit(item, where)
            case set() | frozenset():
                self._contents.append((frozenset, value, frozenset(value), where))
                for item in value:
                    self._visit(item, where)
            case Mapping() if not hasattr(value, "__dict__"):
                self._watch_mapping(value, value, lambda key: f"{where}[{key!r}]", where)
            case _ if "__wrapped__" in getattr(value, "__dict__", {}):
                self._visit(vars(value)["__wrapped__"], where)
            case _ if type(value).__module__ == "numpy" and not callable(value):
                self._watch_array(value, where)
            case _:
                self._watch_instance(value, where)

    def _watch_mapping(self, mapping: Any, keys: Iterable[Any], describe: Callable[[Any], str], where: str) -> None:
        self._sizes.append((mapping, len(mapping), where))
        self._watch(mapping.get, keys, describe)

    def _watch_instance(self, value: Any, where: str) -> None:
        """Watch an instance: the attributes that code may read, and its class."""
        cls, is_cell = type(value), isinstance(value, Cell)
        slots = {name for c in cls.__mro__ for name in _slots(c)}
        if not hasattr(value, "__dict__") and not slots:
            self._refuse(f"{where}, a {cls.__name__}, whose changes cannot be watched")
            return
        for base in cls.__mro__:
            module = base.__module__
            if (
                top_package(module) in _LIBRARIES
                and module not in _TRANSPARENT
                and not issubclass(base, torch.nn.Module)
            ):
                self._refuse(f"{where}, a {cls.__name__}, whose changes cannot be watched")
                return
        reads_any = top_package(cls.__module__) in _LIBRARIES or not _READERS.isdisjoint(self._names)
        reads_any = reads_any or hasattr(cls, "__getattr__") or isinstance(value, Mapping)
        prefix = f"{where}." if where else "attribute "
        if hasattr(value, "__dict__"):
            attributes = vars(value)
            names = [
                name for name in attributes if reads_any or name in self._names or (is_cell and name in _ALWAYS_READ)
            ]
            self._watch_mapping(attributes, names, lambda name: f"{prefix}{name}", where or "its attributes")
        in_slots = [name for name in slots if (reads_any or name in self._names) and hasattr(value, name)]
        self._watch(partial(getattr, value), in_slots, lambda name: f"{prefix}{name}")
        if isinstance(value, dict):
            self._watch_mapping(value, value, lambda key: f"{where}[{key!r}]", where)
        self._watch_class(cls)

    def _watch_class(self, cls: type) -> None:
        """Watch the attributes of a class and its bases that the step may read.

        These are the attributes that the code of the step names and, except in cells, the special methods.
        """
        for c in cls.__mro__:
            is_layer = top_package(c.__module__) == "glassgate" and issubclass(c, torch.nn.Module)
            if c is Cell or is_layer or top_package(c.__module__) in _LIBRARIES:
                continue
            attributes, is_cell = vars(c), issubclass(c, Cell)
            names = [
                name
                for name, value in attributes.items()
                if name in self._names
                or (is_cell and name in _ALWAYS_READ)
                or (name.startswith("__") and isinstance(value, FunctionType) and not is_cell)
            ]
            self._watch_mapping(attributes, names, lambda name, c=c: f"{c.__name__}.{name}", f"class {c.__name__}")  # type: ignore[misc]

    def _watch_module(self, module: ModuleType) -> None:
        if module.__name__ == "numpy.random" or (module.__name__ == "numpy" and "random" in self._names):
            self._refuse("numpy's random numbers, which a kernel would draw once")
        attributes = vars(module)
        if type(module) is not ModuleType and vars(type(module)).keys() & self._names:
            self._refuse(f"{module.__name__}, a module with attributes that are computed")
        elif top_package(module.__name__) not in _LIBRARIES:
            names = attributes if not _READERS.isdisjoint(self._names) else attributes.keys() & self._names
            self._watch(attributes.get, tuple(names), lambda name: f"{module.__name__}.{name}")
        else:
            for name in attributes.keys() & self._names:
                self._watch_library_value(attributes[name], f"{module.__name__}.{name}")

    def _watch_library_value(self, value: Any, where: str) -> None:
        """Watch a value of a library. Functions, classes and constants never change. Other values are refused."""
        if isinstance(value, ModuleType):
            self._visit(value, where)
        elif not (isinstance(value, (*_IMMUTABLE, type, FunctionType, tuple, frozenset)) or callable(value)):
            self._refuse(f"{where}, a {type(value).__name__}, whose changes cannot be watched")

    def _watch_function(self, function: FunctionType) -> None:
        """Watch a function, its globals and its closure. Functions of libraries and of the engines never change."""
        module, name = function.__globals__.get("__name__") or "", function.__qualname__
        names = _names_in(function.__code__)
        if top_package(module) in _LIBRARIES or module == "glassgate.cell" or module.startswith("glassgate.engines"):
            return
        self._names |= names.attributes | (_READERS & names.globals)
        self.codes.append(function.__code__)
        if top_package(module) == "glassgate":
            self._watch(partial(getattr, function), ("__code__",), lambda _: f"the code of {name}")
            return
        attributes = ("__code__", "__defaults__", "__kwdefaults__")
        self._watch(partial(getattr, function), attributes, lambda attribute: f"{attribute.strip('_')} of {name}")
        for variable, closure_cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._watch(_variable, (closure_cell,), lambda _, variable=variable: f"variable {variable} of {name}")  # type: ignore[misc]
        variables = [v for v in names.globals if v in function.__globals__ or not hasattr(builtins, v)]
        self._watch(function.__globals__.get, variables, lambda variable: f"global {variable}")
        for module in names.imports:
            self._visit(sys.modules.get(module), module)

    def _watch_tensor(self, tensor: Tensor, where: str) -> None:
        is_plain = type(tensor) in (Tensor, torch.nn.Parameter) and tensor.device.type == "cpu"
        if not is_plain or tensor.layout != torch.strided:
            self._refuse(f"{where}, a tensor that is not a plain dense tensor on the CPU")
        elif tensor.numel() > _MAX_ELEMENTS:
            self._refuse(f"{where}, a tensor of {tensor.numel():,} numbers, too many to be compared at every call")
        else:
            self._contents.append((_content, tensor, _content(tensor), where))

    def _watch_array(self, array: Any, where: str) -> None:
        if not hasattr(array, "tobytes") or array.dtype.hasobject:
            self._refuse(f"{where}, a numpy.{type(array).__name__} that is not an array of numbers")
        elif array.size > _MAX_ELEMENTS:
            self._refuse(f"{where}, a numpy.{type(array).__name__}, which is too large to be compared at every call")
        else:
            self._contents.append((type(array).tobytes, array, array.tobytes(), where))


class _Names(NamedTuple):
    globals: frozenset[str]
    attributes: frozenset[str]
    imports: frozenset[str]


@lru_cache(4096)
def _names_in(code: CodeType) -> _Names:
    """The names of globals, attributes and imported modules that code and the functions in it read."""
    of_globals, attributes, imports = set(), set(), set()
    for function_code in _all_code(code):
        for instruction in dis.get_instructions(function_code):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                of_globals.add(instruction.argval)
            elif instruction.opname == "IMPORT_NAME":
                imports.add(instruction.argval)
            elif isinstance(instruction.argval, str) and instruction.opname.endswith(("_ATTR", "_METHOD", "_FROM")):
                attributes.add(instruction.argval)
    return _Names(frozenset(of_globals), frozenset(attributes), frozenset(imports))


def globals_of(code: CodeType) -> frozenset[str]:
    """The names of globals that code reads."""
    return _names_in(code).globals


def _all_code(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _all_code(constant)


def _slots(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def _variable(closure_cell: CellType) -> Any:
    """The value of a variable of an enclosing function; None if it has no value yet."""
    try:
        return closure_cell.cell_contents
    except ValueError:
        return None


def _identities(items: list[Any]) -> list[int]:
    return [*map(id, items)]


def _content(tensor: Tensor) -> tuple[Any, ...]:
    """The properties and the exact numbers of a small tensor."""
    return (tensor.requires_grad, tensor.dtype, tensor.shape, tensor.detach().reshape(-1).view(torch.uint8).tolist())
