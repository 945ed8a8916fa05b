"""The program of one step of a cell, forward or backward, on the CPU: loads, operations, matrix products, stores.

A value is a node of the cell's graph. Instructions say where it comes from and where it is stored.
"""

from typing import NamedTuple

from glassgate.cell import Cell
from glassgate.engines.axes import UNITS, Axis
from glassgate.engines.llvm_cpu.loops.buffers import Buffer, Buffers, Kind, Place
from glassgate.engines.llvm_cpu.loops.schedule import PRODUCTS, Product, Schedule, Stage, place
from glassgate.engines.symbolic.graph import Key, Node
from glassgate.engines.symbolic.trace import Trace


class Before(NamedTuple):
    """A state before the step: that of the previous step, or the initial state at the start and after a reset."""

    state: str


class Sums(NamedTuple):
    """A result of a matrix product of the phase: the number of the product, and the index of the result."""

    product: int
    column: int


class RowSum(NamedTuple):
    """The sum over the units of a row with this number. All units of the row read the same value."""

    number: int


class KeptRowSum(NamedTuple):
    """A sum over the units of a row that the forward pass has stored."""

    place: Place


class Size(NamedTuple):
    """The number of units along an axis."""

    axis: Axis


class Constant(NamedTuple):
    """A number."""

    value: float


Term = Place | Before | Sums | RowSum | KeptRowSum | Size | Constant


class Load(NamedTuple):
    """A value that is read from memory: the sum of some terms."""

    value: Node
    terms: tuple[Term, ...]


class Compute(NamedTuple):
    """A value that is computed from earlier values."""

    value: Node


class Store(NamedTuple):
    """Writes a value to a place, or adds it to the contents."""

    value: Node
    to: Place
    added: bool = False


class Carry(NamedTuple):
    """Passes the gradient of the state before the step to the previous step.

    In rows with a reset, the gradient is added to that of the initial state instead.
    """

    value: Node
    to: Place
    reset: Place


class SumIntoRow(NamedTuple):
    """Adds a value to a sum over the units of its row."""

    value: Node
    number: int
    kept: Place | None
    """The place where training stores the sum; None if it is not stored."""


class Factor(NamedTuple):
    """The left operand of a matrix product: rows of a buffer from a column on, or the state before the step."""

    rows: Place | Before
    axis: Axis
    columns: int


class Multiply(NamedTuple):
    """A matrix product, which runs before the other instructions of its phase.

    Attributes:
        number: its number in the program.
        product: the weights and the results.
        left: the left operand.
        heads: the number of blocks of a block-diagonal matrix.
    """

    number: int
    product: Product
    left: Factor
    heads: int


class Phase(NamedTuple):
    """Instructions that run for all units of a row. A phase runs for all rows, or alternates with others row by row.

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
        of_one_pass: whether only one element of `Program.passes` reads it. All sequences can then share a single row.
        kept: the place where training stores it instead; None if training does not keep it.
    """

    node: Node
    buffer: Buffer
    of_one_pass: bool
    kept: Place | None


class Program(NamedTuple):
    """The program of a step of one direction, forward or backward.

    Attributes:
        backward: whether it is the backward step.
        buffers: the memory that it reads and writes.
        states: the states whose value before the step is read.
        passes: groups of phases. The phases of a group alternate row by row.
        temporaries: the temporaries by their buffer.
        row_sums: the number of sums over the units of a row.
    """

    backward: bool
    buffers: Buffers
    states: tuple[str, ...]
    passes: tuple[tuple[Phase, ...], ...]
    temporaries: dict[Buffer, Temporary]
    row_sums: int

    @property
    def products(self) -> tuple[Multiply, ...]:
        """All matrix products, by number."""
        return tuple(product for phases in self.passes for phase in phases for product in phase.products)


def lower(cell: Cell, trace: Trace, backward: bool) -> Program:
    """The program of a cell's step, or of its backward step."""
    return _Lowering(cell, trace, backward).program()


