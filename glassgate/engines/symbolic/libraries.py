"""The modules, classes and functions whose code never changes: those of Python, torch, NumPy and Glassgate.

A name is not sufficient: a user's file may be called `code.py`, and a class may name another module as its own. A
module must have been imported from the folder of its library, a class must be an attribute of its module, and a
function must have the globals of such a module.
"""

import os
import sys
import sysconfig
from functools import cache
from importlib.machinery import ModuleSpec
from types import GetSetDescriptorType, MemberDescriptorType, MethodDescriptorType, ModuleType, WrapperDescriptorType
from typing import Any

TRUSTED = frozenset({*sys.stdlib_module_names, "torch", "numpy", "glassgate"}) - {"__main__", "this", "antigravity"}
"""Packages whose code does not change. Calls inside them are not checked; calls into them are checked."""

# The attributes of modules and classes as Python itself reads them, without `__getattribute__` of a user's class.
module_attributes: Any = vars(ModuleType)["__dict__"].__get__
class_attributes = type.__dict__["__dict__"].__get__
method_resolution_order = type.__dict__["__mro__"].__get__
type_name = type.__dict__["__name__"].__get__
_module_of_class = type.__dict__["__module__"].__get__
_qualified_name = type.__dict__["__qualname__"].__get__


def top_package(module: Any) -> str:
    """The top-level package of a module, by its name; empty for anything but a name."""
    return module.partition(".")[0] if isinstance(module, str) else ""


def package_of(attributes: dict[str, Any]) -> str:
    """The trusted package that defines the globals of a function or the attributes of a module; otherwise empty."""
    spec = attributes.get("__spec__")
    if type(spec) is ModuleSpec:
        package = top_package(spec.name)
        return package if package in TRUSTED and _is_in_folder(package, spec.origin) else ""
    name = attributes.get("__name__")  # a module that a library has created
    module = sys.modules.get(str(name)) if top_package(name) in TRUSTED else None
    is_module = isinstance(module, ModuleType) and module_attributes(module) is attributes
    return top_package(name) if is_module and top_package(name) not in sys.stdlib_module_names else ""


@cache
def _is_in_folder(package: str, origin: str | None) -> bool:
    """Whether a module was imported from the folder of its package, or is part of the interpreter."""
    if origin in ("built-in", "frozen") or getattr(sys, "frozen", False):
        return True
    if package in sys.stdlib_module_names:
        folders = sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")
        return origin is not None and origin.startswith(folders) and "-packages" not in origin
    return origin is not None and origin.startswith(os.path.dirname(sys.modules[package].__file__ or ""))


def module_of_class(cls: type) -> str:
    """The name of the module of a class of a trusted package; empty for other classes."""
    name = _module_of_class(cls)
    module = sys.modules.get(name) if type(name) is str else None
    if not isinstance(module, ModuleType) or not package_of(module_attributes(module)):
        return ""
    found: Any = module
    for part in _qualified_name(cls).split("."):
        found = getattr(found, part, None)
    return name if found is cls or (found is None and is_in_c(cls)) else ""


def is_in_c(cls: type) -> bool:
    """Whether a class is written in C, so that its instances may have state that is not in attributes."""
    slots = class_attributes(cls).get("__slots__", ())
    for name, value in class_attributes(cls).items():
        if getattr(value, "__objclass__", None) is not cls:
            continue
        is_slot = type(value) is MemberDescriptorType and name.split("__")[-1] in str(slots)
        is_attribute_store = type(value) is GetSetDescriptorType and name in ("__dict__", "__weakref__")
        if type(value) in _DESCRIPTORS_IN_C and not is_slot and not is_attribute_store:
            return True
    return False


_DESCRIPTORS_IN_C = (WrapperDescriptorType, MethodDescriptorType, GetSetDescriptorType, MemberDescriptorType)
