"""The register-blocked matrix product: a few rows times packed blocks of columns, accumulated in vector registers.

`pack.py` defines the layout of the matrix. If numbers are rounded to bfloat16, each word of 32 bits holds two numbers
that are adjacent along the summed axis.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from glassgate.engines.numba_cpu.processor import Processor
from glassgate.engines.numba_cpu.simd import int8, tiles
from glassgate.engines.numba_cpu.simd.bfloat16 import INT16, Pairs, pairs_of, word
from glassgate.engines.numba_cpu.simd.blocking import blocking
from glassgate.engines.numba_cpu.simd.vector import INT32, INT64, VectorType, splat


def microkernel(
    bits: int, lanes: int, vectors: int, processor: Processor, long: bool = False, strided: bool = False
) -> Any:
    """The product for blocks of `vectors` vectors. Each sum is one vector.

    Returns:
        microkernel(left, rank, first, packed, pitch, depth, out, rows, blocks). `left` is a list of row addresses. For
        each of `rows` addresses from index `rank` on, the microkernel computes the sum over k < depth of
        row[first + k] * packed[k]. It writes the sums to out (rows, blocks, vectors, lanes).
        With `long`, it has only the block shapes for long columns of rows. With `strided`, it reads row[first * k]. On
        a processor with bfloat16 it rounds numbers; with `strided`, row[first * k] is then a pair of the numbers 2 k
        and 2 k + 1.
    """
    if processor.tiles:
        return tiles.microkernel(vectors, processor, strided)
    V, pairs = VectorType(bits, lanes), pairs_of(processor) if processor.bfloat16 else None
    blocks_that_fit = blocking(vectors, processor)
    shapes = blocks_that_fit.long_shapes if long else blocks_that_fit.shapes

    @intrinsic
    def product(context, left, rank, first, packed, pitch, depth, out, rows, blocks):
        def code(context, builder, sig, args):
            left, rank, first, packed, pitch, depth, out, rows, blocks = args
            left = builder.ptrtoint(builder.gep(left, [rank]), INT64)
            shape = builder.add(builder.mul(rows, INT64(16)), blocks)
            done = builder.append_basic_block("tiled")
            switch = builder.switch(shape, done)
            for r, p in shapes:
                case = builder.append_basic_block(f"tile_{r}x{p}")
                switch.add_case(INT64(16 * r + p), case)
                builder.position_at_end(case)
                if processor.integers:
                    function = int8.tile_function(builder.module, V, r, p, vectors, processor.integers)
                else:
                    function = _tile_function(builder.module, V, r, p, vectors, strided, pairs)
                builder.call(function, [left, first, packed, pitch, depth, out])
                builder.branch(done)
            builder.position_at_end(done)
            return context.get_dummy_value()

        return types.void(types.CPointer(types.int64), *[types.int64] * 8), code

    return product


def _tile_function(
    module: ir.Module, V: VectorType, rows: int, blocks: int, vectors: int, strided: bool, pairs: Pairs | None
) -> ir.Function:
    """The LLVM function for one block shape. The first use adds it to the module."""
    name = f"{'strided_' * strided}tile_{rows}x{blocks}x{vectors}_{V.name}"
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [INT64] * 6), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    left, first, packed, pitch, depth, out = function.args
    entry, loop, done = (function.append_basic_block(n) for n in ("entry", "k", "done"))
    element_pointer, vector_pointer = V.element.as_pointer(), V.llvm.as_pointer()
    align = 4 if V.element == ir.FloatType() else 8
    weight_vector = V.llvm if pairs is None else ir.VectorType(INT32, V.llvm.count)

    b = ir.IRBuilder(entry)
    addresses = b.inttoptr(left, INT64.as_pointer())
    left_pointer = element_pointer if pairs is None else (INT32 if strided else INT16).as_pointer()
    lefts = [b.inttoptr(b.load(b.gep(addresses, [INT64(r)])), left_pointer) for r in range(rows)]
    if not strided:
        lefts = [b.gep(left, [first]) for left in lefts]
    starts = [b.gep(b.inttoptr(packed, element_pointer), [b.mul(pitch, INT64(p))]) for p in range(blocks)]
    columns = [(p, v) for p in range(blocks) for v in range(vectors)]
    words = depth
    if pairs is not None:
        words = b.lshr(b.add(depth, INT64(1)) if strided else depth, INT64(1))
    b.cbranch(b.icmp_signed(">", words, INT64(0)), loop, done)

    multiply_add: Callable[..., ir.Value]
    if pairs is None:
        fma = cgutils.get_or_insert_function(
            module, ir.FunctionType(V.llvm, [V.llvm] * 3), f"llvm.fmuladd.v{V.llvm.count}f{align * 8}"
        )
        multiply_add = lambda x, weight, total: b.call(fma, [x, weight, total])  # noqa: E731
    else:
        multiply_add = lambda x, weight, total: pairs.dot(b, x, weight, total)  # noqa: E731

    def weight_at(step: ir.Value, p: int, v: int) -> ir.Value:
        at = b.gep(starts[p], [b.add(step, INT64(v * V.llvm.count))])
        found = b.load(b.bitcast(at, weight_vector.as_pointer()))
        found.align = align
        return found

    def left_at(k: ir.Value, row: int, alone: bool) -> ir.Value:
        if pairs is None:
            return splat(b, b.load(b.gep(lefts[row], [b.mul(k, first) if strided else k])), V.llvm.count)
        at = b.gep(lefts[row], [b.mul(k, first) if strided else b.mul(k, INT64(2))])
        return word(b, at, V.llvm.count, alone)

    def plus_products(k: ir.Value, sums: dict[Any, ir.Value], alone: bool = False) -> dict[Any, ir.Value]:
        """The sums plus the products of word k.

        Only the smaller of the two sets of operands, rows or columns, is held in registers. The others are loaded one
        at a time. If all were held, processors with 16 registers would have to store a sum in memory at every step.
        """
        step = b.mul(k, INT64(vectors * V.llvm.count))
        new: dict[Any, ir.Value] = {}
        if rows < len(columns):
            held = [left_at(k, r, alone) for r in range(rows)]
            for c in columns:
                read = weight_at(step, *c)
                new |= {(r, c): multiply_add(held[r], read, sums[r, c]) for r in range(rows)}
            return new
        weights = {c: weight_at(step, *c) for c in columns}
        for r in range(rows):
            x = left_at(k, r, alone)
            new |= {(r, c): multiply_add(x, weights[c], sums[r, c]) for c in columns}
        return new

    b.position_at_end(loop)
    k = b.phi(INT64)
    sums = {(r, c): b.phi(V.llvm) for r in range(rows) for c in columns}
    new = plus_products(k, sums)
    k_next = b.add(k, INT64(1))
    b.cbranch(b.icmp_signed("<", k_next, words), loop, done)
    k.add_incoming(INT64(0), entry)
    k.add_incoming(k_next, loop)
    zero = ir.Constant(V.llvm, [0.0] * V.llvm.count)
    for key, phi in sums.items():
        phi.add_incoming(zero, entry)
        phi.add_incoming(new[key], loop)

    b.position_at_end(done)
    results = {key: b.phi(V.llvm) for key in sums}
    for key, phi in results.items():
        phi.add_incoming(zero, entry)
        phi.add_incoming(new[key], loop)
    if pairs is not None and not strided:
        last, stored = function.append_basic_block("last"), function.append_basic_block("stored")
        b.cbranch(b.trunc(depth, ir.IntType(1)), last, stored)
        b.position_at_end(last)
        with_last = plus_products(words, results, alone=True)
        b.branch(stored)
        b.position_at_end(stored)
        before, results = results, {key: b.phi(V.llvm) for key in results}
        for key, phi in results.items():
            phi.add_incoming(before[key], done)
            phi.add_incoming(with_last[key], last)
    for i, phi in enumerate(results.values()):
        at = b.gep(b.inttoptr(out, element_pointer), [INT64(i * V.llvm.count)])
        b.store(phi, b.bitcast(at, vector_pointer)).align = align
    b.ret_void()
    return function
