"""Traced cells: a change of any value that the step reads is noticed, and unsupported steps raise errors."""

import ctypes
import operator
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
from glassgate.engines.symbolic.values import NotTraceable
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


def constants(cell) -> set[float]:
    """Return the floating-point constants in the equations of a cell."""
    return {arg for node in current_equations(cell).nodes for arg in node.args if isinstance(arg, float)}


def constant(cell) -> float:
    """Return the only constant in the equations of a cell."""
    (value,) = constants(cell)
    return value


def step_with_closure(factor):
    def step(self, a, s):
        return a.x * factor

    def change():
        nonlocal factor
        factor = 4.0

    return step, change


def changes():
    """Return, by the place of a constant, a cell whose step reads it, and a function that changes it to 4.

    None in place of the function means that the test adds an attribute `rate` to the cell.
    """

    def change_global():
        global FACTOR
        FACTOR = 4.0

    step, change_closure = step_with_closure(3.0)
    with_attribute = cell_with(lambda self, a, s: a.x * self.value, 3.0)
    with_function = cell_with(lambda self, a, s: scaled(a.x))
    with_class_attribute = cell_with(lambda self, a, s: a.x * self.rate)
    with_new_step = cell_with(lambda self, a, s: a.x * 3.0)
    with_new_code = cell_with(lambda self, a, s: a.x * 3.0)
    with_default = cell_with(lambda self, a, s, k=(3.0,): a.x * k[0])
    tensor, table = torch.tensor(3.0), {"rate": 3.0}
    array, items, options = np.array(3.0), [3.0], Options(3.0)
    namespace, nested, slotted = types.SimpleNamespace(rate=3.0), {"a": [Options(3.0)]}, Slotted(3.0)
    return {
        "an attribute": (with_attribute, lambda: setattr(with_attribute, "value", 4.0)),
        "a function": (with_function, lambda: setattr(scaled, "__code__", (lambda v: v * 4.0).__code__)),
        "a class attribute": (with_class_attribute, lambda: setattr(type(with_class_attribute), "rate", 4.0)),
        "an attribute that hides a class attribute": (cell_with(lambda self, a, s: a.x * self.rate), None),
        "step": (with_new_step, lambda: setattr(type(with_new_step), "step", lambda self, a, s: a.x * 4.0)),
        "the code of step": (
            with_new_code,
            lambda: setattr(type(with_new_code).step, "__code__", (lambda self, a, s: a.x * 4.0).__code__),
        ),
        "a default": (with_default, lambda: setattr(type(with_default).step, "__defaults__", ((4.0,),))),
        "a global": (cell_with(lambda self, a, s: a.x * FACTOR), change_global),
        "a closure": (cell_with(step), change_closure),
        "a tensor": (cell_with(lambda self, a, s: a.x * self.value, tensor), lambda: tensor.fill_(4.0)),
        "the data of a tensor": (
            cell_with(lambda self, a, s: a.x * float(self.value[0]), vector := torch.tensor([3.0])),
            lambda: vector.data.fill_(4.0),
        ),
        "an array": (cell_with(lambda self, a, s: a.x * float(self.value), array), lambda: array.fill(4.0)),
        "a list": (cell_with(lambda self, a, s: a.x * self.value[0], items), lambda: items.__setitem__(0, 4.0)),
        "a dict": (cell_with(lambda self, a, s: a.x * self.value["rate"], table), lambda: table.update(rate=4.0)),
        "a dataclass": (
            cell_with(lambda self, a, s: a.x * self.value.rate, options),
            lambda: setattr(options, "rate", 4.0),
        ),
        "a namespace": (
            cell_with(lambda self, a, s: a.x * self.value.rate, namespace),
            lambda: setattr(namespace, "rate", 4.0),
        ),
        "a dict whose items are attributes": (
            cell_with(lambda self, a, s: a.x * self.value.rate, attributes := AttrDict(rate=3.0)),
            lambda: attributes.update(rate=4.0),
        ),
        "an object with slots": (
            cell_with(lambda self, a, s: a.x * self.value.rate, slotted),
            lambda: setattr(slotted, "rate", 4.0),
        ),
        "nested objects": (
            cell_with(lambda self, a, s: a.x * self.value["a"][0].rate, nested),
            lambda: setattr(nested["a"][0], "rate", 4.0),
        ),
        "an attribute read by getattr": (
            with_getattr := cell_with(lambda self, a, s: a.x * getattr(self, "va" + "lue"), 3.0),
            lambda: setattr(with_getattr, "value", 4.0),
        ),
        "an attribute of a module": (
            cell_with(lambda self, a, s: F.leaky_relu(a.x, 0.0) * self.value.lambd, shrink := torch.nn.Softshrink(3.0)),
            lambda: setattr(shrink, "lambd", 4.0),
        ),
    }


@pytest.mark.parametrize("place", changes())
def test_a_change_of_a_value_that_a_step_reads_is_noticed(place):
    cell, change = changes()[place]
    before = current_equations(cell)
    assert 4.0 not in constants(cell)
    assert current_equations(cell) is before
    (change or (lambda: setattr(cell, "rate", 4.0)))()
    assert 4.0 in constants(cell)


