"""Products of 8-bit integers with 32-bit sums. Rows are quantised in each call, weights once.

A quantised row is stored as its scale, followed by its integers at the offset `HEADER`. In a block of packed weights,
each 32-bit word has the integers of four columns. The last word is followed by the initial values of the sums and by
the scales of the units. A result is in float32: sum * scale of the row * scale of the unit.

docs/sessions.md has the speed with AVX512-VNNI and with AVX2. The speed with AVX-VNNI has not been measured.
"""

from typing import Any

from llvmlite import ir

from glassgate.engines.backend import LARGEST_INT8
from glassgate.engines.llvm_cpu.processor import HEADER, OFFSET, SHIFTED, Processor
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
    at,
    call,
    constants,
    instruction,
    splat,
)
from glassgate.engines.llvm_cpu.simd.microkernel import by_shape, shared
from glassgate.engines.llvm_cpu.simd.vector import Lanes, VectorType, memory

SMALLEST = 1e-30
"""A row whose largest absolute value is at most this is rounded to zero."""


class Integers:
    """`MultiplicationMethod` for float32 numbers that are multiplied as 8-bit integers."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    def microkernel(self, sums: int, long: bool = False, strided: bool = False) -> Instruction:
        """`MultiplicationMethod.microkernel`; `strided` is not supported."""
        V, blocks_that_fit = VectorType(32, self._processor.lanes(32)), blocking(sums, self._processor)

        def tile(module: ir.Module, rows: int, blocks: int) -> ir.Function:
            return _tile_function(module, V, rows, blocks, sums, self._processor.integers)

        return by_shape(tile, blocks_that_fit.long_shapes if long else blocks_that_fit.shapes)

    def functions(self) -> dict[str, Any]:
        """`MultiplicationMethod.functions`."""
        return FMA(self._processor, 32).functions() | _rounding(self._processor)


def _rounding(processor: Processor) -> dict[str, Any]:
    """The functions that quantise the rows of left operands, by name."""
    lanes, shifted, whole = processor.lanes(32), processor.integers in SHIFTED, processor.width
    V, (load, _, fill, _, _, put_total) = VectorType(32, lanes), memory(32, lanes)

    @instruction(V.llvm, V.llvm)
    def larger(builder, most, vector):
        size = Lanes(builder, vector).call("llvm.fabs").value
        return builder.select(builder.fcmp_ordered(">", size, most), size, most)

    @instruction(V.llvm)
    def largest_lane(builder, vector):
        return call(builder, f"llvm.vector.reduce.fmax.v{lanes}f32", FLOAT, vector)

    @instruction(INT64, FLOAT)
    def put_number(builder, address, value):
        builder.store(value, at(builder, address, FLOAT))

    @instruction(INT64)
    def get_number(builder, address):
        return builder.load(at(builder, address, FLOAT))

    @instruction(INT64, V.llvm)
    def put_integers(builder, address, vector):
        """Store the nearest integers, with ties to even."""
        near = builder.fptosi(Lanes(builder, vector).call("llvm.rint").value, ir.VectorType(INT32, lanes))
        if shifted:
            near = builder.add(near, constants(INT32, [OFFSET] * lanes))
        small = builder.trunc(near, ir.VectorType(INT8, lanes))
        builder.store(small, at(builder, address, small.type)).align = 1

    def round_row(source, width, to):
        """Quantise a row of numbers with its own scale. NaN and infinity make all products of the row NaN."""
        most, faults = fill(0.0), fill(0.0)
        for unit in range(0, width, lanes):
            numbers = load(source, unit, width - unit)
            most = larger(most, numbers)
            faults = faults + numbers * 0.0
        put_total(to, faults)
        largest = largest_lane(most)
        put_number(to, largest / LARGEST_INT8 + get_number(to))
        factor = fill(LARGEST_INT8 / largest if largest > SMALLEST else 0.0)
        for unit in range(0, width, lanes):
            put_integers(to + HEADER + unit, load(source, unit, width - unit) * factor)

    def round_rows(rounded, table, first, last, column, width, to):
        """Quantise columns of rows. Write the addresses of the quantised rows to the table `rounded`."""
        pitch = HEADER + (width + whole - 1) // whole * whole
        for row in range(first, last):
            round_row(table[row] + column * 4, width, to + row * pitch)
            rounded[row] = to + row * pitch

    return {f.__name__: f for f in (round_row, round_rows)}


def _tile_function(module: ir.Module, V: VectorType, rows: int, blocks: int, vectors: int, method: str) -> ir.Function:
    """The LLVM function for one block shape. The first use adds it to the module."""
    function, is_new = shared(module, f"integer_tile_{rows}x{blocks}x{vectors}_{V}", 6)
    if not is_new:
        return function
    left, first, packed, pitch, depth, out = function.args
    entry, loop, done = (function.append_basic_block(n) for n in ("entry", "k", "done"))
    lanes = V.lanes
    integers = ir.VectorType(INT32, lanes)
    columns = [(p, v) for p in range(blocks) for v in range(vectors)]

    b = ir.IRBuilder(entry)
    addresses = b.inttoptr(left, INT64.as_pointer())
    heads = [b.load(b.gep(addresses, [INT64(r)])) for r in range(rows)]
    lefts = [b.add(head, b.add(first, INT64(HEADER))) for head in heads]
    starts = [b.add(packed, b.mul(pitch, INT64(4 * p))) for p in range(blocks)]
    words = b.lshr(b.add(depth, INT64(3)), INT64(2))
    a_word = INT64(4 * vectors * lanes)
    behind = b.mul(words, a_word)

    def vector_at(address: ir.Value, kind: ir.Type) -> ir.Value:
        loaded = b.load(b.inttoptr(address, kind.as_pointer()))
        loaded.align = 4
        return loaded

    def of_column(address: ir.Value, v: int, more: int, kind: ir.Type) -> ir.Value:
        return vector_at(b.add(b.add(address, behind), INT64(4 * (v + more) * lanes)), kind)

    initial = {(r, c): of_column(starts[c[0]], c[1], 0, integers) for c in columns for r in range(rows)}
    b.cbranch(b.icmp_signed(">", words, INT64(0)), loop, done)

    b.position_at_end(loop)
    k = b.phi(INT64)
    sums = {key: b.phi(integers) for key in initial}
    held = []
    for r in range(rows):
        word = b.load(at(b, b.add(lefts[r], b.mul(k, INT64(4))), INT32))
        word.align = 1
        held.append(splat(b, word, lanes))
    step = b.mul(k, a_word)
    new: dict[Any, ir.Value] = {}
    for c in columns:
        weights = vector_at(b.add(b.add(starts[c[0]], step), INT64(4 * c[1] * lanes)), integers)
        new |= {(r, c): _dot(b, method, held[r], weights, sums[r, c]) for r in range(rows)}
    then = b.add(k, INT64(1))
    b.cbranch(b.icmp_signed("<", then, words), loop, done)
    k.add_incoming(INT64(0), entry)
    k.add_incoming(then, loop)
    for key, phi in sums.items():
        phi.add_incoming(initial[key], entry)
        phi.add_incoming(new[key], loop)

    b.position_at_end(done)
    totals = {key: b.phi(integers) for key in initial}
    for key, phi in totals.items():
        phi.add_incoming(initial[key], entry)
        phi.add_incoming(new[key], loop)
    scales = [splat(b, b.load(at(b, head, FLOAT)), lanes) for head in heads]
    for (r, c), total in totals.items():
        of_units = of_column(starts[c[0]], c[1], vectors, V.llvm)
        value = b.fmul(b.fmul(b.sitofp(total, V.llvm), scales[r]), of_units)
        place = b.add(out, INT64(4 * lanes * ((r * blocks + c[0]) * vectors + c[1])))
        b.store(value, at(b, place, V.llvm)).align = 4
    b.ret_void()
    return function


def _dot(b: ir.IRBuilder, method: str, x: ir.Value, weights: ir.Value, total: ir.Value) -> ir.Value:
    """`total` plus the four products of the bytes of each lane."""
    lanes = total.type.count
    size, kind = 4 * lanes, total.type
    small, half = ir.VectorType(INT8, size), ir.VectorType(INT16, size // 2)

    if method == "vnni":
        return call(b, f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", kind, total, x, weights)
    if method == "madd":
        # The instruction multiplies unsigned by signed numbers. The weights get the signs of the row.
        x, weights = b.bitcast(x, small), b.bitcast(weights, small)
        size_of_x = call(b, f"llvm.abs.v{size}i8", small, x, BOOLEAN(0))
        names = {
            16: ("llvm.x86.ssse3.psign.b.128", "llvm.x86.ssse3.pmadd.ub.sw.128", "llvm.x86.sse2.pmadd.wd"),
            32: ("llvm.x86.avx2.psign.b", "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"),
            64: ("", "llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512"),
        }
        sign, bytes_to_halves, halves_to_words = names[size]
        if sign:
            signed = call(b, sign, small, weights, x)
        else:
            zero = constants(INT8, [0] * size)
            signed = b.select(b.icmp_signed("<", x, zero), b.sub(zero, weights), weights)
        pairs = call(b, bytes_to_halves, half, size_of_x, signed)
        return b.add(total, call(b, halves_to_words, kind, pairs, constants(INT16, [1] * (size // 2))))
    for byte in range(4):
        up, down = (constants(INT32, [n] * lanes) for n in (24 - 8 * byte, 24))
        right = b.ashr(b.shl(weights, up), down)
        # In the layout of VNNI, the numbers of rows are shifted by `OFFSET` and unsigned.
        number = (b.lshr if method == "emulated" else b.ashr)(b.shl(x, up), down)
        total = b.add(total, b.mul(number, right))
    return total
