"""Steps that cannot be traced raise errors with the reason, and run on the reference engine."""

import ctypes
import os
import random
import sys
import threading
import time
from itertools import count
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import glassgate as gg
from glassgate.engines.symbolic.values import NotTraceable
from glassgate.engines.traced_cells import current_equations
from tests.engines.test_traced_cells import cell_with

FACTOR = 3.0


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
