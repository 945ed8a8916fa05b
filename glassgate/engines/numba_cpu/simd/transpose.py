"""The transpose of a square of numbers in vector registers."""

from itertools import chain
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from glassgate.engines.numba_cpu.simd.bfloat16 import WEIGHT, Pairs
from glassgate.engines.numba_cpu.simd.vector import INT64, VectorType, masked_load, masked_store, shuffled, two_at


def transpose(bits: int, lanes: int, pairs: Pairs | None = None, whole: bool = False) -> Any:
    """Rows to columns, a vector each.

    Returns:
        transpose(source, pitch, rows, columns, out, out_pitch): the first `rows` rows of `source`, `pitch` bytes apart,
        and the first `columns` numbers of each, become columns of `out`. Missing numbers are zero. `columns` rows of
        `out` are written completely. With `pairs`, each two numbers of a row are rounded to bfloat16 and become one; a
        missing second number is zero. With `whole`, every row of `out` is written; with three terms per number, three
        times as many.
    """
    V, terms = VectorType(bits, lanes), pairs.terms if pairs is not None else 1

    @intrinsic
    def function(context, source, pitch, rows, columns, out, out_pitch):
        def code(context, builder, sig, args):
            source, pitch, rows, columns, out, out_pitch = args
            zero = INT64(0)
            vectors = []
            for row in range(lanes):
                live = builder.select(builder.icmp_signed("<", INT64(row), rows), columns, zero)
                at = builder.add(source, builder.mul(pitch, INT64(row)))
                if pairs is None:
                    vectors.append(masked_load(builder, V, at, zero, live))
                else:
                    vectors.append(pairs.neighbours(builder, *two_at(builder, V, at, live), WEIGHT))
            numbers = builder.mul(columns, INT64(terms))
            squares = zip(*[cut(builder, vector, V) for vector in vectors], strict=True)
            for row, vector in enumerate(chain(*[turned(builder, [*square], lanes) for square in squares])):
                number = INT64(row if pairs is None else 2 * row)
                live = INT64(lanes)
                if not whole:
                    live = builder.select(builder.icmp_signed("<", number, numbers), live, zero)
                masked_store(builder, V, builder.add(out, builder.mul(out_pitch, INT64(row))), zero, live, vector)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), code

    return function


def cut(builder: ir.IRBuilder, long: ir.Value, V: VectorType) -> list[ir.Value]:
    """A vector type of integers with the same shape."""
    lanes, firsts = V.llvm.count, range(0, long.type.count, V.llvm.count)
    return [builder.bitcast(shuffled(builder, long, long, range(at, at + lanes)), V.llvm) for at in firsts]


def turned(builder: ir.IRBuilder, rows: list[ir.Value], lanes: int) -> list[ir.Value]:
    """Exchanges blocks of 1, 2, 4, ... numbers between rows at the same distance."""
    block = 1
    while block < lanes:
        low = [n if n & block == 0 else lanes + n - block for n in range(lanes)]
        high = [n + block if n & block == 0 else lanes + n for n in range(lanes)]
        turned = list(rows)
        for n in range(lanes):
            if n & block == 0:
                a, b = rows[n], rows[n + block]
                for place, mask in ((n, low), (n + block, high)):
                    turned[place] = shuffled(builder, a, b, mask)
        rows, block = turned, 2 * block
    return rows
