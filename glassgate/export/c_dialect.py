"""C as a dialect of generated code: operations on single numbers and on `lanes`, literals, and reserved words."""

import math
import re
from functools import partial

import numpy as np

from glassgate.engines.lowering.expressions import (
    AND,
    ANY,
    ATOM,
    COMPARISON,
    CONDITION,
    EQUALITY,
    OR,
    PRODUCT,
    SIGN,
    SIGNS_AND_ARITHMETIC,
    Dialect,
    Expression,
    Form,
    call,
    infix,
    prefix,
    words_of,
)

_KEYWORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
"""
KEYWORDS = frozenset(_KEYWORDS.split())
"""The keywords of C99."""
_OTHER_KEYWORDS = """
alignas alignof asm bool catch class concept consteval constexpr constinit const_cast decltype delete dynamic_cast
explicit export false friend mutable namespace new noexcept nullptr operator private protected public reinterpret_cast
requires static_assert static_cast template this thread_local throw true try typeid typename typeof typeof_unqual using
virtual wchar_t char8_t char16_t char32_t and and_eq bitand bitor compl not not_eq or or_eq xor xor_eq
co_await co_return co_yield
"""
"""The keywords of later versions of C and of C++."""
_MACROS = "unix linux i386 errno stdin stdout stderr math_errhandling near far small interface min max"
"""Macros of compilers and headers whose names do not look like those of macros."""
_GENERATED = """
W x w u k at part real integer lanes mask memcpy size_t broadcast broadcast_mask load load_mask store store_mask
at_most at_least
"""
"""Names that the code of a step uses itself, in addition to those in the forms of operations."""

_FUNCTIONS = """
abs sign floor ceil round trunc sqrt exp expm1 log log1p sin cos tan atan sigmoid tanh erf
"""
"""Operations that are functions of `support.c`, for example `exp_lanes` for "exp"."""
_BINARY_FUNCTIONS = ("pow", "fmod", "minimum", "maximum")
_COMPARISONS = {
    "lt": ("<", COMPARISON), "le": ("<=", COMPARISON), "eq": ("==", EQUALITY), "ne": ("!=", EQUALITY),
}  # fmt: skip

_ON_LANES = {
    **SIGNS_AND_ARITHMETIC,
    **{op: call(f"{op}_lanes") for op in _FUNCTIONS.split()},
    **{op: call(f"{op}_lanes", 2) for op in _BINARY_FUNCTIONS},
    **{
        op: Form(f"(mask)({{}} {sign} {{}})", SIGN, (COMPARISON + 1, COMPARISON + 1))
        for op, (sign, _) in _COMPARISONS.items()
    },
    "rsqrt": Form("broadcast(1) / sqrt_lanes({})", PRODUCT, (CONDITION,)),
    "where": call("select_lanes", 3),
    "logical_not": call("NOT"),
    "logical_and": infix("&", AND, SIGN),
    "logical_or": infix("|", OR, SIGN),
}
_ON_NUMBERS = {
    **SIGNS_AND_ARITHMETIC,
    **{op: Form(f"LANE({op}_lanes(broadcast({{}})), 0)", ATOM, (ANY,)) for op in _FUNCTIONS.split()},
    **{
        op: Form(f"LANE({op}_lanes(broadcast({{}}), broadcast({{}})), 0)", ATOM, (ANY, ANY)) for op in _BINARY_FUNCTIONS
    },
    **{op: infix(sign, precedence, COMPARISON + 1) for op, (sign, precedence) in _COMPARISONS.items()},
    "rsqrt": Form("1 / MATH(sqrt)({})", PRODUCT, (CONDITION,)),
    "where": Form("{} ? {} : {}", CONDITION, (CONDITION + 1, CONDITION + 1, CONDITION + 1)),
    "logical_not": prefix("!"),
    "logical_and": infix("&&", AND, COMPARISON),
    "logical_or": infix("||", OR, COMPARISON),
}


def spell(name: str) -> str:
    """A valid identifier that differs from macros, from functions of `support.c` and from reserved identifiers."""
    name = "".join(letter if letter.isascii() else f"u{ord(letter):x}" for letter in name)
    if re.match(r"_[A-Z_]", name):  # reserved for compilers
        name = f"v{name}"
    is_like_macro = re.match(r"[A-Z][A-Z0-9_]", name)
    return f"{name}_" if is_like_macro or name.endswith("_lanes") else name


def literal(value: float, double: bool) -> Expression:
    """A number as a literal. Negative numbers have a sign."""
    sign = SIGN if math.copysign(1.0, value) < 0 else ATOM
    if value != value:
        return Expression("NAN")
    if value in (float("inf"), float("-inf")):
        return Expression("INFINITY" if value > 0 else "-INFINITY", sign)
    if double:
        return Expression(repr(float(value)), sign)
    short = f"{np.float32(value):.9g}"
    return Expression(f"{short}f" if "." in short or "e" in short else f"{short}.0f", sign)


_USED = words_of(_ON_LANES) | words_of(_ON_NUMBERS)
_RESERVED = KEYWORDS.union(
    _OTHER_KEYWORDS.split(), _MACROS.split(), _GENERATED.split(), _USED, (f"{word}f" for word in _USED)
)


def lanes_dialect(double: bool) -> Dialect:
    """C on `lanes`, the vector registers of `support.c`."""
    return Dialect(_ON_LANES, partial(literal, double=double), _RESERVED, spell)


def scalar_dialect(double: bool) -> Dialect:
    """C on single numbers."""
    return Dialect(_ON_NUMBERS, partial(literal, double=double), _RESERVED, spell)
