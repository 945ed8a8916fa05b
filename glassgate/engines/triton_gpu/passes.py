"""Runs one pass of the directions of a layer: the loops as Triton kernels, all other operations in torch."""

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
    KernelChoice,
    LoopKernels,
    OtherArguments,
    is_refusal,
    persistent_launch,
    start_errors,
    step_launches,
)
from glassgate.engines.triton_gpu.precision import Precision
from glassgate.engines.triton_gpu.rows import Rows
from glassgate.engines.triton_gpu.select import Chip, blocks_of, refuse, select_kernel


class PassRun(Evaluator):
    """One run of a pass, in three parts: `begin`, `run_loops` for its loop, and `end`.

    In the tensors of sequences, the axes T and N are one dimension of rows.

    Args:
        kernels: the kernels of the loop.
        sizes: the extents of the axes, see `Evaluator`.
        rows: the rows of the batch.
        precision: the precision of matrix products.
        loop_outputs: the tensors, (rows, width), to which the loop writes some of its outputs.
        needed: the outputs that `end` returns.
    """

    def __init__(
        self,
        kernels: LoopKernels,
        sizes: Mapping[str, int],
        rows: Rows,
        precision: Precision,
        loop_outputs: Mapping[Port, Tensor],
        needed: frozenset[Port],
    ) -> None:
        self.kernels, self.phases = kernels, kernels.phases
        super().__init__(self.phases.program, sizes)
        self.rows, self.precision, self.dtype = rows, precision, precision.dtype
        self.loop_outputs = {self.program.outputs[port]: v for port, v in loop_outputs.items()}
        self.needed = needed
        self.buffers: dict[tuple[str, Value], Tensor] = {}
        width = self.sizes.get("P", self.sizes["H"])
        self.extents = {"T": rows.T, "N": rows.N, "H": self.sizes["H"], "P": width, "heads": self.phases.heads}

    def begin(self, inputs: Mapping[Port, Tensor]) -> None:
        """Run the lines before the loop, and allocate the remaining outputs of the loop."""
        for port, value in self.program.inputs.items():
            if port in inputs:
                # `reshape` would give a single row another stride, for which Triton would compile another kernel.
                tensor, shape = inputs[port], self.shape_of(value.type)
                self.values[value] = tensor if tensor.shape == shape else tensor.reshape(shape)
        self.scalar = torch.zeros((), device=self.rows.device)
        self.run_lines(self.program.before)
        for read in self.program.loop.reads:
            sequence = self.values[read.sequence]
            self.values[read.sequence] = sequence if sequence[:1].is_contiguous() else sequence.contiguous()
        for write in self.program.loop.writes:
            output, shape = self.loop_outputs.get(write.sequence), self.shape_of(write.sequence.type)
            if output is None:
                self.values[write.sequence] = self.scalar.new_empty(shape, dtype=self.dtype)
            else:
                self.values[write.sequence] = output.unflatten(1, shape[1:]) if len(shape) > 2 else output

    def end(self) -> dict[Port, Tensor]:
        """Run the necessary lines after the loop, and return the needed outputs by port."""
        for carry in self.program.loop.carries:
            buffer = self.buffers.get(("carry", carry.before))
            final = self.values[carry.initial] if buffer is None else buffer[self.rows.T % 2]
            self.values[carry.final] = final.float().view(self.shape_of(carry.final.type))
        self.run_lines(_needed_lines(self.program, self.needed))
        return {port: self.values[value] for port, value in self.program.outputs.items() if port in self.needed}

    def axes_of(self, value_type: Type) -> tuple[str, ...]:
        """The names of the dimensions of a tensor of this type. T and N together are one dimension, "rows"."""
        axes = value_type.axes
        return ("rows", *(axis for axis in axes if axis not in ("T", "N"))) if "T" in axes else axes

    def shape_of(self, value_type: Type) -> tuple[int, ...]:
        """The shape of a tensor of this type."""
        return tuple(self.rows.total if axis == "rows" else self.sizes[axis] for axis in self.axes_of(value_type))

    def dimension_of(self, x: Value, axis: str) -> int:
        """The dimension that an axis has in the tensor of a value."""
        axes = self.axes_of(x.type)
        return 0 if "rows" in axes and axis in ("T", "N") else axes.index(axis)

    def align(self, x: Value, to: Type) -> Tensor:
        """The tensor of a value, with a dimension of size 1 for each axis of `to` that the value does not have."""
        tensor, axes, result_axes = self.values[x], self.axes_of(x.type), self.axes_of(to)
        if "rows" in result_axes and "N" in axes:
            tensor, axes = self.rows.expand_to_rows(tensor), ("rows", *axes[1:])
        for k, axis in enumerate(result_axes):
            if axis not in axes:
                tensor = tensor.unsqueeze(k)
        return tensor

    def compute(self, operation: Operation, value_type: Type) -> Tensor:
        """The result of one operation.

        Sums are float32. A sequence from an elementwise operation has the dtype of the first float sequence it reads.
        """
        if isinstance(operation, Sum):
            dimensions = {self.dimension_of(operation.x, axis) for axis in operation.over}
            return self.values[operation.x].sum([*dimensions], dtype=torch.float32)
        value = super().compute(operation, value_type)
        if isinstance(operation, Elementwise) and "T" in value_type.axes:
            floats = [v for v in operands(operation) if "T" in v.type.axes and v.type.dtype == "float"]
            return value.to(self.values[floats[0]].dtype) if floats else value
        return value

    def contract(self, a: Value, b: Value, value_type: Type) -> Tensor:
        """A matrix product of operands in `self.dtype`. Gradients of weights are converted to float32."""
        for value in (a, b):
            self.values[value] = self.values[value].to(self.dtype)
        product = super().contract(a, b, value_type)
        return product if "T" in value_type.axes else product.float()

    def shift(self, shift: Shift) -> Tensor:
        """A sequence delayed by one step."""
        x = self.values[shift.x]
        return self.rows.shift(x, self.values[shift.first].to(x.dtype), shift.reverse)

    def tensors(self, kernel: Kernel) -> list[Tensor]:
        """The tensors of the pointers of a kernel."""
        return [self.tensor(pointer) for pointer in kernel.pointers]

    def tensor(self, pointer: Pointer) -> Tensor:
        """The tensor of a pointer. A buffer is allocated at its first use."""
        value = pointer.value
        if pointer.kind == "sequence":
            sequence = self.values[value]
            return sequence.view(torch.uint8) if sequence.dtype == torch.bool else sequence
        if pointer.kind == "weight":
            return self.values[value].to(self.dtype).contiguous()
        if pointer.kind == "given":
            return self.values[value].contiguous()
        key = pointer.kind, value
        if key not in self.buffers:
            dtype = self.dtype if pointer.kind == "shared" else torch.float32
            shape = self.shape_of(value.type)
            self.buffers[key] = self.scalar.new_empty((2, *shape), dtype=dtype)
            if pointer.kind == "carry":
                carry = self.phases.carries[value]
                self.buffers[key][0] = self.values[carry.initial]
        return self.buffers[key]


