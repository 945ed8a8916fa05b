"""The arguments of kernels. Each is a 64-bit integer with a label, its name in the printed kernel."""

from dataclasses import dataclass
from enum import Enum, auto
from functools import cache

from glassgate.engines.axes import Axis
from glassgate.engines.llvm_cpu.loops.buffers import Buffer, Kind


class Property(Enum):
    """The information about a buffer that an argument passes."""

    ADDRESS = auto()
    """The address of the buffer."""
    PITCH = auto()
    """The distance between the rows of the buffer in bytes."""
    STARTS = auto()
    """The address of a table with the index of the first row of each step."""


@dataclass(frozen=True, eq=False, slots=True)
class Argument:
    """One integer that a call passes to kernels.

    Arguments are compared by identity. The functions below are cached, so that they return one object per argument.

    Attributes:
        label: the name of the argument in the printed kernel. If two arguments of a kernel have the same label, the
            name of one of them is extended.
        is_table: whether the argument is the address of a table of integers.
        property, buffer: the property that the argument passes, and its buffer; None for other arguments.
    """

    label: str
    is_table: bool = False
    property: Property | None = None
    buffer: Buffer | None = None


@cache
def integer(label: str) -> Argument:
    """Return an argument that is neither a table nor a property of a buffer."""
    return Argument(label)


@cache
def table(label: str) -> Argument:
    """Return the argument for the address of a table of integers."""
    return Argument(label, is_table=True)


@cache
def address(buffer: Buffer) -> Argument:
    """Return the argument for the address of a buffer."""
    return Argument(f"{buffer.label}_rows", property=Property.ADDRESS, buffer=buffer)


@cache
def pitch(buffer: Buffer) -> Argument:
    """Return the argument for the distance between the rows of a buffer in bytes."""
    return Argument(f"{buffer.label}_pitch", property=Property.PITCH, buffer=buffer)


@cache
def starts(buffer: Buffer) -> Argument:
    """Return the argument for the table with the index of a buffer's first row at each step."""
    return Argument(f"{buffer.label}_starts", is_table=True, property=Property.STARTS, buffer=buffer)


@cache
def previous_state(state: str) -> Argument:
    """Return the argument for a table of row addresses: the rows with the value of a state before the current step."""
    return Argument(f"{state}_before", is_table=True)


@cache
def row_addresses(buffer: Buffer) -> Argument:
    """Return the argument for the table with the addresses of all rows of a buffer."""
    return Argument(f"{buffer.label}_each", is_table=True)


@cache
def product_argument(label: str, k: int) -> Argument:
    """Return an argument of the k-th matrix product of a kernel.

    Args:
        label: one of these:

            - "weights", the address of the matrix; "weights_ih" for a product with the input
            - "block_pitch", "gates" and "row_pitch": the layout of the matrix, see `MicrokernelMatrix`
            - "left": the table of the row addresses of the left operand
            - "rounded": the address of the left operand, rounded to bfloat16 or to integers
            - "sums": the address of the sums of a tile
        k: the index of the product.
    """
    return Argument(f"{label}_{k}", is_table=label == "left")


@cache
def row_sum_argument(label: str, k: int) -> Argument:
    """Return an argument of the k-th sum over the units of a row.

    Args:
        label: "sum" for the address of the partial sums, one vector per row; "total" for the address of the totals.
        k: the index of the sum.
    """
    return Argument(f"{label}_{k}")


@cache
def width(axis: Axis) -> Argument:
    """Return the argument for the number of elements along an axis."""
    return Argument(axis.name)


@cache
def axis_pitch(axis: Axis) -> Argument:
    """Return the argument for the size in bytes of a row that is as long as an axis."""
    return Argument(f"{axis}_pitch")


@cache
def unit_range(axis: Axis) -> tuple[Argument, Argument]:
    """Return the arguments for the first unit of an axis that a thread computes, and for the end of its range."""
    return Argument(f"{axis}_first"), Argument(f"{axis}_last")


@cache
def head_sizes(axis: Axis) -> tuple[Argument, Argument]:
    """Return the arguments for the number of units of a head, and for the number of vectors that they fill."""
    return Argument(f"{axis}_of_head"), Argument(f"{axis}_blocks_of_head")


STEPS, ORIGIN, DT = integer("steps"), integer("origin"), integer("dt")
"""The number of steps, the index of the step that runs first, and the change of the index per step, 1 or -1."""
SIZES, STARTS = table("sizes"), table("starts")
"""The tables with the number of rows of each step, and with the index of its first row."""
RESETS, SAVE = integer("resets"), integer("save")
"""The address of the mask of resets, 0 without one; and whether values for the backward pass are stored."""
BARRIER, PARTIES = integer("barrier"), integer("parties")
"""The address of the barrier, and the number of threads that wait at it; see `atomics.wait`."""
FIRST, END = integer("first"), integer("last")
"""The first sequence that a thread computes, and the end of its range. These are the last arguments of every kernel."""
ROWS, SEQUENCES = integer("rows"), integer("sequences")
"""The number of rows of all steps, and the number of sequences."""
INPUT_BLOCK_PITCH = integer("block_pitch_ih")
"""The distance in elements between the blocks of the packed input weights."""
ROUNDED_OUTPUT = integer("output_rounded")
"""The address of the bfloat16 output; 0 without one."""
ROUNDED_INPUT = integer("data_rounded")
"""The address of the input, rounded to bfloat16 or to integers."""
ROUNDED_KINDS = Kind.D_PRE, Kind.D_PROJECTED
"""The kinds of buffers that several products read. If the products are in bfloat16, these buffers are in bfloat16."""
