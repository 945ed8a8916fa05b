"""Matrix products of float32 or float64 numbers on vector registers, with fused multiply-add."""

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

from glassgate.engines.llvm_cpu.processor import Processor
from glassgate.engines.llvm_cpu.simd.instructions import shuffle, splat
from glassgate.engines.llvm_cpu.simd.microkernel import register_blocked_microkernel
from glassgate.engines.llvm_cpu.simd.transpose import transpose
from glassgate.engines.llvm_cpu.simd.vector import Vector, VectorType, memory_functions


class FMA:
    """`MultiplicationMethod` for float32 and float64.

    Args:
        processor: the processor.
        bits: the size of a number.
    """

    def __init__(self, processor: Processor, bits: int) -> None:
        self._processor, self._bits, self._lanes = processor, bits, processor.lanes(bits)

    def microkernel(self, sums: int, long: bool = False, strided: bool = False) -> Any:
        """See `MultiplicationMethod.microkernel`."""
        V = VectorType(self._bits, self._lanes)
        words = SingleNumbers(V, self._processor.multiplies_by_lanes)
        return register_blocked_microkernel(V, words, self._processor, sums, long, strided)

    def functions(self) -> dict[str, Any]:
        """See `MultiplicationMethod.functions`."""
        load = memory_functions(self._bits, self._lanes).load

        def left_word(low, high, index, live, both, term):
            """Return `live` numbers of row `low`, from `index` on. A word has one number, so `high` is not read."""
            return load(low, index, live)

        def add_word(total, word, term):
            """Add a word to the total of a unit."""
            return total + word

        functions = {"PER_WORD": 1, "TERMS": 1, "left_word": left_word, "right_word": left_word, "add_word": add_word}
        return functions | LAYOUT | {"transpose": transpose(self._bits, self._lanes)}


class SingleNumbers(NamedTuple):
    """`Words` for words of one number."""

    V: VectorType
    multiplies_by_lanes: bool
    """See `Processor.multiplies_by_lanes`."""

    @property
    def numbers_per_word(self) -> int:
        """`Words.numbers_per_word`."""
        return 1

    @property
    def group(self) -> int:
        """`Words.group`."""
        return self.V.lanes if self.multiplies_by_lanes else 1

    def load_group(self, builder: ir.IRBuilder, pointer: ir.Value) -> list[ir.Value]:
        """See `Words.load_group`."""
        numbers = builder.load(builder.bitcast(pointer, self.V.llvm.as_pointer()))
        numbers.align = self.V.number_size
        return [shuffle(builder, numbers, numbers, [lane] * self.V.lanes) for lane in range(self.V.lanes)]

    def row_pointer_type(self, strided: bool) -> ir.Type:
        """See `Words.row_pointer_type`."""
        return self.V.element.as_pointer()

    def count_words(self, builder: ir.IRBuilder, depth: ir.Value, strided: bool) -> ir.Value:
        """See `Words.count_words`."""
        return depth

    def load_left(self, builder: ir.IRBuilder, pointer: ir.Value, first_only: bool) -> ir.Value:
        """See `Words.load_left`."""
        return splat(builder, builder.load(pointer), self.V.lanes)

    def dot(self, builder: ir.IRBuilder, x: ir.Value, weight: ir.Value, total: ir.Value) -> ir.Value:
        """See `Words.dot`."""
        return Vector(builder, x).fma(Vector(builder, weight), Vector(builder, total)).value


def pad_registers(packed, blocks, capacity, rows):
    """Do nothing: products on vector registers need no padding after the last word."""


def transpose_registers(packed, blocks, capacity, rows):
    """Do nothing: products on vector registers read words in the order in which they are stored."""


def word_offset(first_unit, unit, capacity):
    """Return the offset in words of the first word of a unit, which is in the block that begins with `first_unit`.

    A block has space for `capacity` words per unit.
    """
    return first_unit * capacity + unit - first_unit


def padded_depth(depth):
    """Return the length of a packed column of `depth` numbers. Products on vector registers need no padding."""
    return depth


_LAYOUT_FUNCTIONS: tuple[Callable[..., Any], ...] = (pad_registers, transpose_registers, word_offset, padded_depth)
LAYOUT = {f.__name__: f for f in _LAYOUT_FUNCTIONS}
"""The functions, by name, that define the layout of words for vector registers. For tile registers, see `tiles.py`."""