def buffers_of(cell: Cell, trace: Trace) -> Buffers:
    """The buffers of a cell's passes."""
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
                node in self.schedule.of_one_pass,
                self.buffers.place(self.schedule.kept[node]) if node in self.schedule.kept else None,
            )
            for k, node in enumerate(self.schedule.temporaries)
        }

    def program(self) -> Program:
        states = {node.args[0] for node in self.schedule.graph.nodes if node.op == "state"}
        return Program(
            self.schedule.backward,
            self.buffers,
            tuple(name for name in self.cell.state if name in states),
            tuple(tuple(map(self._phase, stages)) for stages in self.schedule.passes),
            {temporary.buffer: temporary for temporary in self.temporaries.values()},
            len(self.row_sums),
        )

    def _phase(self, stage: Stage) -> Phase:
        kept_sums = {node: key for key, node in self.schedule.saved.items() if node in set(stage.row_sums)}
        return Phase(
            stage.axis,
            tuple(map(self._multiply, stage.products)),
            tuple(self._value(node, stage) for node in self.schedule.needed(stage)),
            (
                *(self._write(key, node) for key, node in stage.stores),
                *(Store(node, Place(self.temporaries[node].buffer)) for node in stage.temporaries),
            ),
            tuple(Store(node, self.buffers.place(key)) for key, node in stage.keeps if node not in self.schedule.kept),
            tuple(
                SumIntoRow(
                    node.args[0],
                    place(self.row_sums, node),
                    self.buffers.place(kept_sums[node]) if node in kept_sums else None,
                )
                for node in stage.row_sums
            ),
            stage in self.schedule.barriers,
        )

    def _multiply(self, product: Product) -> Multiply:
        left = product.left
        rows: Place | Before
        if left.op == "state":
            rows = Before(left.args[0])
        elif product.key is not None:
            rows = self.buffers.place(product.key)
        else:
            rows = Place(self.temporaries[left].buffer)
        columns = len(product.gates) if product.op == "hh_t" else 1
        heads = self.cell.heads if product.op in ("hh", "hh_t") else 1
        return Multiply(self._number(product), product, Factor(rows, left.axis, columns), heads)

    def _number(self, product: Product) -> int:
        return next(k for k, other in enumerate(self.products) if other is product)

    def _write(self, key: Key, node: Node) -> Store | Carry:
        to = self.buffers.place(key)
        if to.buffer.kind is Kind.D_NEXT:
            return Carry(node, to, Place(self.buffers.of_state(Kind.D_INITIAL, to.buffer.owner)))
        return Store(node, to, added=to.buffer.kind is Kind.D_PARAMETER)

    def _value(self, node: Node, stage: Stage) -> Load | Compute:
        if not self.schedule.computed(node, stage):
            return Load(node, self._stored(node))
        if node.op in PRODUCTS:
            return Load(node, self._product(node, stage))
        if node.op == "grad":
            of_state, name = self.buffers.of_state, node.args[0]
            return Load(node, (Place(of_state(Kind.D_STATE, name)), Place(of_state(Kind.D_NEXT, name))))
        return Compute(node)

    def _stored(self, node: Node) -> tuple[Term, ...]:
        """The terms of a value that the stage does not compute."""
        match node.op:
            case "ih":
                return self._input_half(self.trace.ih.index(node.args[0], len(self.trace.shared)))
            case "saved":
                kept = self.buffers.place(node.args)
                return (KeptRowSum(kept) if kept.buffer.kind is Kind.ROW_SUM else kept,)
            case "state":
                return (Before(node.args[0]),)
            case "parameter":
                name, gate = node.args
                column = 0 if gate is None else self.cell.gates.index(gate)
                return (Place(weight_buffer(self.cell, name), column),)
            case "noise":
                return (Place(noise_buffer(self.cell, self.buffers, node.args[0])),)
            case "size":
                return (Size(node.args[0]),)
            case "constant":
                return (Constant(node.args[0]),)
            case "row_sum":
                return (RowSum(place(self.row_sums, node)),)
        if node in self.schedule.homes:
            return (self.buffers.place(self.schedule.homes[node]),)
        return (Place(self.temporaries[node].buffer),)

    def _input_half(self, column: int) -> tuple[Term, ...]:
        return Place(self.buffers[Kind.INPUT], column), Place(bias_buffer("ih", self.trace), column)

    def _product(self, node: Node, stage: Stage) -> tuple[Term, ...]:
        """The terms of the result of a matrix product: its sums, and the input half or the bias."""
        terms: list[Term] = []
        for product in stage.products:
            if any(result is node for result in product.results):
                terms.append(Sums(self._number(product), place(product.results, node)))
        if node.op == "sum":
            return *self._input_half(place(self.trace.shared, node)), *terms
        if node.op == "hh":
            terms.append(Place(bias_buffer("hh", self.trace), place(self.trace.hh_only, node)))
        return tuple(terms)


def weight_buffer(cell: Cell, name: str, kind: Kind = Kind.WEIGHT) -> Buffer:
    """The memory of a parameter or its gradient. A parameter that the cell defines has one column, or one per gate."""
    parameter = cell.parameters.get(name)
    return Buffer(kind, name, UNITS, len(cell.gates) if parameter and parameter.per_gate else 1)


def bias_buffer(half: str, trace: Trace) -> Buffer:
    """The bias of the input halves, or of the recurrent products that the equations read without the input half."""
    return Buffer(Kind.BIAS, half, UNITS, len(trace.ih if half == "ih" else trace.hh_only))


def noise_buffer(cell: Cell, buffers: Buffers, name: str) -> Buffer:
    """The memory of the random factors with this name."""
    noise = cell.noise[name]
    kind = Kind.NOISE if noise.per_step else Kind.NOISE_OF_SEQUENCE
    return Buffer(kind, name, buffers.states.get(noise.state or "", UNITS))
