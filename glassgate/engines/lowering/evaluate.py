"""Runs a pass in plain torch, line by line. Tests compare backends with this reference implementation."""

from collections.abc import Iterable, Mapping
from math import prod
from string import ascii_letters

import torch
from torch import Tensor

from glassgate.engines.lowering.ir import (
    Axes,
    Block,
    Broadcast,
    Constant,
    Contract,
    Elementwise,
    Line,
    Operation,
    Pass,
    Port,
    Reshape,
    Shift,
    Size,
    Stack,
    Sum,
    Take,
    Type,
    Value,
)
from glassgate.engines.symbolic.evaluate import compute_elementwise


def evaluate(program: Pass, inputs: Mapping[Port, Tensor], sizes: Mapping[str, int]) -> dict[Port, Tensor]:
    """Run a pass and return its outputs.

    Args:
        program: a valid pass.
        inputs: a tensor for each input, of any shape, with its elements in row-major order.
        sizes: extents that determine the extents of all axes, e.g. `{"T": 5, "N": 3, "D": 4, "H": 8}`.

    Returns:
        A tensor for each output, with the axes of its type.
    """
    return Evaluator(program, sizes).run(inputs)


class Evaluator:
    """Runs one pass.

    A backend that compiles only the loop can run all other lines with a subclass. If the tensors of the backend have
    axes in another order, the subclass overrides `axes_of`.

    Args:
        program, sizes: as in `evaluate`.

    Attributes:
        values: the tensor of each value that has been computed.
        scalar: a tensor without axes, with the dtype and the device of the inputs.
    """

    def __init__(self, program: Pass, sizes: Mapping[str, int]) -> None:
        self.program, self.axes = program, program.axes
        base = _base_extents(self.axes, sizes)
        self.sizes = {name: self.axes.extent(name, base) for name in self.axes}
        self.values: dict[Value, Tensor] = {}
        self.scalar = torch.zeros(())

    def run(self, inputs: Mapping[Port, Tensor]) -> dict[Port, Tensor]:
        """Run the pass and return its outputs by port."""
        program = self.program
        for port, value in program.inputs.items():
            self.values[value] = inputs[port].reshape(self.shape_of(value.type))
            if value.type.dtype == "float":
                self.scalar = inputs[port].new_zeros(())
        self.run_lines(program.before)
        self.run_loop()
        self.run_lines(program.after)
        return {port: self.values[value] for port, value in program.outputs.items()}

    def axes_of(self, value_type: Type) -> tuple[str, ...]:
        """The axes of a tensor of this type, in the order of its dimensions."""
        return value_type.axes

    def shape_of(self, value_type: Type) -> tuple[int, ...]:
        """The shape of a tensor of this type."""
        return tuple(self.sizes[axis] for axis in self.axes_of(value_type))

    def dimension_of(self, x: Value, axis: str) -> int:
        """The dimension that an axis has in the tensor of a value."""
        return self.axes_of(x.type).index(axis)

    def align(self, x: Value, to: Type) -> Tensor:
        """The tensor of a value, with a dimension of size 1 for each axis of `to` that the value does not have."""
        return _insert_axes(self.values[x], self.axes_of(x.type), self.axes_of(to))

    def run_lines(self, lines: Iterable[Line]) -> None:
        """Compute the results of lines, in order."""
        for line in lines:
            self.values[line.result] = self.compute(line.operation, line.result.type)

    def run_loop(self) -> None:
        """Run all steps, and store the final carries and the written sequences."""
        loop, tensors = self.program.loop, self.values
        steps = self.sizes[loop.axis]
        written: list[list[Tensor]] = [[] for _ in loop.writes]
        for carry in loop.carries:
            tensors[carry.before] = tensors[carry.initial]
        for t in reversed(range(steps)) if loop.reverse else range(steps):
            for read in loop.reads:
                tensors[read.at] = tensors[read.sequence].select(read.sequence.type.axes.index(loop.axis), t)
            self.run_lines(loop.body)
            active = None if loop.lengths is None else tensors[loop.lengths] > t
            for write, values in zip(loop.writes, written, strict=True):
                value = tensors[write.value]
                values.append(self.where_active(active, value, torch.zeros_like(value), write.value.type))
            next_values = [
                self.where_active(active, tensors[carry.next], tensors[carry.before], carry.next.type)
                for carry in loop.carries
            ]
            for carry, value in zip(loop.carries, next_values, strict=True):
                tensors[carry.before] = value
        for carry in loop.carries:
            tensors[carry.final] = tensors[carry.before]
        for write, values in zip(loop.writes, written, strict=True):
            axis, dtype = write.sequence.type.axes.index(loop.axis), write.sequence.type.dtype
            empty = self.scalar.new_zeros(
                self.shape_of(write.sequence.type), dtype=torch.bool if dtype == "bool" else None
            )
            tensors[write.sequence] = torch.stack(values[::-1] if loop.reverse else values, axis) if values else empty

    def where_active(self, active: Tensor | None, input: Tensor, other: Tensor, value_type: Type) -> Tensor:
        """`input` in the rows whose sequences contain the current step, `other` in all other rows."""
        if active is None:
            return input
        lengths = self.program.loop.lengths
        assert lengths is not None
        return torch.where(_insert_axes(active, lengths.type.axes, value_type.axes), input, other)

    def compute(self, operation: Operation, value_type: Type) -> Tensor:
        """The result of one operation, a tensor of this type."""
        tensors = self.values
        match operation:
            case Elementwise(op, args):
                aligned = tuple([self.align(v, value_type) if isinstance(v, Value) else float(v) for v in args])
                result = compute_elementwise(op, aligned, self.scalar.dtype)
                return torch.broadcast_to(result, self.shape_of(value_type))
            case Contract(a, b, _):
                return self.contract(a, b, value_type)
            case Sum(x, over):
                return tensors[x].sum([self.dimension_of(x, axis) for axis in over])
            case Constant(number):
                return self.scalar.new_full((), number)
            case Size(axis):
                return self.scalar.new_full((), self.sizes[axis])
            case Block(x, axis, index):
                return tensors[x].select(self.dimension_of(x, axis), index)
            case Take(x, axis, indices, _):
                k = self.dimension_of(x, axis)
                taken = [tensors[x].narrow(k, first, count) for first, count in _consecutive_runs(indices)]
                return taken[0] if len(taken) == 1 else torch.cat(taken, k)
            case Stack(values, axis):
                return torch.stack([tensors[v] for v in values], self.axes_of(value_type).index(axis))
            case Reshape(x, _):
                return tensors[x].reshape(self.shape_of(value_type))
            case Broadcast(x, _):
                return torch.broadcast_to(self.align(x, value_type), self.shape_of(value_type))
            case Shift():
                return self.shift(operation)
        raise AssertionError(f"unknown operation {operation}")

    def contract(self, a: Value, b: Value, value_type: Type) -> Tensor:
        """The result of `Contract`: the product of two values, summed over the axes that the result does not have."""
        all_axes = [self.axes_of(each) for each in (a.type, b.type, value_type)]
        letter = dict(zip(dict.fromkeys(axis for axes in all_axes for axis in axes), ascii_letters, strict=False))
        a_in, b_in, out = ("".join(letter[axis] for axis in axes) for axes in all_axes)
        return torch.einsum(f"{a_in},{b_in}->{out}", self.values[a], self.values[b])

    def shift(self, shift: Shift) -> Tensor:
        """The result of `Shift`: a sequence delayed by one step."""
        axis, steps = shift.x.type.axes.index(shift.axis), self.sizes[shift.axis]
        x, first = self.values[shift.x], self.values[shift.first].unsqueeze(axis)
        if not steps:
            return x
        if not shift.reverse:
            return torch.cat([first, x.narrow(axis, 0, steps - 1)], axis)
        moved = torch.cat([x.narrow(axis, 1, steps - 1), first], axis)
        if shift.lengths is None:
            return moved
        rows = shift.lengths.type.axes
        is_last = torch.arange(steps, device=x.device)[:, None] + 1 >= self.values[shift.lengths]
        return torch.where(_insert_axes(is_last, (shift.axis, *rows), shift.x.type.axes), first, moved)


def _base_extents(axes: Axes, sizes: Mapping[str, int]) -> dict[str, int]:
    """The extents of the base axes.

    Args:
        axes: the axes of a pass.
        sizes: the extents of some axes, each a base axis or a number times a base axis.
    """
    base: dict[str, int] = {}
    for name, extent in sizes.items():
        if name in axes:
            factors = axes.factors(name)
            (base_axis,) = (f for f in factors if isinstance(f, str))
            base[base_axis] = extent // prod(f for f in factors if isinstance(f, int))
    return base


def _insert_axes(x: Tensor, axes: tuple[str, ...], to: tuple[str, ...]) -> Tensor:
    """Insert a dimension of size 1 for each axis of `to` that is not among the axes of the tensor."""
    for k, axis in enumerate(to):
        if axis not in axes:
            x = x.unsqueeze(k)
    return x


def _consecutive_runs(indices: tuple[int, ...]) -> list[tuple[int, int]]:
    """Split indices into runs of consecutive numbers. Return the first number and the length of each run."""
    runs: list[tuple[int, int]] = []
    for index in indices:
        first, count = runs[-1] if runs else (index, 0)
        if runs and index == first + count:
            runs[-1] = first, count + 1
        else:
            runs.append((index, 1))
    return runs
