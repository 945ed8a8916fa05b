"""The register-blocked matrix product on vectors: a few rows times packed blocks of columns, summed in registers.

A word is the operand of an instruction in one lane: one number, or a pair of rounded numbers.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from llvmlite import ir

from glassgate.engines.llvm_cpu.processor import Processor
from glassgate.engines.llvm_cpu.simd.blocking import blocking
from glassgate.engines.llvm_cpu.simd.instructions import BOOLEAN, INT64, WORDS, Instruction, instruction
from glassgate.engines.llvm_cpu.simd.vector import VectorType


class Words(Protocol):
    """The form of the words of a multiplication method, and the code that loads and multiplies them."""

    @property
    def numbers(self) -> int:
        """The number of numbers in a word."""

    def pointer(self, strided: bool) -> ir.Type:
        """The type of a pointer to a row: to its numbers or, if strided, to its words."""

    def words_of(self, builder: ir.IRBuilder, depth: ir.Value, strided: bool) -> ir.Value:
        """The number of words that `depth` numbers fill. An incomplete last word counts only if rows are strided."""

    def left(self, builder: ir.IRBuilder, address: ir.Value, first_only: bool) -> ir.Value:
        """The word at an address, in every lane. With `first_only`, all numbers after its first one are 0."""

    def dot(self, builder: ir.IRBuilder, x: ir.Value, weight: ir.Value, total: ir.Value) -> ir.Value:
        """`total` plus the products of the words in each lane. The weights are a vector of the type of `total`."""


def register_blocked(
    V: VectorType, words: Words, processor: Processor, vectors: int, long: bool, strided: bool
) -> Instruction:
    """`MultiplicationMethod.microkernel` on vector registers, for `vectors` sums per unit."""
    blocks_that_fit = blocking(vectors, processor)

    def tile(module: ir.Module, rows: int, blocks: int) -> ir.Function:
        return _tile_function(module, V, words, rows, blocks, vectors, strided)

    return by_shape(tile, blocks_that_fit.long_shapes if long else blocks_that_fit.shapes)


def by_shape(tile: Callable[[ir.Module, int, int], ir.Function], shapes: Sequence[tuple[int, int]]) -> Instruction:
    """A microkernel that calls the function for the shape of a tile.

    Args:
        tile: returns the function for a number of rows and of blocks, and adds it to the module if it is missing.
        shapes: the numbers of rows and of blocks of all tiles.
    """

    @instruction(WORDS, *[INT64] * 8)
    def product(builder, left, first_row, first, packed, pitch, depth, out, rows, blocks):
        left = builder.ptrtoint(builder.gep(left, [first_row]), INT64)
        shape = builder.add(builder.mul(rows, INT64(16)), blocks)
        done = builder.append_basic_block("tiled")
        switch = builder.switch(shape, done)
        for r, p in shapes:
            case = builder.append_basic_block(f"tile_{r}x{p}")
            switch.add_case(INT64(16 * r + p), case)
            builder.position_at_end(case)
            builder.call(tile(builder.module, r, p), [left, first, packed, pitch, depth, out])
            builder.branch(done)
        builder.position_at_end(done)

    return product


def shared(module: ir.Module, name: str, arguments: int) -> tuple[ir.Function, bool]:
    """A function of a module, and whether this call has added it, still without code.

    Args:
        module: the module.
        name: the name of the function.
        arguments: the number of its arguments, which are 64-bit integers.
    """
    if name in module.globals:
        return module.globals[name], False
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [INT64] * arguments), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    return function, True


def _tile_function(
    module: ir.Module, V: VectorType, words: Words, rows: int, blocks: int, vectors: int, strided: bool
) -> ir.Function:
    """The LLVM function for one block shape. The first use adds it to the module."""
    function, is_new = shared(module, f"{'strided_' * strided}tile_{rows}x{blocks}x{vectors}_{V}", 6)
    if not is_new:
        return function
    left, first, packed, pitch, depth, out = function.args
    entry, loop, done = (function.append_basic_block(n) for n in ("entry", "k", "done"))
    element_pointer, vector_pointer = V.element.as_pointer(), V.llvm.as_pointer()

    b = ir.IRBuilder(entry)
    addresses = b.inttoptr(left, INT64.as_pointer())
    lefts = [b.inttoptr(b.load(b.gep(addresses, [INT64(r)])), words.pointer(strided)) for r in range(rows)]
    if not strided:
        lefts = [b.gep(left, [first]) for left in lefts]
    starts = [b.gep(b.inttoptr(packed, element_pointer), [b.mul(pitch, INT64(p))]) for p in range(blocks)]
    columns = [(p, v) for p in range(blocks) for v in range(vectors)]
    count = words.words_of(b, depth, strided)
    b.cbranch(b.icmp_signed(">", count, INT64(0)), loop, done)

    def weight_at(step: ir.Value, p: int, v: int) -> ir.Value:
        at = b.gep(starts[p], [b.add(step, INT64(v * V.lanes))])
        loaded = b.load(b.bitcast(at, vector_pointer))
        loaded.align = V.number_size
        return loaded

    def left_at(k: ir.Value, row: int, first_only: bool) -> ir.Value:
        at = b.mul(k, first if strided else INT64(words.numbers))
        return words.left(b, b.gep(lefts[row], [at]), first_only)

    def plus_products(k: ir.Value, sums: dict[Any, ir.Value], first_only: bool = False) -> dict[Any, ir.Value]:
        """The sums plus the products of word k.

        The smaller of the two sets of operands, rows or columns, is held in registers. The operands of the other set
        are loaded one at a time. If all were held, processors with 16 registers would store a sum in memory in each
        step.
        """
        step = b.mul(k, INT64(vectors * V.lanes))
        new: dict[Any, ir.Value] = {}
        if rows < len(columns):
            held = [left_at(k, r, first_only) for r in range(rows)]
            for c in columns:
                read = weight_at(step, *c)
                new |= {(r, c): words.dot(b, held[r], read, sums[r, c]) for r in range(rows)}
            return new
        weights = {c: weight_at(step, *c) for c in columns}
        for r in range(rows):
            x = left_at(k, r, first_only)
            new |= {(r, c): words.dot(b, x, weights[c], sums[r, c]) for c in columns}
        return new

    b.position_at_end(loop)
    k = b.phi(INT64)
    sums = {(r, c): b.phi(V.llvm) for r in range(rows) for c in columns}
    new = plus_products(k, sums)
    k_next = b.add(k, INT64(1))
    b.cbranch(b.icmp_signed("<", k_next, count), loop, done)
    k.add_incoming(INT64(0), entry)
    k.add_incoming(k_next, loop)
    for key, phi in sums.items():
        phi.add_incoming(V.zero, entry)
        phi.add_incoming(new[key], loop)

    b.position_at_end(done)
    results = {key: b.phi(V.llvm) for key in sums}
    for key, phi in results.items():
        phi.add_incoming(V.zero, entry)
        phi.add_incoming(new[key], loop)
    if words.numbers > 1 and not strided:
        last, stored = function.append_basic_block("last"), function.append_basic_block("stored")
        b.cbranch(b.trunc(depth, BOOLEAN), last, stored)
        b.position_at_end(last)
        with_last = plus_products(count, results, first_only=True)
        b.branch(stored)
        b.position_at_end(stored)
        before, results = results, {key: b.phi(V.llvm) for key in results}
        for key, phi in results.items():
            phi.add_incoming(before[key], done)
            phi.add_incoming(with_last[key], last)
    for i, phi in enumerate(results.values()):
        at = b.gep(b.inttoptr(out, element_pointer), [INT64(i * V.lanes)])
        b.store(phi, b.bitcast(at, vector_pointer)).align = V.number_size
    b.ret_void()
    return function