@pytest.fixture(autouse=True)
def _restore_globals():
    global FACTOR
    code, FACTOR = scaled.__code__, 3.0
    yield
    scaled.__code__ = code


def test_cells_with_equal_steps_have_the_same_equations():
    def define_cell():
        class Same(gg.Cell):
            gates = ("x",)

            def step(self, a, s):
                return torch.tanh(a.x) * 0.5

        return Same()

    first = define_cell()
    assert current_equations(first) is current_equations(define_cell())
    other = type("Same", (gg.Cell,), {"gates": ("x",), "step": lambda self, a, s: torch.relu(a.x)})()
    assert current_equations(other) is not current_equations(first)
    zeros = [constant(cell_with(lambda self, a, s: torch.where(a.x > s.h, a.x, self.value), v)) for v in (0.0, -0.0)]
    assert [str(v) for v in zeros] == ["0.0", "-0.0"]
    texts = [
        current_equations(cell_with(lambda self, a, s: a.x * (2 + (self.value is True)), v)).text for v in (1, True)
    ]
    assert texts[0] != texts[1]
    noisy = [Noisy(cells.LSTM(), {"h": rate}, 0.0, "state") for rate in (0.1, 0.1, 0.2)]
    assert current_equations(noisy[0]) is current_equations(noisy[1]) is not current_equations(noisy[2])
    for k in range(60):
        cell = cell_with(lambda self, a, s: a.x * self.value["rate"], {"rate": 3.0 + k})
        assert constant(cell) == 3.0 + k
        del cell


def test_the_check_for_changes_takes_microseconds():
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


def step_with_no_grad(self, a, s):
    with torch.no_grad():
        gate = torch.sigmoid(a.x)
    return gate * torch.tanh(a.x)


def step_with_try(self, a, s):
    try:
        return torch.cumsum(a.x, -1)
    except TypeError:
        return a.x


def step_with_alias(self, a, s):
    x = a.x * 1.5
    y = x
    x += s.h
    return torch.tanh(y)


def step_that_changes_a_state(self, a, s):
    h = s.h
    h *= 0.5
    return torch.tanh(a.x) + s.h


def step_that_counts(self, a, s):
    self.value += 1
    return torch.tanh(a.x)


def step_that_stores_a_value(self, a, s):
    self.value = torch.tanh(a.x)
    return self.value


LOCAL = threading.local()
LOCAL.rate = 3.0


class Fields(ctypes.Structure):
    _fields_: ClassVar = [("rate", ctypes.c_double)]


class Narrow:
    """A step whose result on tensors has another shape than its equations."""

    def step(self, a, s):
        return a.x if not isinstance(a.x, torch.Tensor) else a.x[:, :1]


def test_imports_during_tracing_are_not_traced(monkeypatch):
    """Import hooks are not pure. torch imports some of its modules at first use, for example in `float(tensor)`."""

    class Hook:
        def find_spec(self, name, path=None, target=None):
            calls.append(locals())

    library = {"__name__": "operator", "__spec__": operator.__spec__}  # one of the modules whose functions are pure
    exec("def third(x):\n    import colorsys\n    return x * colorsys.ONE_THIRD", library)
    third = library["third"]

    class Importing(gg.Cell):
        gates = ("x",)

        def step(self, a, s):
            return third(a.x)

    calls = []
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Hook(), *sys.meta_path])
    current_equations(Importing())
    assert calls


def test_errors_name_the_users_cell():
    """Regularisers wrap a cell in another cell, whose name a user does not know."""

    class CustomCell(gg.Cell):
        gates = ("x",)

        def step(self, a, s):
            return torch.softmax(a.x, -1)

    with pytest.warns(UserWarning, match="cell CustomCell: step uses torch.softmax"):
        gg.Recurrent(CustomCell(), 2, 3, zoneout=0.1)(torch.randn(4, 1, 2))


