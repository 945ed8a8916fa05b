"""What the values of all graphs of a step have in common: Python's operators, their order, and errors of tracing.

`graph.py` has the values of steps with one number per unit, `arrays/value.py` those over named axes.
"""

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from glassgate.engines.symbolic.ops import InputHalf, Operation, RecurrentHalf


class _Tracing(threading.local):
    """The state of tracing in this thread.

    Attributes:
        refusals: the errors since tracing began; None if no step is being traced.
        overwritten: the nodes that in-place operations have replaced.
    """

    def __init__(self) -> None:
        self.refusals: list[NotTraceable] | None = None
        self.overwritten: set[Symbolic] = set()


TRACING = _Tracing()


class NotTraceable(TypeError):
    """A step uses an operation that kernels do not support; the message names it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        if TRACING.refusals is not None:
            TRACING.refusals.append(self)


@contextmanager
def tracing() -> Iterator[None]:
    """A context manager for running a step on nodes.

    Raises:
        NotTraceable: the first error of this kind inside the context, even if the step has caught it.
    """
    previous = TRACING.refusals, TRACING.overwritten
    refusals: list[NotTraceable] = []
    TRACING.refusals, TRACING.overwritten = refusals, set()
    try:
        yield
        if refusals:
            raise refusals[0]
    finally:
        TRACING.refusals, TRACING.overwritten = previous


def _operator_pair(op: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """An operator and its reflected version, for example `__add__` and `__radd__`."""
    return lambda a, b: a.operation(op, a, b), lambda a, b: a.operation(op, b, a)


class Symbolic:
    """A value of a step that is traced: Python's operators, and the methods that functions in `operations.py` call."""

    __slots__ = ()
    op: Operation
    args: "tuple[Self | float, ...]"
    name: str | None
    serial: int

    @property
    def form(self) -> tuple[Hashable, ...]:
        """What the value is apart from its arguments: two values with the same form and arguments are equal."""
        raise NotImplementedError

    def with_args(self, args: "tuple[Self | float, ...]") -> Self:
        """The same operation of other arguments, without a name."""
        raise NotImplementedError

    @property
    def inputs(self) -> tuple[Self, ...]:
        """The arguments that are values."""
        return tuple([arg for arg in self.args if isinstance(arg, type(self))])

    def operation(self, op: str, *args: Any) -> Any:
        """An elementwise operation on values and numbers."""
        raise NotImplementedError

    def elementwise(self, op: str, *args: Any) -> Any:
        """An elementwise operation on this value and further arguments."""
        return self.operation(op, self, *args)

    def refuse(self, reason: str) -> None:
        """Raise `NotTraceable`."""
        raise NotTraceable(reason)

    def __neg__(self) -> Any:
        return self.operation("neg", self)

    def __abs__(self) -> Any:
        return self.operation("abs", self)

    def __invert__(self) -> Any:
        return self.operation("bitwise_not", self)

    __add__, __radd__ = _operator_pair("add")
    __sub__, __rsub__ = _operator_pair("sub")
    __mul__, __rmul__ = _operator_pair("mul")
    __truediv__, __rtruediv__ = _operator_pair("div")
    __pow__, __rpow__ = _operator_pair("pow")
    __mod__, __rmod__ = _operator_pair("remainder")
    __and__, __rand__ = _operator_pair("bitwise_and")
    __or__, __ror__ = _operator_pair("bitwise_or")
    __xor__, __rxor__ = _operator_pair("bitwise_xor")
    __lt__, __gt__ = _operator_pair("lt")
    __le__, __ge__ = _operator_pair("le")
    __eq__, _ = _operator_pair("eq")
    __ne__, _ = _operator_pair("ne")
    __hash__ = object.__hash__


S = TypeVar("S", bound=Symbolic)


def topological_order(results: Iterable[S]) -> list[S]:
    """All values that the results depend on, in the order of their creation, so that each comes after its inputs."""
    needed: set[S] = set()
    pending = [*results]
    while pending:
        value = pending.pop()
        if value not in needed:
            needed.add(value)
            pending += value.inputs
    return sorted(needed, key=lambda value: value.serial)


def halves_of(value: S) -> tuple[S, S] | None:
    """The input half and the recurrent half whose sum a value is; None for other values."""
    by_kind = {type(arg.op): arg for arg in value.inputs}
    if value.op != "add" or by_kind.keys() != {InputHalf, RecurrentHalf}:
        return None
    return by_kind[InputHalf], by_kind[RecurrentHalf]
