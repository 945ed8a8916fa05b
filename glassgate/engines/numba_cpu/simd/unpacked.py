"""The product of rows with unpacked weights: one row per unit, in the layout of the parameter.

Packing a matrix takes longer than reading it a few times. A few rows times a few units are summed at the same time, as
many sums as a vector has lanes. Each sum has its own vector, whose lanes are added at the end.
"""

from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glassgate.engines.numba_cpu.simd.addresses import words
from glassgate.engines.numba_cpu.simd.vector import INT32, INT64, VectorType, masked_load

inline: Any = numba.njit(forceinline=True, error_model="numpy")


def microkernel(packed_microkernel: Any, bits: int, lanes: int, vectors: int, pairs: bool) -> Any:
    """The product with packed or unpacked weights.

    Args:
        packed_microkernel: the microkernel for packed weights, see `Method.microkernel`; not strided.
        bits, lanes, vectors: the number size and vector shape of the kernel.
        pairs: whether it rounds numbers to bfloat16, for which weights are always packed.

    Returns:
        microkernel(left, rank, first, weights, pitch, gates, depth, out, rows, blocks): as `packed_microkernel` if
        `gates` is 0. Otherwise `gates` is the address of the offsets of the gates from `weights`, in bytes, and `pitch`
        is the distance between blocks of as many units as a vector has lanes, in numbers.
    """

    @inline
    def packed(left, rank, first, weights, pitch, gates, depth, out, rows, blocks):
        packed_microkernel(left, rank, first, weights, pitch, depth, out, rows, blocks)

    if pairs:
        return packed
    size, a_vector = bits // 8, lanes * bits // 8
    most = min(4, lanes)
    several, two, one = (_dots(VectorType(bits, lanes), rows) for rows in (most, 2, 1))

    @inline
    def either(left, rank, first, weights, pitch, gates, depth, out, rows, blocks):
        if gates == 0:
            packed_microkernel(left, rank, first, weights, pitch, depth, out, rows, blocks)
            return
        unit_pitch, out_pitch = pitch // lanes * size, blocks * vectors * a_vector
        for block in range(blocks):
            for gate in range(vectors):
                matrix = weights + block * pitch * size + words(gates)[gate]
                to, row = out + (block * vectors + gate) * a_vector, 0
                while row < rows:
                    at_once = most if rows - row >= most else 2 if rows - row >= 2 else 1
                    units = lanes // at_once
                    for unit in range(0, lanes, units):
                        at, sums = matrix + unit * unit_pitch, to + row * out_pitch + unit * size
                        if at_once == most:
                            several(left, rank + row, first, at, unit_pitch, depth, sums, out_pitch)
                        elif at_once == 2:
                            two(left, rank + row, first, at, unit_pitch, depth, sums, out_pitch)
                        else:
                            one(left, rank + row, first, at, unit_pitch, depth, sums, out_pitch)
                    row += at_once

    return either


def _dots(V: VectorType, rows: int) -> Any:
    """dots(left, rank, first, matrix, pitch, depth, out, out_pitch): a fixed number of rows times some units.

    out[row][unit] is the sum over k < depth of left[rank + row][first + k] * matrix[unit][k]; pitches count bytes.
    """

    @intrinsic
    def dots(context, left, rank, first, matrix, pitch, depth, out, out_pitch):
        def code(context, builder, sig, args):
            left, rank, *others = args
            at = builder.ptrtoint(builder.gep(left, [rank]), INT64)
            builder.call(_function(builder.module, V, rows), [at, *others])
            return context.get_dummy_value()

        return types.void(types.CPointer(types.int64), *[types.int64] * 7), code

    return dots


def _function(module: ir.Module, V: VectorType, rows: int) -> ir.Function:
    """The LLVM function of `_dots`. The first use adds it to the module."""
    name = f"dots_{rows}_{V.name}"
    if name in module.globals:
        return module.globals[name]
    lanes, size = V.llvm.count, 4 if V.element == ir.FloatType() else 8
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [INT64] * 7), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    left, first, matrix, pitch, depth, out, out_pitch = function.args
    entry, loop, last = (function.append_basic_block(n) for n in ("entry", "k", "last"))
    kind = ir.FunctionType(V.llvm, [V.llvm] * 3)
    fma = cgutils.get_or_insert_function(module, kind, f"llvm.fmuladd.v{lanes}f{8 * size}")

    b = ir.IRBuilder(entry)
    addresses = b.inttoptr(left, INT64.as_pointer())
    shift = b.mul(first, INT64(size))
    lefts = [b.add(b.load(b.gep(addresses, [INT64(row)])), shift) for row in range(rows)]
    units = [b.add(matrix, b.mul(pitch, INT64(unit))) for unit in range(lanes // rows)]
    whole = b.and_(depth, INT64(-lanes))
    b.cbranch(b.icmp_signed(">", whole, INT64(0)), loop, last)

    def added(sums: list[ir.Value], at: ir.Value, live: ir.Value) -> list[ir.Value]:
        """The sums, row by row, plus the products of the next numbers."""
        weights = [masked_load(b, V, unit, at, live) for unit in units]
        numbers = [masked_load(b, V, row, at, live) for row in lefts]
        pairs = [(x, weight) for x in numbers for weight in weights]
        return [b.call(fma, [x, weight, total]) for (x, weight), total in zip(pairs, sums, strict=True)]

    b.position_at_end(loop)
    k, sums = b.phi(INT64), [b.phi(V.llvm) for _ in range(lanes)]
    new, then = added(sums, k, INT64(lanes)), b.add(k, INT64(lanes))
    b.cbranch(b.icmp_signed("<", then, whole), loop, last)
    zero = ir.Constant(V.llvm, [0.0] * lanes)
    b.position_at_end(last)
    behind = [b.phi(V.llvm) for _ in sums]
    for before, after, next_sum in zip(sums, behind, new, strict=True):
        for phi in (before, after):
            phi.add_incoming(zero, entry)
            phi.add_incoming(next_sum, loop)
    k.add_incoming(INT64(0), entry)
    k.add_incoming(then, loop)

    total = _totals(b, added(behind, whole, b.sub(depth, whole)))
    for row in range(rows):
        chosen = ir.Constant(ir.VectorType(INT32, len(units)), list(range(row * len(units), (row + 1) * len(units))))
        own = b.shuffle_vector(total, total, chosen)
        at = b.inttoptr(b.add(out, b.mul(out_pitch, INT64(row))), own.type.as_pointer())
        b.store(own, at).align = size
    b.ret_void()
    return function


def _totals(builder: ir.IRBuilder, vectors: list[ir.Value]) -> ir.Value:
    """A vector whose lane k is the sum of the lanes of vector k. There are as many vectors as lanes."""
    lanes, near = len(vectors), 1
    while len(vectors) > 1:
        low = [n if n & near == 0 else lanes + n - near for n in range(lanes)]
        high = [n + near if n & near == 0 else lanes + n for n in range(lanes)]
        masks = [ir.Constant(ir.VectorType(INT32, lanes), mask) for mask in (low, high)]
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [builder.fadd(*[builder.shuffle_vector(a, c, mask) for mask in masks]) for a, c in pairs]
        near *= 2
    return vectors[0]
