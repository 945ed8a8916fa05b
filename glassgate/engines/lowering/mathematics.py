"""Elementary functions that some dialects lack, each decomposed once into operations that every dialect has.

A dialect that has a function, e.g. as an instruction of the processor, uses its own. `symbolic/mathematics.py` composes
the operations that no dialect has. Errors are in units in the last place (ulp), for exact operations. All functions
return NaN for NaN, unless they state otherwise.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import FrameType
from typing import Any, NamedTuple, TypeVar

import torch

from glassgate.engines.axes import UNITS
from glassgate.engines.lowering.expressions import Dialect, Expression, Names
from glassgate.engines.symbolic.graph import Node, leaf
from glassgate.engines.symbolic.mathematics import erfc_of_size, polynomial
from glassgate.engines.symbolic.operations import ARITY, MASKS
from glassgate.engines.symbolic.ops import State
from glassgate.engines.symbolic.values import topological_order

V = TypeVar("V")
MAX_LENGTH = 90
"""An expression with a longer text is assigned to a variable."""


def ne(x: Any, y: Any) -> Any:
    """Whether two numbers differ. True for NaN."""
    return torch.logical_not(x == y)


def sign(x: Any) -> Any:
    """-1, 0 or 1, exact. 0 for NaN, as in torch."""
    return torch.where(x > 0.0, 1.0, torch.where(x < 0.0, -1.0, 0.0))


def trunc(x: Any) -> Any:
    """The integer part, exact, also for infinity."""
    return torch.where(x < 0.0, torch.ceil(x), torch.floor(x))


def round(x: Any) -> Any:
    """The nearest integer, and the even one of two, exact, also for infinity, with the sign of x at zero."""
    low = torch.floor(x)
    odd = low - 2.0 * torch.floor(0.5 * low)
    rest = x - low
    rounded = torch.where(rest < 0.5, low, torch.where(rest > 0.5, low + 1.0, low + odd))
    # The product keeps the sign of zero. An infinite x has no rest.
    return torch.where(rest == rest, torch.where(rounded == 0.0, x * 0.0, rounded), x)


def minimum(x: Any, y: Any) -> Any:
    """The smaller number, exact. NaN if either is NaN, as in torch."""
    return torch.where(x == x, torch.where(x < y, x, y), x)


def maximum(x: Any, y: Any) -> Any:
    """The larger number, exact. NaN if either is NaN, as in torch."""
    return torch.where(x == x, torch.where(x > y, x, y), x)


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x), 1 ulp. Infinite at zero, 0 at infinity, NaN below zero."""
    return 1.0 / torch.sqrt(x)


def sigmoid(x: Any) -> Any:
    """1 / (1 + e^-x), 2 ulp. 0 and 1 at infinity; 0 where e^-x overflows."""
    return 1.0 / (1.0 + torch.exp(-x))


def log1p(x: Any) -> Any:
    """log(1 + x), 3 ulp: log(y) is corrected by the error of y = 1 + x (Goldberg 1991, theorem 4).

    Infinite at infinity and at -1, NaN below -1. `y - 1` is exact for large numbers, where x / (y - 1) rounds to 1.
    """
    y = 1.0 + x
    exact = (y == 1.0) | (y == float("inf"))
    return torch.where(exact, x, x * (torch.log(y) / torch.where(exact, 1.0, y - 1.0)))


def expm1(x: Any) -> Any:
    """e^x - 1, 4 ulp: 2 t / (1 - t) with t = tanh(x / 2) below 1. Infinite and -1 at infinity."""
    half = torch.tanh(x * 0.5)
    return torch.where(x < 1.0, (half + half) / (1.0 - half), torch.exp(x) - 1.0)


def tan(x: Any) -> Any:
    """sin(x) / cos(x), 2 ulp. NaN at infinity."""
    return torch.sin(x) / torch.cos(x)


def atan(x: Any) -> Any:
    """atan(x), 2 ulp: reduction to [-0.21, 0.66] and a rational function (Moshier, Cephes, atan)."""
    y = torch.abs(x)
    large, medium = y > 2.414213562373095, y > 0.66
    reduced = torch.where(large, -1.0 / torch.where(large, y, 1.0), torch.where(medium, (y - 1.0) / (y + 1.0), y))
    s = reduced * reduced
    ratio = polynomial(
        s,
        -8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1,
        -1.228866684490136173410e2, -6.485021904942025371773e1,
    ) / polynomial(
        s,
        1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2,
        4.853903996359136964868e2, 1.945506571482613964425e2,
    )  # fmt: skip
    z = reduced + reduced * (s * ratio)
    z = torch.where(large, z + 1.5707963267948966, torch.where(medium, z + 0.7853981633974483, z))
    return torch.where(x < 0.0, -z, z)


def erf(x: Any) -> Any:
    """The error function, 2 ulp: a rational function near zero (W. J. Cody, 1969), and 1 - erfc(|x|)."""
    s = torch.where(torch.abs(x) < 0.5, x * x, 0.0)
    near = x * (
        polynomial(
            s,
            1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2, 3.77485237685302021e2,
            3.20937758913846947e3,
        )
        / polynomial(
            s, 1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3
        )
    )  # fmt: skip
    far = 1.0 - erfc_of_size(x)
    return torch.where(torch.abs(x) < 0.5, near, torch.where(x < 0.0, -far, far))


