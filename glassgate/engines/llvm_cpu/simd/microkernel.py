"""The register-blocked matrix product on vectors: a few rows times packed blocks of columns, summed in registers.

A *word* is the operand in one lane of a multiplication instruction: one number, or a pair of rounded numbers.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from llvmlite import ir

from glassgate.engines.llvm_cpu.processor import Processor
from glassgate.engines.llvm_cpu.simd.blocking import blocking
from glassgate.engines.llvm_cpu.simd.instructions import BOOLEAN, INT64, INT64_POINTER, Instruction, instruction
from glassgate.engines.llvm_cpu.simd.vector import VectorType

Sums: TypeAlias = dict[Any, ir.Value]
"""The vector of sums for each row and column of a tile."""


class Words(Protocol):
    """The format of the words of a multiplication method, and the code that loads and multiplies words."""

    @property
    def numbers_per_word(self) -> int:
        """1 or 2."""

    @property
    def group(self) -> int:
        """The number of words of a row that one load reads, if multiplications can take one lane as operand; or 1."""

    def load_group(self, builder: ir.IRBuilder, pointer: ir.Value) -> list[ir.Value]:
        """Return the `group` words from a pointer on, each of them in every lane of a vector."""

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
    b = ir.IRBuilder(function.append_basic_block("entry"))
    element_pointer, vector_pointer = V.element.as_pointer(), V.llvm.as_pointer()
    addresses = b.inttoptr(left, INT64.as_pointer())
    row_type = words.row_pointer_type(strided)
    row_pointers = [b.inttoptr(b.load(b.gep(addresses, [INT64(r)])), row_type) for r in range(rows)]
    if not strided:
        row_pointers = [b.gep(pointer, [first]) for pointer in row_pointers]
    block_pointers = [b.gep(b.inttoptr(packed, element_pointer), [b.mul(pitch, INT64(p))]) for p in range(blocks)]
    columns = [(p, v) for p in range(blocks) for v in range(vectors)]
    word_count = words.count_words(b, depth, strided)

    def load_weights(offset: ir.Value, p: int, v: int) -> ir.Value:
        pointer = b.gep(block_pointers[p], [b.add(offset, INT64(v * V.lanes))])
        weights = b.load(b.bitcast(pointer, vector_pointer))
        weights.align = V.number_size
        return weights

    def load_left(k: ir.Value, row: int, first_only: bool) -> ir.Value:
        offset = b.mul(k, first if strided else INT64(words.numbers_per_word))
        return words.load_left(b, b.gep(row_pointers[row], [offset]), first_only)

    def add_products(k: ir.Value, sums: Sums, left_of: Callable[[int], ir.Value]) -> Sums:
        """Return the sums plus the products of word k, which `left_of` returns for each row.

        The smaller of the two sets of operands, rows or columns, is held in registers. The operands of the other set
        are loaded one at a time. If both sets were held, processors with 16 registers would store a sum in memory in
        each step.
        """
        offset = b.mul(k, INT64(vectors * V.lanes))
        next_sums: Sums = {}
        if rows < len(columns):
            left_words = [left_of(r) for r in range(rows)]
            for c in columns:
                weights = load_weights(offset, *c)
                next_sums |= {(r, c): words.dot(b, left_words[r], weights, sums[r, c]) for r in range(rows)}
            return next_sums
        weights_of_columns = {c: load_weights(offset, *c) for c in columns}
        for r in range(rows):
            x = left_of(r)
            next_sums |= {(r, c): words.dot(b, x, weights_of_columns[c], sums[r, c]) for c in columns}
        return next_sums

    def add_word(k: ir.Value, sums: Sums) -> Sums:
        return add_products(k, sums, lambda row: load_left(k, row, False))

    def add_group(k: ir.Value, sums: Sums) -> Sums:
        left = [words.load_group(b, b.gep(pointer, [k])) for pointer in row_pointers]
        for j in range(words.group):
            sums = add_products(b.add(k, INT64(j)), sums, [row_words[j] for row_words in left].__getitem__)
        return sums

    begin, sums = INT64(0), {(r, c): V.zero for r in range(rows) for c in columns}
    if words.group > 1 and not strided:
        whole = b.and_(word_count, INT64(-words.group))
        sums = _loop(b, begin, whole, words.group, sums, add_group)
        begin = whole
    results = _loop(b, begin, word_count, 1, sums, add_word)
    if words.numbers_per_word > 1 and not strided:
        done, last, stored = b.block, *(function.append_basic_block(n) for n in ("last", "stored"))
        b.cbranch(b.trunc(depth, BOOLEAN), last, stored)
        b.position_at_end(last)
        with_last = add_products(word_count, results, lambda row: load_left(word_count, row, True))
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


def _loop(
    b: ir.IRBuilder, begin: ir.Value, end: ir.Value, step: int, sums: Sums, body: Callable[[ir.Value, Sums], Sums]
) -> Sums:
    """Append a loop over k from `begin` to `end` - 1 in steps. `body(k, sums)` returns the next sums. Return the last.

    The number of words from `begin` to `end` is a multiple of `step`.
    """
    before, loop, done = b.block, *(b.function.append_basic_block(n) for n in ("k", "done"))
    b.cbranch(b.icmp_signed("<", begin, end), loop, done)
    b.position_at_end(loop)
    k, current = b.phi(INT64), {key: b.phi(total.type) for key, total in sums.items()}
    next_sums = body(k, dict(current))
    k_next = b.add(k, INT64(step))
    b.cbranch(b.icmp_signed("<", k_next, end), loop, done)
    k.add_incoming(begin, before)
    k.add_incoming(k_next, loop)
    b.position_at_end(done)
    results = {key: b.phi(total.type) for key, total in sums.items()}
    for key, total in sums.items():
        for phi in (current[key], results[key]):
            phi.add_incoming(total, before)
            phi.add_incoming(next_sums[key], loop)
    return dict(results)
