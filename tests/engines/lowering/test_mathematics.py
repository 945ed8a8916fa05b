"""Decomposed functions equal torch's within the error that their docstrings state, also at extreme values."""

import re
from importlib.resources import files

import pytest
import torch

from glassgate.engines.llvm_cpu.dialect import KERNEL
from glassgate.engines.llvm_cpu.simd.mathematics import FUNCTIONS as FUNCTIONS_OF_SIMD
from glassgate.engines.lowering.mathematics import DECOMPOSED, FLOAT32
from glassgate.engines.symbolic.operations import ARITY, OPERATIONS, PRIMITIVES
from glassgate.engines.triton_gpu.dialect import TRITON
from glassgate.engines.triton_gpu.mathematics import FUNCTIONS as FUNCTIONS_OF_TRITON
from glassgate.export.c_dialect import decomposed_functions, lanes_dialect, scalar_dialect
from glassgate.export.javascript import runtime
from glassgate.export.javascript_dialect import JAVASCRIPT
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


def called(dialect):
    """The functions that the forms of a dialect call, by operation."""
    return {op: re.findall(r"(?<![\w.])[a-z_0-9]\w*(?=\()", form.text) for op, form in dialect.forms.items()}


def test_every_function_that_a_dialect_calls_is_defined():
    """A new primitive operation needs a decomposition, unless every dialect has it."""
    support = files("glassgate.export").joinpath("support.c").read_text("utf-8")
    in_c = {*re.findall(r"(?:LANE_BY_LANE\(|HELPER \w+ )(\w+)", support), *decomposed_functions(double=False)}
    in_javascript = {*re.findall(r"^const (\w+) =", runtime(), re.MULTILINE)}
    defined = [
        (TRITON, FUNCTIONS_OF_TRITON),
        (KERNEL, FUNCTIONS_OF_SIMD),
        (JAVASCRIPT, in_javascript),
        (lanes_dialect(double=False), in_c),
        (scalar_dialect(double=False), in_c | {"broadcast"}),
    ]
    for dialect, functions in defined:
        assert {*dialect.forms} >= PRIMITIVES - {"detach"}
        missing = [f"{op}: {name}" for op, names in called(dialect).items() for name in names if name not in functions]
        assert not missing
