"""The buffers that the passes of one direction read and write. Kernel plans assign memory to them."""

from collections.abc import Mapping
from enum import Enum, unique
from typing import NamedTuple

from glassgate.cell import Cell
from glassgate.engines.axes import FEATURES, PER_ROW, UNITS, Axis
from glassgate.engines.llvm_cpu.sizes import KernelSizes
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.ops import Saved, SavedKind
from glassgate.engines.symbolic.trace import Trace


class RowPer(Enum):
    """Whether a buffer has one row per step of each sequence, per sequence, or per call."""

    STEP = "step of a sequence"
    SEQUENCE = "sequence"
    CALL = "call"


@unique
class Kind(Enum):
    """The contents of a buffer.

    The value of a member is a pair: the label of its buffers, with {} for the owner, and their `RowPer`.
    """

    DATA = "data", RowPer.STEP
    D_DATA = "d_data", RowPer.STEP
    WEIGHT = "{}", RowPer.CALL
    """A parameter."""
    D_WEIGHT = "d_{}", RowPer.CALL
    BIAS = "bias_{}", RowPer.CALL
    """The summed biases of all gates, for the products with the input ("ih") or the recurrent products ("hh")."""
    NOISE = "{}_noise", RowPer.STEP
    NOISE_OF_SEQUENCE = "{}_noise", RowPer.SEQUENCE

    STATE = "{}", RowPer.STEP
    """A state after each step."""
    INITIAL = "{}_0", RowPer.SEQUENCE
    RESTART = "{}_restart", RowPer.SEQUENCE
    """The states after a reset."""
    FINAL = "{}_n", RowPer.SEQUENCE
    D_STATE = "d_{}", RowPer.STEP
    """The gradient of the output or of a state at a step, passed by the caller."""
    D_NEXT = "d_{}_next", RowPer.SEQUENCE
    """The gradient that a step passes to the previous step. After the loop, the gradient of the initial state."""
    D_RESTART = "d_{}_0", RowPer.SEQUENCE
    """The gradient of the states after a reset."""

    INPUT = "ih", RowPer.STEP
    """The results of the input GEMM. Training overwrites them for the backward pass."""
    RECURRENT = "hh", RowPer.STEP
    """Recurrent products that the equations read without the input product, or values computed from these products.
    Training keeps them for the backward pass."""
    ROW_SUM = "row_sum", RowPer.STEP
    """Sums over the units of a row."""
    PROJECTED = "hr", RowPer.STEP
    """The result of the projection."""
    KEPT = "kept", RowPer.STEP
    """Other values that the backward pass reads instead of recomputing them."""
    D_PRE = "d_pre", RowPer.STEP
    """The gradients of all pre-activations, or of the input and recurrent products that are their terms."""
    LEFT = "left", RowPer.STEP
    """Row vectors, other than the state, that `weight_hh` multiplies."""
    UNPROJECTED = "raw", RowPer.STEP
    """The row vectors that `weight_hr` multiplies."""
    D_PROJECTED = "d_hr", RowPer.STEP
    D_PARAMETER = "d_parameter", RowPer.SEQUENCE
    """The gradients of the parameters that the cell defines."""

    GATE = "gate_{}", RowPer.STEP
    D_GATE = "d_gate_{}", RowPer.STEP
    D_NEW = "d_new_{}", RowPer.STEP
    """The total gradient of a new state."""

    TEMPORARY = "{}", RowPer.SEQUENCE
    """A value that a later stage of the same step reads."""

    def __init__(self, label: str, row_per: RowPer) -> None:
        self.label, self.row_per = label, row_per


class Buffer(NamedTuple):
    """Memory for rows of numbers. A row has `columns` adjacent values. The width of a value is the extent of `axis`.

    Attributes:
        kind: the contents.
        owner: the name of the state, gate, parameter or value. Empty if there is only one buffer of this kind.
        axis: the axis of a value.
        columns: the number of values in a row.
    """

    kind: Kind
    owner: str = ""
    axis: Axis = UNITS
    columns: int = 1

    @property
    def label(self) -> str:
        """The name of the buffer in printed text. Two buffers may have the same label."""
        return self.kind.label.format(self.owner)

    def width(self, sizes: KernelSizes) -> int:
        """Return the number of elements of a row."""
        return self.columns * sizes.extent(self.axis)


class Column(NamedTuple):
    """One of the adjacent values in the rows of a buffer, by its number."""

    buffer: Buffer
    number: int = 0


_KIND_OF_SAVED = {
    SavedKind.INPUT: Kind.INPUT,
    SavedKind.RECURRENT: Kind.RECURRENT,
    SavedKind.ROW_SUM: Kind.ROW_SUM,
    SavedKind.PROJECTED: Kind.PROJECTED,
    SavedKind.KEPT: Kind.KEPT,
}


class Buffers:
    """The buffers that the passes of one cell read and write. Indexing returns the only buffer of a kind.

    Args:
        trace: the graphs of the cell.
        states: the axis of each state, by name.
    """

    def __init__(self, trace: Trace, states: Mapping[str, Axis]) -> None:
        self.states = states
        output_axis = next(iter(states.values()))
        columns = {
            Kind.INPUT: len(trace.ih),
            Kind.RECURRENT: len(trace.hh_only),
            Kind.ROW_SUM: trace.saved_count(SavedKind.ROW_SUM),
            Kind.PROJECTED: 1,
            Kind.KEPT: trace.saved_count(SavedKind.KEPT),
            Kind.D_PRE: len(trace.backward.d_pre),
            Kind.LEFT: len(trace.left),
            Kind.UNPROJECTED: 1,
            Kind.D_PROJECTED: 1,
            Kind.D_PARAMETER: len(trace.backward.d_parameters),
            Kind.DATA: 1,
            Kind.D_DATA: 1,
        }
        axes = {
            Kind.DATA: FEATURES,
            Kind.D_DATA: FEATURES,
            Kind.ROW_SUM: PER_ROW,
            Kind.PROJECTED: output_axis,
            Kind.LEFT: output_axis,
            Kind.D_PROJECTED: output_axis,
        }
        self._without_owner = {kind: Buffer(kind, "", axes.get(kind, UNITS), n) for kind, n in columns.items()}

    def __getitem__(self, kind: Kind) -> Buffer:
        return self._without_owner[kind]

    def of_state(self, kind: Kind, name: str) -> Buffer:
        """Return the buffer of this kind for a state."""
        return Buffer(kind, name, self.states[name])

    def of_gate(self, kind: Kind, name: str) -> Buffer:
        """Return the buffer of a recorded gate or of its gradient."""
        return Buffer(kind, name, UNITS)

    def of_saved(self, kind: SavedKind) -> Buffer:
        """Return the buffer of the saved values of a kind, except states."""
        return self._without_owner[_KIND_OF_SAVED[kind]]

    def column(self, value: Saved) -> Column:
        """Return the column of a saved value."""
        return Column(self.of_saved(value.kind), value.number)


def weight_buffer(cell: Equations | Cell, name: str, kind: Kind = Kind.WEIGHT) -> Buffer:
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


def noise_buffer(cell: Equations | Cell, buffers: Buffers, name: str) -> Buffer:
    """Return the memory of the random factors with this name."""
    noise = cell.noise[name]
    kind = Kind.NOISE if noise.per_step else Kind.NOISE_OF_SEQUENCE
    return Buffer(kind, name, buffers.states.get(noise.state or "", UNITS))
