"""The functions that Triton lacks, as text.

Except in `power`, results have errors of a few units in the last place of float32.
"""

import re

FUNCTIONS = {
    "sigmoid": """
@triton.jit
def sigmoid(x):
    # 1 / (1 + exp(-x))
    return 1.0 / (1.0 + tl.exp(-x))
""",
    "tanh": """
@triton.jit
def tanh(x):
    # A Taylor series near zero, where (1 - e) / (1 + e) cancels
    e = tl.exp(-2.0 * tl.abs(x))
    far = (1.0 - e) / (1.0 + e)
    s = x * x
    series = s * (-0.05396825396825397 + s * (0.021869488536155203 + s * (-0.008863235529902197)))
    near = x + x * (s * (-0.3333333333333333 + s * (0.13333333333333333 + series)))
    return tl.where(s < 0.09, near, tl.where(x < 0.0, -far, far))
""",
    "expm1": """
@triton.jit
def expm1(x):
    # A Taylor series near zero, where exp(x) - 1 cancels
    series = x * (0.041666666666666664 + x * (0.008333333333333333 + x * (0.001388888888888889 + x * 0.0001984126984)))
    near = x + x * (x * (0.5 + x * (0.16666666666666666 + series)))
    return tl.where(tl.abs(x) < 0.3, near, tl.exp(x) - 1.0)
""",
    "log1p": """
@triton.jit
def log1p(x):
    # log(1 + x), corrected by the error of 1 + x. Goldberg 1991, theorem 4
    y = 1.0 + x
    exact = (y == 1.0) | (y == float("inf"))
    return tl.where(exact, x, x * (tl.log(y) / tl.where(exact, 1.0, y - 1.0)))
""",
    "tan": """
@triton.jit
def tan(x):
    # sin / cos
    return tl.sin(x) / tl.cos(x)
""",
    "atan": """
@triton.jit
def atan(x):
    # Reduction to [0, tan(pi / 8)] and a polynomial. Moshier, Cephes, atanf
    y = tl.abs(x)
    large, medium = y > 2.414213562373095, y > 0.4142135623730950
    reduced = tl.where(large, -1.0 / tl.where(large, y, 1.0), tl.where(medium, (y - 1.0) / (y + 1.0), y))
    s = reduced * reduced
    series = s * (-0.333329491539 + s * (0.199777106478 + s * (-0.138776856032 + s * 0.0805374449538)))
    offset = tl.where(large, 1.5707963267948966, tl.where(medium, 0.7853981633974483, 0.0))
    z = offset + (reduced + reduced * series)
    return tl.where(x < 0.0, -z, z)
""",
    "sign": """
@triton.jit
def sign(x):
    # -1, 0 or 1
    return tl.where(x > 0.0, 1.0, tl.where(x < 0.0, -1.0, 0.0))
""",
    "trunc": """
@triton.jit
def trunc(x):
    # Toward zero
    return tl.where(x < 0.0, tl.ceil(x), tl.floor(x))
""",
    "round_half_even": """
@triton.jit
def round_half_even(x):
    # To the nearest integer; halves to the even one
    low = tl.floor(x)
    odd = low - 2.0 * tl.floor(0.5 * low)
    rest = x - low
    rounded = tl.where(rest < 0.5, low, tl.where(rest > 0.5, low + 1.0, low + odd))
    # The product keeps the sign of zero. An infinite x has no rest.
    return tl.where(rest != rest, x, tl.where(rounded == 0.0, x * 0.0, rounded))
""",
    "power": """
@triton.jit
def power(x, y):
    # x to the power y; a negative x has a real power only for integers y
    magnitude = tl.where(tl.abs(x) == 1.0, tl.where(y == y, 1.0, y), tl.exp2(y * tl.log2(tl.abs(x))))
    odd = y - 2.0 * tl.floor(0.5 * y) == 1.0
    signed = tl.where(odd, -magnitude, magnitude)
    of_negative = tl.where(y == tl.floor(y), signed, tl.where(x == -float("inf"), magnitude, float("nan")))
    return tl.where((y == 0.0) | (x == 1.0), 1.0, tl.where(x < 0.0, of_negative, magnitude))
""",
    "remainder": """
@triton.jit
def remainder(x, y):
    # The remainder of the division toward zero, as fmod of C
    return x % y
""",
    "minimum": """
@triton.jit
def minimum(x, y):
    # The smaller number; NaN if either is NaN, as in torch
    return tl.where((x < y) | (x != x), x, y)
""",
    "maximum": """
@triton.jit
def maximum(x, y):
    # The larger number; NaN if either is NaN, as in torch
    return tl.where((y < x) | (x != x), x, y)
""",
    "row_sum": """
@triton.jit
def row_sum(x):
    # The sum of each row, as a column
    return tl.reduce(x, 1, tl.standard._sum_combine, keep_dims=True)
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
"""Functions by name."""


def functions_called_in(text: str) -> str:
    """The functions that a text calls."""
    return "\n\n".join(function.lstrip() for name, function in FUNCTIONS.items() if re.search(rf"\b{name}\(", text))
