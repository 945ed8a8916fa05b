"""Values whose changes cannot be noticed: a cell whose step reads one runs on the reference engine from the start."""

import collections
import contextvars
import decimal
import functools
import gc
import logging
import sys
import types
import weakref

import numpy as np
import pytest
import torch

import glassgate as gg
from glassgate.engines.symbolic.values import NotTraceable
from glassgate.engines.traced_cells import current_equations
from tests.engines.test_watch import Rated, matched, reading

FACTOR = 3.0


class AnswersAll:
    def __getattribute__(self, name):
        return 3.0


class AnswersAllOfAClass(type):
    def __getattribute__(cls, name):
        return 3.0


class WithAnsweringMeta(metaclass=AnswersAllOfAClass):
    pass


class AnsweringModule(types.ModuleType):
    def __getattribute__(self, name):
        return 3.0


class Queue(collections.deque):
    rate = 3.0


class Array(np.ndarray):
    pass


@functools.lru_cache
def cached():
    return FACTOR


REGISTRY = weakref.WeakValueDictionary()


VARIABLE = contextvars.ContextVar("VARIABLE", default=3.0)


def make_rate():
    yield 3.0


class WithDict:
    __slots__ = ("rate",)
    __dict__ = property(lambda self: {})  # type: ignore[assignment]


REFUSED = {
    "an object that answers every name": (reading, AnswersAll(), lambda v: v.rate),
    "a class that answers every name": (reading, WithAnsweringMeta, lambda v: v.rate),
    "a module that answers every name": (reading, AnsweringModule("answering"), lambda v: v.rate),
    "a subclass of deque": (reading, Queue([3.0]), lambda v: v[0]),
    "a deque": (reading, collections.deque([3.0]), lambda v: v[0]),
    "a subclass of ndarray": (reading, np.array([3.0]).view(Array), lambda v: float(v[0])),
    "an object array": (reading, np.array([3.0], dtype=object), lambda v: v[0]),
    "lru_cache": (reading, cached, lambda v: v()),
    "a weak reference": (reading, weakref.ref(Rated), lambda v: v().rate),
    "weak values": (reading, REGISTRY, lambda v: len(v) + 3.0),
    "a context variable": (reading, VARIABLE, lambda v: v.get()),
    "a generator": (reading, make_rate(), next),
    "an iterator of a list": (reading, iter([3.0] * 99), next),
    "a gradient": (reading, torch.ones(1), lambda v: 3.0 if v.grad is None else 4.0),
    "an address": (reading, torch.ones(1), lambda v: float(v.data_ptr())),
    "an attribute of a tensor": (reading, torch.ones(1), lambda v: v.rate),
    "decimal": (reading, None, lambda v: float(decimal.Decimal(1) / 3)),
    "a bytearray": (reading, bytearray(b"\3"), lambda v: float(v[0])),
    "a memoryview": (reading, memoryview(bytearray(b"\3")), lambda v: float(v[0])),
    "a frame": (reading, sys._getframe(), lambda v: v.f_globals["FACTOR"]),
    "a computed __dict__": (reading, WithDict(), lambda v: v.rate),
    "gc": (reading, None, lambda v: float(len(gc.get_objects()))),
    "a function that is found in the step": (reading, None, lambda v: gc.get_referents(matched)),
    "the level of a log": (reading, logging.getLogger("a"), lambda v: float(v.getEffectiveLevel())),
}


REFUSED["an attribute of a tensor"][1].rate = 3.0


REFUSED["a computed __dict__"][1].rate = 3.0


@pytest.mark.parametrize("place", REFUSED)
def test_what_cannot_be_compared_runs_on_the_reference_engine(place):
    make, value, read = REFUSED[place]
    cell = make(value, read)
    with pytest.raises(NotTraceable, match=r"^cell Foo: step .+; it runs on the reference engine$"):
        current_equations(cell)


def test_gg_explain_gives_the_reason():
    cell = reading(AnswersAll(), lambda v: v.rate)
    layer = gg.Recurrent(cell, 2, 3)
    with pytest.warns(UserWarning, match="AnswersAll"):
        expected = layer(x := torch.randn(4, 1, 2))[0]
    assert "cell Foo: step reads attribute value, a AnswersAll, whose changes cannot be watched" in str(
        gg.explain(layer, x)
    )
    with gg.engine("reference"):
        assert torch.equal(layer(x)[0], expected)
