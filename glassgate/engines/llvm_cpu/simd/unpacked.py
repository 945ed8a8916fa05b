"""The product of rows with unpacked weights: one row per unit, in the layout of the parameter.

Packing a matrix takes longer than reading it a few times. The products of a few rows with a few units are summed at the
same time: as many sums as a vector has lanes. Each sum has its own vector, whose lanes are added at the end.
"""

from typing import Any

from llvmlite import ir

from glassgate.engines.llvm_cpu.simd.instructions import INT64, WORDS, Instruction, at, instruction, shuffled, words
from glassgate.engines.llvm_cpu.simd.microkernel import shared
from glassgate.engines.llvm_cpu.simd.vector import Lanes, VectorType, masked_load


def microkernel(packed_microkernel: Any, bits: int, lanes: int, vectors: int, pairs: bool) -> Any:
    """The product with packed or unpacked weights.

    Args:
        packed_microkernel: the microkernel for packed weights, see `MultiplicationMethod.microkernel`; not strided.
        bits, lanes, vectors: the number size and vector shape of the kernel.
        pairs: whether the kernel rounds numbers, for which weights are always packed.

    Returns:
        microkernel(left, first_row, first, weights, pitch, gates, units, depth, out, rows, blocks). If `gates` is 0, it
        is `packed_microkernel`. Otherwise `gates` is the address of the offsets of the gates from `weights` in bytes.
        A block has as many units as a vector has lanes, and `pitch` is the distance between blocks in numbers. `units`
        is the number of units of a gate from `weights` on. Lanes after the last unit repeat the sum of the last unit.
    """

    def packed(left, first_row, first, weights, pitch, gates, units, depth, out, rows, blocks):
        packed_microkernel(left, first_row, first, weights, pitch, depth, out, rows, blocks)

    if pairs:
        return packed
    size, a_vector = bits // 8, lanes * bits // 8
    most = min(4, lanes)
    several, two, one = (_dots(VectorType(bits, lanes), rows) for rows in (most, 2, 1))

    def either(left, first_row, first, weights, pitch, gates, units, depth, out, rows, blocks):
        if gates == 0:
            packed_microkernel(left, first_row, first, weights, pitch, depth, out, rows, blocks)
            return
        unit_pitch, out_pitch = pitch // lanes * size, blocks * vectors * a_vector
        for block in range(blocks):
            for gate in range(vectors):
                matrix = weights + block * pitch * size + words(gates)[gate]
                to, row = out + (block * vectors + gate) * a_vector, 0
                while row < rows:
                    at_once = most if rows - row >= most else 2 if rows - row >= 2 else 1
                    for unit in range(0, lanes, lanes // at_once):
                        at, sums = matrix + unit * unit_pitch, to + row * out_pitch + unit * size
                        live = units - block * lanes - unit
                        if at_once == most:
                            several(left, first_row + row, first, at, unit_pitch, live, depth, sums, out_pitch)
                        elif at_once == 2:
                            two(left, first_row + row, first, at, unit_pitch, live, depth, sums, out_pitch)
                        else:
                            one(left, first_row + row, first, at, unit_pitch, live, depth, sums, out_pitch)
                    row += at_once

    return either


def _dots(V: VectorType, rows: int) -> Instruction:
    """The product of a fixed number of rows with some units.

    dots(left, first_row, first, matrix, pitch, live, depth, out, out_pitch) writes to out[row][unit] the sum over
    k < depth of left[first_row + row][first + k] * matrix[min(unit, live - 1)][k]. Pitches are in bytes.
    """

    @instruction(WORDS, *[INT64] * 8)
    def dots(builder, left, first_row, *others):
        first = builder.ptrtoint(builder.gep(left, [first_row]), INT64)
        builder.call(_function(builder.module, V, rows), [first, *others])

    return dots


def _function(module: ir.Module, V: VectorType, rows: int) -> ir.Function:
    """The LLVM function of `_dots`. The first use adds it to the module."""
    function, is_new = shared(module, f"dots_{rows}_{V}", 8)
    if not is_new:
        return function
    lanes = V.lanes
    left, first, matrix, pitch, live, depth, out, out_pitch = function.args
    entry, loop, last = (function.append_basic_block(n) for n in ("entry", "k", "last"))

    b = ir.IRBuilder(entry)
    addresses = b.inttoptr(left, INT64.as_pointer())
    shift = b.mul(first, INT64(V.number_size))
    lefts = [b.add(b.load(b.gep(addresses, [INT64(row)])), shift) for row in range(rows)]
    last_live = b.sub(live, INT64(1))
    indices = [b.select(b.icmp_signed("<", last_live, INT64(k)), last_live, INT64(k)) for k in range(lanes // rows)]
    units = [b.add(matrix, b.mul(pitch, index)) for index in indices]
    whole = b.and_(depth, INT64(-lanes))
    b.cbranch(b.icmp_signed(">", whole, INT64(0)), loop, last)

    def added(sums: list[ir.Value], index: ir.Value, live: ir.Value) -> list[ir.Value]:
        """The sums, row by row, plus the products of the next numbers."""
        weights = [masked_load(b, V, unit, index, live) for unit in units]
        numbers = [masked_load(b, V, row, index, live) for row in lefts]
        pairs = [(Lanes(b, x), Lanes(b, weight)) for x in numbers for weight in weights]
        return [x.fma(weight, Lanes(b, total)).value for (x, weight), total in zip(pairs, sums, strict=True)]

    b.position_at_end(loop)
    k, sums = b.phi(INT64), [b.phi(V.llvm) for _ in range(lanes)]
    new, then = added(sums, k, INT64(lanes)), b.add(k, INT64(lanes))
    b.cbranch(b.icmp_signed("<", then, whole), loop, last)
    b.position_at_end(last)
    behind = [b.phi(V.llvm) for _ in sums]
    for before, after, next_sum in zip(sums, behind, new, strict=True):
        for phi in (before, after):
            phi.add_incoming(V.zero, entry)
            phi.add_incoming(next_sum, loop)
    k.add_incoming(INT64(0), entry)
    k.add_incoming(then, loop)

    total = _totals(b, added(behind, whole, b.sub(depth, whole)))
    for row in range(rows):
        own = shuffled(b, total, total, range(row * len(units), (row + 1) * len(units)))
        b.store(own, at(b, b.add(out, b.mul(out_pitch, INT64(row))), own.type)).align = V.number_size
    b.ret_void()
    return function


def _totals(builder: ir.IRBuilder, vectors: list[ir.Value]) -> ir.Value:
    """A vector whose lane k is the sum of the lanes of vector k. There are as many vectors as lanes."""
    lanes, near = len(vectors), 1
    while len(vectors) > 1:
        low = [n if n & near == 0 else lanes + n - near for n in range(lanes)]
        high = [n + near if n & near == 0 else lanes + n for n in range(lanes)]
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [builder.fadd(*[shuffled(builder, a, c, places) for places in (low, high)]) for a, c in pairs]
        near *= 2
    return vectors[0]
