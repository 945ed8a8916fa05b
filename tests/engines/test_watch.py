"""Every change of a value that a step reads is noticed; test_unwatched_values.py has values that cannot be watched."""

import abc
import builtins
import collections
import enum
import functools
import gc
import importlib.util
import operator
import sys
import types
import typing
import weakref

import numpy as np
import pytest
import torch

import glassgate as gg
from glassgate.engines.traced_cells import current_equations


class Base(gg.Cell):
    gates = ("x",)

    def __init__(self, value=None) -> None:
        self.value = value


def cell_with(step, value=None):
    return type("Foo", (Base,), {"step": step})(value)


def reading(value, read):
    """A cell whose step multiplies by a number that it reads from a value."""
    return cell_with(lambda self, a, s: a.x * read(self.value), value)


def constants(cell):
    return {arg for node in current_equations(cell).nodes for arg in node.args if isinstance(arg, float)}


def number(text):
    """A float that no code stores as a constant, so that its memory is reused after it is freed."""
    return float(text)


def module_from(text, name="settings_of_a_test", folder=None):
    module = types.ModuleType(name)
    if folder is not None:
        (folder / f"{name}.py").write_text(text)
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        exec(text, vars(module))
    return module


class Rated:
    rate = 3.0

    def __init__(self, rate=3.0):
        self.rate = rate


class Four:
    rate = 4.0


class Meta(type):
    factor = 3.0

    @property
    def rate(cls):
        return Meta.factor

    def __call__(cls):
        return Meta.factor

    def __len__(cls):
        return int(Meta.factor)


class WithMeta(metaclass=Meta):
    pass


class Mode(enum.Enum):
    SLOW = 3.0


class Descriptor:
    def __init__(self, rate):
        self.stored = rate

    def __get__(self, instance, owner=None):
        return self.stored


class Slotted:
    __slots__ = ("__rate", "rate")

    def __init__(self, rate):
        self.__rate = rate

    def private(self):
        return self.__rate

    def change(self):
        self.__rate = 4.0


class Pair(typing.NamedTuple):
    rate: float

    def scaled(self):
        return self.rate * SCALE


SCALE, TEMPLATE = 1.0, "{0.rate}"


class Text(str):
    rate = 3.0


class Shape(abc.ABC):  # noqa: B024
    pass


class Numbers(list):
    pass


class Forward(torch.nn.Module):
    def forward(self, x):
        return x * FACTOR


FACTOR = 3.0


def with_function_attribute(x):
    return x * with_function_attribute.rate


