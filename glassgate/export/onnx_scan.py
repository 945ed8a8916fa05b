"""Emits the lowered forward pass of any cell as ONNX nodes. Its loop becomes the operator Scan."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from glassgate.engines.lowering.ir import (
    Block,
    Broadcast,
    Constant,
    Contract,
    Elementwise,
    Line,
    Loop,
    Operation,
    Pass,
    Port,
    Reshape,
    Size,
    Stack,
    Sum,
    Take,
    Type,
    Value,
)
from glassgate.export.onnx_elementwise import elementwise, number
from glassgate.export.onnx_ops import Operators

_DYNAMIC = ("T", "N")
"""Axes with a dynamic extent: steps and sequences. They are the first axes of every value."""


class PassEmitter:
    """Emits a lowered pass as nodes.

    Args:
        op: collects the nodes.
        program: the pass.
        sizes: the extents of the base axes, except steps and sequences.
        dtype: the dtype of floating-point values.
        is_single_step: whether there is only one step, which needs no loop.
    """

    def __init__(
        self, op: Operators, program: Pass, sizes: Mapping[str, int], dtype: ir.DataType, is_single_step: bool = False
    ) -> None:
        self.is_single_step = is_single_step
        self.outer = self.op = op
        self.program, self.sizes, self.dtype = program, sizes, dtype
        self.emitted: dict[Value, ir.Value] = {}
        self.in_loop: set[Value] = set()
        self.extent: dict[str, ir.Value] = {}

    def run(self, inputs: Mapping[Port, ir.Value]) -> dict[Port, ir.Value]:
        """Emit the pass, and return its outputs. Each input must have the axes of its value in the pass."""
        program = self.program
        for port, value in program.inputs.items():
            self.emitted[value] = inputs[port]
            for k, axis in enumerate(value.type.axes):
                if axis in _DYNAMIC and axis not in self.extent:
                    self.extent[axis] = self.op("Shape", inputs[port], start=k, end=k + 1)
        self.emit_lines(program.before)
        (self.emit_single_step if self.is_single_step else self.emit_loop)(program.loop)
        self.emit_lines(program.after)
        return {port: self.emitted[value] for port, value in program.outputs.items()}

    def emit_lines(self, lines: Iterable[Line]) -> None:
        """Emit lines in order."""
        for line in lines:
            self.emitted[line.result] = self.emit_operation(line.operation, line.result.type, line.result.name)

    def emit_single_step(self, loop: Loop) -> None:
        """Emit the body of a loop that has one step, without a loop."""
        for carry in loop.carries:
            self.emitted[carry.before] = self.emitted[carry.initial]
        for read in loop.reads:
            axis = read.sequence.type.axes.index(loop.axis)
            self.emitted[read.at] = self.op.squeeze(self.emitted[read.sequence], axis)
        self.emit_lines(loop.body)
        for carry in loop.carries:
            self.emitted[carry.final] = self.emitted[carry.next]
        for write in loop.writes:
            axis = write.sequence.type.axes.index(loop.axis)
            self.emitted[write.sequence] = self.op.unsqueeze(self.emitted[write.value], axis)

    def emit_loop(self, loop: Loop) -> None:
        """Emit the loop as a Scan. Its inputs are the initial states, the sequences and, with lengths, a mask."""
        emitted, carries = self.emitted, loop.carries
        sequences = [read.sequence for read in loop.reads]
        elements = [read.at for read in loop.reads]
        body = Operators(f"{self.outer.scope}step.")
        for value in (*(carry.before for carry in carries), *elements):
            shape = [self.size(axis) for axis in value.type.axes]
            emitted[value] = body.input(value.name, self.element_type(value.type), shape)
        inputs = [emitted[value] for value in (*(carry.before for carry in carries), *elements)]
        scanned = [emitted[value] for value in sequences]
        active: ir.Value | None = None
        if loop.lengths is not None:
            scanned.append(self.op.is_active(self.extent[loop.axis], emitted[loop.lengths]))
            active = body.input("active", ir.DataType.BOOL, [self.size("N")])
            inputs.append(active)
        self.op, self.in_loop = body, {*(carry.before for carry in carries), *elements}
        for line in loop.body:
            self.in_loop.add(line.result)
        self.emit_lines(loop.body)
        chosen = [self.where_active(active, carry.next, emitted[carry.before]) for carry in carries]
        chosen += [self.where_active(active, write.value, self.number(0.0)) for write in loop.writes]
        self.op = self.outer
        types = [*(carry.next.type for carry in carries), *(write.value.type for write in loop.writes)]
        results = [
            (value, self.element_type(each), [self.size(axis) for axis in each.axes])
            for value, each in zip(chosen, types, strict=True)
        ]
        initial = [emitted[carry.initial] for carry in carries]
        outputs = self.op.scan(body, inputs, results, initial, scanned, loop.reverse)
        result_values = [*(carry.final for carry in carries), *(write.sequence for write in loop.writes)]
        emitted.update(zip(result_values, outputs, strict=True))

    def where_active(self, active: ir.Value | None, value: Value, otherwise: ir.Value) -> ir.Value:
        """The value for sequences that have this step, and `otherwise` for shorter sequences."""
        if active is None:
            return self.emitted[value]
        return self.op("Where", self.align(active, ("N",), value.type.axes), self.emitted[value], otherwise)

    def emit_operation(self, operation: Operation, of_type: Type, name: str) -> ir.Value:
        """Emit the nodes of one operation."""
        op, emitted = self.op, self.emitted
        match operation:
            case Elementwise(kind, args):
                values = [self.argument(arg, of_type) for arg in args]
                return elementwise(op, kind, values, self.dtype, name)
            case Contract(a, b, over):
                return self.matrix_product(a, b, over, of_type, name)
            case Sum(x, over):
                axes = [x.type.axes.index(axis) for axis in over]
                return op("ReduceSum", emitted[x], op.constant(axes), keepdims=0, name=name)
            case Constant(number):
                return self.number(number, name)
            case Size(axis):
                return self.number(float(self.size(axis)), name)
            case Block(x, axis, index):
                return op("Gather", emitted[x], op.constant(np.int64(index)), axis=x.type.axes.index(axis), name=name)
            case Take(x, axis, indices, _):
                return op("Gather", emitted[x], op.constant(list(indices)), axis=x.type.axes.index(axis), name=name)
            case Stack(parts, axis):
                k = of_type.axes.index(axis)
                return op("Concat", *(op.unsqueeze(emitted[part], k) for part in parts), axis=k, name=name)
            case Reshape(x, _):
                return self.reshape(emitted[x], of_type.axes, name)
            case Broadcast(x, _):
                shape = [self.extent.get(axis) or op.constant([self.size(axis)]) for axis in of_type.axes]
                return op("Expand", self.align(emitted[x], x.type.axes, of_type.axes), op.concat(shape, 0), name=name)
        raise AssertionError(f"a forward pass has no {type(operation).__name__}")

    def argument(self, arg: Value | float, of_type: Type) -> ir.Value:
        """Align an argument of an elementwise operation with its result, which has the type `of_type`."""
        if isinstance(arg, Value):
            return self.align(self.emitted[arg], arg.type.axes, of_type.axes)
        return self.number(arg)

    def matrix_product(self, a: Value, b: Value, over: tuple[str, ...], of_type: Type, name: str) -> ir.Value:
        """Emit the matrix product of `a` and `b`. Shared axes that are not contracted are batch axes."""
        shared = [axis for axis in a.type.axes if axis in b.type.axes and axis not in over]
        rows = [axis for axis in a.type.axes if axis not in (*shared, *over)]
        columns = [axis for axis in b.type.axes if axis not in (*shared, *over)]
        width, height = (math.prod(map(self.size, axes)) for axes in (columns, over))
        left = self.transpose(self.op, self.emitted[a], a.type.axes, [*shared, *rows, *over])
        # Weights are transposed once, before the loop.
        op = self.op if b in self.in_loop else self.outer
        right = self.transpose(op, self.emitted[b], b.type.axes, [*shared, *over, *columns])
        right = op("Reshape", right, op.constant([*map(self.size, shared), height, width]))
        result = self.op("MatMul", left, right)
        axes = (*shared, *rows, *columns)
        return self.transpose(self.op, self.reshape(result, axes), axes, of_type.axes, name)

    def transpose(
        self, op: Operators, value: ir.Value, axes: Sequence[str], to: Sequence[str], name: str | None = None
    ) -> ir.Value:
        """The value with its axes in another order."""
        if list(axes) == list(to):
            return value
        return op("Transpose", value, perm=[list(axes).index(axis) for axis in to], name=name)

    def reshape(self, value: ir.Value, axes: Sequence[str], name: str | None = None) -> ir.Value:
        """The same elements with these axes. The ONNX shape 0 keeps a dynamic extent."""
        shape = [0 if axis in _DYNAMIC else self.size(axis) for axis in axes]
        return self.op("Reshape", value, self.op.constant(shape), name=name)

    def align(self, value: ir.Value, axes: tuple[str, ...], to: tuple[str, ...]) -> ir.Value:
        """Insert axes of extent 1, so that the value broadcasts to `to`. Missing leading axes are not inserted."""
        first = min((to.index(axis) for axis in axes), default=len(to))
        missing = [k - first for k, axis in enumerate(to) if k > first and axis not in axes]
        return self.op.unsqueeze(value, *missing) if missing else value

    def number(self, value: float, name: str | None = None) -> ir.Value:
        """Emit a constant with the dtype of the pass."""
        return number(self.op, value, self.dtype, name)

    def size(self, axis: str) -> int | str:
        """The extent of an axis, or its name if the extent is dynamic."""
        return axis if axis in _DYNAMIC else self.program.axes.extent(axis, self.sizes)

    def element_type(self, of_type: Type) -> ir.DataType:
        """The ONNX type of the elements of a value: bool, or the dtype of the pass."""
        return ir.DataType.BOOL if of_type.dtype == "bool" else self.dtype
