"""The register-blocked matrix product on vectors: a few rows times packed blocks of columns, summed in registers.

A *word* is the operand in one lane of a multiplication instruction: one number, or a pair of rounded numbers.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from llvmlite import ir

from glassgate.engines.llvm_cpu.processor import Processor
from glassgate.engines.llvm_cpu.simd.blocking import blocking
from glassgate.engines.llvm_cpu.simd.instructions import BOOLEAN, INT64, INT64_POINTER, Instruction, instruction
from glassgate.engines.llvm_cpu.simd.vector import VectorType


class Words(Protocol):
    """The format of the words of a multiplication method, and the code that loads and multiplies words."""

    @property
    def numbers_per_word(self) -> int:
        """1 or 2."""

    def row_pointer_type(self, strided: bool) -> ir.Type:
        """Return the type of a pointer to the numbers of a row or, if `strided`, to its words."""

    def count_words(self, builder: ir.IRBuilder, depth: ir.Value, strided: bool) -> ir.Value:
        """Return the number of words that `depth` numbers fill. An incomplete last word counts only if `strided`."""

    def load_left(self, builder: ir.IRBuilder, pointer: ir.Value, first_only: bool) -> ir.Value:
        """Return the word at a pointer, in every lane. With `first_only`, the second number of the word is 0."""

    def dot(self, builder: ir.IRBuilder, x: ir.Value, weight: ir.Value, total: ir.Value) -> ir.Value:
        """Return `total` plus the dot product of two words in each lane. `weight` has the type of `total`."""


def register_blocked_microkernel(
    V: VectorType, words: Words, processor: Processor, vectors: int, long: bool, strided: bool
) -> Instruction:
    """Return `MultiplicationMethod.microkernel(vectors, long, strided)` on vector registers."""
    tiles = blocking(vectors, processor)

    def tile(module: ir.Module, rows: int, blocks: int) -> ir.Function:
        return _tile_function(module, V, words, rows, blocks, vectors, strided)

    return dispatch_by_shape(tile, tiles.long_shapes if long else tiles.shapes)


def dispatch_by_shape(
    tile: Callable[[ir.Module, int, int], ir.Function], shapes: Sequence[tuple[int, int]]
) -> Instruction:
    """Return a microkernel that calls the function for the shape of a tile.

    Args:
        tile: returns the function for a number of rows and of blocks, and adds it to the module if it is missing.
        shapes: the numbers of rows and of blocks of all tiles.
    """

    @instruction(INT64_POINTER, *[INT64] * 8)
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


def shared_function(module: ir.Module, name: str, arguments: int) -> tuple[ir.Function, bool]:
    """Return a function of a module, and whether this call has added it. A new function has no code yet.

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
    """Return the LLVM function for one tile shape. The first use adds it to the module."""
    function, is_new = shared_function(module, f"{'strided_' * strided}tile_{rows}x{blocks}x{vectors}_{V}", 6)
    if not is_new:
        return function
    left, first, packed, pitch, depth, out = function.args
    entry, loop, done = (function.append_basic_block(n) for n in ("entry", "k", "done"))
    element_pointer, vector_pointer = V.element.as_pointer(), V.llvm.as_pointer()

    b = ir.IRBuilder(entry)
    addresses = b.inttoptr(left, INT64.as_pointer())
    row_type = words.row_pointer_type(strided)
    row_pointers = [b.inttoptr(b.load(b.gep(addresses, [INT64(r)])), row_type) for r in range(rows)]
    if not strided:
        row_pointers = [b.gep(pointer, [first]) for pointer in row_pointers]
    block_pointers = [b.gep(b.inttoptr(packed, element_pointer), [b.mul(pitch, INT64(p))]) for p in range(blocks)]
    columns = [(p, v) for p in range(blocks) for v in range(vectors)]
    word_count = words.count_words(b, depth, strided)
    b.cbranch(b.icmp_signed(">", word_count, INT64(0)), loop, done)

    def load_weights(offset: ir.Value, p: int, v: int) -> ir.Value:
        pointer = b.gep(block_pointers[p], [b.add(offset, INT64(v * V.lanes))])
        weights = b.load(b.bitcast(pointer, vector_pointer))
        weights.align = V.number_size
        return weights

    def load_left(k: ir.Value, row: int, first_only: bool) -> ir.Value:
        offset = b.mul(k, first if strided else INT64(words.numbers_per_word))
        return words.load_left(b, b.gep(row_pointers[row], [offset]), first_only)

    def add_products(k: ir.Value, sums: dict[Any, ir.Value], first_only: bool = False) -> dict[Any, ir.Value]:
        """Return the sums plus the products of word k.

        The smaller of the two sets of operands, rows or columns, is held in registers. The operands of the other set
        are loaded one at a time. If both sets were held, processors with 16 registers would store a sum in memory in
        each step.
        """
        offset = b.mul(k, INT64(vectors * V.lanes))
        next_sums: dict[Any, ir.Value] = {}
        if rows < len(columns):
            left_words = [load_left(k, r, first_only) for r in range(rows)]
            for c in columns:
                weights = load_weights(offset, *c)
                next_sums |= {(r, c): words.dot(b, left_words[r], weights, sums[r, c]) for r in range(rows)}
            return next_sums
        weights_of_columns = {c: load_weights(offset, *c) for c in columns}
        for r in range(rows):
            x = load_left(k, r, first_only)
            next_sums |= {(r, c): words.dot(b, x, weights_of_columns[c], sums[r, c]) for c in columns}
        return next_sums

    b.position_at_end(loop)
    k = b.phi(INT64)
    sums = {(r, c): b.phi(V.llvm) for r in range(rows) for c in columns}
    next_sums = add_products(k, sums)
    k_next = b.add(k, INT64(1))
    b.cbranch(b.icmp_signed("<", k_next, word_count), loop, done)
    k.add_incoming(INT64(0), entry)
    k.add_incoming(k_next, loop)
    for key, phi in sums.items():
        phi.add_incoming(V.zero, entry)
        phi.add_incoming(next_sums[key], loop)

    b.position_at_end(done)
    results = {key: b.phi(V.llvm) for key in sums}
    for key, phi in results.items():
        phi.add_incoming(V.zero, entry)
        phi.add_incoming(next_sums[key], loop)
    if words.numbers_per_word > 1 and not strided:
        last, stored = function.append_basic_block("last"), function.append_basic_block("stored")
        b.cbranch(b.trunc(depth, BOOLEAN), last, stored)
        b.position_at_end(last)
        with_last = add_products(word_count, results, first_only=True)
        b.branch(stored)
        b.position_at_end(stored)
        without_last, results = results, {key: b.phi(V.llvm) for key in results}
        for key, phi in results.items():
            phi.add_incoming(without_last[key], done)
            phi.add_incoming(with_last[key], last)
    for i, phi in enumerate(results.values()):
        pointer = b.gep(b.inttoptr(out, element_pointer), [INT64(i * V.lanes)])
        b.store(phi, b.bitcast(pointer, vector_pointer)).align = V.number_size
    b.ret_void()
    return function
