"""A cell is identified by its equations: values that its step reads may change; steps without a kernel are named."""

import ctypes
import os
import random
import sys
import threading
import time
import timeit
import types
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import glassgate as gg
from glassgate import cells
from glassgate.engines.symbolic.graph import NotTraceable
from glassgate.engines.traced_cells import current_equations, traced_cell
from glassgate.layers.regularisers import Noisy

FACTOR = 2.0


def scaled(v):
    return v * 3.0


@dataclass
class Options:
    rate: float


class Slotted:
    __slots__ = ("rate",)

    def __init__(self, rate):
        self.rate = rate


class AttrDict(dict):
    __getattr__ = dict.__getitem__


class Base(gg.Cell):
    gates = ("x",)
    rate = 2.0

    def __init__(self, value=None) -> None:
        self.value = value


def cell_with(step, value=None):
    return type("Foo", (Base,), {"step": step})(value)


def factor(cell) -> float:
    """The number that its step multiplies with."""
    (number,) = (arg for node in current_equations(cell).nodes for arg in node.args if isinstance(arg, float))
    return number


def closing_over(number):
    def step(self, a, s):
        return a.x * number

    def change():
        nonlocal number
        number = 4.0

    return step, change


def changes():
    """What a step takes its number from, and what makes that 4."""

    def change_global():
        global FACTOR
        FACTOR = 4.0

    step, change_closure = closing_over(3.0)
    by_value = cell_with(lambda self, a, s: a.x * self.value, 3.0)
    helped = cell_with(lambda self, a, s: scaled(a.x))
    class_wide = cell_with(lambda self, a, s: a.x * self.rate)
    replaced = cell_with(lambda self, a, s: a.x * 3.0)
    reloaded = cell_with(lambda self, a, s: a.x * 3.0)
    default = cell_with(lambda self, a, s, k=(3.0,): a.x * k[0])
    filled, table = torch.tensor(3.0), {"rate": 3.0}
    array, items, options = np.array(3.0), [3.0], Options(3.0)
    space, nested, slotted = types.SimpleNamespace(rate=3.0), {"a": [Options(3.0)]}, Slotted(3.0)
    return {
        "an attribute": (by_value, lambda: setattr(by_value, "value", 4.0)),
        "a function": (helped, lambda: setattr(scaled, "__code__", (lambda v: v * 4.0).__code__)),
        "a class attribute": (class_wide, lambda: setattr(type(class_wide), "rate", 4.0)),
        "an attribute over that of the class": (cell_with(lambda self, a, s: a.x * self.rate), None),
        "step": (replaced, lambda: setattr(type(replaced), "step", lambda self, a, s: a.x * 4.0)),
        "its code": (
            reloaded,
            lambda: setattr(type(reloaded).step, "__code__", (lambda self, a, s: a.x * 4.0).__code__),
        ),
        "a default": (default, lambda: setattr(type(default).step, "__defaults__", ((4.0,),))),
        "a global": (cell_with(lambda self, a, s: a.x * FACTOR), change_global),
        "a closure": (cell_with(step), change_closure),
        "a tensor": (cell_with(lambda self, a, s: a.x * self.value, filled), lambda: filled.fill_(4.0)),
        "its data": (
            cell_with(lambda self, a, s: a.x * float(self.value[0]), items_of := torch.tensor([3.0])),
            lambda: items_of.data.fill_(4.0),
        ),
        "an array": (cell_with(lambda self, a, s: a.x * float(self.value), array), lambda: array.fill(4.0)),
        "a list": (cell_with(lambda self, a, s: a.x * self.value[0], items), lambda: items.__setitem__(0, 4.0)),
        "a dict": (cell_with(lambda self, a, s: a.x * self.value["rate"], table), lambda: table.update(rate=4.0)),
        "a dataclass": (
            cell_with(lambda self, a, s: a.x * self.value.rate, options),
            lambda: setattr(options, "rate", 4.0),
        ),
        "a namespace": (
            cell_with(lambda self, a, s: a.x * self.value.rate, space),
            lambda: setattr(space, "rate", 4.0),
        ),
        "a dict whose items are attributes": (
            cell_with(lambda self, a, s: a.x * self.value.rate, opened := AttrDict(rate=3.0)),
            lambda: opened.update(rate=4.0),
        ),
        "an object with slots": (
            cell_with(lambda self, a, s: a.x * self.value.rate, slotted),
            lambda: setattr(slotted, "rate", 4.0),
        ),
        "things in things": (
            cell_with(lambda self, a, s: a.x * self.value["a"][0].rate, nested),
            lambda: setattr(nested["a"][0], "rate", 4.0),
        ),
        "by getattr": (
            named := cell_with(lambda self, a, s: a.x * getattr(self, "va" + "lue"), 3.0),
            lambda: setattr(named, "value", 4.0),
        ),
        "a module's attribute": (
            cell_with(lambda self, a, s: F.leaky_relu(a.x, 0.0) * self.value.lambd, shrink := torch.nn.Softshrink(3.0)),
            lambda: setattr(shrink, "lambd", 4.0),
        ),
    }


