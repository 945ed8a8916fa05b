"""Products of float32 or float64 numbers without rounding, with fused multiply-add on vector registers."""

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

from glassgate.engines.llvm_cpu.processor import Processor
from glassgate.engines.llvm_cpu.simd.instructions import splat
from glassgate.engines.llvm_cpu.simd.microkernel import register_blocked
from glassgate.engines.llvm_cpu.simd.transpose import transpose
from glassgate.engines.llvm_cpu.simd.vector import Lanes, VectorType, memory


class FMA:
    """`MultiplicationMethod` for float32 and float64.

    Args:
        processor: the processor.
        bits: the size of a number.
    """

    def __init__(self, processor: Processor, bits: int) -> None:
        self._processor, self._bits, self._lanes = processor, bits, processor.lanes(bits)

    def microkernel(self, sums: int, long: bool = False, strided: bool = False) -> Any:
        """`MultiplicationMethod.microkernel`."""
        V = VectorType(self._bits, self._lanes)
        return register_blocked(V, Numbers(V), self._processor, sums, long, strided)

    def functions(self) -> dict[str, Any]:
        """`MultiplicationMethod.functions`."""
        load = memory(self._bits, self._lanes).load

        def left_word(low, high, at, live, both, term):
            """The numbers of a row. The other row and the term are not used."""
            return load(low, at, live)

        def add_word(total, word, term):
            """Add a word to the total of a unit."""
            return total + word

        words = {"PER_WORD": 1, "TERMS": 1, "left_word": left_word, "right_word": left_word, "add_word": add_word}
        return words | LAYOUT | {"transpose": transpose(self._bits, self._lanes)}


class Numbers(NamedTuple):
    """`Words` of one number each."""

    V: VectorType

    @property
    def numbers(self) -> int:
        """`Words.numbers`."""
        return 1

    def pointer(self, strided: bool) -> ir.Type:
        """`Words.pointer`."""
        return self.V.element.as_pointer()

    def words_of(self, builder: ir.IRBuilder, depth: ir.Value, strided: bool) -> ir.Value:
        """`Words.words_of`."""
        return depth

    def left(self, builder: ir.IRBuilder, address: ir.Value, first_only: bool) -> ir.Value:
        """`Words.left`."""
        return splat(builder, builder.load(address), self.V.lanes)

    def dot(self, builder: ir.IRBuilder, x: ir.Value, weight: ir.Value, total: ir.Value) -> ir.Value:
        """`Words.dot`."""
        return Lanes(builder, x).fma(Lanes(builder, weight), Lanes(builder, total)).value


def fill_registers(packed, blocks, capacity, rows):
    """Do nothing: vectors need no padding after the last word."""


def turn_registers(packed, blocks, capacity, rows):
    """Do nothing: vectors read words as they are stored."""


def place_of_word(first_unit, unit, capacity):
    """The offset in words of the first word of a unit, in the block that begins with `first_unit`.

    A block has space for `capacity` words per unit.
    """
    return first_unit * capacity + unit - first_unit


def whole_sum(depth):
    """The length of packed columns in numbers, which vectors need not pad."""
    return depth


_LAYOUT: tuple[Callable[..., Any], ...] = (fill_registers, turn_registers, place_of_word, whole_sum)
LAYOUT = {f.__name__: f for f in _LAYOUT}
"""The functions that define the layout of words in memory for vectors. Tile registers have another layout."""
