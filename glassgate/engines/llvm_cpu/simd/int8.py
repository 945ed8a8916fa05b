"""Matrix products of 8-bit integers, summed in 32 bits. Rows are quantised in each call, weights once.

A quantised row is stored as its scale, followed by its integers at the offset `ROW_HEADER`. In a block of packed
weights, each 32-bit word has the integers of a unit for four consecutive inputs. The last word is followed by the
initial values of the sums and by the scales of the units. A result is in float32: sum * scale of the row * scale of the
unit.

docs/sessions.md has the speed with AVX512-VNNI and with AVX2. The speed with AVX-VNNI has not been measured.
"""

from typing import Any

from llvmlite import ir

from glassgate.engines.fixed_weights import LARGEST_INT8
from glassgate.engines.llvm_cpu.processor import INT8_OFFSET, OFFSET_METHODS, ROW_HEADER, Processor
from glassgate.engines.llvm_cpu.simd.blocking import blocking
from glassgate.engines.llvm_cpu.simd.fma import FMA
from glassgate.engines.llvm_cpu.simd.instructions import (
    BOOLEAN,
    FLOAT,
    INT8,
    INT16,
    INT32,
    INT64,
    Instruction,
    call,
    constant_vector,
    instruction,
    pointer_at,
    splat,
)
from glassgate.engines.llvm_cpu.simd.microkernel import dispatch_by_shape, shared_function
from glassgate.engines.llvm_cpu.simd.vector import Vector, VectorType, memory_functions

NEGLIGIBLE = 1e-30
"""A row whose largest absolute value is at most this is rounded to zero."""


