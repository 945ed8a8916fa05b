"""The transpose of a square matrix in vector registers."""

from collections.abc import Callable
from itertools import chain

from llvmlite import ir

from glassgate.engines.llvm_cpu.simd.instructions import INT64, Instruction, instruction, shuffle
from glassgate.engines.llvm_cpu.simd.vector import VectorType, load_two, masked_load, masked_store


def transpose(
    bits: int,
    lanes: int,
    combine: Callable[[ir.IRBuilder, ir.Value, ir.Value], ir.Value] | None = None,
    terms: int = 1,
    all_rows: bool = False,
) -> Instruction:
    """Return a function that transposes a block of `lanes` rows and `lanes` columns of a matrix.

    Args:
        bits, lanes: the type of vectors.
        combine: converts two adjacent vectors of a row to words, which are then transposed. The block then has
            2 * `lanes` columns. None if numbers are transposed.
        terms: the number of words that `combine` returns for two numbers.
        all_rows: whether all rows of `out` are written, including rows for columns that the matrix lacks.

    Returns:
        transpose(source, pitch, rows, columns, out, out_pitch): the function writes the first `columns` numbers of the
        first `rows` rows of `source` to the columns of `out`. Rows are `pitch` and `out_pitch` bytes apart. Each row of
        `out` is written as a whole vector, with zeros for rows that the matrix lacks.
    """
    V = VectorType(bits, lanes)

    @instruction(*[INT64] * 6)
    def function(builder, source, pitch, rows, columns, out, out_pitch):
        zero = INT64(0)
        vectors = []
        for row in range(lanes):
            live = builder.select(builder.icmp_signed("<", INT64(row), rows), columns, zero)
            address = builder.add(source, builder.mul(pitch, INT64(row)))
            if combine is None:
                vectors.append(masked_load(builder, V, address, zero, live))
            else:
                vectors.append(combine(builder, *load_two(builder, V, address, live)))
        term_count = builder.mul(columns, INT64(terms))
        squares = zip(*[split_vector(builder, vector, V) for vector in vectors], strict=True)
        for row, vector in enumerate(chain(*[transpose_vectors(builder, [*square], lanes) for square in squares])):
            first_term = INT64(row if combine is None else 2 * row)
            live = INT64(lanes)
            if not all_rows:
                live = builder.select(builder.icmp_signed("<", first_term, term_count), live, zero)
            masked_store(builder, V, builder.add(out, builder.mul(out_pitch, INT64(row))), zero, live, vector)

    return function


def split_vector(builder: ir.IRBuilder, long: ir.Value, V: VectorType) -> list[ir.Value]:
    """Split a long vector into vectors of the type `V`."""
    lanes, starts = V.lanes, range(0, long.type.count, V.lanes)
    return [builder.bitcast(shuffle(builder, long, long, range(k, k + lanes)), V.llvm) for k in starts]


def transpose_vectors(builder: ir.IRBuilder, rows: list[ir.Value], lanes: int) -> list[ir.Value]:
    """Transpose a square matrix of `lanes` rows.

    Round k exchanges blocks of 2^k numbers between rows that are 2^k apart, for k = 0, 1, 2, ...
    """
    block = 1
    while block < lanes:
        low = [n if n & block == 0 else lanes + n - block for n in range(lanes)]
        high = [n + block if n & block == 0 else lanes + n for n in range(lanes)]
        exchanged = list(rows)
        for n in range(lanes):
            if n & block == 0:
                a, b = rows[n], rows[n + block]
                for row, mask in ((n, low), (n + block, high)):
                    exchanged[row] = shuffle(builder, a, b, mask)
        rows, block = exchanged, 2 * block
    return rows
