"""Passes whose addresses are mostly fixed. `executable.py` creates them."""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from glassgate.engines.llvm_cpu.compile import Function
from glassgate.engines.llvm_cpu.tasks import Launch


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


class Template(NamedTuple):
    """A pass on one thread, for calls that differ in their addresses and in the lengths of their sequences.

    Attributes:
        function: the machine code.
        values: its arguments, without the addresses of a call, which come last.
        workspace: the index in `values` of the address of the workspace.
        weights: for each direction whose weights each call packs, the index in `values` of the address of the packed
            weights, and their offset in the workspace.
        rows: the index in `values` of the number of rows. The number of sequences and the addresses of the tables of a
            batch layout follow.
        workspace_size: the size of the workspace in bytes.
        owners: the objects that own the memory at the addresses in `values`.
    """

    function: Function
    values: "array[int]"
    workspace: int
    weights: Sequence[tuple[int, int]]
    rows: int
    workspace_size: int
    owners: Sequence[object]
