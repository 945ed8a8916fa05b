"""Rounding to bfloat16, two numbers per 32-bit word, and products of rounded numbers with sums in float32.

With three terms, a float32 product is the sum of three products of bfloat16. Each number is then replaced by three
rounded numbers: the parts `ROW` for rows and `WEIGHT` for weights. They are adjacent, so the product has three times
the depth. In sums over rows, three words replace each word of two rows.
"""

from functools import partial
from typing import Any, NamedTuple

import numba
import numba.extending
from llvmlite import ir
from numba import types
from numba.core import cgutils

from glassgate.engines.numba_cpu.processor import Processor
from glassgate.engines.numba_cpu.simd.fma import LAYOUT
from glassgate.engines.numba_cpu.simd.microkernel import register_blocked
from glassgate.engines.numba_cpu.simd.transpose import transpose
from glassgate.engines.numba_cpu.simd.vector import INT32, INT64, Lanes, VectorType, memory, shuffled, splat, two_at

intrinsic: Any = numba.extending.intrinsic
inline: Any = numba.njit(forceinline=True, error_model="numpy")
INT16 = ir.IntType(16)
HIGH, LOW = 0, 1
ROW, WEIGHT = (HIGH, HIGH, LOW), (HIGH, LOW, HIGH)
"""The parts of a number: HIGH is its rounded value, LOW its rounded remainder. With one term, only HIGH is used."""


class _BFloat16(ir.Type):
    """The LLVM type bfloat, which llvmlite does not define."""

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
    """Whether the processor has instructions that round to and multiply bfloat16."""
    terms: int
    """The number of rounded numbers per number."""

    @property
    def numbers(self) -> int:
        """`Words.numbers`."""
        return 2

    @property
    def weights(self) -> ir.Type:
        """`Words.weights`."""
        return ir.VectorType(INT32, self.lanes)

    def pointer(self, strided: bool) -> ir.Type:
        """`Words.pointer`."""
        return (INT32 if strided else INT16).as_pointer()

    def words_of(self, builder: ir.IRBuilder, depth: ir.Value, strided: bool) -> ir.Value:
        """`Words.words_of`."""
        return builder.lshr(builder.add(depth, INT64(1)) if strided else depth, INT64(1))

    def left(self, builder: ir.IRBuilder, address: ir.Value, alone: bool) -> ir.Value:
        """`Words.left`."""
        kind = INT16 if alone else INT32
        loaded = builder.load(builder.bitcast(address, kind.as_pointer()))
        loaded.align = 2
        return splat(builder, builder.zext(loaded, INT32) if alone else loaded, self.lanes)

    def rounded(self, builder: ir.IRBuilder, vector: ir.Value) -> ir.Value:
        """The nearest bfloat16 numbers, with ties to even."""
        kind = ir.VectorType(INT16, self.lanes)
        if self.by_instruction:
            return builder.bitcast(builder.fptrunc(vector, ir.VectorType(_BFloat16(), self.lanes)), kind)
        number = Lanes(builder, vector)
        word = number.as_bits()
        half = word.integer(16, "lshr")
        up = half.integer(1, "and_").integer(0x7FFF, "add").integer(word, "add").integer(16, "lshr")
        return builder.trunc(number.compare(number, "!=").where(half.integer(0x40, "or_"), up).value, kind)

    def rest(self, builder: ir.IRBuilder, vector: ir.Value) -> ir.Value:
        """The remainder after rounding."""
        return builder.fsub(vector, self.exact(builder, self.rounded(builder, vector)))

    def exact(self, builder: ir.IRBuilder, rounded: ir.Value) -> ir.Value:
        """Rounded numbers, converted to float32."""
        kind = ir.VectorType(INT32, self.lanes)
        words = builder.shl(builder.zext(rounded, kind), ir.Constant(kind, [16] * self.lanes))
        return builder.bitcast(words, ir.VectorType(ir.FloatType(), self.lanes))

    def in_a_run(self, builder: ir.IRBuilder, *vectors: ir.Value, stands: tuple[int, ...] = ROW) -> ir.Value:
        """The rounded numbers of each lane of adjacent vectors, number by number."""
        count = self.lanes * len(vectors)
        parts = [[self.rounded(builder, v) for v in vectors]]
        if self.terms > 1:
            parts.append([self.rounded(builder, self.rest(builder, v)) for v in vectors])
        high, low = (shuffled(builder, part[0], part[-1], range(count)) for part in (parts[0], parts[-1]))
        return shuffled(builder, high, low, [part * count + k for k in range(count) for part in stands[: self.terms]])

    def paired(self, builder: ir.IRBuilder, low: ir.Value, high: ir.Value) -> ir.Value:
        """One word per lane, with the rounded numbers of both vectors."""
        return self.joined(builder, self.rounded(builder, low), self.rounded(builder, high))

    def joined(self, builder: ir.IRBuilder, low: ir.Value, high: ir.Value) -> ir.Value:
        """One word per lane, from two vectors of bfloat16 numbers."""
        kind = ir.VectorType(INT32, self.lanes)
        low, high = (builder.zext(v, kind) for v in (low, high))
        return builder.or_(low, builder.shl(high, ir.Constant(kind, [16] * self.lanes)))

    def neighbours(
        self, builder: ir.IRBuilder, first: ir.Value, then: ir.Value, stands: tuple[int, ...] = ROW
    ) -> ir.Value:
        """One word for each two adjacent rounded numbers of the concatenated vectors."""
        run = self.in_a_run(builder, first, then, stands=stands)
        return builder.bitcast(run, ir.VectorType(INT32, self.lanes * self.terms))

    def dot(self, builder: ir.IRBuilder, x: ir.Value, weight: ir.Value, total: ir.Value) -> ir.Value:
        """`Words.dot`."""
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


