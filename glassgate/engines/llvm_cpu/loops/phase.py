"""What a phase of a step consists of: matrix products, values, stores and sums over units. `phases.py` makes phases."""

from dataclasses import dataclass, field
from typing import NamedTuple

from glassgate.engines.axes import Axis
from glassgate.engines.llvm_cpu.loops.buffers import Buffer, Column
from glassgate.engines.llvm_cpu.loops.memory import Carry, StateBefore, Store
from glassgate.engines.lowering.ir import Value
from glassgate.engines.lowering.step import Phase as StepPhase
from glassgate.engines.lowering.step_graph import WeightRows

MAX_GATES = 4
"""The largest number of gates of a product. With more gates, 16 registers would hold the sums of at most two rows."""


class LeftOperand(NamedTuple):
    """The left operand of a matrix product.

    Attributes:
        rows: the state before the step, or the first of `columns` adjacent columns.
        axis: the axis of a column.
        columns: the number of columns.
    """

    rows: Column | StateBefore
    axis: Axis
    columns: int = 1


@dataclass(eq=False)
class Product:
    """The product of row vectors and a matrix, with one or more sums for each unit.

    Attributes:
        weight: the matrix.
        left: the row vector. A product that sums over gates has several row vectors, adjacent in their buffer, of which
            this is the first.
        column: the column that stores `left`; None for a temporary and for the state before the step.
        results: the values to which the sums contribute.
        number: its number in the step.
    """

    weight: WeightRows
    left: Value
    column: Column | None
    results: tuple[Value, ...]
    number: int = 0


class RowSum(NamedTuple):
    """A sum over the units of a row.

    Attributes:
        number: its number in the step.
        value: the value whose units are added.
        kept: the column where training stores the sum; None if it is not stored.
    """

    number: int
    value: Value
    kept: Column | None


@dataclass(eq=False)
class Phase(StepPhase[Value]):
    """One loop over rows and units.

    Attributes:
        products: the matrix products, which are computed first.
        writes: the results that the phase stores.
        keeps: the values that only training stores.
        row_sums: the sums over units that are complete after this phase.
        temporaries: the values that a later phase reads from temporary memory.
    """

    products: list[Product] = field(default_factory=list)
    writes: list[Store | Carry] = field(default_factory=list)
    keeps: list[Store] = field(default_factory=list)
    row_sums: list[RowSum] = field(default_factory=list)
    temporaries: list[Value] = field(default_factory=list)


class Temporary(NamedTuple):
    """The memory of a value that only the same step reads.

    Attributes:
        value: the value.
        buffer: the memory, with one row per sequence.
        shares_row: whether all sequences use a single row in turn. One group of phases then computes and reads it.
        kept: the column where training stores the value instead. None if training does not keep it.
    """

    value: Value
    buffer: Buffer
    shares_row: bool
    kept: Column | None