def changes():
    """Return, by the place of a constant, a cell whose step reads it, and a function that changes it to 4."""

    def set_global(name, value):
        return lambda: globals().__setitem__(name, value)

    lazy = module_from("STATE = {'rate': 3.0}\ndef __getattr__(name):\n    return STATE[name]")
    hidden = Rated()
    swapped, based = type("Swapped", (Rated,), {})(), type("Based", (Rated,), {})
    based_instance = based.__new__(based)
    replaced = Rated()
    reused = [number("3.0")]
    ordered = {"a": 3.0, "b": 4.0}
    moved = collections.OrderedDict(ordered)
    members = {True}
    default = collections.Counter(rate=3.0)
    described = type("Described", (), {"rate": Descriptor(3.0)})
    slotted, pair, text = Slotted(3.0), Pair(3.0), Text("a")
    wide, holder = torch.tensor([[3.0, 1.0], [4.0, 2.0]]), Rated()
    bits = np.array([3.0])
    bound = {"rate": 3.0}
    part = functools.partial(operator.mul, 3.0)
    closed = types.MappingProxyType(opened := {"rate": 3.0})
    namespace = {"__name__": "operator", "rate": 3.0, "__builtins__": {"abs": lambda v: v * 3.0}}
    exec("def scaled(x):\n    return x * rate\ndef absolute(x):\n    return abs(x)", namespace)

    def reuse():
        reused.clear()
        reused.append(number("4.0"))

    def swap_order():
        first = ordered.pop("a")
        ordered["a"] = first

    def restride():
        wide.set_(wide.t())

    def replace_members():
        members.clear()
        members.add(1)

    return {
        "a module's __getattr__": (reading(lazy, lambda v: v.rate), lambda: lazy.STATE.update(rate=4.0)),
        "a property of a metaclass": (reading(WithMeta, lambda v: v.rate), lambda: setattr(Meta, "factor", 4.0)),
        "__call__ of a metaclass": (reading(WithMeta, lambda v: v()), lambda: setattr(Meta, "factor", 4.0)),
        "__len__ of a metaclass": (reading(WithMeta, lambda v: float(len(v))), lambda: setattr(Meta, "factor", 4.0)),
        "the value of an enum": (reading(Mode.SLOW, lambda v: v.value), lambda: setattr(Mode.SLOW, "_value_", 4.0)),
        "an enum that the step names": (
            cell_with(lambda self, a, s: a.x * Mode.SLOW.value),
            lambda: setattr(Mode.SLOW, "_value_", 4.0),
        ),
        "__bases__": (reading(based_instance, lambda v: v.rate), lambda: setattr(based, "__bases__", (Four,))),
        "__class__": (reading(hidden, lambda v: type(v).rate), lambda: setattr(hidden, "__class__", Four)),
        "__class__ of a subclass": (
            reading(swapped, lambda v: type(v).rate),
            lambda: setattr(swapped, "__class__", Four),
        ),
        "__dict__": (reading(replaced, lambda v: v.rate), lambda: setattr(replaced, "__dict__", {"rate": 4.0})),
        "reused memory": (reading(reused, lambda v: v[0]), reuse),
        "the order of a dict": (reading(ordered, lambda v: next(iter(v.values()))), swap_order),
        "the order of an OrderedDict": (
            reading(moved, lambda v: next(iter(v.values()))),
            lambda: moved.move_to_end("a"),
        ),
        "an equal member of a set": (
            reading(members, lambda v: 3.0 if next(iter(v)) is True else 4.0),
            replace_members,
        ),
        "a Counter": (reading(default, lambda v: v["rate"]), lambda: default.update(rate=1.0)),
        "a descriptor": (
            reading(described(), lambda v: v.rate),
            lambda: setattr(vars(described)["rate"], "stored", 4.0),
        ),
        "a private slot": (reading(slotted, lambda v: v.private()), slotted.change),
        "a method of a named tuple": (reading(pair, lambda v: v.scaled()), set_global("SCALE", 4.0 / 3.0)),
        "a subclass of str": (reading(text, lambda v: v.rate), lambda: setattr(Text, "rate", 4.0)),
        "the strides of a tensor": (reading(wide, lambda v: 5.0 - v.stride(0)), restride),
        "the type of an array": (
            reading(bits, lambda v: 3.0 if v.dtype == np.float64 else 4.0),
            lambda: setattr(bits, "dtype", np.int64),
        ),
        "a bound method of a dict": (reading(bound.get, lambda v: v("rate")), lambda: bound.update(rate=4.0)),
        "the arguments of a partial": (
            cell_with(lambda self, a, s: self.value(a.x), part),
            lambda: part.__setstate__((operator.mul, (4.0,), {}, {})),
        ),
        "a proxy of a dict": (reading(closed, lambda v: v["rate"]), lambda: opened.update(rate=4.0)),
        "an attribute of a function": (
            cell_with(lambda self, a, s: with_function_attribute(a.x)),
            lambda: setattr(with_function_attribute, "rate", 4.0),
        ),
        "a function that claims a library": (
            cell_with(lambda self, a, s: self.value(a.x), namespace["scaled"]),
            lambda: namespace.update(rate=4.0),
        ),
        "__builtins__ of globals": (
            cell_with(lambda self, a, s: self.value(a.x), namespace["absolute"]),
            lambda: namespace["__builtins__"].update(abs=lambda v: v * 4.0),
        ),
        "a global that hides a built-in function": (
            cell_with(lambda self, a, s: a.x * round(3.2)),
            set_global("round", lambda v: 4.0),
        ),
        "a built-in function": (
            cell_with(lambda self, a, s: a.x * divmod(13.0, 4.0)[0]),
            lambda: setattr(builtins, "divmod", lambda p, q: (4.0,)),
        ),
        "a function of torch": (
            cell_with(lambda self, a, s: torch.square(a.x)),
            lambda: setattr(torch, "square", lambda v: v * 4.0),
        ),
        "a registered subclass": (
            reading(holder, lambda v: 4.0 if isinstance(v, Shape) else 3.0),
            lambda: Shape.register(Rated),
        ),
        "attrgetter": (
            reading(holder, lambda v: operator.attrgetter("ra" + "te")(v)),
            lambda: setattr(holder, "rate", 4.0),
        ),
        "a pattern": (reading(holder, matched), lambda: setattr(holder, "rate", 4.0)),
        "str.format": (reading(holder, lambda v: float(TEMPLATE.format(v))), lambda: setattr(holder, "rate", 4.0)),
        "forward of a module": (cell_with(lambda self, a, s: self.value(a.x), Forward()), set_global("FACTOR", 4.0)),
        "the default dtype": (
            reading(None, lambda v: 3.0 if torch.tensor(1.0).dtype == torch.float32 else 4.0),
            lambda: torch.set_default_dtype(torch.float64),
        ),
        "an attribute in place of another": (
            instead := cell_with(lambda self, a, s: a.x * self.shared),
            lambda: (delattr(instead, "value"), setattr(instead, "shared", 4.0)),
        ),
    }


