"""The sums of biases before the loop and the GEMMs after it: lines of a lowered pass (`engines/lowering`).

A pass has one line per weight and vector, and outputs that stack the blocks of gates. Here, adjacent gates are joined
in one sum or one GEMM. Their operands are columns of this engine's buffers.
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from typing import NamedTuple, TypeVar

from glassgate.engines.llvm_cpu.loops.buffers import Kind
from glassgate.engines.llvm_cpu.loops.memory import StateBefore
from glassgate.engines.lowering.forward import Form
from glassgate.engines.lowering.ir import (
    Block,
    Broadcast,
    Contract,
    Elementwise,
    Operation,
    Pass,
    Port,
    Reshape,
    Role,
    Shift,
    Stack,
    Sum,
    Take,
    Value,
)
from glassgate.engines.lowering.passes import lowered_pass
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import gate_of
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


class GateBlock(NamedTuple):
    """A value of a pass, or its block for one gate.

    Attributes:
        value: the value.
        gate: the index along the gate axis of the value; 0 if it has none.
    """

    value: Value
    gate: int = 0


class _Blocks:
    """The blocks of gates that a value of a pass consists of.

    Calling it with a value returns, for each gate of the value, the blocks whose sum is the value's block. A value
    without a gate axis has one item.
    """

    def __init__(self, program: Pass) -> None:
        self.axes = program.axes
        lines = chain(program.before, program.after)
        self.operations: dict[Value, Operation] = {line.result: line.operation for line in lines}

    def __call__(self, value: Value) -> tuple[tuple[GateBlock, ...], ...]:
        axis = next((axis for axis in value.type.axes if self.axes[axis].labels), None)
        count = (self.axes.constant_extent(axis) or 0) if axis else 1
        match self.operations.get(value):
            case Block(x, of, gate) if self.axes[of].labels:
                return (self(x)[gate],)
            case Take(x, _, gates):
                return tuple(self(x)[gate] for gate in gates)
            case Stack(values):
                return tuple(chain.from_iterable(map(self, values)))
            case Reshape(x):
                return self(x)
            case Broadcast():  # the zero gradient of a gate that the step does not read
                return ((),) * count
            case Elementwise("add", (Value() as a, Value() as b)) if a.type.axes == b.type.axes:
                return tuple(x + y for x, y in zip(self(a), self(b), strict=True))
        return tuple((GateBlock(value, gate),) for gate in range(count))

    def single(self, value: Value) -> list[GateBlock]:
        """The block of each gate of a value that is not a sum."""
        return [block for (block,) in self(value)]


@lru_cache(1024)
def bias_sums(equations: Equations, trace: Trace) -> list[BiasSum]:
    """Return the sums of biases that the loop of a forward pass reads."""
    program = lowered_pass(equations, trace, Form(save=True), False)
    blocks, names = _Blocks(program), {value: port.name for port, value in program.inputs.items()}
    sums = []
    for ih in (read.sequence for read in program.loop.reads if read.sequence in blocks.operations):
        operation = blocks.operations[ih]
        assert isinstance(operation, Elementwise), "the input terms are the input GEMM plus biases"
        _, bias = operation.args
        assert isinstance(bias, Value)
        labels = next(program.axes[axis].labels for axis in bias.type.axes if program.axes[axis].labels)
        terms = {
            gate: tuple((names[v], k) for v, k in of_gate) for gate, of_gate in zip(labels, blocks(bias), strict=True)
        }
        sums += [BiasSum("ih", column, terms[gate]) for column, gate in enumerate(trace.ih)]
    gates = (equations.gates.index(gate_of(product)) for product in trace.hh_only)
    return _join_adjacent([*sums, *(BiasSum("hh", column, (("bias_hh", k),)) for column, k in enumerate(gates))])


@lru_cache(1024)
def after_loop(equations: Equations, trace: Trace, bias: bool) -> AfterLoop:
    """Return the GEMMs after the loop of a backward pass.

    Args:
        equations, trace: the equations of the cell and their graphs.
        bias: whether the layer has biases.
    """
    program = lowered_pass(equations, trace, Form(save=True, bias=bias), True)
    lines = _GradientLines(program)
    # The loop computes the gradients of the parameters that the cell defines.
    values = {
        port.name: value
        for port, value in program.outputs.items()
        if port.role is Role.D_WEIGHT and port.name not in equations.parameters
    }
    gradients = {name: lines.gradients(name, value) for name, value in values.items()}
    factors = {name: [(gemm.d, gemm.gate) for gemm in gemms_of_name] for name, gemms_of_name in gradients.items()}
    weights = [name for name in values if name not in BIASES]
    # A GEMM computes the gradients of a weight and of biases with the same gate gradients, which it reads anyway.
    weight_of = {name: next(w for w in weights if factors[w] == factors[name]) for name in values.keys() & BIASES}
    gemms: list[WeightGradient] = []
    for weight in weights:
        biases = tuple(name for name in BIASES if weight_of.get(name) == weight)
        by_gate = [gemm._replace(biases=biases) for gemm in gradients[weight]]
        # A GEMM writes one head only. GEMMs that add to the same rows must be divided among threads in the same
        # way, so they must have the same gates.
        separate = "K" in values[weight].type.axes or any(gemm.added for gemm in by_gate)
        gemms += by_gate if separate else _join_adjacent(by_gate)
    fully_written = frozenset(name for name, value in values.items() if all(lines.blocks(value)))
    return AfterLoop(gemms, fully_written, lines.input_gates(program.outputs[Port(Role.D_DATA)]))


class _GradientLines:
    """The lines after the loop of a backward pass, as GEMMs of buffers."""

    def __init__(self, program: Pass) -> None:
        self.blocks = _Blocks(program)
        self.ports = {value: port for port, value in program.inputs.items()}
        self.ports |= {write.sequence: write.port for write in program.loop.writes if write.port}

    def gradients(self, name: str, value: Value) -> list[WeightGradient]:
        """Return the GEMMs of a weight or bias, one per gate and term, sorted by the column of the gate's gradient."""
        gradients = []
        for gate, terms in enumerate(self.blocks(value)):
            for k, (product, block) in enumerate(terms):
                operation = self.blocks.operations[product]
                assert isinstance(operation, Contract | Sum), "gradients are summed over all rows"
                d, right = operation[0], None
                if isinstance(operation, Contract):
                    right = self.rows(self.blocks.single(operation.b)[0])
                column = self.column(self.blocks.single(d)[block])
                gradients.append(WeightGradient(name, value.type.axes, gate, column, right, k > 0))
        return sorted(gradients, key=lambda gradient: gradient.d.number)

    def input_gates(self, d_data: Value) -> list[tuple[int, int]]:
        """Return the column of the gradient and the index in `weight_ih` of each gate that reads the input."""
        match self.blocks.operations[d_data]:
            case Contract(d, weight):
                columns, rows = map(self.column, self.blocks.single(d)), self.blocks.single(weight)
                return sorted((column.number, row.gate) for column, row in zip(columns, rows, strict=True))
        return []

    def rows(self, block: GateBlock) -> KindColumn | StateBefore:
        """Return the vectors that a weight multiplies."""
        match self.blocks.operations.get(block.value):
            case Shift(x):
                return StateBefore(self.ports[x].name)
        return self.column(block)

    def column(self, block: GateBlock) -> KindColumn:
        """Return the column that contains an input of the pass or a sequence that the loop writes."""
        port = self.ports[block.value]
        return KindColumn(KINDS[port.role], (port.number or 0) + block.gate)


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
