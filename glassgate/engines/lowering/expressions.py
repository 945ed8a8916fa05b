"""Expressions of elementwise operations as text, and the names of variables. A table per dialect decides both.

The tables are in `triton_gpu/dialect.py`, `export/c_dialect.py` and `export/javascript_dialect.py`.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

ANY, CONDITION, OR, AND, EQUALITY, COMPARISON, SUM, PRODUCT, SIGN, ATOM = range(10)
"""Precedences, lowest first: any expression, `a ? b : c`, `|`, `&`, `==`, `<`, `+`, `*`, a sign, a name or a call."""


class Expression(NamedTuple):
    """An expression as text.

    Attributes:
        text: the text of the expression.
        precedence: the precedence of the outermost operator; `ATOM` without one.
    """

    text: str
    precedence: int = ATOM

    def as_operand(self, precedence: int) -> str:
        """The text as an operand of an operator, in parentheses if its precedence is lower than this one."""
        return f"({self.text})" if self.precedence < precedence else self.text


class Form(NamedTuple):
    """The form of an operation in a dialect.

    Attributes:
        text: the text, with {} for each operand.
        precedence: the precedence of the result.
        operands: the lowest precedence of each operand that needs no parentheses.
    """

    text: str
    precedence: int
    operands: tuple[int, ...]

    def apply(self, operands: Sequence[Expression]) -> Expression:
        """The expression of the operation with these operands."""
        texts = [operand.as_operand(least) for operand, least in zip(operands, self.operands, strict=True)]
        return Expression(self.text.format(*texts), self.precedence)


def infix(symbol: str, precedence: int, operands: int | None = None) -> Form:
    """The form of a binary operator, which groups from the left.

    Args:
        symbol: the operator.
        precedence: its precedence.
        operands: the lowest precedence of operands without parentheses, if it is not that of the operator. Compilers
            warn about some expressions that need no parentheses.
    """
    left, right = (precedence, precedence + 1) if operands is None else (operands, operands)
    return Form(f"{{}} {symbol} {{}}", precedence, (left, right))


def prefix(symbol: str) -> Form:
    """The form of a unary operator. Two signs in a row are separated by parentheses."""
    return Form(f"{symbol}{{}}", SIGN, (ATOM,))


def call(function: str, arguments: int = 1) -> Form:
    """The form of a call."""
    return Form(f"{function}({', '.join(['{}'] * arguments)})", ATOM, (ANY,) * arguments)


SIGNS_AND_ARITHMETIC = {
    "add": infix("+", SUM), "sub": infix("-", SUM), "mul": infix("*", PRODUCT), "div": infix("/", PRODUCT),
    "neg": prefix("-"),
}  # fmt: skip
"""The operations with the same form in all dialects."""


@dataclass(frozen=True)
class Literals:
    """The text of numbers in a language.

    Attributes:
        infinity, minus_infinity, nan: the text of the numbers that are not finite.
        finite: the text of a finite number.
    """

    infinity: str
    minus_infinity: str
    nan: str
    finite: Callable[[float], str] = repr

    def __call__(self, value: float) -> Expression:
        """The expression of a number. Negative numbers have a sign."""
        others = {"inf": self.infinity, "-inf": self.minus_infinity, "nan": self.nan}
        text = others.get(str(float(value))) or self.finite(float(value))
        return Expression(text, SIGN if text.startswith("-") else ATOM)


PYTHON_LITERALS = Literals('float("inf")', 'float("-inf")', 'float("nan")')


def words_of(forms: Mapping[str, Form]) -> frozenset[str]:
    """The functions and other words in these forms, which variables must not hide."""
    return frozenset(word for form in forms.values() for word in re.findall(r"(?<![.\w])[A-Za-z_]\w*", form.text))


@dataclass(frozen=True)
class Dialect:
    """A language of generated code.

    Attributes:
        forms: the form of each operation of `symbolic.operations.OPERATIONS` except "detach", which has no effect.
        number: the expression of a number.
        reserved: words that cannot be names of variables: keywords, and names in the generated code.
        spell: changes a name to one that the language allows.
    """

    forms: Mapping[str, Form]
    number: Callable[[float], Expression]
    reserved: Collection[str] = frozenset()
    spell: Callable[[str], str] = str

    def apply(self, op: str, operands: Sequence[Expression]) -> Expression:
        """The expression of an elementwise operation.

        Example:
            >>> from glassgate.engines.triton_gpu.dialect import TRITON
            >>> difference = TRITON.apply("sub", [TRITON.number(1.0), Expression("f")])
            >>> TRITON.apply("mul", [difference, Expression("g")]).text
            '(1.0 - f) * g'
        """
        return operands[0] if op == "detach" else self.forms[op].apply(operands)

    def names(self) -> "Names":
        """The names of a new function, in which no name is taken yet."""
        return Names(self)


@dataclass
class Names:
    """The names of the variables of one function. All of them differ, and none is a reserved word.

    Example:
        >>> from glassgate.engines.triton_gpu.dialect import TRITON
        >>> names = TRITON.names()
        >>> [names.new(name) for name in ("c", "c", "tl")]
        ['c', 'c_', 'tl_']
    """

    dialect: Dialect
    taken: set[str] = field(default_factory=set)

    def new(self, name: str) -> str:
        """A new name: the given one if possible, otherwise with underscores at its end."""
        name = self.dialect.spell(name)
        while name in self.taken or name in self.dialect.reserved:
            name += "_"
        self.taken.add(name)
        return name


def is_numbered(name: str) -> bool:
    """Whether the lowering has named a value only by a number, e.g. "v12", because the source has no name for it."""
    return re.fullmatch(r"v\d+", name) is not None
