"""Packing of matrices of 8-bit integers, with one scale per row, for the microkernel in `simd/int8.py`."""

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from glassgate.engines.llvm_cpu.amx import processor_for
from glassgate.engines.llvm_cpu.arguments import Argument
from glassgate.engines.llvm_cpu.gemm.pack import Matrix, MicrokernelMatrix
from glassgate.engines.llvm_cpu.processor import INT8_OFFSET, OFFSET_METHODS
from glassgate.engines.llvm_cpu.sizes import Arithmetic


class QuantisedMatrix(NamedTuple):
    """The layout of a matrix that is packed as 8-bit integers.

    Attributes:
        start: the argument for the address of the packed matrix.
        packed: the packed matrix.
        name: the name of the parameter.
        gate_count: the number of gates of the parameter.
        gates: the indices of the packed gates, in order.
        heads: the number of heads.
    """

    start: Argument
    packed: MicrokernelMatrix
    name: str
    gate_count: int
    gates: tuple[int, ...]
    heads: int

    @staticmethod
    def of(start: Argument, matrix: Matrix, gates: Sequence[int], heads: int) -> "QuantisedMatrix":
        """Return the layout of some gates of a matrix, packed from the address `start` on."""
        assert matrix.start.buffer is not None
        lanes = processor_for(Arithmetic.INTEGERS).lanes(32)
        units = matrix.rows // matrix.gate_count // heads
        words = -(-matrix.columns // 4)
        blocks, pitch = -(-units // lanes), ((words + 2) * len(gates) + 1) * lanes
        packed = MicrokernelMatrix(start, heads * blocks * pitch * 4, pitch, (), Arithmetic.INTEGERS)
        name = str(matrix.start.buffer.owner)
        return QuantisedMatrix(start, packed, name, matrix.gate_count, tuple(gates), heads)

    def write(self, address: int, values: Tensor, scale: Tensor) -> None:
        """Write the packed matrix to an address.

        Args:
            address: the address of the packed matrix.
            values: (rows, columns), the matrix as 8-bit integers.
            scale: (rows,), the scale of each row.
        """
        processor = processor_for(Arithmetic.INTEGERS)
        lanes, num_packed = processor.lanes(32), len(self.gates)
        gates = np.array(self.gates)
        integers = values.numpy().reshape(self.gate_count, self.heads, -1, values.shape[1])[gates]
        units, columns = integers.shape[2:]
        blocks, words = -(-units // lanes), -(-columns // 4)
        padded = np.zeros((num_packed, self.heads, blocks * lanes, words * 4), np.int8)
        padded[:, :, :units, :columns] = integers
        scales = np.zeros((num_packed, self.heads, blocks * lanes), np.float32)
        scales[:, :, :units] = scale.numpy().reshape(self.gate_count, self.heads, units)[gates]
        initial_sums = np.zeros_like(scales, np.int32)
        if processor.integers in OFFSET_METHODS:
            # The kernel adds `INT8_OFFSET` to each integer of the left operand. These initial sums cancel the offset.
            initial_sums = -INT8_OFFSET * padded.sum(-1, dtype=np.int32)
        all_blocks = self.heads * blocks
        by_word = padded.reshape(num_packed, all_blocks, lanes, words, 4).transpose(1, 3, 0, 2, 4)
        parts = [np.ascontiguousarray(by_word).view(np.int32)]
        parts += [
            np.ascontiguousarray(v.reshape(num_packed, all_blocks, lanes).transpose(1, 0, 2)).view(np.int32)
            for v in (initial_sums, scales)
        ]
        content = np.concatenate([part.reshape(all_blocks, -1) for part in parts], 1)
        packed = np.zeros((all_blocks, self.packed.pitch), np.int32)
        packed[:, : content.shape[1]] = content
        ctypes.memmove(address, packed.ctypes.data, packed.nbytes)
