"""The buffers of a pass over one direction. Kernel plans assign memory to them."""

from collections.abc import Mapping
from enum import Enum, unique
from typing import NamedTuple

from glassgate.engines.axes import FEATURES, PER_ROW, UNITS, Axis
from glassgate.engines.llvm_cpu.sizes import KernelSizes
from glassgate.engines.symbolic.graph import Key
from glassgate.engines.symbolic.trace import Trace


class Rows(Enum):
    """Whether a buffer has a row for each step of a sequence, for each sequence, or for the whole call."""

    STEP = "step of a sequence"
    SEQUENCE = "sequence"
    WHOLE = "call"


@unique
class Kind(Enum):
    """The contents of a buffer, with a format string for its label, and the kind of its rows."""

    DATA = "data", Rows.STEP
    D_DATA = "d_data", Rows.STEP
    WEIGHT = "{}", Rows.WHOLE
    """A parameter."""
    D_WEIGHT = "d_{}", Rows.WHOLE
    BIAS = "bias_{}", Rows.WHOLE
    """The bias of the input half "ih" or of the recurrent half "hh" of all gates."""
    NOISE = "{}_noise", Rows.STEP
    NOISE_OF_SEQUENCE = "{}_noise", Rows.SEQUENCE

    STATE = "{}", Rows.STEP
    """A state after each step."""
    INITIAL = "{}_0", Rows.SEQUENCE
    RESTART = "{}_restart", Rows.SEQUENCE
    """The states after a reset."""
    FINAL = "{}_n", Rows.SEQUENCE
    D_STATE = "d_{}", Rows.STEP
    """The gradient of the output or of a state at a step, passed by the caller."""
    D_NEXT = "d_{}_next", Rows.SEQUENCE
    """The gradient of a state that a step passes to the previous one."""
    D_INITIAL = "d_{}_0", Rows.SEQUENCE

    INPUT = "ih", Rows.STEP
    """The input halves of the gates. In training they are overwritten with values for the backward pass."""
    RECURRENT = "hh", Rows.STEP
    """Recurrent products that the equations read without the input half, or values computed from them. Kept in
    training."""
    ROW_SUM = "row_sum", Rows.STEP
    PROJECTED = "hr", Rows.STEP
    KEPT = "kept", Rows.STEP
    """Other values that the backward pass reads instead of recomputing them."""
    D_PRE = "d_pre", Rows.STEP
    LEFT = "left", Rows.STEP
    """Row vectors, other than the state, that `weight_hh` multiplies."""
    UNPROJECTED = "raw", Rows.STEP
    D_PROJECTED = "d_hr", Rows.STEP
    D_PARAMETER = "d_parameter", Rows.SEQUENCE

    GATE = "gate_{}", Rows.STEP
    D_GATE = "d_gate_{}", Rows.STEP
    D_NEW = "d_new_{}", Rows.STEP
    """The total gradient of a new state."""

    TEMPORARY = "{}", Rows.SEQUENCE
    """A value that a later stage of the same step reads."""

    def __init__(self, label: str, rows: Rows) -> None:
        self.label, self.rows = label, rows


class Buffer(NamedTuple):
    """Memory for rows of numbers. Each row has `columns` adjacent values, each as wide as its axis.

    Attributes:
        kind: the contents.
        owner: the name of the state, gate, parameter or value; empty if there is only one buffer of this kind.
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
        """The number of elements of a row."""
        return self.columns * sizes.extent(self.axis)


class Place(NamedTuple):
    """One column of a buffer."""

    buffer: Buffer
    column: int = 0


_KIND_BY_STATE = {"state": Kind.STATE, "d_state": Kind.D_NEXT}
_KIND_BY_OWNER = {"gate": Kind.GATE, "d_gate": Kind.D_GATE, "d_new": Kind.D_NEW}
_KIND_WITHOUT_OWNER = {
    "ih": Kind.INPUT,
    "hh": Kind.RECURRENT,
    "row": Kind.ROW_SUM,
    "hr": Kind.PROJECTED,
    "kept": Kind.KEPT,
    "d_pre": Kind.D_PRE,
    "left": Kind.LEFT,
    "raw": Kind.UNPROJECTED,
    "d_hr": Kind.D_PROJECTED,
    "d_parameter": Kind.D_PARAMETER,
}


class Buffers:
    """The buffers that one cell's passes read and write.

    Args:
        trace: the graphs of the cell.
        states: the axis of each state, by name.
    """

    def __init__(self, trace: Trace, states: Mapping[str, Axis]) -> None:
        self.states = states
        self._state_names = tuple(states)
        output_axis = next(iter(states.values()))
        gradients = trace.gradients
        columns = {
            Kind.INPUT: len(trace.ih),
            Kind.RECURRENT: len(trace.hh_only),
            Kind.ROW_SUM: trace.row_columns,
            Kind.PROJECTED: 1,
            Kind.KEPT: trace.kept_columns,
            Kind.D_PRE: gradients["d_pre"],
            Kind.LEFT: len(trace.left),
            Kind.UNPROJECTED: 1,
            Kind.D_PROJECTED: 1,
            Kind.D_PARAMETER: gradients["d_parameter"],
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
        """The buffer of this kind for a state."""
        return Buffer(kind, name, self.states[name])

    def place(self, key: Key) -> Place:
        """The buffer and the column of a result or a kept value of the trace."""
        name, column = key
        if name in _KIND_BY_STATE:
            return Place(self.of_state(_KIND_BY_STATE[name], self._state_names[column]))
        if name in _KIND_BY_OWNER:
            return Place(Buffer(_KIND_BY_OWNER[name], column, self.states[column] if name == "d_new" else UNITS))
        return Place(self._without_owner[_KIND_WITHOUT_OWNER[name]], column)
