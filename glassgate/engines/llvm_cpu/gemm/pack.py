"""The packing of matrices for the microkernel, in contiguous blocks as wide as a vector."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.engines.llvm_cpu.amx import processor_for
from glassgate.engines.llvm_cpu.arguments import Argument
from glassgate.engines.llvm_cpu.native import native
from glassgate.engines.llvm_cpu.processor import host
from glassgate.engines.llvm_cpu.simd.blocking import pack_multiple
from glassgate.engines.llvm_cpu.tasks import Operand, ParallelTask

PACK = '''
def pack(B, ldb, gate_pitch, gates, order: words, units, columns, packed, block_pitch, first, last):
    """Pack some gates of a matrix with one row per unit as blocks of units: (block, column, gate, lane)."""
    for block in range(first, last):
        for gate in range(gates):
            rows = B + order[gate] * gate_pitch + block * LANES * ldb
            out = packed + (block * block_pitch + gate * LANES) * BYTES
            for k in range(0, columns, PER_WORD * LANES):
                at = out + k * TERMS // PER_WORD * gates * LANES * BYTES
                transpose(rows + k * BYTES, ldb, units - block * LANES, columns - k, at, gates * LANES * BYTES)
'''

PACK_COLUMNS = '''
def pack_columns(B, ldb, gate_pitch, gates, order: words, units, columns, packed, block_pitch, first, last):
    """Pack some gates of a matrix with one row per unit as blocks of columns: (block, gate and unit, lane)."""
    for block in range(first, last):
        at = block * LANES
        for gate in range(gates):
            out = packed + (block * block_pitch + gate * units * LANES) * BYTES
            for unit in range(units):
                row = B + order[gate] * gate_pitch + unit * ldb
                store(out, unit * LANES, LANES, load(row, at, columns - at))
'''

PACK_COLUMN_PAIRS = '''
def pack_column_pairs(B, ldb, gate_pitch, gates, order: words, units, columns, packed, block_pitch, first, last):
    """As `pack_columns`, with two consecutive numbers of a column rounded and combined to one word."""
    for block in range(first, last):
        at, out = block * LANES, packed + block * block_pitch * BYTES
        depth = gates * units * TERMS
        for k in range(0, padded_depth(depth), 2):
            low, high = fill(0.0), fill(0.0)
            for number in range(k, min(k + 2, depth)):
                gate, unit = number // TERMS // units, number // TERMS % units
                weights = load(B + order[gate] * gate_pitch + unit * ldb, at, columns - at)
                low, high = high, weight_term(weights, number % TERMS)
            if k + 1 == depth:
                low, high = high, low
            store(out, k // 2 * LANES, LANES, pair(low, high))
'''

FEW_NUMBERS = 2**16
"""If a matrix has fewer numbers, one thread packs it."""


class PackedMatrix(NamedTuple):
    """A matrix in the layout that products read.

    Attributes:
        start: the address of the matrix.
        size: the size of the matrix in bytes.
        pitch: the distance between blocks in words. A word is one number, or two numbers rounded to bfloat16.
        tasks: the tasks that pack the matrix.
        terms: the number of bfloat16 terms per number; 0 without rounding.
        gates: the address of a table with the offset of each gate in bytes, if units are read unpacked. Otherwise 0.
        row_pitch: the distance between rows in bytes, if columns are read unpacked. Otherwise 0.
    """

    start: Operand
    size: int
    pitch: int
    tasks: Sequence[ParallelTask]
    terms: int
    gates: int = 0
    row_pitch: int = 0


class Matrix(NamedTuple):
    """A contiguous matrix whose rows are the units of the first gate, then those of the next gate, and so on."""

    start: Argument
    gates: int
    rows: int
    columns: int
    bits: int


def pack(
    to: Argument, matrix: Matrix, chosen: Sequence[int], heads: int, of_columns: bool, terms: int = 0
) -> PackedMatrix:
    """The layout of the packed blocks of a matrix, head by head, and the tasks that pack them.

    Args:
        to: the address of the packed blocks.
        matrix: the matrix to pack.
        chosen: the gates, in order.
        heads: the number of heads.
        of_columns: whether blocks consist of columns, for the transposed product; otherwise of units.
        terms: the arithmetic of products, see `KernelSizes.terms`.
    """
    lanes, size, columns = host().lanes(matrix.bits), matrix.bits // 8, matrix.columns
    of_gate, units = matrix.rows // matrix.gates, matrix.rows // matrix.gates // heads
    width, depth, sums = (columns, len(chosen) * units, 1) if of_columns else (units, columns, len(chosen))
    per_word, whole = (2, pack_multiple(processor_for(terms))) if terms else (1, 1)
    words = -(-depth // whole) * whole // per_word * max(terms, 1)
    blocks, pitch = -(-width // lanes), words * sums * lanes + lanes
    row, order = columns * size, _table(tuple(chosen)).data_ptr()
    if of_columns:
        function = native(PACK_COLUMN_PAIRS if terms else PACK_COLUMNS, matrix.bits, terms)
    else:
        function = native(PACK, matrix.bits, terms)
    tasks = [
        ParallelTask(
            function,
            (
                (matrix.start, head * units * row),
                row,
                of_gate * row,
                len(chosen),
                order,
                units,
                columns,
                (to, head * blocks * pitch * size),
                pitch,
            ),
            blocks,
            is_light=len(chosen) * units * columns < FEW_NUMBERS,
        )
        for head in range(heads)
    ]
    return PackedMatrix(to, heads * blocks * pitch * size, pitch, tasks, terms)


def unpacked(matrix: Matrix, chosen: Sequence[int], of_columns: bool) -> PackedMatrix:
    """The matrix in the layout of the parameter, for products without packing.

    Args:
        matrix: the matrix.
        chosen: the gates, in order. For `of_columns`, they are adjacent.
        of_columns: as in `pack`.
    """
    lanes, row = host().lanes(matrix.bits), matrix.columns * matrix.bits // 8
    gate = matrix.rows // matrix.gates * row
    size = len(chosen) * gate
    if of_columns:
        return PackedMatrix((matrix.start, chosen[0] * gate), size, lanes, (), 0, row_pitch=row)
    return PackedMatrix(matrix.start, size, lanes * matrix.columns, (), 0, _table(tuple(chosen), gate).data_ptr())


@cache
def _table(numbers: tuple[int, ...], factor: int = 1) -> Tensor:
    """The numbers times a factor, in memory that kernels read."""
    return torch.tensor([factor * number for number in numbers], device="cpu")
