"""What sums over rows multiply: a number of each row, or where products round to bfloat16 two rows' numbers in a word.

Those of the left are gradients, which are bfloat16 from the start there; those of the right are rounded on the way.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numba

from glassgate.engines.numba_cpu.simd.vector import memory

inline: Any = numba.njit(forceinline=True, error_model="numpy")


@inline
def fill_registers(packed, blocks, most, rows):
    """Nothing: vectors need no zeros behind the last word."""


@inline
def turn_registers(packed, blocks, most, rows):
    """Nothing: vectors read words as they are."""


@inline
def place_of_word(block, unit, most):
    """Where, in words, a unit's first one is; a block has space for `most`."""
    return block * most + unit - block


@inline
def whole_sum(depth):
    """How many numbers long packed sums are made."""
    return depth


LAYOUT: tuple[Callable[..., Any], ...] = (fill_registers, turn_registers, place_of_word, whole_sum)
"""How words lie that vectors read; on tile registers others stand in their places."""


@cache
def functions(bits: int, lanes: int) -> dict[str, Any]:
    """By name, what kernels call whose words are numbers."""
    load = memory(bits, lanes).load

    @inline
    def left_word(low, high, at, live, both, term):
        """A row's numbers; there is no second row, and no second term."""
        return load(low, at, live)

    @inline
    def add_word(total, word, term):
        """The total of a unit, and a word of it."""
        return total + word

    return {"PER_WORD": 1, "TERMS": 1, "left_word": left_word, "right_word": left_word, "add_word": add_word}
