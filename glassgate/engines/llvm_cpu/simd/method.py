"""The interface of a multiplication method. Each method has its own module; `namespace.py` selects one.

- `fma.py`: float32 or float64 numbers, with fused multiply-add.
- `bfloat16.py`: pairs of numbers rounded to bfloat16, with AVX512-BF16 or its emulation.
- `tiles.py`: pairs of numbers rounded to bfloat16, on the tile registers of AMX.
- `int8.py`: 8-bit integers.

`blocking.py` and `processor.py` define the sizes of tiles. Plans read them before any kernel is compiled.
"""

from typing import Any, Protocol


class MultiplicationMethod(Protocol):
    """The code of matrix products."""

    def microkernel(self, sums: int, long: bool = False, strided: bool = False) -> Any:
        """Return the function that multiplies a few rows by some packed blocks of columns, with sums in registers.

        Args:
            sums: the number of sums per unit, for example one per gate. A block has one vector for each of them.
            long: whether only the tile shapes for products of many rows are compiled.
            strided: whether adjacent words (numbers, or pairs of numbers) of a row are `first` words apart in memory.

        Returns:
            microkernel(left, first_row, first, packed, pitch, depth, out, rows, blocks). `left` is a table of the
            addresses of rows. For each of `rows` addresses from index `first_row` on, the function computes the sum
            over k < depth of row[first + k] * packed[k], or, if `strided`, of row[first * k] * packed[k]. It writes the
            sums to out (rows, blocks, sums, lanes). The blocks of `packed` are `pitch` words
            apart; `pack.py` defines their layout.
        """

    def functions(self) -> dict[str, Any]:
        """Return the other functions and constants of the method that the text of kernels uses, by name."""
