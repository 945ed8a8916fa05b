"""The engine of cells whose states are arrays, on the CPU."""

from functools import lru_cache

import torch

from glassgate.engines.arrays.engine import ArrayEngine
from glassgate.engines.arrays.program import ArrayProgram
from glassgate.engines.llvm_cpu.arrays.run import CPUArrays
from glassgate.engines.llvm_cpu.processor import Processor, host, torch_multiplies_with_mkl

_MIN_ROWS, _MIN_PRODUCTS = 32, 8_000_000
"""The numbers of rows and of multiplications below which the call of a kernel takes longer than it saves."""


class CPUArrayEngine(ArrayEngine):
    """`ArrayEngine` for the CPU."""

    def compiled(self, program: ArrayProgram, dtype: torch.dtype) -> CPUArrays:
        """See `ArrayEngine`."""
        return _compiled(program, dtype, host().full_precision)

    def multiplies_faster(self, rows: int, products: int) -> bool:
        """See `ArrayEngine`."""
        return not torch_multiplies_with_mkl() and rows >= _MIN_ROWS and products >= _MIN_PRODUCTS


@lru_cache(256)
def _compiled(program: ArrayProgram, dtype: torch.dtype, processor: Processor) -> CPUArrays:
    return CPUArrays(program, dtype, processor)


ENGINE = CPUArrayEngine("cpu")