@pytest.mark.parametrize("what", changes())
def test_every_value_that_a_step_reads_is_compared(what):
    cell, change = changes()[what]

    def numbers():
        return {arg for node in current_equations(cell).nodes for arg in node.args if isinstance(arg, float)}

    before = current_equations(cell)
    assert 4.0 not in numbers()
    assert current_equations(cell) is before
    (change or (lambda: setattr(cell, "rate", 4.0)))()
    assert 4.0 in numbers()


@pytest.fixture(autouse=True)
def _as_before():
    global FACTOR
    code, FACTOR = scaled.__code__, 3.0
    yield
    scaled.__code__ = code


def test_equations_depend_on_content_only():
    def define():
        class Same(gg.Cell):
            gates = ("x",)

            def step(self, a, s):
                return torch.tanh(a.x) * 0.5

        return Same()

    first = define()
    assert current_equations(first) is current_equations(define())
    again = type("Same", (gg.Cell,), {"gates": ("x",), "step": lambda self, a, s: torch.relu(a.x)})()
    assert current_equations(again) is not current_equations(first)
    signs = [factor(cell_with(lambda self, a, s: torch.where(a.x > s.h, a.x, self.value), v)) for v in (0.0, -0.0)]
    assert [str(v) for v in signs] == ["0.0", "-0.0"]
    kinds = [
        current_equations(cell_with(lambda self, a, s: a.x * (2 + (self.value is True)), v)).text for v in (1, True)
    ]
    assert kinds[0] != kinds[1]
    noisy = [Noisy(cells.LSTM(), {"h": rate}, 0.0, "state") for rate in (0.1, 0.1, 0.2)]
    assert current_equations(noisy[0]) is current_equations(noisy[1]) is not current_equations(noisy[2])
    for k in range(60):
        cell = cell_with(lambda self, a, s: a.x * self.value["rate"], {"rate": 3.0 + k})
        assert factor(cell) == 3.0 + k
        del cell


def test_the_check_costs_microseconds():
    for cell in (cells.LSTM(), cells.GRU(), cells.LayerNormLSTM(), Noisy(cells.LSTM(), {"h": 0.3}, 0.2, "state")):
        meaning = traced_cell(cell)
        # Measured 0.6 to 1.1 us, 4.1 with noise; the bound leaves room for other processes on the cores.
        assert min(timeit.repeat(lambda m=meaning, c=cell: m.is_valid_for(c), number=200, repeat=20)) / 200 < 20e-6


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, d):
        return d * 100


def no_grad(self, a, s):
    with torch.no_grad():
        held = torch.sigmoid(a.x)
    return held * torch.tanh(a.x)


def caught(self, a, s):
    try:
        return torch.cumsum(a.x, -1)
    except TypeError:
        return a.x


def alias(self, a, s):
    x = a.x * 1.5
    y = x
    x += s.h
    return torch.tanh(y)


def state_changed(self, a, s):
    h = s.h
    h *= 0.5
    return torch.tanh(a.x) + s.h


def counted(self, a, s):
    self.value += 1
    return torch.tanh(a.x)


def kept(self, a, s):
    self.value = torch.tanh(a.x)
    return self.value


LOCAL = threading.local()
LOCAL.rate = 3.0


class Fields(ctypes.Structure):
    _fields_: ClassVar = [("rate", ctypes.c_double)]