class Integers:
    """`MultiplicationMethod` for float32 numbers that are multiplied as 8-bit integers."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    def microkernel(self, sums: int, long: bool = False, strided: bool = False) -> Instruction:
        """See `MultiplicationMethod.microkernel`. `strided` is ignored, because only training needs it."""
        V, tiles = VectorType(32, self._processor.lanes(32)), blocking(sums, self._processor)

        def tile(module: ir.Module, rows: int, blocks: int) -> ir.Function:
            return _tile_function(module, V, rows, blocks, sums, self._processor.integers)

        return dispatch_by_shape(tile, tiles.long_shapes if long else tiles.shapes)

    def functions(self) -> dict[str, Any]:
        """See `MultiplicationMethod.functions`."""
        return FMA(self._processor, 32).functions() | _rounding(self._processor)


def _rounding(processor: Processor) -> dict[str, Any]:
    """Return the functions that quantise the rows of left operands, by name."""
    lanes, shifted, padded_to = processor.lanes(32), processor.integers in OFFSET_METHODS, processor.width
    V, functions = VectorType(32, lanes), memory_functions(32, lanes)
    load, fill, put_total = functions.load, functions.fill, functions.put_total

    @instruction(V.llvm, V.llvm)
    def max_magnitude(builder, largest, vector):
        magnitude = Vector(builder, vector).call("llvm.fabs").value
        return builder.select(builder.fcmp_ordered(">", magnitude, largest), magnitude, largest)

    @instruction(V.llvm)
    def max_of_lanes(builder, vector):
        return call(builder, f"llvm.vector.reduce.fmax.v{lanes}f32", FLOAT, vector)

    @instruction(INT64, FLOAT)
    def put_number(builder, address, value):
        builder.store(value, pointer_at(builder, address, FLOAT))

    @instruction(INT64)
    def get_number(builder, address):
        return builder.load(pointer_at(builder, address, FLOAT))

    @instruction(INT64, V.llvm)
    def put_integers(builder, address, vector):
        """Store the nearest 8-bit integers, with ties to even."""
        integers = builder.fptosi(Vector(builder, vector).call("llvm.rint").value, ir.VectorType(INT32, lanes))
        if shifted:
            integers = builder.add(integers, constant_vector(INT32, [INT8_OFFSET] * lanes))
        bytes_ = builder.trunc(integers, ir.VectorType(INT8, lanes))
        builder.store(bytes_, pointer_at(builder, address, bytes_.type)).align = 1

    def round_row(source, width, to):
        """Quantise a row of `width` numbers with its own scale. NaN and infinity make all products of the row NaN."""
        magnitudes, zero_or_nan = fill(0.0), fill(0.0)
        for unit in range(0, width, lanes):
            numbers = load(source, unit, width - unit)
            magnitudes = max_magnitude(magnitudes, numbers)
            zero_or_nan = zero_or_nan + numbers * 0.0
        put_total(to, zero_or_nan)
        largest = max_of_lanes(magnitudes)
        put_number(to, largest / LARGEST_INT8 + get_number(to))
        factor = fill(LARGEST_INT8 / largest if largest > NEGLIGIBLE else 0.0)
        for unit in range(0, width, lanes):
            put_integers(to + ROW_HEADER + unit, load(source, unit, width - unit) * factor)

    def round_rows(rounded, table, first, last, column, width, to):
        """Quantise `width` numbers of each row, from `column` on. Write the addresses of the results to `rounded`.

        `table` has the addresses of the rows. The results are stored from `to` on.
        """
        pitch = ROW_HEADER + (width + padded_to - 1) // padded_to * padded_to
        for row in range(first, last):
            round_row(table[row] + column * 4, width, to + row * pitch)
            rounded[row] = to + row * pitch

    return {f.__name__: f for f in (round_row, round_rows)}


def _tile_function(module: ir.Module, V: VectorType, rows: int, blocks: int, vectors: int, method: str) -> ir.Function:
    """Return the LLVM function for one tile shape. The first use adds it to the module."""
    function, is_new = shared_function(module, f"integer_tile_{rows}x{blocks}x{vectors}_{V}", 6)
    if not is_new:
        return function
    left, first, packed, pitch, depth, out = function.args
    entry, loop, done = (function.append_basic_block(n) for n in ("entry", "k", "done"))
    lanes = V.lanes
    integers = ir.VectorType(INT32, lanes)
    outputs = [(p, v) for p in range(blocks) for v in range(vectors)]

    b = ir.IRBuilder(entry)
    addresses = b.inttoptr(left, INT64.as_pointer())
    row_addresses = [b.load(b.gep(addresses, [INT64(r)])) for r in range(rows)]
    number_addresses = [b.add(address, b.add(first, INT64(ROW_HEADER))) for address in row_addresses]
    block_addresses = [b.add(packed, b.mul(pitch, INT64(4 * p))) for p in range(blocks)]
    word_count = b.lshr(b.add(depth, INT64(3)), INT64(2))
    bytes_per_word = INT64(4 * vectors * lanes)
    integers_end = b.mul(word_count, bytes_per_word)

    def load_vector(address: ir.Value, kind: ir.Type) -> ir.Value:
        loaded = b.load(b.inttoptr(address, kind.as_pointer()))
        loaded.align = 4
        return loaded

    def load_after_integers(block_address: ir.Value, vector: int, kind: ir.Type) -> ir.Value:
        return load_vector(b.add(b.add(block_address, integers_end), INT64(4 * vector * lanes)), kind)

    initial = {
        (r, (p, v)): load_after_integers(block_addresses[p], v, integers) for p, v in outputs for r in range(rows)
    }
    b.cbranch(b.icmp_signed(">", word_count, INT64(0)), loop, done)

    b.position_at_end(loop)
    k = b.phi(INT64)
    sums = {key: b.phi(integers) for key in initial}
    left_words = []
    for r in range(rows):
        word = b.load(pointer_at(b, b.add(number_addresses[r], b.mul(k, INT64(4))), INT32))
        word.align = 1
        left_words.append(splat(b, word, lanes))
    offset = b.mul(k, bytes_per_word)
    next_sums: dict[Any, ir.Value] = {}
    for p, v in outputs:
        weights = load_vector(b.add(b.add(block_addresses[p], offset), INT64(4 * v * lanes)), integers)
        next_sums |= {(r, (p, v)): _dot(b, method, left_words[r], weights, sums[r, (p, v)]) for r in range(rows)}
    k_next = b.add(k, INT64(1))
    b.cbranch(b.icmp_signed("<", k_next, word_count), loop, done)
    k.add_incoming(INT64(0), entry)
    k.add_incoming(k_next, loop)
    for key, phi in sums.items():
        phi.add_incoming(initial[key], entry)
        phi.add_incoming(next_sums[key], loop)

    b.position_at_end(done)
    totals = {key: b.phi(integers) for key in initial}
    for key, phi in totals.items():
        phi.add_incoming(initial[key], entry)
        phi.add_incoming(next_sums[key], loop)
    row_scales = [splat(b, b.load(pointer_at(b, address, FLOAT)), lanes) for address in row_addresses]
    for (r, (p, v)), total in totals.items():
        unit_scales = load_after_integers(block_addresses[p], vectors + v, V.llvm)
        value = b.fmul(b.fmul(b.sitofp(total, V.llvm), row_scales[r]), unit_scales)
        address = b.add(out, INT64(4 * lanes * ((r * blocks + p) * vectors + v)))
        b.store(value, pointer_at(b, address, V.llvm)).align = 4
    b.ret_void()
    return function


def _dot(b: ir.IRBuilder, method: str, x: ir.Value, weights: ir.Value, total: ir.Value) -> ir.Value:
    """Return `total` plus, in each lane, the dot product of the four 8-bit integers of `x` and of `weights`."""
    lanes = total.type.count
    width, kind = 4 * lanes, total.type
    int8_vector, int16_vector = ir.VectorType(INT8, width), ir.VectorType(INT16, width // 2)

    if method == "vnni":
        return call(b, f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", kind, total, x, weights)
    if method == "madd":
        # The instruction multiplies unsigned by signed numbers, so the signs of the row are moved to the weights.
        x, weights = b.bitcast(x, int8_vector), b.bitcast(weights, int8_vector)
        magnitudes = call(b, f"llvm.abs.v{width}i8", int8_vector, x, BOOLEAN(0))
        names = {
            16: ("llvm.x86.ssse3.psign.b.128", "llvm.x86.ssse3.pmadd.ub.sw.128", "llvm.x86.sse2.pmadd.wd"),
            32: ("llvm.x86.avx2.psign.b", "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"),
            64: ("", "llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512"),
        }
        copy_signs, multiply_bytes, add_pairs = names[width]
        if copy_signs:
            signed_weights = call(b, copy_signs, int8_vector, weights, x)
        else:
            zero = constant_vector(INT8, [0] * width)
            signed_weights = b.select(b.icmp_signed("<", x, zero), b.sub(zero, weights), weights)
        sums_of_pairs = call(b, multiply_bytes, int16_vector, magnitudes, signed_weights)
        ones = constant_vector(INT16, [1] * (width // 2))
        return b.add(total, call(b, add_pairs, kind, sums_of_pairs, ones))
    for byte in range(4):
        left_shift, right_shift = (constant_vector(INT32, [n] * lanes) for n in (24 - 8 * byte, 24))
        weight = b.ashr(b.shl(weights, left_shift), right_shift)
        # "emulated" uses the layout of VNNI: the integers of rows are unsigned, because `INT8_OFFSET` was added.
        number = (b.lshr if method == "emulated" else b.ashr)(b.shl(x, left_shift), right_shift)
        total = b.add(total, b.mul(number, weight))
    return total
