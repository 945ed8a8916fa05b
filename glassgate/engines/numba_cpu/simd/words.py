"""The operands of sums over rows: one number per row, or a word with the rounded numbers of two rows.

Left operands are gradients, which are stored in bfloat16. Right operands are rounded when they are read.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numba

from glassgate.engines.numba_cpu.simd.vector import memory

inline: Any = numba.njit(forceinline=True, error_model="numpy")


@inline
def fill_registers(packed, blocks, most, rows):
    """Does nothing: vectors need no padding after the last word."""


@inline
def turn_registers(packed, blocks, most, rows):
    """Does nothing: vectors read words without conversion."""


@inline
def place_of_word(block, unit, most):
    """Where, in words, a unit's first one is; a block has space for `most`."""
    return block * most + unit - block


@inline
def whole_sum(depth):
    """The padded length of packed sums, in numbers."""
    return depth


LAYOUT: tuple[Callable[..., Any], ...] = (fill_registers, turn_registers, place_of_word, whole_sum)
"""The layout of words for vectors. Tile registers replace these functions."""


@cache
def functions(bits: int, lanes: int) -> dict[str, Any]:
    """The functions by name that kernels call if words are numbers."""
    load = memory(bits, lanes).load

    @inline
    def left_word(low, high, at, live, both, term):
        """The numbers of a row, without a second row or term."""
        return load(low, at, live)

    @inline
    def add_word(total, word, term):
        """The total of a unit, and a word of it."""
        return total + word

    return {"PER_WORD": 1, "TERMS": 1, "left_word": left_word, "right_word": left_word, "add_word": add_word}
