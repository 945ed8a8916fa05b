"""Traced cells: a change of any value that the step reads is noticed, and equal steps share their equations."""

import operator
import random
import sys
import threading
import timeit
import types
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import glassgate as gg
from glassgate import cells
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


def test_a_step_with_many_operations_does_not_exceed_the_recursion_limit():
    def step(self, a, s):
        h = a.x
        for k in range(500):
            h = h * 0.99 + s.h * (k % 3 - 1)
        return h

    assert gg.source(cell_with(step)).count("0.99") >= 500
