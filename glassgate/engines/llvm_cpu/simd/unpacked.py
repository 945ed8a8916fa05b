"""The matrix product of rows with unpacked weights, which have the layout of the parameter.

Packing a matrix takes longer than reading it a few times. The products of a few rows with a few units are summed at the
same time: as many sums as a vector has lanes. Each sum has its own vector, whose lanes are added at the end.
"""

from typing import Any

from llvmlite import ir

from glassgate.engines.llvm_cpu.simd.instructions import (
    INT64,
    INT64_POINTER,
    Instruction,
    instruction,
    pointer_at,
    shuffle,
    words,
)
from glassgate.engines.llvm_cpu.simd.microkernel import shared_function
from glassgate.engines.llvm_cpu.simd.vector import Vector, VectorType, masked_load


def microkernel(packed_microkernel: Any, bits: int, lanes: int, sums_per_unit: int, rounds_operands: bool) -> Any:
    """Return the function that multiplies by packed or unpacked weights.

    Args:
        packed_microkernel: the microkernel for packed weights, see `MultiplicationMethod.microkernel`; not strided.
        bits, lanes: the type of vectors.
        sums_per_unit: the number of sums per unit; with unpacked weights, one for each gate.
        rounds_operands: see `Processor.rounds_operands`. If true, the weights are always packed.

    Returns:
        microkernel(left, first_row, first, weights, pitch, gates, units, depth, out, rows, blocks). If `gates` is 0, it
        calls `packed_microkernel`. Otherwise `gates` points to an array with the offset of each gate from `weights`, in
        bytes. A block has one unit per lane, and `pitch` is the distance between blocks in numbers. `units` is the
        number of units of a gate from `weights` on. Lanes after the last unit repeat its sum.
    """

    def packed(left, first_row, first, weights, pitch, gates, units, depth, out, rows, blocks):
        packed_microkernel(left, first_row, first, weights, pitch, depth, out, rows, blocks)

    if rounds_operands:
        return packed
    number_bytes, vector_bytes = bits // 8, lanes * bits // 8
    max_rows = min(4, lanes)
    dots_max, dots_2, dots_1 = (_dots(VectorType(bits, lanes), rows) for rows in (max_rows, 2, 1))

    def packed_or_unpacked(left, first_row, first, weights, pitch, gates, units, depth, out, rows, blocks):
        if gates == 0:
            packed_microkernel(left, first_row, first, weights, pitch, depth, out, rows, blocks)
            return
        unit_pitch, out_pitch = pitch // lanes * number_bytes, blocks * sums_per_unit * vector_bytes
        for block in range(blocks):
            for gate in range(sums_per_unit):
                matrix = weights + block * pitch * number_bytes + words(gates)[gate]
                to, row = out + (block * sums_per_unit + gate) * vector_bytes, 0
                while row < rows:
                    count = max_rows if rows - row >= max_rows else 2 if rows - row >= 2 else 1
                    for unit in range(0, lanes, lanes // count):
                        at, sums = matrix + unit * unit_pitch, to + row * out_pitch + unit * number_bytes
                        live = units - block * lanes - unit
                        if count == max_rows:
                            dots_max(left, first_row + row, first, at, unit_pitch, live, depth, sums, out_pitch)
                        elif count == 2:
                            dots_2(left, first_row + row, first, at, unit_pitch, live, depth, sums, out_pitch)
                        else:
                            dots_1(left, first_row + row, first, at, unit_pitch, live, depth, sums, out_pitch)
                    row += count

    return packed_or_unpacked


def _dots(V: VectorType, rows: int) -> Instruction:
    """Return the instruction for the dot products of a fixed number of rows with `V.lanes // rows` units.

    dots(left, first_row, first, matrix, pitch, live, depth, out, out_pitch) writes to out[row][unit] the sum over
    k < depth of left[first_row + row][first + k] * matrix[min(unit, live - 1)][k]. Pitches are in bytes.
    """

    @instruction(INT64_POINTER, *[INT64] * 8)
    def dots(builder, left, first_row, *others):
        addresses = builder.ptrtoint(builder.gep(left, [first_row]), INT64)
        builder.call(_dots_function(builder.module, V, rows), [addresses, *others])

    return dots


def _dots_function(module: ir.Module, V: VectorType, rows: int) -> ir.Function:
    """Return the LLVM function of `_dots`. The first use adds it to the module."""
    function, is_new = shared_function(module, f"dots_{rows}_{V}", 8)
    if not is_new:
        return function
    lanes = V.lanes
    left, first, matrix, pitch, live, depth, out, out_pitch = function.args
    entry, loop, last = (function.append_basic_block(n) for n in ("entry", "k", "last"))

    b = ir.IRBuilder(entry)
    addresses = b.inttoptr(left, INT64.as_pointer())
    shift = b.mul(first, INT64(V.number_size))
    row_addresses = [b.add(b.load(b.gep(addresses, [INT64(row)])), shift) for row in range(rows)]
    last_live = b.sub(live, INT64(1))
    indices = [b.select(b.icmp_signed("<", last_live, INT64(k)), last_live, INT64(k)) for k in range(lanes // rows)]
    unit_addresses = [b.add(matrix, b.mul(pitch, index)) for index in indices]
    whole_depth = b.and_(depth, INT64(-lanes))
    b.cbranch(b.icmp_signed(">", whole_depth, INT64(0)), loop, last)

    def add_products(sums: list[ir.Value], index: ir.Value, count: ir.Value) -> list[ir.Value]:
        """Return the sums, row by row, plus the products of `count` numbers from `index` on."""
        weights = [masked_load(b, V, address, index, count) for address in unit_addresses]
        numbers = [masked_load(b, V, address, index, count) for address in row_addresses]
        pairs = [(Vector(b, x), Vector(b, weight)) for x in numbers for weight in weights]
        return [x.fma(weight, Vector(b, total)).value for (x, weight), total in zip(pairs, sums, strict=True)]

    b.position_at_end(loop)
    k, sums = b.phi(INT64), [b.phi(V.llvm) for _ in range(lanes)]
    next_sums, k_next = add_products(sums, k, INT64(lanes)), b.add(k, INT64(lanes))
    b.cbranch(b.icmp_signed("<", k_next, whole_depth), loop, last)
    b.position_at_end(last)
    sums_of_loop = [b.phi(V.llvm) for _ in sums]
    for sum_in_loop, sum_after_loop, next_sum in zip(sums, sums_of_loop, next_sums, strict=True):
        for phi in (sum_in_loop, sum_after_loop):
            phi.add_incoming(V.zero, entry)
            phi.add_incoming(next_sum, loop)
    k.add_incoming(INT64(0), entry)
    k.add_incoming(k_next, loop)

    totals = _sum_lanes(b, add_products(sums_of_loop, whole_depth, b.sub(depth, whole_depth)))
    unit_count = len(unit_addresses)
    for row in range(rows):
        row_totals = shuffle(b, totals, totals, range(row * unit_count, (row + 1) * unit_count))
        to = pointer_at(b, b.add(out, b.mul(out_pitch, INT64(row))), row_totals.type)
        b.store(row_totals, to).align = V.number_size
    b.ret_void()
    return function


def _sum_lanes(builder: ir.IRBuilder, vectors: list[ir.Value]) -> ir.Value:
    """Return a vector whose lane k is the sum of the lanes of vector k. There are as many vectors as lanes."""
    lanes, distance = len(vectors), 1
    while len(vectors) > 1:
        low = [n if n & distance == 0 else lanes + n - distance for n in range(lanes)]
        high = [n + distance if n & distance == 0 else lanes + n for n in range(lanes)]
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [builder.fadd(*[shuffle(builder, a, c, mask) for mask in (low, high)]) for a, c in pairs]
        distance *= 2
    return vectors[0]
