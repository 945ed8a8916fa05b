"""The text of elementwise operations, with parentheses only where they are necessary."""

from collections.abc import Sequence
from typing import NamedTuple

from glassgate.engines.symbolic.operations import MASKS

INFIX = {
    "add": ("+", 4), "sub": ("-", 4), "mul": ("*", 5), "div": ("/", 5), "lt": ("<", 0), "le": ("<=", 0),
    "eq": ("==", 0), "ne": ("!=", 0), "logical_and": ("&", 3), "logical_or": ("|", 1),
}  # fmt: skip
"""Operators with their precedence."""

PREFIX = {"neg": "-", "logical_not": "~"}
"""Operators with one operand. Their precedence is `SIGN`."""

CALLS = {
    "where": "tl.where", "exp": "tl.exp", "log": "tl.log", "sin": "tl.sin", "cos": "tl.cos", "abs": "tl.abs",
    "floor": "tl.floor", "ceil": "tl.ceil", "sqrt": "tl.sqrt", "rsqrt": "tl.rsqrt", "erf": "tl.erf",
    "pow": "power", "round": "round_half_even",
}  # fmt: skip
"""The functions of operations that have another name. `mathematics.py` defines those without the prefix `tl`."""

SIGN, ATOM = 6, 9


class Text(NamedTuple):
    """An expression.

    Attributes:
        text: the text of the expression.
        precedence: the precedence of its outermost operator; `ATOM` for names, numbers and calls.
    """

    text: str
    precedence: int = ATOM

    def within(self, precedence: int) -> str:
        """The text as an operand, in parentheses if its operator has a lower precedence than the surrounding one."""
        return f"({self.text})" if self.precedence < precedence else self.text


def number(value: float) -> Text:
    """A number."""
    if value != value or value in (float("inf"), -float("inf")):
        return Text(f'float("{value}")')
    return Text(repr(value), SIGN if value < 0 else ATOM)


def elementwise(op: str, operands: Sequence[Text]) -> Text:
    """An elementwise operation.

    Args:
        op: the name of the operation.
        operands: the texts of its operands.

    Example:
        >>> elementwise("mul", [elementwise("sub", [number(1.0), Text("f")]), Text("g")]).text
        '(1.0 - f) * g'
    """
    if op == "detach":
        return operands[0]
    if op in PREFIX:
        return Text(PREFIX[op] + operands[0].within(SIGN), SIGN)
    if op in INFIX:
        sign, precedence = INFIX[op]
        left = precedence + (op in MASKS)
        right = precedence + (op in MASKS or op in ("sub", "div"))
        return Text(f"{operands[0].within(left)} {sign} {operands[1].within(right)}", precedence)
    return Text(f"{CALLS.get(op, op)}({', '.join(each.text for each in operands)})")
