"""The values of a step as its author wrote them, from which diagrams are made."""

from dataclasses import dataclass
from typing import Any

from glassgate.engines.symbolic.ops import InputHalf, RecurrentHalf
from glassgate.engines.symbolic.values import S, halves_of

LEAVES = ("parameter", "noise", "constant", "size", "input")
"""The operations of values that have no wire: their names are in the labels of the items that read them."""


@dataclass(eq=False)
class Term:
    """A value as written in `step`: the result of an operation, a function of torch, or a function of the user.

    Attributes:
        op: the operation, or the name of the function.
        args: terms, numbers and texts.
        name: the name of the variable in the step; None without one.
        node: the traced value.
        call: the call of a function, with one or several results.
        port: the index of the result of the call.
    """

    op: str
    args: tuple[Any, ...]
    name: str | None
    node: Any
    call: Any = None
    port: int = 0

    @property
    def terms(self) -> tuple["Term", ...]:
        """The arguments that are terms."""
        return tuple(arg for arg in self.args if isinstance(arg, Term))

    @property
    def wired_terms(self) -> tuple["Term", ...]:
        """The arguments that are neither numbers nor parameters."""
        return tuple(term for term in self.terms if term.op not in LEAVES)


def product_of_pre_activation(value: S) -> tuple[str, S] | None:
    """The gate and the operand of the recurrent product in a pre-activation; None for other values."""
    halves = halves_of(value)
    if halves is None or not isinstance(halves[1].op, RecurrentHalf):
        return None
    gate = halves[1].op.gate
    return (gate, halves[1].inputs[0]) if halves[0].op == InputHalf(gate) else None
