"""Numbers rounded to bfloat16, two in a word of 32 bits: how they are made, and multiplied with sums in float32."""

from typing import Any, NamedTuple

import numba
import numba.extending
from llvmlite import ir
from numba import types
from numba.core import cgutils

from glassgate.engines.numba_cpu.processor import Processor
from glassgate.engines.numba_cpu.simd.vector import INT32, INT64, Lanes, VectorType, masked_load, memory, splat

intrinsic: Any = numba.extending.intrinsic
inline: Any = numba.njit(forceinline=True, error_model="numpy")
INT16 = ir.IntType(16)


class _BFloat16(ir.Type):
    """LLVM's, which llvmlite lacks."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat16)

    def __hash__(self) -> int:
        return hash(_BFloat16)


class Pairs(NamedTuple):
    """Pairs of rounded numbers on a processor."""

    lanes: int
    by_instruction: bool
    """Whether the processor rounds and multiplies them itself."""

    def rounded(self, builder: ir.IRBuilder, vector: ir.Value) -> ir.Value:
        """The nearest numbers of 16 bits, the even one of two as near."""
        kind = ir.VectorType(INT16, self.lanes)
        if self.by_instruction:
            return builder.bitcast(builder.fptrunc(vector, ir.VectorType(_BFloat16(), self.lanes)), kind)
        number = Lanes(builder, vector)
        word = number.as_bits()
        half = word.integer(16, "lshr")
        up = half.integer(1, "and_").integer(0x7FFF, "add").integer(word, "add").integer(16, "lshr")
        return builder.trunc(number.compare(number, "!=").where(half.integer(0x40, "or_"), up).value, kind)

    def paired(self, builder: ir.IRBuilder, low: ir.Value, high: ir.Value) -> ir.Value:
        """One word a lane, of both vectors' rounded numbers."""
        kind = ir.VectorType(INT32, self.lanes)
        low, high = (builder.zext(self.rounded(builder, v), kind) for v in (low, high))
        return builder.or_(low, builder.shl(high, ir.Constant(kind, [16] * self.lanes)))

    def neighbours(self, builder: ir.IRBuilder, first: ir.Value, then: ir.Value) -> ir.Value:
        """One word for each two numbers that follow each other in both vectors side by side."""
        every = ir.Constant(ir.VectorType(INT32, 2 * self.lanes), list(range(2 * self.lanes)))
        both = builder.shuffle_vector(self.rounded(builder, first), self.rounded(builder, then), every)
        return builder.bitcast(both, ir.VectorType(INT32, self.lanes))

    def dot(self, builder: ir.IRBuilder, x: ir.Value, weight: ir.Value, total: ir.Value) -> ir.Value:
        """`total` and both products of each lane's pairs."""
        if self.by_instruction:
            kind, numbers = total.type, ir.VectorType(_BFloat16(), 2 * self.lanes)
            function = ir.FunctionType(kind, [kind, numbers, numbers])
            name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * self.lanes}"
            dot = cgutils.get_or_insert_function(builder.module, function, name)
            return builder.call(dot, [total, builder.bitcast(x, numbers), builder.bitcast(weight, numbers)])
        like, (a, b) = Lanes(builder, total), (Lanes(builder, v) for v in (x, weight))
        low = a.integer(16, "shl").as_float(like).fma(b.integer(16, "shl").as_float(like), like)
        high = (v.integer(0xFFFF0000, "and_").as_float(like) for v in (a, b))
        return next(high).fma(next(high), low).value


def pairs_of(processor: Processor) -> Pairs:
    """Those of a processor that has them."""
    return Pairs(processor.lanes(32), processor.bfloat16 == "avx512bf16")


