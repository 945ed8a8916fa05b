"""The engine of cells whose states are arrays, on the CPU."""

from functools import lru_cache

import torch

from glassgate.engines.arrays.engine import ArrayEngine
from glassgate.engines.arrays.program import ArrayProgram
from glassgate.engines.llvm_cpu.arrays.run import CPUArrays
from glassgate.engines.llvm_cpu.processor import Processor, host, torch_multiplies_with_mkl

_MIN_ROWS, _MIN_PRODUCTS = 32, 8_000_000
"""The numbers of rows and of multiplications below which the call of a kernel takes longer than it saves."""
_MIN_ROWS_AGAINST_MKL = 2048
"""The number of rows from which on kernels with 16 registers are as fast as MKL: they pack the weights in each call."""


class CPUArrayEngine(ArrayEngine):
    """`ArrayEngine` for the CPU."""

    def compiled(self, program: ArrayProgram, dtype: torch.dtype) -> CPUArrays:
        """See `ArrayEngine`."""
        return _compiled(program, dtype, host().full_precision)

    def multiplies_faster(self, rows: int, products: int) -> bool:
        """See `ArrayEngine`."""
        has_few_registers = torch.backends.mkl.is_available() and host().registers == 16
        min_rows = _MIN_ROWS_AGAINST_MKL if has_few_registers else _MIN_ROWS
        return not torch_multiplies_with_mkl() and rows >= min_rows and products >= _MIN_PRODUCTS


@lru_cache(256)
def _compiled(program: ArrayProgram, dtype: torch.dtype, processor: Processor) -> CPUArrays:
    return CPUArrays(program, dtype, processor)


ENGINE = CPUArrayEngine("cpu")
