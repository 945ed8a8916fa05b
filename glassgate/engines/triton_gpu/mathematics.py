"""The text of the functions that kernels call: elementary functions that Triton lacks, reductions, and barriers."""

import re

from glassgate.engines.lowering.mathematics import DECOMPOSED, FLOAT32, Function, function_lines
from glassgate.engines.symbolic.operations import ARITY
from glassgate.engines.triton_gpu.dialect import FUNCTION_NAMES, TRITON


def _text(op: str, function: Function) -> str:
    """A decomposed function in Triton."""
    name, parameters = FUNCTION_NAMES.get(op, op), ", ".join("xyz"[: ARITY[op]])
    description = (function.__doc__ or "").partition(". ")[0].partition("\n")[0].rstrip(".")
    lines = [
        f"{line.variable} = {line.text}" if line.variable else f"return {line.text}"
        for line in function_lines(op, function, TRITON)
    ]
    return "\n    ".join([f"\n@triton.jit\ndef {name}({parameters}):", f"# {description}", *lines]) + "\n"


FUNCTIONS = {
    **{FUNCTION_NAMES.get(op, op): _text(op, function) for op, function in {**DECOMPOSED, **FLOAT32}.items()},
    "power": """
@triton.jit
def power(x, y):
    # x to the power y; a negative x has a real power only for integers y
    size = tl.abs(x)
    magnitude = tl.where(y == 1.0, size, tl.exp2(y * tl.log2(size)))  # the logarithm of the largest number is 128
    magnitude = tl.where(size == 1.0, tl.where(y == y, 1.0, y), magnitude)
    odd = y - 2.0 * tl.floor(0.5 * y) == 1.0
    signed = tl.where(odd, -magnitude, magnitude)
    of_negative = tl.where(y == tl.floor(y), signed, tl.where(x == -float("inf"), magnitude, float("nan")))
    return tl.where((y == 0.0) | (x == 1.0), 1.0, tl.where(x < 0.0, of_negative, magnitude))
""",
    "row_sum": """
@triton.jit
def row_sum(x):
    # The sum of each row, as a column
    return tl.reduce(x, 1, tl.standard._sum_combine, keep_dims=True)
""",
    "total": """
@triton.jit
def total(x, axis: tl.constexpr):
    # The sums along an axis
    return tl.reduce(x, axis, tl.standard._sum_combine)
""",
    "largest": """
@triton.jit
def largest(x, axis: tl.constexpr):
    # The maxima along an axis
    return tl.reduce(x, axis, tl.standard._elementwise_max)
""",
    "running_total": """
@triton.jit
def running_total(x, axis: tl.constexpr, reverse: tl.constexpr):
    # The sums along an axis from its start, or from its end
    return tl.associative_scan(x, axis, tl.standard._sum_combine, reverse)
""",
    "barrier": """
@triton.jit
def barrier(arrived, expected, patience):
    # Wait for all programs. Returns `patience`, or 0 if the wait was too long: later barriers then do not wait
    tl.debug_barrier()
    count = tl.atomic_add(arrived, 1, sem="acq_rel") + 1
    spins = 0
    while (count < expected) & (spins < patience):
        count = tl.atomic_add(arrived, 0, sem="acquire")
        spins += 1
    tl.debug_barrier()
    return tl.where(count < expected, 0, patience)
""",
}
"""Functions by name. Except in `power`, results have errors of a few units in the last place of float32."""


def functions_called_in(text: str) -> str:
    """The functions that a text calls."""
    return "\n\n".join(
        function.lstrip() for name, function in FUNCTIONS.items() if re.search(rf"(?<!\.)\b{name}\(", text)
    )
