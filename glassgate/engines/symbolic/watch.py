"""Detects when a cell must be traced again: compares each value that the step may read with its value at tracing.

A value that a step may read is either constant, or conditions compare it at each call, or the cell is refused. Whatever
this module does not know is refused.
"""

import logging
import sys
from abc import ABCMeta, get_cache_token
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, cast

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines.symbolic.code_names import READERS, all_code, names_in
from glassgate.engines.symbolic.conditions import Conditions, array_content, tensor_content
from glassgate.engines.symbolic.known_types import (
    ALWAYS_READ,
    CONSTANT,
    CONSTRUCTION,
    CONTAINERS,
    DESCRIPTIONS,
    PURE,
    defines,
    has_known_state,
    is_constant_class,
)
from glassgate.engines.symbolic.libraries import (
    class_attributes,
    method_resolution_order,
    module_attributes,
    module_of_class,
    package_of,
    top_package,
    type_name,
)
from glassgate.engines.torch_names import has_global_hook

_IN_GRAPHS = ("torch", "numpy", "glassgate")
"""Packages whose classes a step may use."""
_TENSOR_STATE = frozenset({"grad", "_grad", "_version", "grad_fn", "_base", "data_ptr", "is_leaf", "_backward_hooks"})
"""Attributes of tensors that change although the properties and numbers of the tensor do not."""
_MAX_ELEMENTS, _MAX_CONDITIONS = 64, 4000
"""The maximum number of elements of a tensor or array that is compared, and of conditions of one cell."""


