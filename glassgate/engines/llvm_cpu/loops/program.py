"""The program of one step of a cell, forward or backward: loads, operations, matrix products and stores.

The program does not depend on sizes. Its values are nodes of the cell's graph. Its instructions name the buffers
from which values are loaded and to which they are stored. `emit.py` prints a program as the text of a kernel.
"""

from typing import NamedTuple

from glassgate.cell import Cell
from glassgate.engines.axes import UNITS, Axis
from glassgate.engines.llvm_cpu.loops.buffers import Buffer, Buffers, Column, Kind
from glassgate.engines.llvm_cpu.loops.schedule import PRODUCTS, Product, Schedule, Stage, index_of
from glassgate.engines.symbolic.graph import Key, Node
from glassgate.engines.symbolic.trace import Trace


class StateBefore(NamedTuple):
    """A state before the step: the state of the previous step, or the initial state at the start and after a reset."""

    state: str


class ProductResult(NamedTuple):
    """A result of a matrix product of the phase: the number of the product, and the index of the result."""

    product: int
    result: int


class RowSum(NamedTuple):
    """A sum over the units of a row, by its number. All units of the row read the same value."""

    number: int


class KeptRowSum(NamedTuple):
    """A sum over the units of a row that the forward pass has stored."""

    column: Column


class Size(NamedTuple):
    """The number of units along an axis."""

    axis: Axis


class Constant(NamedTuple):
    """A number."""

    value: float


Term = Column | StateBefore | ProductResult | RowSum | KeptRowSum | Size | Constant


class Load(NamedTuple):
    """Reads a value from memory: the sum of its terms."""

    value: Node
    terms: tuple[Term, ...]


class Compute(NamedTuple):
    """Computes a value from earlier values."""

    value: Node


class Store(NamedTuple):
    """Writes a value to a column, or adds it to the contents."""

    value: Node
    to: Column
    added: bool = False


class Carry(NamedTuple):
    """Passes the gradient of the state before the step to the previous step.

    In a row with a reset, the previous step receives zero, and the gradient is added to `reset`.

    Attributes:
        value: the gradient.
        to: the gradient for the previous step.
        reset: the gradient of the state after a reset.
    """

    value: Node
    to: Column
    reset: Column


class SumIntoRow(NamedTuple):
    """Adds a value to a sum over the units of its row.

    Attributes:
        value: the value.
        number: the number of the sum.
        kept: the column where training stores the sum. None if it is not stored.
    """

    value: Node
    number: int
    kept: Column | None


class LeftOperand(NamedTuple):
    """The left operand of a matrix product.

    Attributes:
        rows: the state before the step, or the first of `columns` adjacent columns.
        axis: the axis of a column.
        columns: the number of columns.
    """

    rows: Column | StateBefore
    axis: Axis
    columns: int


class Multiply(NamedTuple):
    """Computes a matrix product, before the other instructions of its phase.

    Attributes:
        number: its number in the program.
        product: the weights and the results.
        left: the left operand.
        heads: the number of blocks of a block-diagonal matrix.
    """

    number: int
    product: Product
    left: LeftOperand
    heads: int


class Phase(NamedTuple):
    """A lowered `Stage`: instructions that run for all units of a row.

    Attributes:
        axis: the axis of its units.
        products: matrix products, which are computed first.
        values: loads and computations, each after its operands.
        writes: stores that always run.
        keeps: stores that run only in training.
        sums: sums over the units of a row, complete after this phase.
        barrier: whether threads wait after the phase until all units are stored.
    """

    axis: Axis
    products: tuple[Multiply, ...]
    values: tuple[Load | Compute, ...]
    writes: tuple[Store | Carry, ...]
    keeps: tuple[Store, ...]
    sums: tuple[SumIntoRow, ...]
    barrier: bool


class Temporary(NamedTuple):
    """The memory of a value that only the same step reads.

    Attributes:
        node: the value.
        buffer: the memory, with one row per sequence.
        shares_row: whether all sequences use a single row in turn. One group of phases then computes and reads it.
        kept: the column where training stores the value instead. None if training does not keep it.
    """

    node: Node
    buffer: Buffer
    shares_row: bool
    kept: Column | None


