"""Runs one pass of the directions of a layer: the lines outside of the loops in torch, the loops as kernels."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor

from glassgate.engines.lowering.evaluate import Evaluator
from glassgate.engines.lowering.ir import Elementwise, Line, Operation, Pass, Port, Shift, Sum, Type, Value, operands
from glassgate.engines.triton_gpu import graphs
from glassgate.engines.triton_gpu.kernel import Kernel, Pointer
from glassgate.engines.triton_gpu.launch import (
    Blocks,
    Loop,
    Numbers,
    Selected,
    is_refusal,
    launches,
    start_errors,
    whole_launch,
)
from glassgate.engines.triton_gpu.precision import Precision
from glassgate.engines.triton_gpu.rows import Rows
from glassgate.engines.triton_gpu.select import Chip, blocks_of, refuse, selected


class Run(Evaluator):
    """One run of a pass: `begin`, then its loop by `run_loops`, then `end`.

    Sequences are rows: the axes T and N of a sequence are one dimension.

    Args:
        kernels: the kernels of its loop.
        sizes: the extents of the axes, see `Evaluator`.
        rows: the rows of the batch.
        precision: the precision of matrix products.
        into: the tensors (rows, width) to which the loop writes some of its outputs.
        wanted: the outputs that are needed.
    """

    def __init__(
        self,
        kernels: Loop,
        sizes: Mapping[str, int],
        rows: Rows,
        precision: Precision,
        into: Mapping[Port, Tensor],
        wanted: frozenset[Port],
    ) -> None:
        self.kernels, self.phases = kernels, kernels.phases
        super().__init__(self.phases.program, sizes)
        self.rows, self.precision, self.dtype = rows, precision, precision.dtype
        self.into = {self.program.outputs[port]: v for port, v in into.items()}
        self.wanted = wanted
        self.buffers: dict[Pointer, Tensor] = {}
        width = self.sizes.get("P", self.sizes["H"])
        self.extents = {"T": rows.T, "N": rows.N, "H": self.sizes["H"], "P": width, "heads": self.phases.heads}

    def begin(self, inputs: Mapping[Port, Tensor]) -> None:
        """Runs the lines before the loop, and allocates the outputs of the loop."""
        for port, value in self.program.inputs.items():
            if port in inputs:
                # `reshape` would give a single row another stride, and Triton would compile a kernel for it.
                given, form = inputs[port], self.shape_of(value.type)
                self.values[value] = given if given.shape == form else given.reshape(form)
        self.scalar = torch.zeros((), device=self.rows.device)
        self.run_lines(self.program.before)
        for read in self.program.loop.reads:
            sequence = self.values[read.sequence]
            self.values[read.sequence] = sequence if sequence[:1].is_contiguous() else sequence.contiguous()
        for write in self.program.loop.writes:
            into, form = self.into.get(write.sequence), self.shape_of(write.sequence.type)
            if into is None:
                self.values[write.sequence] = self.scalar.new_empty(form, dtype=self.dtype)
            else:
                self.values[write.sequence] = into.unflatten(1, form[1:]) if len(form) > 2 else into

    def end(self) -> dict[Port, Tensor]:
        """Runs the lines after the loop, and returns the wanted outputs by port."""
        for carry in self.program.loop.carries:
            buffer = self.buffers.get(Pointer("carry", carry.before, f"{carry.before.name}_carry"))
            final = self.values[carry.initial] if buffer is None else buffer[self.rows.T % 2]
            self.values[carry.final] = final.float().view(self.shape_of(carry.final.type))
        self.run_lines(_needed(self.program, self.wanted))
        return {port: self.values[value] for port, value in self.program.outputs.items() if port in self.wanted}

    def axes_of(self, value_type: Type) -> tuple[str, ...]:
        """The dimensions of the tensors of a type. T and N together are one dimension, "rows"."""
        axes = value_type.axes
        return ("rows", *(axis for axis in axes if axis not in ("T", "N"))) if "T" in axes else axes

    def shape_of(self, value_type: Type) -> tuple[int, ...]:
        """The extents of a type's dimensions."""
        return tuple(self.rows.total if axis == "rows" else self.sizes[axis] for axis in self.axes_of(value_type))

    def dimension_of(self, x: Value, axis: str) -> int:
        """The dimension of an axis in the tensor of a value."""
        axes = self.axes_of(x.type)
        return 0 if "rows" in axes and axis in ("T", "N") else axes.index(axis)

    def align(self, x: Value, to: Type) -> Tensor:
        """The tensor of a value, with a dimension of size 1 for each axis of another type that it lacks."""
        tensor, axes, of_result = self.values[x], self.axes_of(x.type), self.axes_of(to)
        if "rows" in of_result and "N" in axes:
            tensor, axes = self.rows.per_row(tensor), ("rows", *axes[1:])
        for k, axis in enumerate(of_result):
            if axis not in axes:
                tensor = tensor.unsqueeze(k)
        return tensor

    def compute(self, operation: Operation, value_type: Type) -> Tensor:
        """The value of one operation. Sums are float32; an elementwise result has the type of its sequence."""
        if isinstance(operation, Sum):
            dimensions = {self.dimension_of(operation.x, axis) for axis in operation.over}
            return self.values[operation.x].sum([*dimensions], dtype=torch.float32)
        value = super().compute(operation, value_type)
        if isinstance(operation, Elementwise) and "T" in value_type.axes:
            floats = [v for v in operands(operation) if "T" in v.type.axes and v.type.dtype == "float"]
            return value.to(self.values[floats[0]].dtype) if floats else value
        return value

    def contract(self, a: Value, b: Value, value_type: Type) -> Tensor:
        """A matrix product in the type of products. Gradients of weights are float32."""
        for value in (a, b):
            self.values[value] = self.values[value].to(self.dtype)
        product = super().contract(a, b, value_type)
        return product if "T" in value_type.axes else product.float()

    def shift(self, shift: Shift) -> Tensor:
        """A sequence delayed by one step."""
        x = self.values[shift.x]
        return self.rows.shifted(x, self.values[shift.first].to(x.dtype), shift.reverse)

    def tensors(self, kernel: Kernel) -> list[Tensor]:
        """The tensors of a kernel's pointers."""
        return [self.tensor(pointer) for pointer in kernel.pointers]

    def tensor(self, pointer: Pointer) -> Tensor:
        """The tensor of one pointer."""
        value = pointer.value
        if pointer.kind == "sequence":
            sequence = self.values[value]
            return sequence.view(torch.uint8) if sequence.dtype == torch.bool else sequence
        if pointer.kind == "weight":
            return self.values[value].to(self.dtype).contiguous()
        if pointer.kind == "given":
            return self.values[value].contiguous()
        if pointer not in self.buffers:
            dtype = self.dtype if pointer.kind == "shared" else torch.float32
            shape = self.shape_of(value.type)
            self.buffers[pointer] = self.scalar.new_empty((2, *shape), dtype=dtype)
            if pointer.kind == "carry":
                carry = self.phases.carries[value]
                self.buffers[pointer][0] = self.values[carry.initial]
        return self.buffers[pointer]


