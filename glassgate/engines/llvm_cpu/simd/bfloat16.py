"""Rounding to bfloat16, two numbers per 32-bit word, and matrix products of rounded numbers, summed in float32.

With three terms, a float32 product is the sum of three products of bfloat16. Each number is then replaced by three
adjacent rounded numbers, the parts `ROW_PARTS` for rows and `WEIGHT_PARTS` for weights, so the matrix product has three
times the depth. In weight gradients, a word has one number from each of two rows; with three terms, there is
one such word per term.
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
    call,
    constant_vector,
    instruction,
    pointer_at,
    shuffle,
    splat,
)
from glassgate.engines.llvm_cpu.simd.microkernel import register_blocked_microkernel
from glassgate.engines.llvm_cpu.simd.transpose import transpose
from glassgate.engines.llvm_cpu.simd.vector import (
    Vector,
    VectorType,
    load_first,
    load_two,
    memory_functions,
    store_first,
)

HIGH, LOW = 0, 1
ROW_PARTS, WEIGHT_PARTS = (HIGH, HIGH, LOW), (HIGH, LOW, HIGH)
"""The parts of a number: HIGH is the rounded number, LOW the rounded remainder. With one term, only HIGH is used."""


class _BFloat16(ir.Type):
    """The LLVM type bfloat, which llvmlite does not define."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat16)

    def __hash__(self) -> int:
        return hash(_BFloat16)


class Pairs(NamedTuple):
    """`Words` of two numbers rounded to bfloat16."""

    lanes: int
    by_instruction: bool
    """Whether the processor has instructions that round to bfloat16, and that multiply pairs of bfloat16 numbers."""
    terms: int
    """The number of parts that replace a number: 1 or 3."""

    @property
    def numbers_per_word(self) -> int:
        """`Words.numbers_per_word`."""
        return 2

    @property
    def group(self) -> int:
        """`Words.group`."""
        return 1

    def load_group(self, builder: ir.IRBuilder, pointer: ir.Value) -> list[ir.Value]:
        """See `Words.load_group`."""
        return [self.load_left(builder, pointer, False)]

    def row_pointer_type(self, strided: bool) -> ir.Type:
        """See `Words.row_pointer_type`."""
        return (INT32 if strided else INT16).as_pointer()

    def count_words(self, builder: ir.IRBuilder, depth: ir.Value, strided: bool) -> ir.Value:
        """See `Words.count_words`."""
        return builder.lshr(builder.add(depth, INT64(1)) if strided else depth, INT64(1))

    def load_left(self, builder: ir.IRBuilder, pointer: ir.Value, first_only: bool) -> ir.Value:
        """See `Words.load_left`."""
        kind = INT16 if first_only else INT32
        loaded = builder.load(builder.bitcast(pointer, kind.as_pointer()))
        loaded.align = 2
        return splat(builder, builder.zext(loaded, INT32) if first_only else loaded, self.lanes)

    def round(self, builder: ir.IRBuilder, vector: ir.Value) -> ir.Value:
        """Round to the nearest bfloat16 numbers, with ties to even."""
        kind = ir.VectorType(INT16, self.lanes)
        if self.by_instruction:
            return builder.bitcast(builder.fptrunc(vector, ir.VectorType(_BFloat16(), self.lanes)), kind)
        number = Vector(builder, vector)
        word = number.as_bits()
        half = word.integer_op(16, "lshr")
        up = half.integer_op(1, "and_").integer_op(0x7FFF, "add").integer_op(word, "add").integer_op(16, "lshr")
        return builder.trunc(number.compare(number, "!=").where(half.integer_op(0x40, "or_"), up).value, kind)

    def remainder(self, builder: ir.IRBuilder, vector: ir.Value) -> ir.Value:
        """Return the float32 numbers minus their rounded values."""
        return builder.fsub(vector, self.to_float32(builder, self.round(builder, vector)))

    def to_float32(self, builder: ir.IRBuilder, rounded: ir.Value) -> ir.Value:
        """Convert rounded numbers to float32."""
        kind = ir.VectorType(INT32, self.lanes)
        words = builder.shl(builder.zext(rounded, kind), constant_vector(INT32, [16] * self.lanes))
        return builder.bitcast(words, ir.VectorType(FLOAT, self.lanes))

    def interleave_parts(
        self, builder: ir.IRBuilder, *vectors: ir.Value, parts: tuple[int, ...] = ROW_PARTS
    ) -> ir.Value:
        """Round the numbers of one or two vectors. The parts of each number are adjacent in the result."""
        count = self.lanes * len(vectors)
        rounded = [[self.round(builder, v) for v in vectors]]
        if self.terms > 1:
            rounded.append([self.round(builder, self.remainder(builder, v)) for v in vectors])
        high, low = (shuffle(builder, each[0], each[-1], range(count)) for each in (rounded[0], rounded[-1]))
        return shuffle(builder, high, low, [part * count + k for k in range(count) for part in parts[: self.terms]])

    def round_pair(self, builder: ir.IRBuilder, lower: ir.Value, upper: ir.Value) -> ir.Value:
        """Round two vectors of float32 numbers, and join them: one word per lane."""
        return self.join_halves(builder, self.round(builder, lower), self.round(builder, upper))

    def join_halves(self, builder: ir.IRBuilder, lower: ir.Value, upper: ir.Value) -> ir.Value:
        """Join two vectors of bfloat16 numbers as the lower and upper halves of words: one word per lane."""
        kind = ir.VectorType(INT32, self.lanes)
        lower, upper = (builder.zext(v, kind) for v in (lower, upper))
        return builder.or_(lower, builder.shl(upper, constant_vector(INT32, [16] * self.lanes)))

    def adjacent_words(
        self, builder: ir.IRBuilder, first: ir.Value, second: ir.Value, parts: tuple[int, ...] = ROW_PARTS
    ) -> ir.Value:
        """Round the concatenated vectors, and return a word for each two adjacent parts."""
        rounded = self.interleave_parts(builder, first, second, parts=parts)
        return builder.bitcast(rounded, ir.VectorType(INT32, self.lanes * self.terms))

    def dot(self, builder: ir.IRBuilder, x: ir.Value, weight: ir.Value, total: ir.Value) -> ir.Value:
        """See `Words.dot`."""
        if self.by_instruction:
            name, pairs_type = (
                f"llvm.x86.avx512bf16.dpbf16ps.{32 * self.lanes}",
                ir.VectorType(_BFloat16(), 2 * self.lanes),
            )
            return call(builder, name, total.type, total, *[builder.bitcast(v, pairs_type) for v in (x, weight)])
        sums, (a, b) = Vector(builder, total), (Vector(builder, builder.bitcast(v, x.type)) for v in (x, weight))
        lower_sums = a.integer_op(16, "shl").as_float(sums).fma(b.integer_op(16, "shl").as_float(sums), sums)
        upper_a, upper_b = (v.integer_op(0xFFFF0000, "and_").as_float(sums) for v in (a, b))
        return upper_a.fma(upper_b, lower_sums).value


