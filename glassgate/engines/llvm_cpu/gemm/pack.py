"""Packing of matrices for the microkernel.

A packed matrix is divided into blocks. The vectors of a block have one lane per unit, or one lane per column.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.engines.llvm_cpu.amx import processor_for
from glassgate.engines.llvm_cpu.arguments import Argument
from glassgate.engines.llvm_cpu.native import compile_native
from glassgate.engines.llvm_cpu.processor import host
from glassgate.engines.llvm_cpu.simd.blocking import pack_multiple
from glassgate.engines.llvm_cpu.sizes import Arithmetic
from glassgate.engines.llvm_cpu.tasks import Operand, ParallelTask

PACK_UNITS = '''
def pack(B, ldb, gate_pitch, gates, order: words, units, columns, packed, block_pitch, first, last):
    """Pack some gates of a matrix with one row per unit. The order is (block, column, gate, lane); a lane is a unit."""
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
    """Pack some gates of a matrix with one row per unit. The order is (block, gate, unit, lane); a lane is a column."""
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
    """As `pack_columns`, but round the numbers to bfloat16 and combine pairs of numbers of a column in words."""
    for block in range(first, last):
        at, out = block * LANES, packed + block * block_pitch * BYTES
        depth = gates * units * TERMS
        for k in range(0, padded_depth(depth), 2):
            low, high = fill(0.0), fill(0.0)
            for index in range(k, min(k + 2, depth)):
                gate, unit = index // TERMS // units, index // TERMS % units
                weights = load(B + order[gate] * gate_pitch + unit * ldb, at, columns - at)
                low, high = high, weight_term(weights, index % TERMS)
            if k + 1 == depth:
                low, high = high, low
            store(out, k // 2 * LANES, LANES, pair(low, high))
'''

MIN_PARALLEL_NUMBERS = 2**16
"""One thread packs a matrix with fewer numbers, because that takes less time than waking a second thread."""


class MicrokernelMatrix(NamedTuple):
    """A matrix in a layout that a microkernel reads: packed blocks, or the unpacked parameter.

    Attributes:
        start: the address of the matrix.
        size: the size of the matrix in bytes.
        pitch: the distance between blocks in words. A word is one number, or two numbers rounded to bfloat16.
        tasks: the tasks that pack the matrix.
        arithmetic: the arithmetic of products.
        gate_offsets: the address of a table with the offset of each gate in bytes, for unpacked blocks of units. 0
            otherwise.
        row_pitch: the distance between rows in bytes, for unpacked blocks of columns. 0 otherwise.
    """

    start: Operand
    size: int
    pitch: int
    tasks: Sequence[ParallelTask]
    arithmetic: Arithmetic
    gate_offsets: int = 0
    row_pitch: int = 0


class Matrix(NamedTuple):
    """A contiguous matrix. Its rows are the units of the first gate, then those of the next gate, and so on.

    Attributes:
        start: the argument for its address.
        gate_count: the number of gates.
        rows, columns: its shape.
        bits: the size of a number.
    """

    start: Argument
    gate_count: int
    rows: int
    columns: int
    bits: int


def pack(
    start: Argument,
    matrix: Matrix,
    gates: Sequence[int],
    heads: int,
    transposed: bool,
    arithmetic: Arithmetic = Arithmetic.FULL,
) -> MicrokernelMatrix:
    """Return the layout of some gates of a matrix as packed blocks, head by head, and the tasks that pack them.

    Args:
        start: the argument for the address of the packed blocks.
        matrix: the matrix to pack.
        gates: the indices of the gates, in order.
        heads: the number of heads.
        transposed: whether blocks consist of columns, for products with the transposed matrix. Otherwise they consist
            of units.
        arithmetic: the arithmetic of products.
    """
    lanes, number_size, columns = host().lanes(matrix.bits), matrix.bits // 8, matrix.columns
    rows_of_gate, units = matrix.rows // matrix.gate_count, matrix.rows // matrix.gate_count // heads
    width, depth, sums = (columns, len(gates) * units, 1) if transposed else (units, columns, len(gates))
    numbers_per_word, multiple = (2, pack_multiple(processor_for(arithmetic))) if arithmetic else (1, 1)
    words = -(-depth // multiple) * multiple // numbers_per_word * max(arithmetic, 1)
    blocks, pitch = -(-width // lanes), words * sums * lanes + lanes
    row_size, gate_table = columns * number_size, _table(tuple(gates)).data_ptr()
    if transposed:
        function = compile_native(PACK_COLUMN_PAIRS if arithmetic else PACK_COLUMNS, matrix.bits, arithmetic)
    else:
        function = compile_native(PACK_UNITS, matrix.bits, arithmetic)
    tasks = [
        ParallelTask(
            function,
            (
                (matrix.start, head * units * row_size),
                row_size,
                rows_of_gate * row_size,
                len(gates),
                gate_table,
                units,
                columns,
                (start, head * blocks * pitch * number_size),
                pitch,
            ),
            blocks,
            is_light=len(gates) * units * columns < MIN_PARALLEL_NUMBERS,
        )
        for head in range(heads)
    ]
    return MicrokernelMatrix(start, heads * blocks * pitch * number_size, pitch, tasks, arithmetic)


def unpacked_matrix(matrix: Matrix, gates: Sequence[int], transposed: bool) -> MicrokernelMatrix:
    """Return the layout of some gates of a parameter, for products that read it without packing.

    Args:
        matrix: the parameter.
        gates: the indices of the gates, in order. If `transposed`, they must be adjacent.
        transposed: as in `pack`.
    """
    lanes, row_size = host().lanes(matrix.bits), matrix.columns * matrix.bits // 8
    gate_size = matrix.rows // matrix.gate_count * row_size
    size = len(gates) * gate_size
    if transposed:
        return MicrokernelMatrix(
            (matrix.start, gates[0] * gate_size), size, lanes, (), Arithmetic.FULL, row_pitch=row_size
        )
    offsets = _table(tuple(gates), gate_size).data_ptr()
    return MicrokernelMatrix(matrix.start, size, lanes * matrix.columns, (), Arithmetic.FULL, gate_offsets=offsets)


@cache
def _table(indices: tuple[int, ...], factor: int = 1) -> Tensor:
    """Return the indices times a factor as a tensor, which the cache keeps alive for kernels to read."""
    return torch.tensor([factor * index for index in indices], device="cpu")
