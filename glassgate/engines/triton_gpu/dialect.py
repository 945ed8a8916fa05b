"""Triton as a dialect of generated code: operations, literals, and reserved words."""

from keyword import kwlist

from glassgate.engines.lowering.expressions import (
    AND,
    COMPARISON,
    OR,
    PRODUCT,
    PYTHON_LITERALS,
    SIGN,
    SIGNS_AND_ARITHMETIC,
    Dialect,
    call,
    infix,
    prefix,
    words_of,
)
from glassgate.engines.symbolic.operations import ARITY, PRIMITIVES
from glassgate.engines.triton_gpu.kernel import CONSTANTS, HEAD_WIDTHS

_GENERATED = """
triton tl float range iteration T N H P heads starts t seq row start live here seq_now seq_next blocks unit unit_ok
unit_head out out_ok out_head block column column_ok left right expected arrived patience
row_sum barrier total largest running_total
"""
"""Names that kernels use themselves, in addition to those in the forms of operations."""
_OF_TRITON = "exp log sin cos abs floor ceil sqrt rsqrt erf"
FUNCTION_NAMES = {"round": "round_half_even", "pow": "power"}
"""The operations whose functions in `mathematics.py` have other names, because Python has functions of these names."""

_FORMS = {
    **{op: call(FUNCTION_NAMES.get(op, op), ARITY[op]) for op in PRIMITIVES - {"detach"}},
    **SIGNS_AND_ARITHMETIC,
    **{op: call(f"tl.{op}") for op in _OF_TRITON.split()},
    "fmod": infix("%", PRODUCT),
    "where": call("tl.where", 3),
    "lt": infix("<", COMPARISON),
    "le": infix("<=", COMPARISON),
    "eq": infix("==", COMPARISON),
    "ne": infix("!=", COMPARISON),
    "logical_and": infix("&", AND, SIGN),
    "logical_or": infix("|", OR, SIGN),
    "logical_not": prefix("~"),
}


TRITON = Dialect(_FORMS, PYTHON_LITERALS, words_of(_FORMS).union(_GENERATED.split(), kwlist, CONSTANTS, HEAD_WIDTHS))