class BFloat16Products:
    """`MultiplicationMethod` that computes a float32 product as one product of bfloat16 numbers, or as three."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor
        by_instruction = processor.bfloat16 == "avx512bf16"
        self._pairs = Pairs(processor.lanes(32), by_instruction, processor.terms)

    def microkernel(self, sums: int, long: bool = False, strided: bool = False) -> Any:
        """See `MultiplicationMethod.microkernel`. If `strided`, an incomplete last word is padded with 0."""
        V = VectorType(32, self._pairs.lanes)
        return register_blocked_microkernel(V, self._pairs, self._processor, sums, long, strided)

    def functions(self) -> dict[str, Any]:
        """See `MultiplicationMethod.functions`."""
        return _functions(self._pairs) | LAYOUT | {"transpose": self.transpose()}

    def transpose(self, all_rows: bool = False) -> Any:
        """Return the function that packs weights as words, see `transpose.py`."""
        pairs = self._pairs
        return transpose(32, pairs.lanes, partial(pairs.adjacent_words, parts=WEIGHT_PARTS), pairs.terms, all_rows)


def _functions(pairs: Pairs) -> dict[str, Any]:
    """Return the functions that round numbers and read rounded numbers, by name."""
    lanes, terms = pairs.lanes, pairs.terms
    V, load = VectorType(32, lanes), memory_functions(32, lanes).load

    @instruction(V.llvm, V.llvm)
    def pair(builder, lower, upper):
        return builder.bitcast(pairs.round_pair(builder, lower, upper), V.llvm)

    @instruction(V.llvm)
    def remainder(builder, vector):
        return pairs.remainder(builder, vector)

    def weight_term(vector, k):
        """Return the float32 numbers that are rounded to get term k of weights, 0 <= k < 3."""
        return remainder(vector) if k == 1 else vector

    @instruction(INT64, INT64, INT64)
    def fill_rounded(builder, to, address, live):
        """Round the first `live` of 2 * lanes numbers at an address, and store their words, padded with zeros."""
        words = pairs.adjacent_words(builder, *load_two(builder, V, address, live))
        builder.store(words, pointer_at(builder, to, words.type)).align = 4

    @instruction(INT64, INT64, INT64)
    def put_rounded(builder, to, address, live):
        """Do the same as `fill_rounded`, with one term per number and without padding."""
        rounded = pairs._replace(terms=1).interleave_parts(builder, *load_two(builder, V, address, live))
        store_first(builder, pointer_at(builder, to, rounded.type), 2, live, rounded)

    def terms_at(builder, address, index, live, kind):
        """Return the pointer to the terms of `live` numbers from `index` on, the term size, and the number of terms."""
        first = builder.add(address, builder.mul(index, INT64(2 * terms)))
        return pointer_at(builder, first, kind), 2, builder.mul(live, INT64(terms))

    def parts_at(builder, address, index, live):
        """Return the high parts and, with three terms, the low parts of `live` numbers that `store_rounded` stored."""
        kind = ir.VectorType(INT16, lanes * terms)
        stored = load_first(builder, *terms_at(builder, address, index, live, kind))
        firsts = (0, ROW_PARTS.index(LOW)) if terms > 1 else (0,)
        return [shuffle(builder, stored, stored, range(first, lanes * terms, terms)) for first in firsts]

    @instruction(INT64, INT64, INT64)
    def load_rounded(builder, address, index, live):
        """Return the first `live` numbers, as sums of their parts."""
        high, *low = (pairs.to_float32(builder, part) for part in parts_at(builder, address, index, live))
        return builder.fadd(high, *low) if low else high

    @instruction(INT64, INT64, INT64, INT64, BOOLEAN, INT64)
    def left_word(builder, row_1, row_2, index, live, both, term):
        """Return words with a term of `row_1` in the lower half, and of `row_2` (0 unless `both`) in the upper half."""
        is_low = builder.icmp_signed("==", term, INT64(ROW_PARTS.index(LOW)))
        halves = []
        for row, count in ((row_1, live), (row_2, builder.select(both, live, INT64(0)))):
            parts = parts_at(builder, row, index, count)
            halves.append(builder.select(is_low, parts[-1], parts[0]))
        return builder.bitcast(pairs.join_halves(builder, *halves), V.llvm)

    def right_word(row_1, row_2, index, live, both, term):
        """Do the same as `left_word` for rows of float32 numbers, with the terms of weights."""
        return pair(weight_term(load(row_1, index, live), term), weight_term(load(row_2, index, live * both), term))

    @instruction(V.llvm, V.llvm)
    def add_pairs(builder, total, word):
        ones = constant_vector(INT32, [0x3F803F80] * lanes)
        return pairs.dot(builder, builder.bitcast(word, ones.type), ones, total)

    def add_word(total, word, term):
        """Add both numbers of each word to the totals of units. Term 1 is skipped, because it repeats the high part."""
        return total if term == 1 else add_pairs(total, word)

    @instruction(INT64, INT64, INT64, V.llvm)
    def store_rounded(builder, address, index, live, vector):
        """Store the terms of the first `live` numbers."""
        rounded = pairs.interleave_parts(builder, vector)
        pointer, size, count = terms_at(builder, address, index, live, rounded.type)
        store_first(builder, pointer, size, count, rounded)

    def round_units(rows, pitch, width, count, first, last, to):
        """Round the units `first` to `last` - 1 of `count` rows. `to` has rows of `width` bfloat16 numbers."""
        for row in range(count):
            for unit in range(first, last, 2 * lanes):
                put_rounded(to + (row * width + unit) * 2, rows + row * pitch + unit * 4, last - unit)

    def round_row(source, width, to):
        """Round a row of `width` numbers, and pad it with zeros to whole vectors."""
        for unit in range(0, width, 2 * lanes):
            fill_rounded(to + unit * 2 * terms, source + unit * 4, width - unit)

    def round_rows(rounded, table, first, last, column, width, to):
        """Round `width` numbers of each row, from `column` on. Write the addresses of the results to `rounded`.

        `table` has the addresses of the rows. The results are stored from `to` on.
        """
        pitch = (width + 2 * lanes - 1) // (2 * lanes) * lanes * 4 * terms
        for row in range(first, last):
            round_row(table[row] + column * 4, width, to + row * pitch)
            rounded[row] = to + row * pitch

    functions = (
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
    return {"PER_WORD": 2, "TERMS": terms} | {f.__name__: f for f in functions}
