"""The packing of matrices of 8-bit integers, with one scale per row, for the microkernel."""

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from glassgate.engines.llvm_cpu.amx import processor_for
from glassgate.engines.llvm_cpu.arguments import Argument
from glassgate.engines.llvm_cpu.gemm.pack import Matrix, PackedMatrix
from glassgate.engines.llvm_cpu.processor import INT8_OFFSET, OFFSET_METHODS
from glassgate.engines.llvm_cpu.sizes import INTEGERS


class Quantised(NamedTuple):
    """A matrix that is packed as integers.

    Attributes:
        to: the argument for the address of the packed matrix.
        packed: the packed matrix.
        name: the name of the parameter.
        gates: the number of gates of the parameter.
        chosen: the indices of the packed gates, in order.
        heads: the number of heads.
    """

    to: Argument
    packed: PackedMatrix
    name: str
    gates: int
    chosen: tuple[int, ...]
    heads: int

    @staticmethod
    def of(to: Argument, matrix: Matrix, chosen: Sequence[int], heads: int) -> "Quantised":
        """The layout of a packed matrix at the address `to`."""
        assert matrix.start.buffer is not None
        lanes = processor_for(INTEGERS).lanes(32)
        units = matrix.rows // matrix.gates // heads
        words = -(-matrix.columns // 4)
        blocks, pitch = -(-units // lanes), ((words + 2) * len(chosen) + 1) * lanes
        packed = PackedMatrix(to, heads * blocks * pitch * 4, pitch, (), INTEGERS)
        return Quantised(to, packed, str(matrix.start.buffer.owner), matrix.gates, tuple(chosen), heads)

    def write(self, address: int, values: Tensor, scale: Tensor) -> None:
        """Write the packed form of a matrix of integers (rows, columns) and its scales (rows,) to an address."""
        processor = processor_for(INTEGERS)
        lanes, sums = processor.lanes(32), len(self.chosen)
        pick = np.array(self.chosen)
        numbers = values.numpy().reshape(self.gates, self.heads, -1, values.shape[1])[pick]
        units, columns = numbers.shape[2:]
        blocks, words = -(-units // lanes), -(-columns // 4)
        full = np.zeros((sums, self.heads, blocks * lanes, words * 4), np.int8)
        full[:, :, :units, :columns] = numbers
        scales = np.zeros((sums, self.heads, blocks * lanes), np.float32)
        scales[:, :, :units] = scale.numpy().reshape(self.gates, self.heads, units)[pick]
        starts = np.zeros_like(scales, np.int32)
        if processor.integers in OFFSET_METHODS:
            starts = -INT8_OFFSET * full.sum(-1, dtype=np.int32)
        every = self.heads * blocks
        by_word = full.reshape(sums, every, lanes, words, 4).transpose(1, 3, 0, 2, 4)
        packed = np.zeros((every, self.packed.pitch), np.int32)
        parts = [np.ascontiguousarray(by_word).view(np.int32)]
        parts += [
            np.ascontiguousarray(v.reshape(sums, every, lanes).transpose(1, 0, 2)).view(np.int32)
            for v in (starts, scales)
        ]
        run = np.concatenate([part.reshape(every, -1) for part in parts], 1)
        packed[:, : run.shape[1]] = run
        ctypes.memmove(address, packed.ctypes.data, packed.nbytes)
