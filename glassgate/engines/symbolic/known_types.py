"""The types whose state `watch.py` can compare, and the attributes of classes that a step may read."""

import random
import re
import sys
from collections import OrderedDict
from collections.abc import Iterable
from inspect import FullArgSpec
from pathlib import PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from types import (
    ClassMethodDescriptorType,
    CodeType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import Any, Generic

import torch

from glassgate.cell import Noise, Parameter
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.libraries import class_attributes, is_in_c, module_of_class, top_package

_NUMBERS_AND_TEXT: tuple[type, ...] = (bool, int, float, complex, str, bytes)
CONSTANT = frozenset({*_NUMBERS_AND_TEXT, type(None), type(...), type(NotImplemented), range, slice, object})
CONSTANT |= {PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath, re.Pattern, CodeType}
CONSTANT |= {torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format}
CONSTANT |= {Parameter, Noise, Equations, GetSetDescriptorType, MemberDescriptorType}
CONSTANT |= {MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType}
CONSTANT |= {type(vars(FullArgSpec)["args"])}  # the fields of named tuples
CONSTANT |= {type(each) for each in (sys.version_info, sys.flags, sys.float_info, sys.int_info, sys.hash_info)}
"""Types whose instances, but not those of subclasses, never change."""
CONTAINERS: tuple[Any, ...] = (OrderedDict, dict, MappingProxyType, list, tuple, set, frozenset)
_KNOWN_BASES = frozenset({*CONTAINERS, *_NUMBERS_AND_TEXT, object, SimpleNamespace, Generic})
_KNOWN_BASES |= {random.Random.__base__}  # `purity.py` refuses its draws
"""Classes in C whose instances have only items and attributes as state."""
ALWAYS_READ = frozenset(
    {"step", "project", "new_state", "values_by_name", "gates", "state", "parameters", "noise", "recurrent", "heads"}
)
"""Attributes that a trace reads from every cell, even if no code of the step names them."""
CONSTRUCTION = frozenset({"__init__", "__new__", "__init_subclass__", "__class_getitem__", "__repr__"})
"""Special methods that are called only if the step reads the class itself. `Watch.contains` finds other calls."""
DESCRIPTIONS = frozenset({"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__slots__"})
DESCRIPTIONS |= {"__orig_bases__", "__parameters__", "__type_params__", "__annotate__", "__annotate_func__"}
DESCRIPTIONS |= {"__annotations_cache__", "__static_attributes__", "__firstlineno__", "__dataclass_fields__"}
DESCRIPTIONS |= {"__dataclass_params__", "__abstractmethods__", "_abc_impl"}
"""Attributes of classes that only code that names them reads."""
_TRANSPARENT = frozenset(
    {"builtins", "abc", "typing", "enum", "collections", "collections.abc", "dataclasses", "types", "numbers"}
    | {"argparse", "fractions", "functools", "random", "torch", "logging"}
)
"""Library modules whose classes keep the state of an instance in attributes, items and numbers. `purity.py` refuses
draws of random numbers and writes to logs."""
PURE = _TRANSPARENT | {"itertools", "operator", "re", "contextlib", "copy", "string", "pathlib"}
"""Library modules whose classes a step may use: their results depend only on the arguments."""


def has_known_state(base: type) -> bool:
    """Whether the state of instances is in items, attributes and slots, as far as this base class is concerned."""
    if base in _KNOWN_BASES:
        return True
    module = module_of_class(base)
    is_open = module in _TRANSPARENT or issubclass(base, torch.nn.Module) or top_package(module) in ("", "glassgate")
    return is_open and not is_in_c(base)


def is_constant_class(cls: type) -> bool:
    """Whether the attributes of a class do not change: of a library, or of a layer, which is not part of a step."""
    package = top_package(module_of_class(cls))
    return bool(package) and (package != "glassgate" or issubclass(cls, torch.nn.Module))


def defines(bases: Iterable[type], name: str) -> bool:
    """Whether a class defines a name in Python. Classes in C define the same special methods."""
    defined = [class_attributes(base)[name] for base in bases if name in class_attributes(base)]
    return any(type(value) not in (WrapperDescriptorType, GetSetDescriptorType) for value in defined)
