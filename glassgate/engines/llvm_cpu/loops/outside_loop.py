"""The sums of biases before the loop and the GEMMs after it, from a lowered pass (`engines/lowering`).

A lowered pass has one operation per gate. Here, operations of adjacent gates are joined in one sum or one GEMM. Their
operands are columns of this engine's buffers.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple, TypeVar

from glassgate.engines.llvm_cpu.loops.buffers import Kind
from glassgate.engines.llvm_cpu.loops.program import StateBefore
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
"""The kind of buffer that contains an operand of a GEMM after the loop, by the role of the operand."""


class BiasSum(NamedTuple):
    """The sums of the biases of adjacent gates. The loop adds them to matrix products.

    Attributes:
        half: "ih" for products with the input, "hh" for recurrent products; see `bias_buffer`.
        column: the column of the first gate.
        biases: the one or two terms of a sum. Each is the name of a bias and the index of the first gate in it.
        gate_count: the number of gates.
    """

    half: str
    column: int
    biases: tuple[tuple[str, int], ...]
    gate_count: int = 1

    @property
    def next(self) -> "BiasSum":
        """The sum for the gate after these gates, which can be joined to this sum."""
        biases = tuple((name, gate + self.gate_count) for name, gate in self.biases)
        return BiasSum(self.half, self.column + self.gate_count, biases)


class KindColumn(NamedTuple):
    """A column of the only buffer of a kind, by its number."""

    kind: Kind
    number: int


class WeightGradient(NamedTuple):
    """A weight gradient GEMM: gradients of gates times the vectors that a weight multiplies, summed over all rows.

    Attributes:
        weight: the name of the weight.
        axes: the axes of the weight.
        gate: the index of the first gate.
        d: the gradients of the first gate.
        right: the vectors that the weight multiplies. None for the gradient of a bias.
        added: whether the result is added to the result of an earlier GEMM.
        gate_count: the number of gates. They are adjacent in the weight and in the gradients.
        biases: the biases whose gradient is the sum of the gates' gradients.
    """

    weight: str
    axes: tuple[str, ...]
    gate: int
    d: KindColumn
    right: KindColumn | StateBefore | None
    added: bool
    gate_count: int = 1
    biases: tuple[str, ...] = ()

    @property
    def next(self) -> "WeightGradient":
        """The GEMM for the gate after these gates, which can be joined to this GEMM."""
        d = KindColumn(self.d.kind, self.d.number + self.gate_count)
        return self._replace(gate=self.gate + self.gate_count, d=d, gate_count=1)


class AfterLoop(NamedTuple):
    """The GEMMs after the loop of a backward pass.

    Attributes:
        weight_gradients: the GEMMs for the gradients of weights and biases.
        fully_written: the weights and biases whose gradient is written for every gate.
        input_gates: for each gate that reads the input, the column of its gradients and its index in `weight_ih`.
    """

    weight_gradients: list[WeightGradient]
    fully_written: frozenset[str]
    input_gates: list[tuple[int, int]]


@lru_cache(1024)
def bias_sums(equations: Equations, trace: Trace) -> list[BiasSum]:
    """Return the sums of biases that the loop of a forward pass reads."""
    program = forward_pass(equations, trace, Form())
    names, terms = {value: port.name for port, value in program.inputs.items()}, Terms(program)
    biases = {}
    for line in (*program.before, *program.loop.body):
        for terms_of_gate in filter(None, terms(line.result)):
            weight, *added = ((names.get(term.left.value, ""), term.left.gate or 0) for term in terms_of_gate)
            if added and all(name in BIASES for name, _ in added):
                biases[weight] = tuple(added)
    columns = {"ih": trace.ih, "hh": [product.args[0] for product in trace.hh_only]}
    return _join_adjacent(
        BiasSum(half, column, biases[f"weight_{half}", equations.gates.index(gate)])
        for half, gates in columns.items()
        for column, gate in enumerate(gates)
    )


@lru_cache(1024)
def after_loop(equations: Equations, trace: Trace, bias: bool) -> AfterLoop:
    """Return the GEMMs after the loop of a backward pass.

    Args:
        equations, trace: the equations of the cell and their graphs.
        bias: whether the layer has biases.
    """
    return _GemmFinder(backward_pass(equations, trace, Form(bias=bias)), frozenset(equations.parameters)).gemms()


class _GemmFinder:
    """Finds the GEMMs after the loop of a lowered backward pass.

    Args:
        program: the pass.
        parameters: the parameters that the cell defines. The loop computes their gradients.
    """

    def __init__(self, program: Pass, parameters: frozenset[str]) -> None:
        self.terms = Terms(program)
        self.outputs = {port: value for port, value in program.outputs.items() if port.name not in parameters}
        self.ports = {value: port for port, value in program.inputs.items()}
        self.ports |= {write.sequence: write.port for write in program.loop.writes if write.port}
        self.shifted = {x.result: x.operation.x for x in program.before if isinstance(x.operation, Shift)}

    def gemms(self) -> AfterLoop:
        values = {port.name: value for port, value in self.outputs.items() if port.role is Role.D_WEIGHT}
        gradients = {name: self.gradients(name, value) for name, value in values.items()}
        factors = {name: [(gemm.d, gemm.gate) for gemm in gemms_of_name] for name, gemms_of_name in gradients.items()}
        weights = [name for name in values if name not in BIASES]
        # A GEMM computes the gradients of a weight and of biases with the same gate gradients, which it reads anyway.
        weight_of = {bias: next(w for w in weights if factors[w] == factors[bias]) for bias in values.keys() & BIASES}
        gemms: list[WeightGradient] = []
        for weight in weights:
            biases = tuple(bias for bias in BIASES if weight_of.get(bias) == weight)
            by_gate = [gemm._replace(biases=biases) for gemm in gradients[weight]]
            # A GEMM writes one head only. GEMMs that add to the same rows must be divided among threads in the same
            # way, so they must have the same gates.
            separate = "K" in values[weight].type.axes or any(gemm.added for gemm in by_gate)
            gemms += by_gate if separate else _join_adjacent(by_gate)
        (of_input,) = self.terms(self.outputs[Port(Role.D_DATA)])
        return AfterLoop(
            gemms,
            frozenset(name for name, value in values.items() if all(self.terms(value))),
            sorted((self.column(term.left).number, term.right.gate or 0) for term in of_input if term.right),
        )

    def gradients(self, name: str, value: Value) -> list[WeightGradient]:
        """Return the GEMMs of a weight or bias, one per gate and term, sorted by the column of the gate's gradient."""
        return sorted(
            (
                WeightGradient(
                    name, value.type.axes, gate, self.column(term.left), term.right and self.operand(term.right), k > 0
                )
                for gate, terms_of_gate in enumerate(self.terms(value))
                for k, term in enumerate(terms_of_gate)
            ),
            key=lambda gradient: gradient.d.number,
        )

    def column(self, block: GateBlock) -> KindColumn:
        """Return the column that contains an input of the pass or a sequence that the loop writes."""
        role, number = self.ports[block.value]
        return KindColumn(KINDS[role], int(number or 0) + (block.gate or 0))

    def operand(self, block: GateBlock) -> KindColumn | StateBefore:
        """Return the vectors that a weight multiplies."""
        state = self.shifted.get(block.value)
        return StateBefore(self.ports[state].name) if state else self.column(block)


Joinable = TypeVar("Joinable", BiasSum, WeightGradient)


def _join_adjacent(operations: Iterable[Joinable]) -> list[Joinable]:
    """Join consecutive operations of adjacent gates."""
    joined: list[Joinable] = []
    for operation in operations:
        if joined and operation == joined[-1].next:
            joined[-1] = joined[-1]._replace(gate_count=joined[-1].gate_count + 1)
        else:
            joined.append(operation)
    return joined
