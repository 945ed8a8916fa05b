"""JavaScript as a dialect of generated code: operations, literals, and reserved words."""

import re

from glassgate.engines.lowering.expressions import (
    AND,
    COMPARISON,
    CONDITION,
    EQUALITY,
    OR,
    PRODUCT,
    SIGNS_AND_ARITHMETIC,
    Dialect,
    Form,
    Literals,
    call,
    infix,
    prefix,
    words_of,
)
from glassgate.engines.lowering.mathematics import DECOMPOSED, function_lines
from glassgate.engines.symbolic.operations import ARITY, PRIMITIVES

_KEYWORDS = """
arguments await break case catch class const continue debugger default delete do else enum eval export extends
false finally for function if implements import in instanceof interface let new null package private protected
public return static super switch this throw true try typeof undefined var void while with yield
"""
_GENERATED = "Infinity NaN at at_x before edit multiply products scratch t values w x"
"""Names that the code of a step uses itself, in addition to those in the forms of operations."""
_OF_MATH = "abs floor ceil trunc sqrt exp expm1 log log1p sin cos tan atan"

_FORMS = {
    **{op: call(op, ARITY[op]) for op in PRIMITIVES - {"detach"}},
    **SIGNS_AND_ARITHMETIC,
    **{op: call(f"Math.{op}") for op in _OF_MATH.split()},
    "round": call("roundToEven"),
    "pow": call("power", 2),
    "fmod": infix("%", PRODUCT),
    "minimum": call("Math.min", 2),
    "maximum": call("Math.max", 2),
    "lt": infix("<", COMPARISON),
    "le": infix("<=", COMPARISON),
    "eq": infix("===", EQUALITY),
    "ne": infix("!==", EQUALITY),
    "logical_not": prefix("!"),
    "logical_and": infix("&&", AND),
    "logical_or": infix("||", OR),
    "where": Form("{} ? {} : {}", CONDITION, (CONDITION + 1, CONDITION + 1, CONDITION + 1)),
}


def spell(name: str) -> str:
    """The name, unless the code of a step uses it for a position in an array, such as at_6."""
    return f"{name}_" if re.fullmatch(r"at_\d+", name) else name


def _finite(value: float) -> str:
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


LITERALS = Literals("Infinity", "-Infinity", "NaN", _finite)
JAVASCRIPT = Dialect(_FORMS, LITERALS, words_of(_FORMS).union(_KEYWORDS.split(), _GENERATED.split()), spell)


def decomposed_functions() -> dict[str, str]:
    """Functions that are decomposed into others, by name. Pages use those that `javascript.js` does not define."""
    functions = {}
    for op, function in DECOMPOSED.items():
        name, parameters = _FORMS[op].text.partition("(")[0], ", ".join("xyz"[: ARITY[op]])
        *lines, result = function_lines(op, function, JAVASCRIPT)
        variables = "".join(f"\n  const {line.variable} = {line.text};" for line in lines)
        body = f"{{{variables}\n  return {result.text};\n}}" if lines else result.text
        if name.isidentifier():
            functions[name] = f"const {name} = ({parameters}) => {body};"
    return functions