def functions(processor: Processor) -> dict[str, Any]:
    """By name, what kernels call that multiply pairs."""
    pairs = pairs_of(processor)
    V, lanes, load = VectorType(32, pairs.lanes), pairs.lanes, memory(32, pairs.lanes).load

    @intrinsic
    def pair(context, low, high):
        return V(V, V), lambda c, builder, s, args: builder.bitcast(pairs.paired(builder, *args), V.llvm)

    @intrinsic
    def fill_rounded(context, address, at, live):
        """From numbers at the address `at`, 2 * lanes or the `live` first of these, to words."""

        def code(context, builder, sig, args):
            to, at, live = args
            first = masked_load(builder, V, at, INT64(0), live)
            then = masked_load(builder, V, at, INT64(lanes), builder.sub(live, INT64(lanes)))
            place = builder.inttoptr(to, ir.VectorType(INT32, lanes).as_pointer())
            builder.store(pairs.neighbours(builder, first, then), place).align = 4
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), code

    @intrinsic
    def put_rounded(context, address, at, live):
        """As `fill_rounded`, and no word more than these numbers are."""

        def code(context, builder, sig, args):
            to, at, live = args
            rounded = builder.shuffle_vector(
                pairs.rounded(builder, masked_load(builder, V, at, INT64(0), live)),
                pairs.rounded(builder, masked_load(builder, V, at, INT64(lanes), builder.sub(live, INT64(lanes)))),
                ir.Constant(ir.VectorType(INT32, 2 * lanes), list(range(2 * lanes))),
            )
            store_first(builder, rounded, to, live)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), code

    def rounded_at(builder, address, at, live):
        """A word a lane, each with the number of 16 bits there in its lower half; zero behind the first `live`."""
        place = builder.add(address, builder.mul(at, INT64(2)))
        return builder.zext(load_first(builder, lanes, place, live), ir.VectorType(INT32, lanes))

    def above(builder, words):
        return builder.shl(words, ir.Constant(words.type, [16] * lanes))

    @intrinsic
    def load_rounded(context, address, at, live):
        """The first `live` numbers from rounded ones."""

        def code(context, builder, sig, args):
            return builder.bitcast(above(builder, rounded_at(builder, *args)), V.llvm)

        return V(types.int64, types.int64, types.int64), code

    @intrinsic
    def left_word(context, low, high, at, live, both):
        """As `pair`, of two rows' rounded numbers; zero for the second one where there are not both."""

        def code(context, builder, sig, args):
            low, high, at, live, both = args
            words = builder.or_(
                rounded_at(builder, low, at, live),
                above(builder, rounded_at(builder, high, at, builder.select(both, live, INT64(0)))),
            )
            return builder.bitcast(words, V.llvm)

        return V(*[types.int64] * 4, types.boolean), code

    @inline
    def right_word(low, high, at, live, both):
        """As `left_word`, of numbers that are rounded here."""
        return pair(load(low, at, live), load(high, at, live * both))

    @intrinsic
    def add_word(context, total, word):
        """The total of a unit, and both numbers of a word of it."""

        def code(context, builder, sig, args):
            total, word = args
            ones = ir.Constant(ir.VectorType(INT32, lanes), [0x3F803F80] * lanes)
            return pairs.dot(builder, builder.bitcast(word, ones.type), ones, total)

        return V(V, V), code

    @intrinsic
    def store_rounded(context, address, at, live, vector):
        """The first `live` numbers, rounded."""

        def code(context, builder, sig, args):
            address, at, live, vector = args
            store_first(builder, pairs.rounded(builder, vector), builder.add(address, builder.mul(at, INT64(2))), live)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64, V), code

    @inline
    def round_units(rows, pitch, width, count, first, last, to):
        """Some columns of rows that are `pitch` bytes apart, rounded to rows of bfloat16 without gaps."""
        for row in range(count):
            for unit in range(first, last, 2 * lanes):
                put_rounded(to + (row * width + unit) * 2, rows + row * pitch + unit * 4, last - unit)

    @inline
    def round_row(source, width, to):
        """A row of numbers as rounded ones, zero from its end to that of the last vector."""
        for at in range(0, width, 2 * lanes):
            fill_rounded(to + at * 2, source + at * 4, width - at)

    @inline
    def round_rows(rounded, table, first, last, column, width, to):
        """Some columns of rows, rounded: the table of their addresses is `rounded`."""
        pitch = (width + 2 * lanes - 1) // (2 * lanes) * lanes * 4
        for rank in range(first, last):
            round_row(table[rank] + column * 4, width, to + rank * pitch)
            rounded[rank] = to + rank * pitch

    every = (
        pair,
        left_word,
        right_word,
        add_word,
        load_rounded,
        store_rounded,
        round_row,
        round_rows,
        round_units,
    )
    return {"PER_WORD": 2} | {f.__name__: f for f in every}


def _first(builder: ir.IRBuilder, count: int, live: ir.Value) -> ir.Value:
    each = ir.Constant(ir.VectorType(INT32, count), list(range(count)))
    return builder.icmp_signed("<", each, splat(builder, builder.trunc(live, INT32), count))


def load_first(builder: ir.IRBuilder, count: int, address: ir.Value, live: ir.Value) -> ir.Value:
    """The first `live` numbers of 16 bits from memory, the others zero."""
    kind, mask = ir.VectorType(INT16, count), _first(builder, count, live)
    function = ir.FunctionType(kind, [kind.as_pointer(), INT32, mask.type, kind])
    load = cgutils.get_or_insert_function(builder.module, function, f"llvm.masked.load.v{count}i16.p0")
    place = builder.inttoptr(address, kind.as_pointer())
    return builder.call(load, [place, INT32(2), mask, ir.Constant(kind, [0] * count)])


def store_first(builder: ir.IRBuilder, numbers: ir.Value, address: ir.Value, live: ir.Value) -> None:
    """The first `live` numbers of 16 bits to memory."""
    kind, count = numbers.type, numbers.type.count
    mask = _first(builder, count, live)
    function = ir.FunctionType(ir.VoidType(), [kind, kind.as_pointer(), INT32, mask.type])
    store = cgutils.get_or_insert_function(builder.module, function, f"llvm.masked.store.v{count}i16.p0")
    builder.call(store, [numbers, builder.inttoptr(address, kind.as_pointer()), INT32(2), mask])


def word(builder: ir.IRBuilder, address: ir.Value, lanes: int, alone: bool = False) -> ir.Value:
    """The pair at an address in every lane; or the number there and zero."""
    kind = INT16 if alone else INT32
    found = builder.load(builder.bitcast(address, kind.as_pointer()))
    found.align = 2
    return splat(builder, builder.zext(found, INT32) if alone else found, lanes)
