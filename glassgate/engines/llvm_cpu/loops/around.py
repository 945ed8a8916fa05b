"""The operations of a lowered pass before and after its loop. Their operands are columns of this engine's buffers.

The lowering has one operation per gate. Here the operations of adjacent gates are joined in one GEMM or one sum.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple, TypeVar

from glassgate.engines.llvm_cpu.loops.buffers import Kind
from glassgate.engines.llvm_cpu.loops.program import Before
from glassgate.engines.lowering.backward import backward_pass
from glassgate.engines.lowering.forward import Form, forward_pass
from glassgate.engines.lowering.ir import Pass, Port, Role, Shift, Value
from glassgate.engines.lowering.terms import GateBlock, Terms
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.trace import Trace

BIASES = "bias_ih", "bias_hh"
KINDS = {
    Role.DATA: Kind.DATA,
    Role.D_PRE: Kind.D_PRE,
    Role.LEFT: Kind.LEFT,
    Role.UNPROJECTED: Kind.UNPROJECTED,
    Role.D_PROJECTED: Kind.D_PROJECTED,
}
"""The buffers with the operands of the GEMMs after the loop."""


class BiasSum(NamedTuple):
    """The sums of the biases of adjacent gates. The loop adds them to matrix products.

    Attributes:
        half: the buffer of the sums, "ih" or "hh".
        column: the column of the first gate.
        biases: the one or two terms of a sum: the name of each bias, and the index of the first gate.
        gates: the number of gates.
    """

    half: str
    column: int
    biases: tuple[tuple[str, int], ...]
    gates: int = 1

    @property
    def next(self) -> "BiasSum":
        """The sum that continues this one at the next gate, and can be joined to it."""
        biases = tuple((name, gate + self.gates) for name, gate in self.biases)
        return BiasSum(self.half, self.column + self.gates, biases)


class Column(NamedTuple):
    """A column of a buffer, of a kind of which each direction has only one buffer."""

    kind: Kind
    number: int


class WeightGradient(NamedTuple):
    """A weight gradient GEMM: gradients of gates times the vectors that the weight multiplied, summed over all rows.

    Attributes:
        weight, axes: the name of the weight and its axes.
        gate: the index of the first gate.
        d: the gradients of the first gate.
        right: the row vectors that the weight multiplies; None for the gradient of a bias.
        added: whether the result is added to that of an earlier GEMM.
        gates: the number of gates. They are adjacent in the weight and in the gradients.
        biases: the biases whose gradient is the sum of the gates' gradients.
    """

    weight: str
    axes: tuple[str, ...]
    gate: int
    d: Column
    right: Column | Before | None
    added: bool
    gates: int = 1
    biases: tuple[str, ...] = ()

    @property
    def next(self) -> "WeightGradient":
        """The GEMM that continues this one at the next gate, and can be joined to it."""
        d = Column(self.d.kind, self.d.number + self.gates)
        return self._replace(gate=self.gate + self.gates, d=d, gates=1)


class AfterLoop(NamedTuple):
    """The operations after the loop of a backward pass.

    Attributes:
        weights: the gradients of weights and biases.
        complete: the weights and biases in which the rows of every gate have a gradient.
        input: for each gate that reads the input, the column of its gradients and its index in `weight_ih`.
    """

    weights: list[WeightGradient]
    complete: frozenset[str]
    input: list[tuple[int, int]]


@lru_cache(1024)
def bias_sums(equations: Equations, trace: Trace) -> list[BiasSum]:
    """The sums of biases that the loop of a forward pass reads."""
    program = forward_pass(equations, trace, Form())
    names, terms = {value: port.name for port, value in program.inputs.items()}, Terms(program)
    biases = {}
    for line in (*program.before, *program.loop.body):
        for total in filter(None, terms(line.result)):
            weight, *added = ((names.get(term.left.value, ""), term.left.gate or 0) for term in total)
            if added and all(name in BIASES for name, _ in added):
                biases[weight] = tuple(added)
    columns = {"ih": trace.ih, "hh": [product.args[0] for product in trace.hh_only]}
    return _joined(
        BiasSum(half, column, biases[f"weight_{half}", equations.gates.index(gate)])
        for half, gates in columns.items()
        for column, gate in enumerate(gates)
    )


@lru_cache(1024)
def after_loop(equations: Equations, trace: Trace, bias: bool) -> AfterLoop:
    """The operations after the loop of a backward pass.

    Args:
        equations, trace: the equations of the cell and their graphs.
        bias: whether the layer has biases.
    """
    return _AfterLoop(backward_pass(equations, trace, Form(bias=bias)), frozenset(equations.parameters)).operations()


class _AfterLoop:
    def __init__(self, program: Pass, parameters: frozenset[str]) -> None:
        self.terms = Terms(program)
        self.outputs = {port: value for port, value in program.outputs.items() if port.name not in parameters}
        self.ports = {value: port for port, value in program.inputs.items()}
        self.ports |= {write.sequence: write.port for write in program.loop.writes if write.port}
        self.shifts = {x.result: x.operation.x for x in program.before if isinstance(x.operation, Shift)}

    def operations(self) -> AfterLoop:
        values = {port.name: value for port, value in self.outputs.items() if port.role is Role.D_WEIGHT}
        gradients = {name: self.gradients(name, value) for name, value in values.items()}
        factors = {name: [(own.d, own.gate) for own in of_gates] for name, of_gates in gradients.items()}
        weights = [name for name in values if name not in BIASES]
        # A bias and a weight with the same gate gradients are computed together: both read these gradients.
        summed_by = {bias: next(w for w in weights if factors[w] == factors[bias]) for bias in values.keys() & BIASES}
        gemms: list[WeightGradient] = []
        for weight in weights:
            biases = tuple(bias for bias in BIASES if summed_by.get(bias) == weight)
            own = [gradient._replace(biases=biases) for gradient in gradients[weight]]
            # A GEMM writes one head only. GEMMs that add to the same rows must be divided among threads in the same
            # way, so they must have the same gates.
            separate = "K" in values[weight].type.axes or any(gradient.added for gradient in own)
            gemms += own if separate else _joined(own)
        (of_input,) = self.terms(self.outputs[Port(Role.D_DATA)])
        return AfterLoop(
            gemms,
            frozenset(name for name, value in values.items() if all(self.terms(value))),
            sorted((self.column(term.left).number, term.right.gate or 0) for term in of_input if term.right),
        )

    def gradients(self, name: str, value: Value) -> list[WeightGradient]:
        """The gradient of each gate's rows of a weight or bias, sorted by the column of its gradients."""
        return sorted(
            (
                WeightGradient(
                    name, value.type.axes, gate, self.column(term.left), term.right and self.operand(term.right), k > 0
                )
                for gate, total in enumerate(self.terms(value))
                for k, term in enumerate(total)
            ),
            key=lambda gradient: gradient.d.number,
        )

    def column(self, part: GateBlock) -> Column:
        """The column of some gates' block of an input of the pass or of a sequence of the loop."""
        role, number = self.ports[part.value]
        return Column(KINDS[role], int(number or 0) + (part.gate or 0))

    def operand(self, part: GateBlock) -> Column | Before:
        """The row vectors that a weight multiplies."""
        state = self.shifts.get(part.value)
        return Before(self.ports[state].name) if state else self.column(part)


Adjacent = TypeVar("Adjacent", BiasSum, WeightGradient)


def _joined(items: Iterable[Adjacent]) -> list[Adjacent]:
    """Join consecutive operations that continue each other."""
    joined: list[Adjacent] = []
    for item in items:
        if joined and item == joined[-1].next:
            joined[-1] = joined[-1]._replace(gates=joined[-1].gates + 1)
        else:
            joined.append(item)
    return joined