class Watch:
    """The attributes, globals, closures and functions that a cell's step may read, each with its current value.

    Attributes:
        conditions: hold while all values are unchanged.
        refused: a description of the first value that cannot be watched, or None.
        codes: the code of all functions that the step may call.
    """

    conditions: Conditions
    refused: str | None

    def __init__(self, cell: Cell) -> None:
        self._names: frozenset[str] = frozenset()
        # A function that is found late may name attributes of an object that has already been visited.
        has_new_names = True
        while has_new_names:
            previous_names, self.refused, self.conditions = self._names, None, Conditions(cell)
            self._seen: dict[int, Any] = {}
            self._seen_classes: set[tuple[int, bool]] = set()
            self.codes: list[CodeType] = []
            self._visit(cell, "")
            has_new_names = self._names != previous_names
        del self._seen, self._seen_classes
        self._known_code = {id(code) for function_code in self.codes for code in all_code(function_code)}

    def contains(self, code: CodeType) -> bool:
        """Whether the values that this code reads are watched."""
        return id(code) in self._known_code

    def _refuse(self, description: str) -> None:
        self.refused = self.refused or description

    def _refuse_value(self, value: Any, where: str) -> None:
        self._refuse(f"{where}, a {type_name(type(value))}, whose changes cannot be watched")

    def _reads_any(self) -> bool:
        """Whether the code of the step can read attributes that it does not name."""
        return not READERS.isdisjoint(self._names)

    def _visit(self, value: Any, where: str) -> None:
        """Watch everything that can change in a value and in the values that it refers to."""
        cls = type(value)
        if cls in CONSTANT or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if len(self.conditions) > _MAX_CONDITIONS:
            self._refuse(f"more than {_MAX_CONDITIONS:,} values")
        elif cls in _VISITORS:
            _VISITORS[cls](self, value, where)
        elif issubclass(cls, type):
            self._visit_class(value, where, constructs=True)
        elif issubclass(cls, ModuleType):
            self._visit_module(value, where)
        elif issubclass(cls, Tensor):
            self._visit_tensor(value, where)
        elif top_package(module_of_class(cls)) == "numpy":
            self._visit_array(value, where)
        else:
            self._visit_instance(value, where)

    def _watch(self, attributes: Any, names: Iterable[str], describe: Callable[[str], str]) -> None:
        """Watch items of a dict by name, and everything that they refer to."""
        for name in names:
            value, where = attributes[name], describe(name)
            self.conditions.add(f"{{attributes}}[{name!r}] is {{value}}", where, attributes=attributes, value=value)
            self._visit(value, where)

    def _watch_attributes(self, value: Any, names: Iterable[str], where: str) -> None:
        """Watch attributes that Python itself stores, such as the code of a function."""
        for name in names:
            content = getattr(value, name)
            self.conditions.add(f"{{value}}.{name} is {{content}}", where, value=value, content=content)
            self._visit(content, where)

    def _visit_container(self, value: Any, where: str) -> None:
        """Watch the items of a list, tuple, set or dict, or of an instance of a subclass, in their order."""
        base = next(base for base in CONTAINERS if issubclass(type(value), base))
        items = (*base.__iter__(value),)
        if base not in (tuple, frozenset):
            condition = f"{{length}}({{value}}) == {len(items)} and all(map(is_, {{iterate}}({{value}}), {{items}}))"
            self.conditions.add(condition, where, length=base.__len__, iterate=base.__iter__, value=value, items=items)
        for item in items:
            self._visit(item, where)
        if read := getattr(base, "values", None):
            values = (*read(value),)
            self.conditions.add(
                "all(map(is_, {read}({value}), {values}))", where, read=read, value=value, values=values
            )
            for key, item in zip(items, values, strict=True):
                self._visit(item, f"{where}[{key!r}]" if type(key) in CONSTANT else where)

    def _visit_instance(self, value: Any, where: str) -> None:
        """Watch an instance: the attributes that code may read, its items, and its class."""
        cls = type(value)
        bases, module = method_resolution_order(cls), module_of_class(cls)
        if not all(map(has_known_state, bases)) or defines(bases, "__getattribute__"):
            self._refuse_value(value, where)
            return
        if any(base in CONTAINERS for base in bases):
            self._visit_container(value, where)
        if not issubclass(cls, Cell):
            self.conditions.add("type({value}) is {cls}", f"the class of {where}", value=value, cls=cls)
        if issubclass(cls, torch.nn.Module):
            if has_global_hook():
                self._refuse(f"{where}, a module with global hooks")
            self.conditions.add("not has_global_hook()", "the global hooks of modules")
        is_of_library = bool(module) and top_package(module) != "glassgate" and cls is not logging.Logger
        is_read_by_library = is_of_library or issubclass(cls, torch.nn.Module | Enum)
        reads_any = is_read_by_library or self._reads_any() or defines(bases, "__getattr__")
        self._watch_instance_attributes(value, where, reads_any)
        self._visit_class(cls, where)

    def _watch_instance_attributes(self, value: Any, where: str, reads_any: bool) -> None:
        prefix, is_cell = f"{where}." if where else "attribute ", issubclass(type(value), Cell)

        def is_read(name: str) -> bool:
            return reads_any or name in self._names or (is_cell and name in ALWAYS_READ)

        for base in method_resolution_order(type(value)):
            for name, descriptor in class_attributes(base).items():
                if name == "__dict__" and type(descriptor) not in (GetSetDescriptorType, MemberDescriptorType):
                    self._refuse_value(value, where)
                elif name == "__dict__":
                    attributes = descriptor.__get__(value)
                    self.conditions.add("{value}.__dict__ is {attributes}", where, value=value, attributes=attributes)
                    keys = (*attributes,)
                    at = where or "its attributes"
                    self.conditions.add("(*{attributes},) == {keys}", at, attributes=attributes, keys=keys)
                    self._watch(attributes, filter(is_read, keys), lambda name: f"{prefix}{name}")
                elif type(descriptor) is MemberDescriptorType and is_read(name):
                    self._watch_slot(value, descriptor, f"{prefix}{name}")

    def _watch_slot(self, value: Any, slot: Any, where: str) -> None:
        try:
            content = slot.__get__(value)
        except AttributeError:
            self.conditions.add("is_unset({slot}, {value})", where, slot=slot, value=value)
            return
        self.conditions.add("{slot}.__get__({value}) is {content}", where, slot=slot, value=value, content=content)
        self._visit(content, where)

    def _visit_class(self, cls: type, where: str, constructs: bool = False) -> None:
        """Watch the attributes of a class and its bases that the step may read, and its metaclass.

        These are the attributes that the code of the step names, and the special methods.

        Args:
            cls: the class.
            where: a description.
            constructs: whether the step may also call the methods in `CONSTRUCTION`.
        """
        module, metaclass, bases = module_of_class(cls), type(cls), method_resolution_order(cls)
        if (id(cls), constructs) in self._seen_classes:
            return
        self._seen_classes.add((id(cls), constructs))
        if issubclass(metaclass, ABCMeta):
            self.conditions.add(f"get_cache_token() == {get_cache_token()}", "the registered subclasses of a class")
        if is_constant_class(cls):
            if top_package(module) not in _IN_GRAPHS and module not in PURE and BaseException not in bases:
                self._refuse(f"{where}, a class of {module}, whose instances may change")
            return
        if defines(method_resolution_order(metaclass), "__getattribute__"):
            self._refuse_value(cls, where)
            return
        if not module:
            self.conditions.add("{cls}.__mro__ is {bases}", f"the bases of {where or 'the cell'}", cls=cls, bases=bases)
        if not is_constant_class(metaclass):
            self.conditions.add("type({cls}) is {meta}", f"the metaclass of {where}", cls=cls, meta=metaclass)
            self._visit_class(metaclass, where, True)
        if issubclass(cls, torch.nn.Module | torch.autograd.Function):
            self._names |= {"forward"}
        for base in bases:
            if base is not Cell and not is_constant_class(base):
                self._watch_class_attributes(base, issubclass(cls, Cell), constructs or issubclass(cls, Enum))

    def _watch_class_attributes(self, cls: type, is_cell: bool, reads_any: bool) -> None:
        attributes, name = class_attributes(cls), type_name(cls)
        keys = (*attributes,)
        self.conditions.add("(*{attributes},) == {keys}", f"class {name}", attributes=attributes, keys=keys)
        read = [
            key
            for key in keys
            if key in self._names
            or (is_cell and key in ALWAYS_READ)
            or (key.startswith("__") and key not in DESCRIPTIONS and (reads_any or key not in CONSTRUCTION))
            or (reads_any and issubclass(cls, Enum) and key not in DESCRIPTIONS)
        ]
        self._watch(attributes, read, lambda key: f"{name}.{key}")

    def _visit_module(self, module: ModuleType, where: str) -> None:
        attributes = module_attributes(module)
        package, name = package_of(attributes), str(attributes.get("__name__"))
        if name == "numpy.random" or (name == "numpy" and "random" in self._names):
            self._refuse("numpy's random numbers, which a kernel would draw once")
        bases = set(method_resolution_order(type(module))) - {ModuleType, object}
        if any(defines(bases, key) for key in (*self._names, "__getattr__", "__getattribute__")):
            self._refuse(f"{name}, a module with attributes that are computed")
            return
        names = sorted(attributes.keys() & self._names)
        if package in ("", "glassgate"):
            is_computed = not package and "__getattr__" in attributes
            if self._reads_any() and not package:
                names = [key for key in attributes if key in self._names or not key.startswith("__")]
            missing = self._names if is_computed else self._names & set(attributes.get("__all__", ()))
            for key in sorted(missing - attributes.keys()):
                self.conditions.add(f"{key!r} not in {{attributes}}", f"{name}.{key}", attributes=attributes)
            self._watch(attributes, [*names, *["__getattr__"] * is_computed], lambda key: f"{name}.{key}")
            return
        if package == "torch":
            self.conditions.add("get_default_dtype() is {dtype}", "the default dtype", dtype=torch.get_default_dtype())
        for key in names:
            self._watch_library_value(attributes, key, f"{name}.{key}")

    def _watch_library_value(self, attributes: Any, name: str, where: str) -> None:
        """Watch a value of a library. It may be a function, a class or a constant, which a user may have replaced."""
        value = attributes[name]
        condition = f"{{attributes}}[{name!r}] is {{value}}"
        self.conditions.add(condition, where, attributes=attributes, value=value)
        cls = type(value)
        is_mutable = cls in CONTAINERS and cls not in (tuple, frozenset)
        if cls in CONSTANT or issubclass(cls, type | ModuleType | tuple) or (cls in _VISITORS and not is_mutable):
            self._visit(value, where)
        elif not (callable(value) and top_package(module_of_class(cls)) in ("torch", "numpy")):
            self._refuse_value(value, where)

    def _visit_function(self, function: FunctionType, where: str) -> None:
        """Watch a function, its globals and its closure. Functions of libraries and of the engines never change."""
        variables = function.__globals__
        package, module, name = package_of(variables), variables.get("__name__") or "", function.__qualname__
        if package not in ("", "glassgate"):
            return
        if package and (module == "glassgate.cell" or module.startswith("glassgate.engines")):
            return
        names = names_in(function.__code__)
        self._names |= names.attributes | (READERS & names.globals)
        self.codes.append(function.__code__)
        self._watch_attributes(function, ("__code__",), f"the code of {name}")
        if package:
            return
        self._watch_attributes(function, ("__defaults__",), f"defaults of {name}")
        self._watch_attributes(function, ("__kwdefaults__",), f"kwdefaults of {name}")
        if vars(function):
            self._visit(vars(function), f"attributes of {name}")
        for variable, closure_cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._watch_variable(closure_cell, f"variable {variable} of {name}")
        self._watch(variables, sorted(names.globals & variables.keys()), lambda variable: f"global {variable}")
        builtin = cast(Any, function).__builtins__
        for variable in sorted(names.globals - variables.keys()):
            self._watch_builtin(variable, variables, builtin)
        for imported in names.imports:
            for parent in _parents(str(variables.get("__package__") or "")):
                self._watch_import(f"{parent}{imported}".rstrip("."))

    def _watch_builtin(self, name: str, variables: dict[str, Any], builtin: dict[str, Any]) -> None:
        self.conditions.add(f"{name!r} not in {{variables}}", f"global {name}", variables=variables)
        if name in builtin:
            self._watch_library_value(builtin, name, f"global {name}")

    def _watch_import(self, name: str) -> None:
        module, modules = sys.modules.get(name), sys.modules
        if module is not None:
            self.conditions.add(f"{{modules}}[{name!r}] is {{module}}", name, modules=modules, module=module)
            self._visit(module, name)
        elif "." not in name:
            self.conditions.add(f"{name!r} not in {{modules}}", f"the import of {name}", modules=modules)

    def _watch_variable(self, variable: Any, where: str) -> None:
        try:
            content = variable.cell_contents
        except ValueError:
            self.conditions.add("is_empty({variable})", where, variable=variable)
            return
        self.conditions.add("{variable}.cell_contents is {content}", where, variable=variable, content=content)
        if issubclass(type(content), type) and where.startswith("variable __class__ "):  # for `super()`
            self._visit_class(content, where)
        else:
            self._visit(content, where)

    def _visit_builtin(self, function: Any, where: str) -> None:
        """Watch the instance of a built-in method. That of a function in C is its module, a class or a record."""
        owner = function.__self__
        is_function = owner is None or isinstance(owner, ModuleType | type)
        if not (is_function or type(owner).__name__.startswith("pybind11_detail_function_record")):
            self._visit(owner, where)

    def _visit_tensor(self, tensor: Tensor, where: str) -> None:
        is_plain = type(tensor) in (Tensor, torch.nn.Parameter) and tensor.device.type == "cpu"
        if not is_plain or tensor.layout != torch.strided:
            self._refuse(f"{where}, a tensor that is not a plain dense tensor on the CPU")
        elif tensor.numel() > _MAX_ELEMENTS:
            self._refuse(f"{where}, a tensor of {tensor.numel():,} numbers, too many to be compared at every call")
        elif vars(tensor) or self._names & _TENSOR_STATE:
            self._refuse(f"{where}, a tensor with attributes whose changes cannot be watched")
        else:
            content = tensor_content(tensor)
            self.conditions.add("tensor_content({tensor}) == {content}", where, tensor=tensor, content=content)

    def _visit_array(self, array: Any, where: str) -> None:
        cls, numpy = type(array), sys.modules["numpy"]
        if issubclass(cls, numpy.ufunc | numpy.dtype):
            return
        is_array = cls in (numpy.ndarray, numpy.memmap) or issubclass(cls, numpy.generic)
        if not is_array or array.dtype.hasobject:
            self._refuse(f"{where}, a numpy.{cls.__name__} that is not an array of numbers")
        elif array.size > _MAX_ELEMENTS:
            self._refuse(f"{where}, a numpy.{cls.__name__}, which is too large to be compared at every call")
        else:
            content = array_content(array)
            self.conditions.add("array_content({array}) == {content}", where, array=array, content=content)


def _visit_method(watch: Watch, method: Any, where: str) -> None:
    watch._visit(method.__func__, where)
    watch._visit(method.__self__, where)


_VISITORS: dict[type, Callable[[Watch, Any, str], None]] = {
    **dict.fromkeys(CONTAINERS, Watch._visit_container),
    FunctionType: Watch._visit_function,
    MethodType: _visit_method,
    BuiltinFunctionType: Watch._visit_builtin,
    partial: lambda watch, value, where: watch._watch_attributes(value, ("func", "args", "keywords"), where),
    staticmethod: lambda watch, value, where: watch._visit(value.__func__, where),
    classmethod: lambda watch, value, where: watch._visit(value.__func__, where),
    property: lambda watch, value, where: watch._visit(value.fget, where),
}
"""How instances of these types, but not of their subclasses, are watched."""


def _parents(package: str) -> list[str]:
    """The prefixes of the modules that an import inside a package may refer to, such as "a.b.", "a." and ""."""
    parts = package.split(".") if package else []
    return [".".join([*parts[:count], ""]) if count else "" for count in range(len(parts), -1, -1)]
