"""Expressions for elementwise operations, with parentheses only where they are necessary."""

from collections.abc import Sequence
from typing import NamedTuple

from glassgate.engines.symbolic.operations import MASKS

INFIX = {
    "add": ("+", 4), "sub": ("-", 4), "mul": ("*", 5), "div": ("/", 5), "lt": ("<", 0), "le": ("<=", 0),
    "eq": ("==", 0), "ne": ("!=", 0), "logical_and": ("&", 3), "logical_or": ("|", 1),
}  # fmt: skip
"""The binary operators, with their precedence."""

PREFIX = {"neg": "-", "logical_not": "~"}
"""The unary operators. Their precedence is `SIGN`."""

CALLS = {
    "where": "tl.where", "exp": "tl.exp", "log": "tl.log", "sin": "tl.sin", "cos": "tl.cos", "abs": "tl.abs",
    "floor": "tl.floor", "ceil": "tl.ceil", "sqrt": "tl.sqrt", "rsqrt": "tl.rsqrt", "erf": "tl.erf",
    "pow": "power", "round": "round_half_even",
}  # fmt: skip
"""Operations and their functions where the names differ. `mathematics.py` defines functions without the prefix `tl`."""

SIGN, ATOM = 6, 9
"""The precedences: `SIGN` of unary operators, `ATOM` of names, numbers and calls."""


class Expression(NamedTuple):
    """An expression as text.

    Attributes:
        text: the text of the expression.
        precedence: the precedence of the outermost operator; `ATOM` without one.
    """

    text: str
    precedence: int = ATOM

    def as_operand(self, precedence: int) -> str:
        """The text as an operand of an operator, in parentheses if the operator has a higher precedence."""
        return f"({self.text})" if self.precedence < precedence else self.text


def format_number(value: float) -> Expression:
    """The expression of a number."""
    if value != value or value in (float("inf"), -float("inf")):
        return Expression(f'float("{value}")')
    return Expression(repr(value), SIGN if value < 0 else ATOM)


def format_elementwise(op: str, operands: Sequence[Expression]) -> Expression:
    """The expression of an elementwise operation.

    Args:
        op: the name of the operation.
        operands: the expressions of its operands.

    Example:
        >>> difference = format_elementwise("sub", [format_number(1.0), Expression("f")])
        >>> format_elementwise("mul", [difference, Expression("g")]).text
        '(1.0 - f) * g'
    """
    if op == "detach":
        return operands[0]
    if op in PREFIX:
        return Expression(PREFIX[op] + operands[0].as_operand(SIGN), SIGN)
    if op in INFIX:
        symbol, precedence = INFIX[op]
        left = precedence + (op in MASKS)
        right = precedence + (op in MASKS or op in ("sub", "div"))
        return Expression(f"{operands[0].as_operand(left)} {symbol} {operands[1].as_operand(right)}", precedence)
    return Expression(f"{CALLS.get(op, op)}({', '.join(operand.text for operand in operands)})")