def run_loops(runs: Sequence[PassRun]) -> None:
    """Run the loops of a layer. Two directions that differ only in the order of steps may run in one launch."""
    first = runs[0]
    if not first.rows.total:
        return
    chip = Chip.of(first.rows.device)
    groups = [[run] for run in runs]
    choices = [select(run, chip) for run in runs]
    if len(runs) == 2 and all(run.kernels.key == first.kernels.key and run.extents == first.extents for run in runs):
        together = select(first, chip, directions=2)
        if together.microseconds <= sum(choice.microseconds for choice in choices):
            groups, choices = [[*runs]], [together]
    with torch.cuda.device(first.rows.device) if first.rows.device.type == "cuda" else nullcontext():
        for group, choice in zip(groups, choices, strict=True):
            run_together(group, choice)


def select(run: PassRun, chip: Chip | None, directions: int = 1) -> KernelChoice:
    """Select the kernel for one run, or for the runs of two directions."""
    return select_kernel(run.phases, run.extents, run.dtype, chip, directions)


def run_together(runs: Sequence[PassRun], choice: KernelChoice) -> None:
    """Run the loops of one or two directions in the same launches. If a kernel cannot start, run the next best one."""
    first, rows = runs[0], runs[0].rows
    loops, tensors = [run.kernels for run in runs], [run.tensors for run in runs]
    other_arguments = OtherArguments(first.extents, first.precision.float32_precision, rows.starts)
    while choice.kind != "steps":
        try:
            persistent_launch(loops, tensors, choice, other_arguments)()
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
    before, steps = step_launches(loops, tensors, blocks, other_arguments)
    if before is not None:
        before(-1)
    if rows.T >= graphs.MIN_STEPS:
        graphs.run_steps(steps, rows.T)
        return
    for iteration in range(rows.T):
        for launch in steps:
            launch(iteration)


def _needed_lines(program: Pass, ports: frozenset[Port]) -> list[Line]:
    """The lines after the loop that these outputs depend on."""
    values = {program.outputs[port] for port in ports if port in program.outputs}
    lines = []
    for line in reversed(program.after):
        if line.result in values:
            values |= {*operands(line.operation)}
            lines.append(line)
    return lines[::-1]