class Narrow:
    """Its values have a number per unit until they are numbers."""

    def step(self, a, s):
        return a.x if not isinstance(a.x, torch.Tensor) else a.x[:, :1]


def test_an_import_during_the_trace_is_not_a_call_of_the_step(monkeypatch):
    """Import hooks are not pure. Torch imports parts of itself on first use, for example in `float(tensor)`."""

    class Hook:
        def find_spec(self, name, path=None, target=None):
            hooked.append(locals())

    library = {"__name__": "operator"}  # one of the modules whose functions are pure
    exec("def third(x):\n    import colorsys\n    return x * colorsys.ONE_THIRD", library)
    third = library["third"]

    class Importing(gg.Cell):
        gates = ("x",)

        def step(self, a, s):
            return third(a.x)

    hooked = []
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Hook(), *sys.meta_path])
    current_equations(Importing())
    assert hooked


def test_refusals_name_the_class_of_the_author():
    """Regularisers wrap a cell in another one."""

    class Author(gg.Cell):
        gates = ("x",)

        def step(self, a, s):
            return torch.softmax(a.x, -1)

    with pytest.warns(UserWarning, match="cell Author: step uses torch.softmax"):
        gg.Recurrent(Author(), 2, 3, zoneout=0.1)(torch.randn(4, 1, 2))


