"""The engine of cells whose states are arrays, on a GPU."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property, lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines.arrays.compiled import CompiledArrays
from glassgate.engines.arrays.engine import ArrayEngine, program_of_cell, sizes_of
from glassgate.engines.arrays.program import ArrayProgram
from glassgate.engines.arrays.rows import Operands, Rows
from glassgate.engines.contract import Direction, Reason, Steps
from glassgate.engines.memory import move_to_device
from glassgate.engines.symbolic.arrays.cell import Sizes
from glassgate.engines.symbolic.values import NotTraceable
from glassgate.engines.traced_cells import assume_constant
from glassgate.engines.triton_gpu.arrays.kernel import KernelText, print_backward, print_forward
from glassgate.engines.triton_gpu.launch import compile_module, options_with_fewest_spills, with_functions

CHUNK = 16
"""The number of steps between saved states."""
MOST_ELEMENTS = 2**15
"""The largest number of elements of a block. The registers of a multiprocessor contain two such blocks."""
ELEMENTS_PER_WARP, MOST_WARPS = 512, 16


class GPUArrays(CompiledArrays):
    """The kernels of a step on a GPU, in float32."""

    chunk = CHUNK

    def __init__(self, program: ArrayProgram) -> None:
        super().__init__(program)
        self.forward_text, self.backward_text = print_forward(program), print_backward(program)

    @property
    def largest(self) -> int:
        """The number of elements of the largest block."""
        return max(self.forward_text.largest, self.backward_text.largest)

    @cached_property
    def source(self) -> str:
        """The text of both kernels, as a module."""
        return with_functions("\n\n".join([self.forward_text.text, self.backward_text.text]))

    def run_forward(self, rows: Rows, operands: Operands, saved: Tensor, arguments: Sequence[Tensor]) -> None:
        """See `CompiledArrays`."""
        self._launch("forward", self.forward_text, rows, operands, saved, arguments)

    def run_backward(self, rows: Rows, operands: Operands, saved: Tensor, arguments: Sequence[Tensor]) -> None:
        """See `CompiledArrays`."""
        self._launch("backward", self.backward_text, rows, operands, saved, arguments)

    def _launch(
        self, name: str, text: KernelText, rows: Rows, operands: Operands, saved: Tensor, arguments: Sequence[Tensor]
    ) -> None:
        gates, jobs = operands.gates, self.jobs(rows)
        if not jobs:
            return
        device = gates.device
        starts, lengths = _on_device(rows.starts, device), _on_device(rows.lengths, device)
        resets = starts if rows.resets is None else rows.resets.view(torch.uint8)
        work, scratch = (gates.new_empty(jobs * size) for size in ((self.chunk + 1) * text.slot, text.scratch))
        tensors = [starts, lengths, resets, saved, work, scratch, gates, operands.inputs, operands.noise, *arguments]
        function = compile_module(self.source, device.type == "cpu")[name]
        options: dict[str, Any] = {"RESETS": rows.resets is not None, "SAVES": saved.numel() > 0}
        options |= {"num_warps": warps(text.largest), "num_stages": 1}
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            start(function, jobs, [*tensors, jobs, int(rows.reverse), self.chunk], options)


@lru_cache(512)
def _on_device(table: Tensor, device: torch.device) -> Tensor:
    """A table of `Rows` on a GPU. Rows are cached too, and CUDA graphs need a table that stays."""
    return move_to_device(table, device)


def start(function: Any, jobs: int, arguments: Sequence[Tensor | int], options: Mapping[str, Any]) -> None:
    """Start one program per job."""
    device = torch.cuda.current_device() if torch.cuda.is_initialized() else None
    key, grid = (function, device, *options.values()), (jobs,)
    additional = _spill_options.get(key)
    kernel = function[grid](*arguments, **options, **(additional or {}))
    if additional is None and kernel is not None:  # the interpreter has no kernel
        compile_again = partial(function.warmup, *arguments, grid=grid, **options)
        _spill_options[key] = options_with_fewest_spills(kernel, compile_again)


_spill_options: dict[tuple[object, ...], dict[str, int]] = {}
"""The results of `options_with_fewest_spills`, by function, device and options."""


def warps(elements: int) -> int:
    """The warps of a program whose largest block has this number of elements."""
    return max(1, min(MOST_WARPS, elements // ELEMENTS_PER_WARP))


class GPUArrayEngine(ArrayEngine):
    """`ArrayEngine` for a GPU."""

    def compiled(self, program: ArrayProgram, dtype: torch.dtype) -> GPUArrays:
        """See `ArrayEngine`."""
        return _compiled(program)

    def why_not(self, steps: Steps, directions: Sequence[Direction], all_states: bool) -> Reason | None:
        """See `ArrayKernels.why_not`."""
        if (reason := super().why_not(steps, directions, all_states)) is not None:
            return reason
        for direction in directions:
            fault = _fault(direction.cell, sizes_of(direction), all_states)
            if fault is not None:
                return Reason(fault)
        return None

    def multiplies_faster(self, rows: int, products: int) -> bool:
        """See `ArrayKernels.multiplies_faster`."""
        return False


@assume_constant
def _fault(cell: Cell, sizes: Sizes, all_states: bool) -> str | None:
    """Why the kernels cannot run a cell whose step has an array program; None if they can."""
    program = program_of_cell(cell, sizes, all_states)
    assert isinstance(program, ArrayProgram)
    try:
        largest = _compiled(program).largest
    except NotTraceable as error:
        return f"Triton kernels do not compute {error}"
    if largest <= MOST_ELEMENTS:
        return None
    return (
        f"a program of a Triton kernel keeps blocks in registers, and this cell has blocks of {largest} numbers, more "
        f"than {MOST_ELEMENTS}; more heads or fewer units make them smaller"
    )


@lru_cache(256)
def _compiled(program: ArrayProgram) -> GPUArrays:
    return GPUArrays(program)


ENGINE = GPUArrayEngine("triton")
