"""Decomposed functions equal torch's within the error that their docstrings state, also at extreme values."""

import re

import pytest
import torch

from glassgate.engines.lowering.mathematics import DECOMPOSED, FLOAT32
from glassgate.engines.symbolic.operations import ARITY, OPERATIONS
from tests.mathematics.table import grid

FUNCTIONS = [*DECOMPOSED.items(), *FLOAT32.items()]


@pytest.mark.parametrize(("op", "function"), FUNCTIONS, ids=[function.__name__ for _, function in FUNCTIONS])
def test_decomposed_functions_have_the_stated_error(op, function):
    dtype = torch.float32 if function in FLOAT32.values() else torch.float64
    limits = torch.finfo(dtype)
    x, y = grid(dtype)
    arguments = (x, y)[: ARITY[op]]
    value, expected = function(*arguments), OPERATIONS[op].compute(*arguments)
    ulp = float((re.search(r"(\d+) ulp", function.__doc__) or [0, 0])[1])
    fits = (value == expected) | (value.isnan() & expected.isnan())
    if ulp:
        fits |= (value - expected).abs() <= ulp * limits.eps * expected.abs() + limits.tiny
    faults = [f"{v:.9g}" for v in arguments[0].expand_as(fits)[~fits]]
    assert not faults, f"{function.__name__} at {faults[:5]}: {value[~fits][:5]} instead of {expected[~fits][:5]}"
