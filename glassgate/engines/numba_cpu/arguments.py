"""What a kernel is handed: 64-bit integers, each an object with a name for printed text."""

from dataclasses import dataclass
from enum import Enum, auto
from functools import cache

from glassgate.engines.numba_cpu.loops.buffers import Buffer, Kind


class Role(Enum):
    """What an argument says of a buffer."""

    ADDRESS = auto()
    """Where it begins."""
    PITCH = auto()
    """How many bytes its rows are apart."""
    STARTS = auto()
    """The address of the number of the first row of each step, of a buffer that may have its own."""


@dataclass(frozen=True, eq=False, slots=True)
class Argument:
    """One integer that a call binds; the same one is the same object.

    Attributes:
        label: its name in printed text, unless another has that.
        table: whether it is the address of integers.
        role, buffer: what it says of which buffer, if of one.
    """

    label: str
    table: bool = False
    role: Role | None = None
    buffer: Buffer | None = None


@cache
def number(label: str) -> Argument:
    """One that belongs to no buffer."""
    return Argument(label)


@cache
def table(label: str) -> Argument:
    """The address of integers."""
    return Argument(label, table=True)


@cache
def address(buffer: Buffer) -> Argument:
    """Where a buffer begins."""
    return Argument(f"{buffer.label}_rows", role=Role.ADDRESS, buffer=buffer)


@cache
def pitch(buffer: Buffer) -> Argument:
    """How many bytes its rows are apart."""
    return Argument(f"{buffer.label}_pitch", role=Role.PITCH, buffer=buffer)


@cache
def starts(buffer: Buffer) -> Argument:
    """The number of its first row of each step."""
    return Argument(f"{buffer.label}_starts", table=True, role=Role.STARTS, buffer=buffer)


@cache
def before(state: str) -> Argument:
    """The addresses of the rows of a state before the step."""
    return Argument(f"{state}_before", table=True)


@cache
def row_addresses(buffer: Buffer) -> Argument:
    """The addresses of all rows of a buffer, or of a state before them."""
    return Argument(f"{buffer.label}_each", table=True)


@cache
def of_product(what: str, k: int) -> Argument:
    """What belongs to one of a kernel's products: packed weights, the sums of a tile, the rows that it multiplies."""
    return Argument(f"{what}_{k}", table=what == "left")


@cache
def of_row_sum(what: str, k: int) -> Argument:
    """What belongs to one of a kernel's sums over a row: a vector for each row, and the total."""
    return Argument(f"{what}_{k}")


@cache
def width(axis: str) -> Argument:
    """How many numbers a value has."""
    return Argument(axis)


@cache
def axis_pitch(axis: str) -> Argument:
    """How many bytes rows of one value are apart."""
    return Argument(f"{axis}_pitch")


@cache
def units(axis: str) -> tuple[Argument, Argument]:
    """Which units of an axis a thread has."""
    return Argument(f"{axis}_first"), Argument(f"{axis}_last")


@cache
def head(axis: str) -> tuple[Argument, Argument]:
    """How many units a head has, and how many vectors hold them."""
    return Argument(f"{axis}_of_head"), Argument(f"{axis}_blocks_of_head")


STEPS, ORIGIN, TURN = number("steps"), number("origin"), number("turn")
"""How many steps, the first one, and 1 or -1."""
SIZES, STARTS = table("sizes"), table("starts")
"""Rows of each step, and the first of them."""
RESETS, SAVE = number("resets"), number("save")
BARRIER, PARTIES = number("barrier"), number("parties")
FIRST, LAST = number("first"), number("last")
"""Which sequences: the last two arguments of every cell's kernel."""
ROWS, SEQUENCES = number("rows"), number("sequences")
"""How many a call has: the rows of all steps, and the rows of its largest step."""
PACKED_INPUT = number("weights_ih")
"""The packed weights of the input."""
ROUNDED_OUTPUT = number("output_rounded")
"""Where the output goes as bfloat16; 0 if it does not."""
ROUNDED_INPUT = number("data_rounded")
"""What is multiplied by these, as bfloat16."""
ROUNDED = Kind.D_PRE, Kind.D_PROJECTED
"""Buffers of what is multiplied more than once: where products round to bfloat16, these hold rounded numbers."""