def run_loops(runs: Sequence[Run]) -> None:
    """Runs the loops of a layer's directions. If they differ only in the order of time, a launch may run both."""
    first = runs[0]
    if not first.rows.total:
        return
    chip = Chip.of(first.rows.device)
    groups = [[run] for run in runs]
    choices = [select(run, chip) for run in runs]
    if len(runs) == 2 and all(run.kernels.like == first.kernels.like and run.extents == first.extents for run in runs):
        together = select(first, chip, directions=2)
        if together.microseconds <= sum(choice.microseconds for choice in choices):
            groups, choices = [[*runs]], [together]
    with torch.cuda.device(first.rows.device) if first.rows.device.type == "cuda" else nullcontext():
        for group, choice in zip(groups, choices, strict=True):
            run_together(group, choice)


def select(run: Run, chip: Chip | None, directions: int = 1) -> Selected:
    """The kernel for a run, or for the runs of two directions."""
    return selected(run.phases, run.extents, run.dtype, chip, directions)


def run_together(runs: Sequence[Run], choice: Selected) -> None:
    """Runs the loops of one or two directions in the same launches. If a kernel cannot start, the next best runs."""
    first, rows = runs[0], runs[0].rows
    loops, tensors = [run.kernels for run in runs], [run.tensors for run in runs]
    numbers = Numbers(first.extents, first.precision.of_float32, rows.starts)
    while choice.kind != "steps":
        try:
            whole_launch(loops, tensors, choice, numbers)()
            return
        except start_errors() as error:
            if not is_refusal(error):
                raise
            chip = Chip.of(rows.device)
            refuse(choice, first.phases, first.dtype, chip, len(runs), error)
            choice = select(first, chip, len(runs))
    blocks: Callable[[Kernel], Blocks] = partial(
        blocks_of, sizes=first.extents, dtype=first.dtype, chip=Chip.of(rows.device), directions=len(runs)
    )
    before, steps = launches(loops, tensors, blocks, numbers)
    if before is not None:
        before(-1)
    if rows.T >= graphs.LEAST:
        graphs.run(steps, rows.T)
        return
    for iteration in range(rows.T):
        for launch in steps:
            launch(iteration)


def _needed(program: Pass, wanted: frozenset[Port]) -> list[Line]:
    """The lines after the loop that some outputs need."""
    needed = {program.outputs[port] for port in wanted if port in program.outputs}
    lines = []
    for line in reversed(program.after):
        if line.result in needed:
            needed |= {*operands(line.operation)}
            lines.append(line)
    return lines[::-1]
