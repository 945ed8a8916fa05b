"""The memory of one direction's pass by its contents. Kernel plans decide where it is stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, unique
from typing import NamedTuple, Protocol

from glassgate.engines.symbolic.graph import Key
from glassgate.engines.symbolic.trace import Trace


class Rows(Enum):
    """The unit that a row of a buffer belongs to."""

    STEP = "step of a sequence"
    SEQUENCE = "sequence"
    WHOLE = "call"


@unique
class Kind(Enum):
    """What a buffer holds: the form of its name, and the unit of its rows."""

    DATA = "data", Rows.STEP
    D_DATA = "d_data", Rows.STEP
    WEIGHT = "{}", Rows.WHOLE
    """A parameter."""
    D_WEIGHT = "d_{}", Rows.WHOLE
    BIAS = "bias_{}", Rows.WHOLE
    """What is added to the input half "ih" or to the recurrent half "hh", gate by gate."""
    NOISE = "{}_noise", Rows.STEP
    NOISE_OF_SEQUENCE = "{}_noise", Rows.SEQUENCE

    STATE = "{}", Rows.STEP
    """A state after each step."""
    INITIAL = "{}_0", Rows.SEQUENCE
    RESTART = "{}_restart", Rows.SEQUENCE
    """What a reset falls back to."""
    FINAL = "{}_n", Rows.SEQUENCE
    D_STATE = "d_{}", Rows.STEP
    """The gradient that the caller gives."""
    D_NEXT = "d_{}_next", Rows.SEQUENCE
    """The gradient that comes from the step after."""
    D_INITIAL = "d_{}_0", Rows.SEQUENCE

    INPUT = "ih", Rows.STEP
    """The input halves of the gates; after a training step, the values that the backward pass reads."""
    RECURRENT = "hh", Rows.STEP
    """Recurrent products used alone, or values computed from them, kept in training."""
    ROW_SUM = "row_sum", Rows.STEP
    PROJECTED = "hr", Rows.STEP
    KEPT = "kept", Rows.STEP
    """What else the backward pass reads rather than computing it again."""
    D_PRE = "d_pre", Rows.STEP
    LEFT = "left", Rows.STEP
    """Row vectors, other than the state, that `weight_hh` is multiplied by."""
    UNPROJECTED = "raw", Rows.STEP
    D_PROJECTED = "d_hr", Rows.STEP
    D_PARAMETER = "d_parameter", Rows.SEQUENCE

    GATE = "gate_{}", Rows.STEP
    D_GATE = "d_gate_{}", Rows.STEP
    D_NEW = "d_new_{}", Rows.STEP
    """All of the gradient of a new state."""

    TEMPORARY = "{}", Rows.SEQUENCE
    """What a later stage of the same step reads."""

    def __init__(self, label: str, rows: Rows) -> None:
        self.label, self.rows = label, rows


class Widths(Protocol):
    """How many numbers a value of each axis has: of the input, the hidden state and the output."""

    @property
    def D(self) -> int: ...

    @property
    def H(self) -> int: ...

    @property
    def P(self) -> int: ...


@dataclass(frozen=True)
class Buffer:
    """Memory for rows of numbers: `columns` values of a row side by side, each as wide as its axis.

    Attributes:
        kind: what it holds.
        owner: of which state, gate, parameter or value; empty where there is one of the kind.
        axis: "H" the hidden size, "P" the output's, "D" the input's, "1" one number.
        columns: how many values of a row.
    """

    kind: Kind
    owner: str = ""
    axis: str = "H"
    columns: int = 1

    @property
    def label(self) -> str:
        """Its name in printed text, if that is unique."""
        return self.kind.label.format(self.owner)

    def width(self, widths: Widths) -> int:
        """How many numbers a row has."""
        match self.axis:
            case "H":
                return self.columns * widths.H
            case "P":
                return self.columns * widths.P
            case "D":
                return self.columns * widths.D
        return self.columns


class Place(NamedTuple):
    """One column of a buffer."""

    buffer: Buffer
    column: int = 0


_OF_STATES = {"state": Kind.STATE, "d_state": Kind.D_NEXT}
_BY_NAME = {"gate": Kind.GATE, "d_gate": Kind.D_GATE, "d_new": Kind.D_NEW}
_OF_ALL = {
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
        trace: the cell's graphs.
        states: their axes by name.
    """

    def __init__(self, trace: Trace, states: Mapping[str, str]) -> None:
        self.states = states
        self._names = tuple(states)
        out = next(iter(states.values()))
        count = trace.gradients
        columns = {
            Kind.INPUT: len(trace.ih),
            Kind.RECURRENT: len(trace.hh_only),
            Kind.ROW_SUM: trace.row_columns,
            Kind.PROJECTED: 1,
            Kind.KEPT: trace.kept_columns,
            Kind.D_PRE: count["d_pre"],
            Kind.LEFT: len(trace.left),
            Kind.UNPROJECTED: 1,
            Kind.D_PROJECTED: 1,
            Kind.D_PARAMETER: count["d_parameter"],
            Kind.DATA: 1,
            Kind.D_DATA: 1,
        }
        axes = {
            Kind.DATA: "D",
            Kind.D_DATA: "D",
            Kind.ROW_SUM: "1",
            Kind.PROJECTED: out,
            Kind.LEFT: out,
            Kind.D_PROJECTED: out,
        }
        self._one = {kind: Buffer(kind, "", axes.get(kind, "H"), n) for kind, n in columns.items()}

    def __getitem__(self, kind: Kind) -> Buffer:
        return self._one[kind]

    def of_state(self, kind: Kind, name: str) -> Buffer:
        """A buffer that belongs to a state."""
        return Buffer(kind, name, self.states[name])

    def place(self, key: Key) -> Place:
        """Where a trace's column is."""
        what, which = key
        if what in _OF_STATES:
            return Place(self.of_state(_OF_STATES[what], self._names[which]))
        if what in _BY_NAME:
            return Place(Buffer(_BY_NAME[what], which, self.states[which] if what == "d_new" else "H"))
        return Place(self._one[_OF_ALL[what]], which)
