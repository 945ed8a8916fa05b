"""Rounding to bfloat16, two numbers per 32-bit word, and products of rounded numbers with sums in float32.

With three terms, a float32 product is the sum of three products of bfloat16. Each number is then replaced by three
rounded numbers: the parts `ROW` for rows and `WEIGHT` for weights. They are adjacent, so the product has three times
the depth. In sums over rows, three words replace each word of two rows.
"""

from functools import partial
from typing import Any, NamedTuple

from llvmlite import ir

from glassgate.engines.llvm_cpu.processor import Processor
from glassgate.engines.llvm_cpu.simd.fma import LAYOUT
from glassgate.engines.llvm_cpu.simd.instructions import (
    BOOLEAN,
    FLOAT,
    INT16,
    INT32,
    INT64,
    at,
    call,
    constants,
    instruction,
    shuffled,
    splat,
)
from glassgate.engines.llvm_cpu.simd.microkernel import register_blocked
from glassgate.engines.llvm_cpu.simd.transpose import transpose
from glassgate.engines.llvm_cpu.simd.vector import Lanes, VectorType, load_first, memory, store_first, two_at

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

    def pointer(self, strided: bool) -> ir.Type:
        """`Words.pointer`."""
        return (INT32 if strided else INT16).as_pointer()

    def words_of(self, builder: ir.IRBuilder, depth: ir.Value, strided: bool) -> ir.Value:
        """`Words.words_of`."""
        return builder.lshr(builder.add(depth, INT64(1)) if strided else depth, INT64(1))

    def left(self, builder: ir.IRBuilder, address: ir.Value, first_only: bool) -> ir.Value:
        """`Words.left`."""
        kind = INT16 if first_only else INT32
        loaded = builder.load(builder.bitcast(address, kind.as_pointer()))
        loaded.align = 2
        return splat(builder, builder.zext(loaded, INT32) if first_only else loaded, self.lanes)

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
        words = builder.shl(builder.zext(rounded, kind), constants(INT32, [16] * self.lanes))
        return builder.bitcast(words, ir.VectorType(FLOAT, self.lanes))

    def interleaved(self, builder: ir.IRBuilder, *vectors: ir.Value, parts: tuple[int, ...] = ROW) -> ir.Value:
        """The rounded parts of the numbers of adjacent vectors: all parts of a number, then those of the next one."""
        count = self.lanes * len(vectors)
        rounded = [[self.rounded(builder, v) for v in vectors]]
        if self.terms > 1:
            rounded.append([self.rounded(builder, self.rest(builder, v)) for v in vectors])
        high, low = (shuffled(builder, each[0], each[-1], range(count)) for each in (rounded[0], rounded[-1]))
        return shuffled(builder, high, low, [part * count + k for k in range(count) for part in parts[: self.terms]])

    def paired(self, builder: ir.IRBuilder, low: ir.Value, high: ir.Value) -> ir.Value:
        """One word per lane, with the rounded numbers of both vectors."""
        return self.joined(builder, self.rounded(builder, low), self.rounded(builder, high))

    def joined(self, builder: ir.IRBuilder, low: ir.Value, high: ir.Value) -> ir.Value:
        """One word per lane, from two vectors of bfloat16 numbers."""
        kind = ir.VectorType(INT32, self.lanes)
        low, high = (builder.zext(v, kind) for v in (low, high))
        return builder.or_(low, builder.shl(high, constants(INT32, [16] * self.lanes)))

    def adjacent_words(
        self, builder: ir.IRBuilder, first: ir.Value, then: ir.Value, parts: tuple[int, ...] = ROW
    ) -> ir.Value:
        """One word for each two adjacent rounded numbers of the concatenated vectors."""
        run = self.interleaved(builder, first, then, parts=parts)
        return builder.bitcast(run, ir.VectorType(INT32, self.lanes * self.terms))

    def dot(self, builder: ir.IRBuilder, x: ir.Value, weight: ir.Value, total: ir.Value) -> ir.Value:
        """`Words.dot`."""
        if self.by_instruction:
            name, numbers = (
                f"llvm.x86.avx512bf16.dpbf16ps.{32 * self.lanes}",
                ir.VectorType(_BFloat16(), 2 * self.lanes),
            )
            return call(builder, name, total.type, total, *[builder.bitcast(v, numbers) for v in (x, weight)])
        like, (a, b) = Lanes(builder, total), (Lanes(builder, builder.bitcast(v, x.type)) for v in (x, weight))
        low = a.integer(16, "shl").as_float(like).fma(b.integer(16, "shl").as_float(like), like)
        high = (v.integer(0xFFFF0000, "and_").as_float(like) for v in (a, b))
        return next(high).fma(next(high), low).value


