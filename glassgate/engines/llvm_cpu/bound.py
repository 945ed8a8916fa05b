"""Passes whose addresses are mostly fixed. `executable.py` creates them."""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from glassgate.engines.llvm_cpu.compile import Function
from glassgate.engines.llvm_cpu.tasks import Launch
from glassgate.engines.llvm_cpu.workspace import borrow


class BoundPass(NamedTuple):
    """A pass with its own workspace. At most one tensor differs between calls.

    The steps of a stream run such passes.

    Attributes:
        launch: the machine code and its arguments.
        varying_slots: the indices of the arguments that each call sets to the address of this tensor.
        owners: the objects that own the memory at the other addresses.
    """

    launch: Launch
    varying_slots: Sequence[int]
    owners: Sequence[object]


class RepeatedPass:
    """A pass on one thread that reads the same weights in all calls. The other tensors may differ.

    Args:
        function: the machine code.
        values: the arguments of the machine code, without the addresses that `run` appends.
        workspace, data: the indices in `values` of the address of the workspace, and of the address of the input.
        workspace_size: the size of the workspace in bytes.
        owners: the objects that own the memory at the other addresses.
    """

    def __init__(
        self,
        function: Function,
        values: "array[int]",
        workspace: int,
        data: int,
        workspace_size: int,
        owners: Sequence[object],
    ) -> None:
        self._run, self._values, self._workspace, self._data = function.run, values, workspace, data
        self._workspace_size, self._owners = workspace_size, owners

    def run(self, data: int, others: Sequence[int]) -> None:
        """Run the pass.

        Args:
            data: the address of the input.
            others: the last addresses of the call. They follow the addresses passed to `Executable.repeated_pass`.
        """
        values = self._values + array("q", others)
        values[self._workspace], _memory = borrow(self._workspace_size)
        values[self._data] = data
        self._run(values.buffer_info()[0])