Base.shared = 3.0


def matched(v):
    match v:
        case Rated(rate=found):
            return found


@pytest.fixture(autouse=True)
def _restore():
    """Undo all changes of globals."""
    before, divmod_before, square = dict(globals()), builtins.divmod, torch.square
    with_function_attribute.rate = 3.0
    yield
    globals().clear()
    globals().update(before)
    builtins.divmod, torch.square = divmod_before, square
    torch.set_default_dtype(torch.float32)
    Meta.factor = Text.rate = 3.0
    Mode.SLOW._value_ = 3.0


@pytest.mark.parametrize("place", changes())
def test_a_change_is_noticed(place):
    cell, change = changes()[place]
    before = current_equations(cell)
    assert 4.0 not in constants(cell)
    assert current_equations(cell) is before
    change()
    assert 4.0 in constants(cell)


def test_a_file_with_the_name_of_a_library_is_not_trusted(tmp_path, monkeypatch):
    """A user's file may be called like a module of Python, here `colorsys`."""
    text = "RATE = 3.0\ndef scaled(x):\n    return x * RATE\n"
    module = module_from(text, "colorsys", tmp_path)
    monkeypatch.setitem(sys.modules, "colorsys", module)
    for step in (lambda self, a, s: a.x * module.RATE, lambda self, a, s: self.value(a.x)):
        module.RATE = 3.0
        cell = cell_with(step, module.scaled)
        assert constants(cell) == {3.0}
        module.RATE = 4.0
        assert constants(cell) == {4.0}


def test_a_cell_is_freed():
    cell = cell_with(lambda self, a, s: a.x * self.value, 3.0)
    current_equations(cell)
    alive = weakref.ref(cell)
    del cell
    gc.collect()
    assert alive() is None


class Named(gg.Cell):
    """A cell with a variable named like a pre-activation, and a gate named like a function in C of torch."""

    gates = ("k", "_from_functional_tensor")

    def step(self, a, s):
        k_pre = (a.k > 0) ^ (s.h > 0)
        return torch.where(k_pre, a.k, torch.tanh(a._from_functional_tensor))


def test_names_of_values_are_unique_and_any_name_is_allowed():
    names = [node.name for node in current_equations(Named()).nodes if node.name is not None]
    assert {"k_pre", "k_pre_", "_from_functional_tensor_ih"} <= set(names)
    assert len(set(names)) == len(names)


class ByVersion(gg.Cell):
    """A step that reads a constant of Python."""

    gates, state = ("z",), ("h",)

    def step(self, a, s):
        return torch.tanh(a.z) if sys.version_info >= (3, 11) else a.z


def test_constants_of_python_may_be_read():
    current_equations(ByVersion())
