"""A square of numbers turned over in vector registers."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from glassgate.engines.numba_cpu.simd.bfloat16 import Pairs
from glassgate.engines.numba_cpu.simd.vector import INT32, INT64, VectorType, masked_load, masked_store


def transpose(bits: int, lanes: int, pairs: Pairs | None = None, whole: bool = False) -> Any:
    """Rows to columns, a vector each.

    Returns:
        transpose(source, pitch, rows, columns, out, out_pitch): the first `rows` rows of `source`, `pitch` bytes apart,
        and of each the first `columns` numbers, become columns of `out`; what is missing is zero, and `columns` rows of
        `out` are written whole. With `pairs`, each two numbers of a row are rounded to bfloat16 and count as one, and
        what is missing beside a number is zero. With `whole` every row of `out` is written.
    """
    V = VectorType(bits, lanes)

    @intrinsic
    def function(context, source, pitch, rows, columns, out, out_pitch):
        def code(context, builder, sig, args):
            source, pitch, rows, columns, out, out_pitch = args
            zero = INT64(0)
            vectors = []
            for row in range(lanes):
                live = builder.select(builder.icmp_signed("<", INT64(row), rows), columns, zero)
                at = builder.add(source, builder.mul(pitch, INT64(row)))
                vector = masked_load(builder, V, at, zero, live)
                if pairs is not None:
                    then = masked_load(builder, V, at, INT64(lanes), builder.sub(live, INT64(lanes)))
                    vector = builder.bitcast(pairs.neighbours(builder, vector, then), V.llvm)
                vectors.append(vector)
            for row, vector in enumerate(turned(builder, vectors, lanes)):
                number = INT64(row if pairs is None else 2 * row)
                live = INT64(lanes)
                if not whole:
                    live = builder.select(builder.icmp_signed("<", number, columns), live, zero)
                masked_store(builder, V, builder.add(out, builder.mul(out_pitch, INT64(row))), zero, live, vector)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), code

    return function


def turned(builder: ir.IRBuilder, rows: list[ir.Value], lanes: int) -> list[ir.Value]:
    """Blocks of 1, 2, 4, ... numbers change places between rows that lie as far apart."""
    block = 1
    while block < lanes:
        low = [n if n & block == 0 else lanes + n - block for n in range(lanes)]
        high = [n + block if n & block == 0 else lanes + n for n in range(lanes)]
        turned = list(rows)
        for n in range(lanes):
            if n & block == 0:
                a, b = rows[n], rows[n + block]
                for place, mask in ((n, low), (n + block, high)):
                    chosen = ir.Constant(ir.VectorType(INT32, lanes), mask)
                    turned[place] = builder.shuffle_vector(a, b, chosen)
        rows, block = turned, 2 * block
    return rows