class AVX512BF16:
    """`Method` for float32 numbers, with one or three products of rounded numbers per product."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor
        by_instruction = processor.bfloat16 == "avx512bf16"
        self._pairs = Pairs(processor.lanes(32), by_instruction, processor.terms)

    def microkernel(self, sums: int, long: bool = False, strided: bool = False) -> Any:
        """`Method.microkernel`. If strided, the pairs of a row are not adjacent."""
        V = VectorType(32, self._pairs.lanes)
        return register_blocked(V, self._pairs, self._processor, sums, long, strided)

    def functions(self) -> dict[str, Any]:
        """`Method.functions`."""
        return _functions(self._pairs) | LAYOUT | {"transpose": self.transpose()}

    def transpose(self, whole: bool = False) -> Any:
        """Packs weights as words, see `transpose.py`."""
        pairs = self._pairs
        return transpose(32, pairs.lanes, partial(pairs.neighbours, stands=WEIGHT), pairs.terms, whole)


def _functions(pairs: Pairs) -> dict[str, Any]:
    """The functions that round numbers and read rounded numbers, by name."""
    lanes, terms = pairs.lanes, pairs.terms
    V, load = VectorType(32, lanes), memory(32, lanes).load

    @intrinsic
    def pair(context, low, high):
        return V(V, V), lambda c, builder, s, args: builder.bitcast(pairs.paired(builder, *args), V.llvm)

    @intrinsic
    def rest(context, vector):
        return V(V), lambda c, builder, s, args: pairs.rest(builder, *args)

    @inline
    def weight_term(vector, k):
        """The value whose rounding is the k-th term of a weight."""
        return rest(vector) if k == 1 else vector

    @intrinsic
    def fill_rounded(context, address, at, live):
        """Round 2 * lanes numbers at the address `at`, or the first `live` of these, and store them as words."""

        def code(context, builder, sig, args):
            to, at, live = args
            words = pairs.neighbours(builder, *two_at(builder, V, at, live))
            builder.store(words, builder.inttoptr(to, words.type.as_pointer())).align = 4
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), code

    @intrinsic
    def put_rounded(context, address, at, live):
        """As `fill_rounded`, but writes only the words of these numbers."""

        def code(context, builder, sig, args):
            to, at, live = args
            store_first(builder, pairs._replace(terms=1).in_a_run(builder, *two_at(builder, V, at, live)), to, live)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), code

    def parts_at(builder, address, at, live):
        """The values that `store_rounded` stored for the first `live` numbers: the high parts, and any low parts."""
        place = builder.add(address, builder.mul(at, INT64(2 * terms)))
        run = load_first(builder, lanes * terms, place, builder.mul(live, INT64(terms)))
        firsts = (0, ROW.index(LOW)) if terms > 1 else (0,)
        return [shuffled(builder, run, run, range(first, lanes * terms, terms)) for first in firsts]

    @intrinsic
    def load_rounded(context, address, at, live):
        """The first `live` numbers, restored from their terms."""

        def code(context, builder, sig, args):
            high, *low = (pairs.exact(builder, part) for part in parts_at(builder, *args))
            return builder.fadd(high, *low) if low else high

        return V(types.int64, types.int64, types.int64), code

    @intrinsic
    def left_word(context, low, high, at, live, both, term):
        """As `pair`, of the terms of the numbers of two rows; zero for the second row if there is only one."""

        def code(context, builder, sig, args):
            low, high, at, live, both, term = args
            is_low = builder.icmp_signed("==", term, INT64(ROW.index(LOW)))
            halves = []
            for row, count in ((low, live), (high, builder.select(both, live, INT64(0)))):
                parts = parts_at(builder, row, at, count)
                halves.append(builder.select(is_low, parts[-1], parts[0]))
            return builder.bitcast(pairs.joined(builder, *halves), V.llvm)

        return V(*[types.int64] * 4, types.boolean, types.int64), code

    @inline
    def right_word(low, high, at, live, both, term):
        """As `left_word`, of numbers that this function rounds."""
        return pair(weight_term(load(low, at, live), term), weight_term(load(high, at, live * both), term))

    @intrinsic
    def dot_ones(context, total, word):
        def code(context, builder, sig, args):
            total, word = args
            ones = ir.Constant(ir.VectorType(INT32, lanes), [0x3F803F80] * lanes)
            return pairs.dot(builder, builder.bitcast(word, ones.type), ones, total)

        return V(V, V), code

    @inline
    def add_word(total, word, term):
        """The total of a unit, with both numbers of a word; with one term the low part is missing."""
        return total if term == 1 else dot_ones(total, word)

    @intrinsic
    def store_rounded(context, address, at, live, vector):
        """Store the terms of the first `live` numbers."""

        def code(context, builder, sig, args):
            address, at, live, vector = args
            place = builder.add(address, builder.mul(at, INT64(2 * terms)))
            store_first(builder, pairs.in_a_run(builder, vector), place, builder.mul(live, INT64(terms)))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64, V), code

    @inline
    def round_units(rows, pitch, width, count, first, last, to):
        """Round columns of rows that are `pitch` bytes apart to contiguous rows of bfloat16."""
        for row in range(count):
            for unit in range(first, last, 2 * lanes):
                put_rounded(to + (row * width + unit) * 2, rows + row * pitch + unit * 4, last - unit)

    @inline
    def round_row(source, width, to):
        """Round a row of numbers, and pad it with zeros to whole vectors."""
        for at in range(0, width, 2 * lanes):
            fill_rounded(to + at * 2 * terms, source + at * 4, width - at)

    @inline
    def round_rows(rounded, table, first, last, column, width, to):
        """Round columns of rows. Write the addresses of the rounded rows to the table `rounded`."""
        pitch = (width + 2 * lanes - 1) // (2 * lanes) * lanes * 4 * terms
        for rank in range(first, last):
            round_row(table[rank] + column * 4, width, to + rank * pitch)
            rounded[rank] = to + rank * pitch

    every = (
        pair,
        weight_term,
        left_word,
        right_word,
        add_word,
        load_rounded,
        store_rounded,
        round_row,
        round_rows,
        round_units,
    )
    return {"PER_WORD": 2, "TERMS": terms} | {f.__name__: f for f in every}


def _first(builder: ir.IRBuilder, count: int, live: ir.Value) -> ir.Value:
    each = ir.Constant(ir.VectorType(INT32, count), list(range(count)))
    return builder.icmp_signed("<", each, splat(builder, builder.trunc(live, INT32), count))


def load_first(builder: ir.IRBuilder, count: int, address: ir.Value, live: ir.Value) -> ir.Value:
    """Load the first `live` 16-bit numbers from memory. The others are zero."""
    kind, mask = ir.VectorType(INT16, count), _first(builder, count, live)
    function = ir.FunctionType(kind, [kind.as_pointer(), INT32, mask.type, kind])
    load = cgutils.get_or_insert_function(builder.module, function, f"llvm.masked.load.v{count}i16.p0")
    place = builder.inttoptr(address, kind.as_pointer())
    return builder.call(load, [place, INT32(2), mask, ir.Constant(kind, [0] * count)])


def store_first(builder: ir.IRBuilder, numbers: ir.Value, address: ir.Value, live: ir.Value) -> None:
    """Store the first `live` 16-bit numbers to memory."""
    kind, count = numbers.type, numbers.type.count
    mask = _first(builder, count, live)
    function = ir.FunctionType(ir.VoidType(), [kind, kind.as_pointer(), INT32, mask.type])
    store = cgutils.get_or_insert_function(builder.module, function, f"llvm.masked.store.v{count}i16.p0")
    builder.call(store, [numbers, builder.inttoptr(address, kind.as_pointer()), INT32(2), mask])
