"""C as a dialect of generated code: operations on single numbers and on `lanes`, literals, and reserved words."""

import re
from dataclasses import replace

import numpy as np

from glassgate.engines.lowering.expressions import (
    AND,
    ANY,
    ATOM,
    COMPARISON,
    CONDITION,
    EQUALITY,
    OR,
    SIGN,
    SIGNS_AND_ARITHMETIC,
    Dialect,
    Expression,
    Form,
    Literals,
    call,
    infix,
    prefix,
    words_of,
)
from glassgate.engines.lowering.mathematics import DECOMPOSED, function_lines
from glassgate.engines.symbolic.operations import ARITY, MASKS, PRIMITIVES

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

_FUNCTIONS = PRIMITIVES - {"detach"}
"""Operations that are functions of `support.c`, for example `exp_lanes` for "exp", unless C has an operator."""
_COMPARISONS = {
    "lt": ("<", COMPARISON), "le": ("<=", COMPARISON), "eq": ("==", EQUALITY), "ne": ("!=", EQUALITY),
}  # fmt: skip

_ON_LANES = {
    **{op: call(f"{op}_lanes", ARITY[op]) for op in _FUNCTIONS},
    **SIGNS_AND_ARITHMETIC,
    **{
        op: Form(f"(mask)({{}} {sign} {{}})", SIGN, (COMPARISON + 1, COMPARISON + 1))
        for op, (sign, _) in _COMPARISONS.items()
    },
    "where": call("select_lanes", 3),
    "logical_not": call("NOT"),
    "logical_and": infix("&", AND, SIGN),
    "logical_or": infix("|", OR, SIGN),
}
_ON_NUMBERS = {
    **{
        op: Form(f"LANE({op}_lanes({', '.join(['broadcast({})'] * ARITY[op])}), 0)", ATOM, (ANY,) * ARITY[op])
        for op in _FUNCTIONS
    },
    **SIGNS_AND_ARITHMETIC,
    **{op: infix(sign, precedence, COMPARISON + 1) for op, (sign, precedence) in _COMPARISONS.items()},
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


def _float32(value: float) -> str:
    short = f"{np.float32(value):.9g}"
    return f"{short}f" if "." in short or "e" in short else f"{short}.0f"


_DOUBLE = Literals("INFINITY", "-INFINITY", "NAN")
LITERALS = {True: _DOUBLE, False: replace(_DOUBLE, finite=_float32)}
"""The literals, by whether numbers are double."""
_RESERVED = KEYWORDS.union(
    _OTHER_KEYWORDS.split(), _MACROS.split(), _GENERATED.split(), words_of(_ON_LANES), words_of(_ON_NUMBERS)
)


def lanes_dialect(double: bool) -> Dialect:
    """C on `lanes`, the vector registers of `support.c`."""
    return Dialect(_ON_LANES, LITERALS[double], _RESERVED, spell)


def decomposed_functions(double: bool) -> dict[str, str]:
    """Functions on `lanes` that are decomposed into others, by name. C uses those that `support.c` does not define."""
    lanes = lanes_dialect(double)
    dialect = replace(lanes, number=lambda number: Expression(f"broadcast({lanes.number(number).text})"))
    functions = {}
    for op, function in DECOMPOSED.items():
        name, parameters = f"{op}_lanes", ", ".join(f"lanes {x}" for x in "xyz"[: ARITY[op]])
        lines = [
            f"const {'mask' if line.is_mask else 'lanes'} {line.variable} = {line.text};"
            if line.variable
            else f"return {line.text};"
            for line in function_lines(op, function, dialect)
        ]
        result = "mask" if op in MASKS else "lanes"
        functions[name] = "\n    ".join([f"HELPER {result} {name}({parameters}) {{", *lines]) + "\n}"
    return functions


def scalar_dialect(double: bool) -> Dialect:
    """C on single numbers."""
    return Dialect(_ON_NUMBERS, LITERALS[double], _RESERVED, spell)
