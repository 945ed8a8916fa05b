"""Builds a pass line by line: infers types, makes names unique, merges equal lines, hoists loop invariants."""

from collections.abc import Iterable, Mapping

from glassgate.engines.axes import Axis
from glassgate.engines.lowering.infer import result_type
from glassgate.engines.lowering.ir import (
    Axes,
    Block,
    Broadcast,
    Carry,
    Constant,
    Contract,
    Elementwise,
    Line,
    Loop,
    Operation,
    Pass,
    Port,
    Read,
    Reshape,
    Role,
    Shift,
    Size,
    Stack,
    Sum,
    Take,
    Type,
    Value,
    Write,
    operands,
)
from glassgate.engines.lowering.printer import format_operation
from glassgate.engines.lowering.verify import verify

STEPS = "T"
"""The axis of the loop."""


class Builder:
    """Builds a pass in order: inputs and lines before the loop, then the loop, then lines after it.

    Args:
        title: the title of the pass.
        axes: all axes, among them T, the axis of the loop. Each value has its axes in this order.
        reverse: whether the loop runs from the last step to the first.

    Example:
        >>> from glassgate.engines.axes import Axis
        >>> from glassgate.engines.lowering.ir import Port, Role
        >>> b = Builder("a running sum", [Axis("T"), Axis("N"), Axis("H")])
        >>> x = b.input(Port(Role.DATA), ("T", "N", "H"))
        >>> total = b.carry("total", b.broadcast(b.constant(0.0), ("N", "H")))
        >>> final = b.end_loop({total: b.elementwise("add", total, b.read(x))})
        >>> program = b.finish({Port(Role.FINAL, "total"): final[total]})
    """

    def __init__(self, title: str, axes: Iterable[Axis], reverse: bool = False) -> None:
        self.title, self.axes = title, Axes({axis.name: axis for axis in axes})
        self.reverse = reverse
        self.inputs: dict[Port, Value] = {}
        self.lengths: Value | None = None
        self._names: set[str] = set()
        self._by_text: dict[str, Value] = {}
        self._before: list[Line] = []
        self._body: list[Line] = []
        self._after: list[Line] = []
        self._loop_values: set[Value] = set()
        """The values that change from step to step."""
        self._reads: dict[Value, Read] = {}
        self._carries: list[tuple[Value, Value]] = []
        self._writes: list[Write] = []
        self._loop: Loop | None = None

    def new_value(self, name: str, axes: Iterable[str], dtype: str = "float") -> Value:
        """Create a value. If its name is taken, append a number."""
        unique, number = name, 1
        while unique in self._names:
            number += 1
            unique = f"{name}_{number}"
        self._names.add(unique)
        return Value(Type(self.axes.sorted({*axes}), dtype), unique)

    def input(self, port: Port, axes: Iterable[str], dtype: str = "float", name: str = "") -> Value:
        """Add an input. Its elements are in row-major order along these axes.

        Raises:
            ValueError: the axes are not in the order of the pass.
        """
        axes = tuple(axes)
        if axes != self.axes.sorted({*axes}):
            raise ValueError(f"{port}: axes must be declared and in the order {list(self.axes)}, got {list(axes)}")
        self.inputs[port] = self.new_value(name or port.label or port.role.value, axes, dtype)
        if port.role is Role.LENGTHS:
            self.lengths = self.inputs[port]
        return self.inputs[port]

    def carry(self, name: str, initial: Value) -> Value:
        """Add a carry, a value that is passed from step to step. Return its value before the current step.

        `end_loop` sets its value for the next step.

        Args:
            name: the name of the value before the current step.
            initial: the value before the first step.
        """
        before = self.new_value(name, initial.type.axes, initial.type.dtype)
        self._carries.append((initial, before))
        self._loop_values.add(before)
        return before

    def read(self, sequence: Value) -> Value:
        """Read the element of a sequence at the current step."""
        if sequence not in self._reads:
            axes = [axis for axis in sequence.type.axes if axis != STEPS]
            at = self.new_value(f"{sequence.name.removesuffix('_all')}_t", axes, sequence.type.dtype)
            self._reads[sequence] = Read(sequence, at)
            self._loop_values.add(at)
        return self._reads[sequence].at

    def write(self, value: Value, name: str = "", port: Port | None = None) -> Value:
        """Write a value at every step. Return the sequence of its values, for lines after the loop."""
        sequence = self.new_value(f"{name or value.name}_all", (*value.type.axes, STEPS), value.type.dtype)
        self._writes.append(Write(value, sequence, port))
        return sequence

    def end_loop(self, next_values: Mapping[Value, Value]) -> dict[Value, Value]:
        """End the body of the loop.

        Args:
            next_values: for each carry, its value for the next step.

        Returns:
            For each carry, its value after the last step.
        """
        finals = {
            before: self.new_value(f"{next_values[before].name}_n", before.type.axes, before.type.dtype)
            for _, before in self._carries
        }
        carries = tuple(Carry(initial, b, next_values[b], finals[b]) for initial, b in self._carries)
        self._by_text = {text: value for text, value in self._by_text.items() if value not in self._loop_values}
        reads, body = tuple(self._reads.values()), tuple(self._body)
        self._loop = Loop(STEPS, self.reverse, self.lengths, reads, carries, body, tuple(self._writes))
        return finals

    def finish(self, outputs: Mapping[Port, Value]) -> Pass:
        """Verify the pass and return it."""
        assert self._loop is not None, "end_loop comes before finish"
        before, after = tuple(self._before), tuple(self._after)
        return verify(Pass(self.title, self.axes, self.inputs, before, self._loop, after, dict(outputs)))

    def emit(self, operation: Operation, name: str = "") -> Value:
        """Add a line and return its result. If an equal line exists, return the result of that line.

        Before `end_loop`, a line is added to the loop's body if it reads a value of the loop, and otherwise before the
        loop. After `end_loop`, lines are added after the loop.
        """
        text = format_operation(operation)
        if text in self._by_text:
            return self._by_text[text]
        type_of_result = result_type(operation, self.axes)
        result = self.new_value(name or f"v{len(self._names)}", type_of_result.axes, type_of_result.dtype)
        lines = self._after
        if self._loop is None:
            is_in_loop = any(value in self._loop_values for value in operands(operation))
            lines = self._body if is_in_loop else self._before
            if is_in_loop:
                self._loop_values.add(result)
        lines.append(Line(result, operation))
        self._by_text[text] = result
        return result

    def elementwise(self, op: str, *args: Value | float, name: str = "") -> Value:
        """`Elementwise`."""
        return self.emit(Elementwise(op, args), name)

    def contract(self, a: Value, b: Value, over: Iterable[str], name: str = "") -> Value:
        """`Contract`."""
        return self.emit(Contract(a, b, tuple(over)), name)

    def sum(self, x: Value, over: Iterable[str], name: str = "") -> Value:
        """`Sum` over the given axes that x has; returns x if it has none of them."""
        over = tuple(axis for axis in over if axis in x.type.axes)
        return self.emit(Sum(x, over), name) if over else x

    def constant(self, value: float, name: str = "") -> Value:
        """`Constant`."""
        return self.emit(Constant(value), name)

    def size(self, axis: str, name: str = "") -> Value:
        """`Size`."""
        return self.emit(Size(axis), name)

    def block(self, x: Value, axis: str, index: int, name: str = "") -> Value:
        """`Block`."""
        return self.emit(Block(x, axis, index), name)

    def take(self, x: Value, axis: str, indices: Iterable[int], to: str, name: str = "") -> Value:
        """`Take`; returns x if the indices select the whole axis in order."""
        indices = tuple(indices)
        if axis == to and indices == tuple(range(self.axes.constant_extent(axis) or 0)):
            return x
        return self.emit(Take(x, axis, indices, to), name)

    def stack(self, values: Iterable[Value], axis: str, name: str = "") -> Value:
        """`Stack`."""
        return self.emit(Stack(tuple(values), axis), name)

    def reshape(self, x: Value, axes: Iterable[str], name: str = "") -> Value:
        """`Reshape`; returns x if it already has these axes."""
        axes = self.axes.sorted({*axes})
        return x if axes == x.type.axes else self.emit(Reshape(x, axes), name)

    def broadcast(self, x: Value, axes: Iterable[str], name: str = "") -> Value:
        """`Broadcast` along additional axes; returns x if it already has them."""
        axes = self.axes.sorted({*axes, *x.type.axes})
        return x if axes == x.type.axes else self.emit(Broadcast(x, axes), name)

    def shift(self, x: Value, first: Value, reverse: bool, name: str = "") -> Value:
        """`Shift` by one step."""
        return self.emit(Shift(x, first, STEPS, reverse, self.lengths), name)
