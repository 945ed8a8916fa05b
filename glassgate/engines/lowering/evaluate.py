"""Runs a pass in plain torch, line by line: the meaning of every operation, and the test of every lowering."""

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
from glassgate.engines.symbolic.evaluate import computed


def evaluate(program: Pass, inputs: Mapping[Port, Tensor], sizes: Mapping[str, int]) -> dict[Port, Tensor]:
    """The outputs of a pass.

    Args:
        program: a valid pass.
        inputs: a tensor for each input, in any shape with its elements in row-major order.
        sizes: the extents of axes that all others follow from, e.g. `{"T": 5, "N": 3, "D": 4, "H": 8}`.

    Returns:
        A tensor for each output, with the axes of its type.
    """
    return _Evaluator(program, sizes).run(inputs)


class _Evaluator:
    def __init__(self, program: Pass, sizes: Mapping[str, int]) -> None:
        self.program, self.axes = program, program.axes
        base = _base(self.axes, sizes)
        self.sizes = {name: self.axes.extent(name, base) for name in self.axes}
        self.found: dict[Value, Tensor] = {}
        self.like = torch.zeros(())

    def run(self, inputs: Mapping[Port, Tensor]) -> dict[Port, Tensor]:
        """The outputs, by port."""
        program = self.program
        for port, value in program.inputs.items():
            self.found[value] = inputs[port].reshape(self.shape(value.type))
            if value.type.dtype == "float":
                self.like = inputs[port].new_zeros(())
        self.lines(program.before)
        self.loop()
        self.lines(program.after)
        return {port: self.found[value] for port, value in program.outputs.items()}

    def shape(self, of_type: Type) -> tuple[int, ...]:
        """The extents of a type's axes."""
        return tuple(self.sizes[axis] for axis in of_type.axes)

    def lines(self, lines: Iterable[Line]) -> None:
        """Line after line."""
        for line in lines:
            self.found[line.result] = self.result(line.operation, line.result.type)

    def loop(self) -> None:
        """All steps, and the loop's results."""
        loop, found = self.program.loop, self.found
        steps = self.sizes[loop.axis]
        written: list[list[Tensor]] = [[] for _ in loop.writes]
        for carry in loop.carries:
            found[carry.before] = found[carry.initial]
        for t in reversed(range(steps)) if loop.reverse else range(steps):
            for read in loop.reads:
                found[read.at] = found[read.sequence].select(read.sequence.type.axes.index(loop.axis), t)
            self.lines(loop.body)
            active = None if loop.lengths is None else found[loop.lengths] > t
            for write, values in zip(loop.writes, written, strict=True):
                value = found[write.value]
                values.append(self.chosen(active, value, torch.zeros_like(value), write.value.type))
            following = [
                self.chosen(active, found[carry.next], found[carry.before], carry.next.type) for carry in loop.carries
            ]
            for carry, value in zip(loop.carries, following, strict=True):
                found[carry.before] = value
        for carry in loop.carries:
            found[carry.final] = found[carry.before]
        for write, values in zip(loop.writes, written, strict=True):
            axis, kind = write.sequence.type.axes.index(loop.axis), write.sequence.type.dtype
            empty = self.like.new_zeros(self.shape(write.sequence.type), dtype=torch.bool if kind == "bool" else None)
            found[write.sequence] = torch.stack(values[::-1] if loop.reverse else values, axis) if values else empty

    def chosen(self, active: Tensor | None, yes: Tensor, no: Tensor, of_type: Type) -> Tensor:
        """One of two values for each row, by whether it takes part in the step."""
        if active is None:
            return yes
        lengths = self.program.loop.lengths
        assert lengths is not None
        return torch.where(_aligned(active, lengths.type.axes, of_type.axes), yes, no)

    def result(self, operation: Operation, of_type: Type) -> Tensor:
        """The value of one operation."""
        found = self.found
        match operation:
            case Elementwise(op, args):
                values = [
                    _aligned(found[v], v.type.axes, of_type.axes) if isinstance(v, Value) else float(v) for v in args
                ]
                return torch.broadcast_to(computed(op, tuple(values), self.like.dtype), self.shape(of_type))
            case Contract(a, b, _):
                return _contracted(self.axes, found[a], a.type.axes, found[b], b.type.axes, of_type.axes)
            case Sum(x, over):
                return found[x].sum([x.type.axes.index(axis) for axis in over])
            case Constant(number):
                return self.like.new_tensor(number)
            case Size(axis):
                return self.like.new_tensor(self.sizes[axis])
            case Block(x, axis, index):
                return found[x].select(x.type.axes.index(axis), index)
            case Take(x, axis, indices, _):
                places = torch.tensor(indices, dtype=torch.long, device=found[x].device)
                return found[x].index_select(x.type.axes.index(axis), places)
            case Stack(parts, axis):
                return torch.stack([found[v] for v in parts], of_type.axes.index(axis))
            case Reshape(x, _):
                return found[x].reshape(self.shape(of_type))
            case Broadcast(x, _):
                return torch.broadcast_to(_aligned(found[x], x.type.axes, of_type.axes), self.shape(of_type))
            case Shift():
                return self.shifted(operation)
        raise AssertionError(f"unknown operation {operation}")

    def shifted(self, shift: Shift) -> Tensor:
        """A sequence one step later."""
        axis, steps = shift.x.type.axes.index(shift.axis), self.sizes[shift.axis]
        x, first = self.found[shift.x], self.found[shift.first].unsqueeze(axis)
        if not steps:
            return x
        if not shift.reverse:
            return torch.cat([first, x.narrow(axis, 0, steps - 1)], axis)
        moved = torch.cat([x.narrow(axis, 1, steps - 1), first], axis)
        if shift.lengths is None:
            return moved
        rows = shift.lengths.type.axes
        last = torch.arange(steps, device=x.device)[:, None] + 1 >= self.found[shift.lengths]
        return torch.where(_aligned(last, (shift.axis, *rows), shift.x.type.axes), first, moved)


def _base(axes: Axes, sizes: Mapping[str, int]) -> dict[str, int]:
    """The extents of the base axes: given directly, or as an axis with one base axis among its factors."""
    base: dict[str, int] = {}
    for name, extent in sizes.items():
        if name in axes:
            factors = axes.factors(name)
            (unknown,) = (f for f in factors if isinstance(f, str))
            base[unknown] = extent // prod(f for f in factors if isinstance(f, int))
    return base


def _aligned(x: Tensor, axes: tuple[str, ...], to: tuple[str, ...]) -> Tensor:
    """A tensor with extent 1 along the axes that it lacks."""
    for k, axis in enumerate(to):
        if axis not in axes:
            x = x.unsqueeze(k)
    return x


def _contracted(
    axes: Axes, a: Tensor, a_axes: tuple[str, ...], b: Tensor, b_axes: tuple[str, ...], to: tuple[str, ...]
) -> Tensor:
    letter = dict(zip(axes, ascii_letters, strict=False))
    a_in, b_in, out = ("".join(letter[axis] for axis in names) for names in (a_axes, b_axes, to))
    return torch.einsum(f"{a_in},{b_in}->{out}", a, b)