UNSUPPORTED = {
    "random": (lambda self, a, s: a.x * random.random(), None, "random numbers from Python's generator"),
    "torch.rand": (lambda self, a, s: a.x * torch.rand(()), None, "random numbers from torch's generator"),
    "numpy": (lambda self, a, s: a.x * float(np.random.rand()), None, "reads numpy's random numbers"),  # noqa: NPY002
    "own generator": (lambda self, a, s: a.x * self.value.random(), random.Random(0), "random numbers from Python's"),
    "a clock": (lambda self, a, s: a.x * time.perf_counter(), None, r"calls time.perf_counter\(\), which is not known"),
    "a counter": (lambda self, a, s: a.x * next(self.value), count(), "reads attribute value, a count, whose changes"),
    "a table": (lambda self, a, s: a.x * float(self.value[3]), torch.rand(1000), "attribute value, a tensor of 1,000"),
    "grad mode": (lambda self, a, s: a.x * torch.is_grad_enabled(), None, r"calls torch.is_grad_enabled\(\)"),
    "the default dtype": (lambda self, a, s: a.x * torch.get_default_dtype().itemsize, None, "calls torch.get_default"),
    "the number of threads": (lambda self, a, s: a.x * torch.get_num_threads(), None, "calls torch.get_num_threads"),
    "a backend flag": (
        lambda self, a, s: a.x * torch.backends.cudnn.enabled,
        None,
        "reads torch.backends, a module",
    ),
    "another backend flag": (
        lambda self, a, s: a.x * torch.backends.cuda.matmul.allow_tf32,
        None,
        "reads torch.backends, a module",
    ),
    "the environment": (lambda self, a, s: a.x * len(os.environ), None, "reads os.environ, a _Environ, whose changes"),
    "globals()": (lambda self, a, s: a.x * globals()["FACTOR"], None, r"calls globals\(\)"),
    "eval": (lambda self, a, s: a.x * eval("FACTOR"), None, r"calls eval\(\)"),
    "sys.modules": (lambda self, a, s: a.x * len(sys.modules), None, "reads sys.modules, a dict, whose changes"),
    "a file": (lambda self, a, s: a.x * len(open(__file__).read()), None, r"calls _?io.open\(\)"),  # noqa: SIM115
    "a thread-local value": (lambda self, a, s: a.x * self.value.rate, LOCAL, "a _local, whose changes"),
    "memory of a C structure": (lambda self, a, s: a.x * self.value.rate, Fields(3.0), "a Fields, whose changes"),
    "a side effect": (lambda self, a, s: a.x * (print(end="") is None), None, r"calls print\(\)"),
    "another shape": (Narrow.step, None, "returns a value of another shape than its equations"),
    "no_grad": (step_with_no_grad, None, r"torch.no_grad\(\) or a torch.autograd.Function"),
    "autograd.Function": (lambda self, a, s: Doubled.apply(a.x), None, r"torch.no_grad\(\) or a torch.autograd"),
    "autocast": (lambda self, a, s: torch.autocast("cpu")(lambda: a.x * 2)(), None, "torch.autocast"),
    "try": (step_with_try, None, "torch.cumsum"),
    "an alias": (step_with_alias, None, "again after it was written to through another name"),
    "a changed state": (step_that_changes_a_state, None, r"`\*=` on h_prev, which a step must not change"),
    "a counter in an attribute": (step_that_counts, 0, "writes to attribute value, which a kernel would not"),
    "a stored value": (step_that_stores_a_value, None, "writes to attribute value"),
    "a mask as a state": (
        lambda self, a, s: a.x > 0,
        None,
        "for state 'h' a value that is not one number per unit|a value",
    ),
    "`//`": (lambda self, a, s: a.x // 2, None, "`//`"),
    "`@`": (lambda self, a, s: a.x @ a.x, None, "`@`"),
    "len": (lambda self, a, s: a.x * len(a.x), None, "the length of a tensor"),
    "& of numbers": (lambda self, a, s: torch.where(a.x & s.h, a.x, 0.0), None, "`&` on a value that is not a mask"),
    "where without a mask": (
        lambda self, a, s: torch.where(a.x, a.x, 0.0),
        None,
        "torch.where with a condition that is not a mask",
    ),
    "a function of numpy": (lambda self, a, s: a.x * np.tanh(a.x), None, "numpy"),
    "an assignment to a part": (lambda self, a, s: a.x.__setitem__(0, 1.0), None, "writing to a part of a tensor"),
    "sum": (lambda self, a, s: a.x * sum(a.x), None, "iteration over a tensor"),
    "the type of a value": (
        lambda self, a, s: a.x * isinstance(a.x, torch.Tensor),
        None,
        "gives another value for state 'h'",
    ),
    "no gradient in torch": (lambda self, a, s: 2.5 % a.x, None, "without gradients .*remainder"),
    "an error of the step": (lambda self, a, s: a.x * self.value["none"], {}, "raises KeyError"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_errors_for_unsupported_steps_state_the_reason(name):
    step, value, reason = UNSUPPORTED[name]
    states = random.getstate(), torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    with pytest.raises(NotTraceable, match=rf"^cell Foo: step .*({reason}).*; it runs on the reference engine$"):
        current_equations(cell_with(step, value))
    assert states[0] == random.getstate()
    assert torch.equal(states[1], torch.get_rng_state())
    assert (states[2] == np.random.get_state()[1]).all()  # noqa: NPY002


def test_other_threads_may_draw_random_numbers_during_tracing():
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
    """A supported step that resembles unsupported steps, with one case per gate."""

    gates = ("stored", "own", "added", "power", "logical", "masks", "chosen")
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
        return torch.tanh(sum([self.value * a.stored, own, a.added, power, logical, masks, chosen, 0.5]))


def test_supported_steps_that_resemble_unsupported_ones():
    cell = Odd()
    current_equations(cell)
    report = gg.check(cell)
    assert report, report
    assert any("cpu engine equal" in finding.claim for finding in report.findings)


def test_a_step_with_many_operations_does_not_exceed_the_recursion_limit():
    def step(self, a, s):
        h = a.x
        for k in range(500):
            h = h * 0.99 + s.h * (k % 3 - 1)
        return h

    assert gg.source(cell_with(step)).count("0.99") >= 500
