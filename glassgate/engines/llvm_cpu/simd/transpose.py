"""The transpose of a square matrix in vector registers."""

from collections.abc import Callable
from itertools import chain

from llvmlite import ir

from glassgate.engines.llvm_cpu.simd.instructions import INT64, Instruction, instruction, shuffled
from glassgate.engines.llvm_cpu.simd.vector import VectorType, masked_load, masked_store, two_at


def transpose(
    bits: int,
    lanes: int,
    paired: Callable[[ir.IRBuilder, ir.Value, ir.Value], ir.Value] | None = None,
    terms: int = 1,
    all_rows: bool = False,
) -> Instruction:
    """A function that transposes a square block of a matrix, with as many rows and columns as a vector has lanes.

    Args:
        bits, lanes: the type of vectors.
        paired: combines two adjacent vectors of a row into words of two numbers, which are then transposed. A missing
            second number is zero. With words, the block has twice as many columns.
        terms: the number of words per two numbers.
        all_rows: whether all rows of `out` are written, including those of missing numbers.

    Returns:
        transpose(source, pitch, rows, columns, out, out_pitch): the first `rows` rows of `source`, `pitch` bytes apart,
        and the first `columns` numbers of each, become columns of `out`. Missing numbers are zero. `columns` rows of
        `out` are written completely.
    """
    V = VectorType(bits, lanes)

    @instruction(*[INT64] * 6)
    def function(builder, source, pitch, rows, columns, out, out_pitch):
        zero = INT64(0)
        vectors = []
        for row in range(lanes):
            live = builder.select(builder.icmp_signed("<", INT64(row), rows), columns, zero)
            at = builder.add(source, builder.mul(pitch, INT64(row)))
            if paired is None:
                vectors.append(masked_load(builder, V, at, zero, live))
            else:
                vectors.append(paired(builder, *two_at(builder, V, at, live)))
        numbers = builder.mul(columns, INT64(terms))
        squares = zip(*[cut(builder, vector, V) for vector in vectors], strict=True)
        for row, vector in enumerate(chain(*[transposed(builder, [*square], lanes) for square in squares])):
            number = INT64(row if paired is None else 2 * row)
            live = INT64(lanes)
            if not all_rows:
                live = builder.select(builder.icmp_signed("<", number, numbers), live, zero)
            masked_store(builder, V, builder.add(out, builder.mul(out_pitch, INT64(row))), zero, live, vector)

    return function


def cut(builder: ir.IRBuilder, long: ir.Value, V: VectorType) -> list[ir.Value]:
    """Cut a long vector into vectors of the type `V`."""
    lanes, firsts = V.lanes, range(0, long.type.count, V.lanes)
    return [builder.bitcast(shuffled(builder, long, long, range(at, at + lanes)), V.llvm) for at in firsts]


def transposed(builder: ir.IRBuilder, rows: list[ir.Value], lanes: int) -> list[ir.Value]:
    """Transpose a square matrix: exchange blocks of 1, 2, 4, ... numbers between rows 1, 2, 4, ... apart."""
    block = 1
    while block < lanes:
        low = [n if n & block == 0 else lanes + n - block for n in range(lanes)]
        high = [n + block if n & block == 0 else lanes + n for n in range(lanes)]
        transposed = list(rows)
        for n in range(lanes):
            if n & block == 0:
                a, b = rows[n], rows[n + block]
                for place, mask in ((n, low), (n + block, high)):
                    transposed[place] = shuffled(builder, a, b, mask)
        rows, block = transposed, 2 * block
    return rows
