"""The arguments of kernels. Each is a 64-bit integer with a name in the printed kernel."""

from dataclasses import dataclass
from enum import Enum, auto
from functools import cache

from glassgate.engines.axes import Axis
from glassgate.engines.llvm_cpu.loops.buffers import Buffer, Kind


class Property(Enum):
    """The property of a buffer whose value an argument has."""

    ADDRESS = auto()
    """Its address."""
    PITCH = auto()
    """The distance between its rows in bytes."""
    STARTS = auto()
    """The address of a table with the index of the first row of each step."""


@dataclass(frozen=True, eq=False, slots=True)
class Argument:
    """One integer that a call passes to kernels. There is one object per argument.

    Attributes:
        label: the name of the argument in printed text, unless another argument has the same label.
        table: whether it is the address of a table of integers.
        role, buffer: the buffer that the argument belongs to, and the property that it has; None for other arguments.
    """

    label: str
    table: bool = False
    role: Property | None = None
    buffer: Buffer | None = None


@cache
def number(label: str) -> Argument:
    """An argument that does not belong to a buffer."""
    return Argument(label)


@cache
def table(label: str) -> Argument:
    """The address of a table of integers."""
    return Argument(label, table=True)


@cache
def address(buffer: Buffer) -> Argument:
    """The address of a buffer."""
    return Argument(f"{buffer.label}_rows", role=Property.ADDRESS, buffer=buffer)


@cache
def pitch(buffer: Buffer) -> Argument:
    """The distance between the rows of a buffer in bytes."""
    return Argument(f"{buffer.label}_pitch", role=Property.PITCH, buffer=buffer)


@cache
def starts(buffer: Buffer) -> Argument:
    """The table with the index of a buffer's first row at each step."""
    return Argument(f"{buffer.label}_starts", table=True, role=Property.STARTS, buffer=buffer)


@cache
def before(state: str) -> Argument:
    """The table with the addresses of the rows of a state before the step."""
    return Argument(f"{state}_before", table=True)


@cache
def row_addresses(buffer: Buffer) -> Argument:
    """The table with the addresses of all rows of a buffer."""
    return Argument(f"{buffer.label}_each", table=True)


@cache
def of_product(label: str, k: int) -> Argument:
    """An argument of the k-th matrix product of a kernel.

    Args:
        label: "weights", "block_pitch" and "gates" of the packed matrix, "sums" of a tile, the table "left" of the
            operand's row addresses, the operand "rounded" to bfloat16, or "weights_ih" of an input product.
        k: the number of the product.
    """
    return Argument(f"{label}_{k}", table=label == "left")


@cache
def of_row_sum(label: str, k: int) -> Argument:
    """An argument of the k-th row sum of a kernel: "sum", a vector of partial sums per row, or "total", the totals."""
    return Argument(f"{label}_{k}")


@cache
def width(axis: Axis) -> Argument:
    """The width of a value, in numbers."""
    return Argument(axis.name)


@cache
def axis_pitch(axis: Axis) -> Argument:
    """The distance between the rows of a value in bytes."""
    return Argument(f"{axis}_pitch")


@cache
def units(axis: Axis) -> tuple[Argument, Argument]:
    """The range of units of an axis that a thread computes."""
    return Argument(f"{axis}_first"), Argument(f"{axis}_last")


@cache
def head(axis: Axis) -> tuple[Argument, Argument]:
    """The number of units of a head, and the number of vectors that they fill."""
    return Argument(f"{axis}_of_head"), Argument(f"{axis}_blocks_of_head")


STEPS, ORIGIN, TURN = number("steps"), number("origin"), number("turn")
"""The number of steps, the index of the first one, and the direction of time, 1 or -1."""
SIZES, STARTS = table("sizes"), table("starts")
"""The tables with the number of rows of each step, and with the index of its first row."""
RESETS, SAVE = number("resets"), number("save")
BARRIER, PARTIES = number("barrier"), number("parties")
FIRST, LAST = number("first"), number("last")
"""The range of sequences: the last two arguments of every cell's kernel."""
ROWS, SEQUENCES = number("rows"), number("sequences")
"""The number of rows of all steps, and of the largest step."""
INPUT_BLOCK_PITCH = number("block_pitch_ih")
"""The distance between the blocks of the packed weights of the input, in numbers."""
ROUNDED_OUTPUT = number("output_rounded")
"""The address of the bfloat16 output; 0 without one."""
ROUNDED_INPUT = number("data_rounded")
"""The input, rounded to bfloat16."""
ROUNDED = Kind.D_PRE, Kind.D_PROJECTED
"""Buffers that several products read. If products round to bfloat16, these buffers contain rounded numbers."""
