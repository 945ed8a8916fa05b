"""The arguments of a kernel: 64-bit integers, each an object with a name for printed text."""

from dataclasses import dataclass
from enum import Enum, auto
from functools import cache

from glassgate.engines.numba_cpu.loops.buffers import Buffer, Kind


class Role(Enum):
    """The property of a buffer that an argument passes."""

    ADDRESS = auto()
    """Its address."""
    PITCH = auto()
    """The distance of its rows in bytes."""
    STARTS = auto()
    """The address of the first row's number for each step, if the buffer may have its own."""


@dataclass(frozen=True, eq=False, slots=True)
class Argument:
    """One integer that a call binds; there is one object per argument.

    Attributes:
        label: its name in printed text, unless another argument has that name.
        table: whether it is the address of integers.
        role, buffer: the property and the buffer that it describes, if any.
    """

    label: str
    table: bool = False
    role: Role | None = None
    buffer: Buffer | None = None


@cache
def number(label: str) -> Argument:
    """An argument that belongs to no buffer."""
    return Argument(label)


@cache
def table(label: str) -> Argument:
    """The address of integers."""
    return Argument(label, table=True)


@cache
def address(buffer: Buffer) -> Argument:
    """The address of a buffer."""
    return Argument(f"{buffer.label}_rows", role=Role.ADDRESS, buffer=buffer)


@cache
def pitch(buffer: Buffer) -> Argument:
    """The distance of its rows in bytes."""
    return Argument(f"{buffer.label}_pitch", role=Role.PITCH, buffer=buffer)


@cache
def starts(buffer: Buffer) -> Argument:
    """The number of its first row for each step."""
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
    """An argument of one of a kernel's products: packed weights, the sums of a tile, the operand's rows."""
    return Argument(f"{what}_{k}", table=what == "left")


@cache
def of_row_sum(what: str, k: int) -> Argument:
    """An argument of one of a kernel's sums over a row: a vector for each row, and the total."""
    return Argument(f"{what}_{k}")


@cache
def width(axis: str) -> Argument:
    """The width of a value, in numbers."""
    return Argument(axis)


@cache
def axis_pitch(axis: str) -> Argument:
    """The distance of a value's rows, in bytes."""
    return Argument(f"{axis}_pitch")


@cache
def units(axis: str) -> tuple[Argument, Argument]:
    """The range of units of an axis that a thread computes."""
    return Argument(f"{axis}_first"), Argument(f"{axis}_last")


@cache
def head(axis: str) -> tuple[Argument, Argument]:
    """The number of units of a head, and of the vectors that hold them."""
    return Argument(f"{axis}_of_head"), Argument(f"{axis}_blocks_of_head")


STEPS, ORIGIN, TURN = number("steps"), number("origin"), number("turn")
"""The number of steps, the first one, and 1 or -1."""
SIZES, STARTS = table("sizes"), table("starts")
"""The number of rows of each step, and the first of them."""
RESETS, SAVE = number("resets"), number("save")
BARRIER, PARTIES = number("barrier"), number("parties")
FIRST, LAST = number("first"), number("last")
"""The range of sequences: the last two arguments of every cell's kernel."""
ROWS, SEQUENCES = number("rows"), number("sequences")
"""The number of rows of all steps, and of the largest step."""
PACKED_INPUT, INPUT_BLOCK_PITCH = number("weights_ih"), number("block_pitch_ih")
"""The packed weights of the input, and the distance of their blocks in numbers."""
ROUNDED_OUTPUT = number("output_rounded")
"""The address of the bfloat16 output; 0 without one."""
ROUNDED_INPUT = number("data_rounded")
"""The operand of these weights, as bfloat16."""
ROUNDED = Kind.D_PRE, Kind.D_PROJECTED
"""Buffers that several products read: if products round to bfloat16, these buffers hold rounded numbers."""