def tanh_float32(x: Any) -> Any:
    """tanh(x), 4 ulp of float32: a Taylor series near zero, where (1 - e) / (1 + e) cancels. -1 and 1 at infinity."""
    e = torch.exp(-2.0 * torch.abs(x))
    far = (1.0 - e) / (1.0 + e)
    s = x * x
    series = s * (-0.05396825396825397 + s * (0.021869488536155203 + s * (-0.008863235529902197)))
    near = x + x * (s * (-0.3333333333333333 + s * (0.13333333333333333 + series)))
    return torch.where(s < 0.09, near, torch.where(x < 0.0, -far, far))


def expm1_float32(x: Any) -> Any:
    """e^x - 1, 4 ulp of float32: a Taylor series near zero, where e^x - 1 cancels. Infinite and -1 at infinity."""
    series = x * (0.041666666666666664 + x * (0.008333333333333333 + x * (0.001388888888888889 + x * 0.0001984126984)))
    near = x + x * (x * (0.5 + x * (0.16666666666666666 + series)))
    return torch.where(torch.abs(x) < 0.3, near, torch.exp(x) - 1.0)


def atan_float32(x: Any) -> Any:
    """atan(x), 2 ulp of float32: reduction to [0, tan(pi / 8)] and a polynomial (Moshier, Cephes, atanf)."""
    y = torch.abs(x)
    large, medium = y > 2.414213562373095, y > 0.4142135623730950
    reduced = torch.where(large, -1.0 / torch.where(large, y, 1.0), torch.where(medium, (y - 1.0) / (y + 1.0), y))
    s = reduced * reduced
    series = s * (-0.333329491539 + s * (0.199777106478 + s * (-0.138776856032 + s * 0.0805374449538)))
    offset = torch.where(large, 1.5707963267948966, torch.where(medium, 0.7853981633974483, 0.0))
    z = offset + (reduced + reduced * series)
    return torch.where(x < 0.0, -z, z)


Function = Callable[..., Any]
DECOMPOSED: Mapping[str, Function] = {
    f.__name__: f for f in (ne, sign, trunc, round, minimum, maximum, rsqrt, sigmoid, log1p, expm1, tan, atan, erf)
}
"""The decomposition of each operation that a dialect may lack, in any precision."""
FLOAT32: Mapping[str, Function] = {"tanh": tanh_float32, "expm1": expm1_float32, "atan": atan_float32}
"""Decompositions for dialects that compute in float32."""


class _Graph(NamedTuple):
    """The operations of a function, each after its operands. The last one is the result."""

    parameters: tuple[Node, ...]
    operations: dict[Node, str]


@cache
def _graph(op: str, function: Function) -> _Graph:
    parameters = tuple(leaf(State(name), UNITS, name) for name in "xyz"[: ARITY[op]])
    names: dict[str, Any] = {}

    def note_names(frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and frame.f_code is function.__code__:
            names.update(frame.f_locals)

    previous: Any = sys.getprofile()
    sys.setprofile(note_names)
    try:
        result = function(*parameters)
    finally:
        sys.setprofile(previous)
    for name, node in names.items():
        if isinstance(node, Node):
            node.name = node.name or name
    return _Graph(parameters, {node: node.op for node in topological_order([result]) if isinstance(node.op, str)})


def decompose(op: str, arguments: Sequence[V], apply: Callable[[str, list[V | float], bool], V]) -> V:
    """Compute an operation from others.

    Args:
        op: an operation of `DECOMPOSED`.
        arguments: the arguments.
        apply: computes one operation from its arguments. The last argument is whether it is the last operation.
    """
    graph = _graph(op, DECOMPOSED[op])
    values = dict(zip(graph.parameters, arguments, strict=True))
    *_, result = graph.operations
    for node, op in graph.operations.items():
        operands = [values[arg] if isinstance(arg, Node) else arg for arg in node.args]
        values[node] = apply(op, operands, node is result)
    return values[result]


class Assignment(NamedTuple):
    """A line of a function.

    Attributes:
        variable: the variable; empty for the result of the function.
        text: the expression.
        is_mask: whether the value consists of truth values.
    """

    variable: str
    text: str
    is_mask: bool


def function_lines(op: str, function: Function, dialect: Dialect) -> Iterator[Assignment]:
    """The lines of a function with the parameters x and y.

    Example:
        >>> from glassgate.engines.triton_gpu.dialect import TRITON
        >>> [line.text for line in function_lines("sigmoid", sigmoid, TRITON)]
        ['1.0 / (1.0 + tl.exp(-x))']
    """
    parameters, operations = _graph(op, function)
    *_, result = operations
    uses = Counter(arg for node in operations for arg in node.inputs)
    texts = {node: Expression(node.name or "") for node in parameters}
    names = Names(dialect, {expression.text for expression in texts.values()})
    for node, operation in operations.items():
        operands = [texts[arg] if isinstance(arg, Node) else dialect.number(arg) for arg in node.args]
        expression = dialect.apply(operation, operands)
        if node is result:
            yield Assignment("", expression.text, operation in MASKS)
        elif node.name or uses[node] > 1 or len(expression.text) > MAX_LENGTH:
            texts[node] = Expression(names.new(node.name or "v"))
            yield Assignment(texts[node].text, expression.text, operation in MASKS)
        else:
            texts[node] = expression