REFUSED = {
    "random": (lambda self, a, s: a.x * random.random(), None, "random numbers from Python's generator"),
    "torch.rand": (lambda self, a, s: a.x * torch.rand(()), None, "random numbers from torch's generator"),
    "numpy": (lambda self, a, s: a.x * float(np.random.rand()), None, "reads numpy's random numbers"),  # noqa: NPY002
    "own generator": (lambda self, a, s: a.x * self.value.random(), random.Random(0), "random numbers from Python's"),
    "a clock": (lambda self, a, s: a.x * time.perf_counter(), None, r"calls time.perf_counter\(\), which is not known"),
    "a counter": (lambda self, a, s: a.x * next(self.value), count(), "reads attribute value, a count, whose changes"),
    "a table": (lambda self, a, s: a.x * float(self.value[3]), torch.rand(1000), "attribute value, a tensor of 1,000"),
    "grad mode": (lambda self, a, s: a.x * torch.is_grad_enabled(), None, r"calls torch.is_grad_enabled\(\)"),
    "a type by default": (lambda self, a, s: a.x * torch.get_default_dtype().itemsize, None, "calls torch.get_default"),
    "threads": (lambda self, a, s: a.x * torch.get_num_threads(), None, "calls torch.get_num_threads"),
    "a switch": (lambda self, a, s: a.x * torch.backends.cudnn.enabled, None, "torch.backends.cudnn"),
    "another switch": (
        lambda self, a, s: a.x * torch.backends.cuda.matmul.allow_tf32,
        None,
        "reads torch.backends.cuda",
    ),
    "the environment": (lambda self, a, s: a.x * len(os.environ), None, "reads os.environ, a _Environ, whose changes"),
    "globals()": (lambda self, a, s: a.x * globals()["FACTOR"], None, r"calls globals\(\)"),
    "eval": (lambda self, a, s: a.x * eval("FACTOR"), None, r"calls eval\(\)"),
    "sys.modules": (lambda self, a, s: a.x * len(sys.modules), None, "reads sys.modules, a dict, whose changes"),
    "a file": (lambda self, a, s: a.x * len(open(__file__).read()), None, r"calls io.open\(\)"),  # noqa: SIM115
    "a value of each thread": (lambda self, a, s: a.x * self.value.rate, LOCAL, "a _local, whose changes"),
    "memory of C": (lambda self, a, s: a.x * self.value.rate, Fields(3.0), "a Fields, whose changes"),
    "an effect": (lambda self, a, s: a.x * (print(end="") is None), None, r"calls print\(\)"),
    "another shape": (Narrow.step, None, "returns a value of another shape than its equations"),
    "no_grad": (no_grad, None, r"torch.no_grad\(\) or a torch.autograd.Function"),
    "autograd.Function": (lambda self, a, s: Doubled.apply(a.x), None, r"torch.no_grad\(\) or a torch.autograd"),
    "autocast": (lambda self, a, s: torch.autocast("cpu")(lambda: a.x * 2)(), None, "torch.autocast"),
    "try": (caught, None, "torch.cumsum"),
    "alias": (alias, None, "again after it was written to by another name"),
    "a state": (state_changed, None, r"`\*=` on h_prev, which a step must not change"),
    "an attribute": (counted, 0, "writes to attribute value, which a kernel would not"),
    "a value kept": (kept, None, "writes to attribute value"),
    "a masked state": (
        lambda self, a, s: a.x > 0,
        None,
        "for state 'h' a value that is not one number per unit|a value",
    ),
    "`%`": (lambda self, a, s: a.x % 2, None, "`%`"),
    "`//`": (lambda self, a, s: a.x // 2, None, "`//`"),
    "`@`": (lambda self, a, s: a.x @ a.x, None, "`@`"),
    "len": (lambda self, a, s: a.x * len(a.x), None, "the length of a tensor"),
    "& of numbers": (lambda self, a, s: torch.where(a.x & s.h, a.x, 0.0), None, "`&` on a value that is not a mask"),
    "no mask": (lambda self, a, s: torch.where(a.x, a.x, 0.0), None, "torch.where with a condition that is not a mask"),
    "numpy's function": (lambda self, a, s: a.x * np.tanh(a.x), None, "numpy"),
    "a part written to": (lambda self, a, s: a.x.__setitem__(0, 1.0), None, "writing to a part of a tensor"),
    "sum": (lambda self, a, s: a.x * sum(a.x), None, "iteration over a tensor"),
    "its type": (lambda self, a, s: a.x * isinstance(a.x, torch.Tensor), None, "gives another value for state 'h'"),
    "its own error": (lambda self, a, s: a.x * self.value["none"], {}, "raises KeyError"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_unsupported_steps_are_refused_with_the_reason(what):
    step, value, named = REFUSED[what]
    states = random.getstate(), torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    with pytest.raises(NotTraceable, match=rf"^cell Foo: step .*({named}).*; it runs on the reference engine$"):
        current_equations(cell_with(step, value))
    assert states[0] == random.getstate()
    assert torch.equal(states[1], torch.get_rng_state())
    assert (states[2] == np.random.get_state()[1]).all()  # noqa: NPY002


def test_random_numbers_of_other_threads_do_not_matter():
    stop = threading.Event()

    def draw():
        while not stop.is_set():
            (random.random(), torch.rand(()), np.random.rand())  # noqa: NPY002

    other = threading.Thread(target=draw)
    other.start()
    try:
        for k in range(20):
            current_equations(cell_with(lambda self, a, s: torch.tanh(a.x) * self.value, float(k)))
    finally:
        stop.set()
        other.join()


class Odd(gg.Cell):
    """Supported steps that resemble unsupported ones, one per gate."""

    gates = ("kept", "own", "added", "power", "logical", "masks", "chosen")
    value = None

    def step(self, a, s):
        self.value = self.value or 3.0
        own = torch.sigmoid(a.own) * s.h
        own += 0.5 * a.own
        own *= 2.0
        power = torch.pow(torch.sigmoid(a.power), torch.tanh(s.h))
        either = torch.logical_and(a.logical, s.h > 0) | torch.logical_xor(a.logical > 0.5, s.h > 0.1)
        logical = torch.where(either, a.logical, 0.5 * a.logical)
        masks = F.hardshrink(a.masks) + a.masks * ((a.masks > 0) & (s.h <= 0))
        chosen = torch.where(a.chosen > 0, s.h > 0, a.chosen < -1) * a.chosen
        return torch.tanh(sum([self.value * a.kept, own, a.added, power, logical, masks, chosen, 0.5]))


def test_equations_that_look_dangerous_are_right():
    cell = Odd()
    current_equations(cell)
    report = gg.check(cell)
    assert report, report
    assert any("cpu engine equal" in finding.claim for finding in report.findings)


def test_a_long_chain_of_operations_does_not_recurse():
    def long(self, a, s):
        h = a.x
        for k in range(500):
            h = h * 0.99 + s.h * (k % 3 - 1)
        return h

    assert gg.source(cell_with(long)).count("0.99") >= 500