class AVX512BF16:
    """`MultiplicationMethod` for float32 numbers, with one or three products of rounded numbers per product."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor
        by_instruction = processor.bfloat16 == "avx512bf16"
        self._pairs = Pairs(processor.lanes(32), by_instruction, processor.terms)

    def microkernel(self, sums: int, long: bool = False, strided: bool = False) -> Any:
        """`MultiplicationMethod.microkernel`. If strided, the pairs of a row are not adjacent."""
        V = VectorType(32, self._pairs.lanes)
        return register_blocked(V, self._pairs, self._processor, sums, long, strided)

    def functions(self) -> dict[str, Any]:
        """`MultiplicationMethod.functions`."""
        return _functions(self._pairs) | LAYOUT | {"transpose": self.transpose()}

    def transpose(self, all_rows: bool = False) -> Any:
        """Packs weights as words, see `transpose.py`."""
        pairs = self._pairs
        return transpose(32, pairs.lanes, partial(pairs.adjacent_words, parts=WEIGHT), pairs.terms, all_rows)


def _functions(pairs: Pairs) -> dict[str, Any]:
    """The functions that round numbers and read rounded numbers, by name."""
    lanes, terms = pairs.lanes, pairs.terms
    V, load = VectorType(32, lanes), memory(32, lanes).load

    @instruction(V.llvm, V.llvm)
    def pair(builder, low, high):
        return builder.bitcast(pairs.paired(builder, low, high), V.llvm)

    @instruction(V.llvm)
    def rest(builder, vector):
        return pairs.rest(builder, vector)

    def weight_term(vector, k):
        """The value whose rounding is the k-th term of a weight."""
        return rest(vector) if k == 1 else vector

    @instruction(INT64, INT64, INT64)
    def fill_rounded(builder, to, address, live):
        """Round the first `live` of 2 * lanes numbers at an address, and store them as words, padded with zeros."""
        words = pairs.adjacent_words(builder, *two_at(builder, V, address, live))
        builder.store(words, at(builder, to, words.type)).align = 4

    @instruction(INT64, INT64, INT64)
    def put_rounded(builder, to, address, live):
        """As `fill_rounded`, with one term per number and without padding."""
        run = pairs._replace(terms=1).interleaved(builder, *two_at(builder, V, address, live))
        store_first(builder, at(builder, to, run.type), 2, live, run)

    def terms_at(builder, address, index, live, kind):
        """The pointer to the terms of the numbers at an index, the size of a term in bytes, and the number of terms."""
        place = builder.add(address, builder.mul(index, INT64(2 * terms)))
        return at(builder, place, kind), 2, builder.mul(live, INT64(terms))

    def parts_at(builder, address, index, live):
        """The values that `store_rounded` stored for the first `live` numbers: the high parts, and any low parts."""
        kind = ir.VectorType(INT16, lanes * terms)
        run = load_first(builder, *terms_at(builder, address, index, live, kind))
        firsts = (0, ROW.index(LOW)) if terms > 1 else (0,)
        return [shuffled(builder, run, run, range(first, lanes * terms, terms)) for first in firsts]

    @instruction(INT64, INT64, INT64)
    def load_rounded(builder, address, index, live):
        """The first `live` numbers, restored from their terms."""
        high, *low = (pairs.exact(builder, part) for part in parts_at(builder, address, index, live))
        return builder.fadd(high, *low) if low else high

    @instruction(INT64, INT64, INT64, INT64, BOOLEAN, INT64)
    def left_word(builder, low, high, index, live, both, term):
        """One word per lane, with one term of a number of each of two rows; zero for a missing second row."""
        is_low = builder.icmp_signed("==", term, INT64(ROW.index(LOW)))
        halves = []
        for row, count in ((low, live), (high, builder.select(both, live, INT64(0)))):
            parts = parts_at(builder, row, index, count)
            halves.append(builder.select(is_low, parts[-1], parts[0]))
        return builder.bitcast(pairs.joined(builder, *halves), V.llvm)

    def right_word(low, high, index, live, both, term):
        """As `left_word`, for rows that are not yet rounded."""
        return pair(weight_term(load(low, index, live), term), weight_term(load(high, index, live * both), term))

    @instruction(V.llvm, V.llvm)
    def dot_ones(builder, total, word):
        ones = constants(INT32, [0x3F803F80] * lanes)
        return pairs.dot(builder, builder.bitcast(word, ones.type), ones, total)

    def add_word(total, word, term):
        """Add both numbers of a word to the total of a unit. Term 1 repeats the high part, so it is skipped."""
        return total if term == 1 else dot_ones(total, word)

    @instruction(INT64, INT64, INT64, V.llvm)
    def store_rounded(builder, address, index, live, vector):
        """Store the terms of the first `live` numbers."""
        run = pairs.interleaved(builder, vector)
        place, size, count = terms_at(builder, address, index, live, run.type)
        store_first(builder, place, size, count, run)

    def round_units(rows, pitch, width, count, first, last, to):
        """Round columns of rows that are `pitch` bytes apart to contiguous rows of bfloat16."""
        for row in range(count):
            for unit in range(first, last, 2 * lanes):
                put_rounded(to + (row * width + unit) * 2, rows + row * pitch + unit * 4, last - unit)

    def round_row(source, width, to):
        """Round a row of numbers, and pad it with zeros to whole vectors."""
        for unit in range(0, width, 2 * lanes):
            fill_rounded(to + unit * 2 * terms, source + unit * 4, width - unit)

    def round_rows(rounded, table, first, last, column, width, to):
        """Round columns of rows. Write the addresses of the rounded rows to the table `rounded`."""
        pitch = (width + 2 * lanes - 1) // (2 * lanes) * lanes * 4 * terms
        for row in range(first, last):
            round_row(table[row] + column * 4, width, to + row * pitch)
            rounded[row] = to + row * pitch

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