class Program(NamedTuple):
    """The program of a step of one direction, forward or backward.

    Attributes:
        backward: whether it is the backward step.
        buffers: the memory that it reads and writes.
        states: the states whose value before the step is read.
        groups: the phases in order, in groups. All phases of a group run on one row before the next row. A phase with
            matrix products is a group of its own.
        temporaries: the temporaries by their buffer.
        row_sum_count: the number of sums over the units of a row.
    """

    backward: bool
    buffers: Buffers
    states: tuple[str, ...]
    groups: tuple[tuple[Phase, ...], ...]
    temporaries: dict[Buffer, Temporary]
    row_sum_count: int

    @property
    def products(self) -> tuple[Multiply, ...]:
        """All matrix products, by number."""
        return tuple(product for phases in self.groups for phase in phases for product in phase.products)


def lower(cell: Cell, trace: Trace, backward: bool) -> Program:
    """Return the program of a cell's step, or of its backward step."""
    return _Lowering(cell, trace, backward).program()


def buffers_of(cell: Cell, trace: Trace) -> Buffers:
    """Return the buffers of a cell's passes."""
    return Buffers(trace, {name: trace.forward.outputs["state", k].axis for k, name in enumerate(cell.state)})


class _Lowering:
    def __init__(self, cell: Cell, trace: Trace, backward: bool) -> None:
        self.cell, self.trace = cell, trace
        self.schedule = Schedule(trace, backward, cell.state, cell.heads)
        self.buffers = buffers_of(cell, trace)
        self.row_sums = [node for stage in self.schedule for node in stage.row_sums]
        self.products = [product for stage in self.schedule for product in stage.products]
        self.temporaries = {
            node: Temporary(
                node,
                Buffer(Kind.TEMPORARY, node.name or str(k), node.axis),
                node in self.schedule.shared_row_temporaries,
                self.buffers.column(self.schedule.kept[node]) if node in self.schedule.kept else None,
            )
            for k, node in enumerate(self.schedule.temporaries)
        }

    def program(self) -> Program:
        states = {node.args[0] for node in self.schedule.graph.nodes if node.op == "state"}
        return Program(
            self.schedule.backward,
            self.buffers,
            tuple(name for name in self.cell.state if name in states),
            tuple(tuple(map(self._phase, stages)) for stages in self.schedule.groups),
            {temporary.buffer: temporary for temporary in self.temporaries.values()},
            len(self.row_sums),
        )

    def _phase(self, stage: Stage) -> Phase:
        kept_sums = {node: key for key, node in self.schedule.saved.items() if node in set(stage.row_sums)}
        return Phase(
            stage.axis,
            tuple(map(self._multiply, stage.products)),
            tuple(self._value(node, stage) for node in self.schedule.needed_values(stage)),
            (
                *(self._write(key, node) for key, node in stage.stores),
                *(Store(node, Column(self.temporaries[node].buffer)) for node in stage.temporaries),
            ),
            tuple(Store(node, self.buffers.column(key)) for key, node in stage.keeps if node not in self.schedule.kept),
            tuple(
                SumIntoRow(
                    node.args[0],
                    index_of(self.row_sums, node),
                    self.buffers.column(kept_sums[node]) if node in kept_sums else None,
                )
                for node in stage.row_sums
            ),
            stage in self.schedule.barriers,
        )

    def _multiply(self, product: Product) -> Multiply:
        left = product.left
        rows: Column | StateBefore
        if left.op == "state":
            rows = StateBefore(left.args[0])
        elif product.key is not None:
            rows = self.buffers.column(product.key)
        else:
            rows = Column(self.temporaries[left].buffer)
        columns = len(product.gates) if product.op == "hh_t" else 1
        heads = self.cell.heads if product.op in ("hh", "hh_t") else 1
        return Multiply(self._number(product), product, LeftOperand(rows, left.axis, columns), heads)

    def _number(self, product: Product) -> int:
        return next(k for k, other in enumerate(self.products) if other is product)

    def _write(self, key: Key, node: Node) -> Store | Carry:
        to = self.buffers.column(key)
        if to.buffer.kind is Kind.D_NEXT:
            return Carry(node, to, Column(self.buffers.of_state(Kind.D_RESTART, to.buffer.owner)))
        return Store(node, to, added=to.buffer.kind is Kind.D_PARAMETER)

    def _value(self, node: Node, stage: Stage) -> Load | Compute:
        """Return the instruction that defines a value of a stage."""
        if not self.schedule.computes(stage, node):
            return Load(node, self._stored(node))
        if node.op in PRODUCTS:
            return Load(node, self._product(node, stage))
        if node.op == "grad":
            of_state, name = self.buffers.of_state, node.args[0]
            return Load(node, (Column(of_state(Kind.D_STATE, name)), Column(of_state(Kind.D_NEXT, name))))
        return Compute(node)

    def _stored(self, node: Node) -> tuple[Term, ...]:
        """Return the terms of a value that the stage does not compute."""
        match node.op:
            case "ih":
                return self._input_terms(self.trace.ih.index(node.args[0], len(self.trace.shared)))
            case "saved":
                kept = self.buffers.column(node.args)
                return (KeptRowSum(kept) if kept.buffer.kind is Kind.ROW_SUM else kept,)
            case "state":
                return (StateBefore(node.args[0]),)
            case "parameter":
                name, gate = node.args
                column = 0 if gate is None else self.cell.gates.index(gate)
                return (Column(weight_buffer(self.cell, name), column),)
            case "noise":
                return (Column(noise_buffer(self.cell, self.buffers, node.args[0])),)
            case "size":
                return (Size(node.args[0]),)
            case "constant":
                return (Constant(node.args[0]),)
            case "row_sum":
                return (RowSum(index_of(self.row_sums, node)),)
        if node in self.schedule.result_columns:
            return (self.buffers.column(self.schedule.result_columns[node]),)
        return (Column(self.temporaries[node].buffer),)

    def _input_terms(self, column: int) -> tuple[Term, ...]:
        """Return the terms of W_ih x and its bias for one gate."""
        return Column(self.buffers[Kind.INPUT], column), Column(bias_buffer("ih", self.trace), column)

    def _product(self, node: Node, stage: Stage) -> tuple[Term, ...]:
        """Return the terms of a matrix product. A "sum" adds W_ih x and its bias, and "hh" adds the bias."""
        terms: list[Term] = []
        for product in stage.products:
            if any(result is node for result in product.results):
                terms.append(ProductResult(self._number(product), index_of(product.results, node)))
        if node.op == "sum":
            return *self._input_terms(index_of(self.trace.shared, node)), *terms
        if node.op == "hh":
            terms.append(Column(bias_buffer("hh", self.trace), index_of(self.trace.hh_only, node)))
        return tuple(terms)


def weight_buffer(cell: Cell, name: str, kind: Kind = Kind.WEIGHT) -> Buffer:
    """Return the memory of a parameter or its gradient.

    A parameter that the cell defines has one column, or one per gate.
    """
    parameter = cell.parameters.get(name)
    return Buffer(kind, name, UNITS, len(cell.gates) if parameter and parameter.per_gate else 1)


def bias_buffer(name: str, trace: Trace) -> Buffer:
    """Return the memory of the biases that the step adds to W_ih x ("ih") or to W_hh h ("hh").

    "hh" contains only the gates whose equations read W_hh h separately from W_ih x.
    """
    return Buffer(Kind.BIAS, name, UNITS, len(trace.ih if name == "ih" else trace.hh_only))


def noise_buffer(cell: Cell, buffers: Buffers, name: str) -> Buffer:
    """Return the memory of the random factors with this name."""
    noise = cell.noise[name]
    kind = Kind.NOISE if noise.per_step else Kind.NOISE_OF_SEQUENCE
    return Buffer(kind, name, buffers.states.get(noise.state or "", UNITS))
