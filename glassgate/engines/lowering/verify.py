"""Checks that each value of a pass is defined exactly once, before it is read, and that all types match."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from glassgate.engines.lowering import printer
from glassgate.engines.lowering.infer import Invalid, check_lengths, result_type
from glassgate.engines.lowering.ir import Carry, Line, Pass, Read, Type, Value, Write, operands


class InvalidPass(ValueError):
    """A pass is invalid. The message states the location, the text of the operation and the reason."""


def verify(program: Pass) -> Pass:
    """Check a pass and return it.

    Raises:
        InvalidPass: the pass is invalid.
    """
    _Verifier(program).run()
    return program


class _Verifier:
    def __init__(self, program: Pass) -> None:
        self.program, self.axes, self.loop = program, program.axes, program.loop
        self.defined: set[Value] = set()
        self.loop_values: set[Value] = set()
        """The values that the loop defines; empty until the loop has been checked."""
        self.names: set[str] = set()

    def run(self) -> None:
        """Check all parts in the order in which they run."""
        program, loop = self.program, self.loop
        with self._add_location("axes"):
            self._check_axes()
        for number, (port, value) in enumerate(program.inputs.items()):
            with self._add_location("inputs", number, f"{value.name} {value.type}: {port}"):
                self._define(value)
        self._check_lines("before", program.before)
        defined_before_loop = set(self.defined)
        with self._add_location("loop"):
            self._check_loop()
        for number, carry in enumerate(loop.carries):
            with self._add_location("loop, carries", number, printer.format_carry(carry)):
                self._check_carry(carry)
        for number, read in enumerate(loop.reads):
            with self._add_location("loop, reads", number, printer.format_read(read, loop.axis)):
                self._check_read(read)
        self._check_lines("loop, body", loop.body)
        for number, carry in enumerate(loop.carries):
            with self._add_location("loop, carries", number, printer.format_carry(carry)):
                self._require_defined(carry.next)
        for number, write in enumerate(loop.writes):
            with self._add_location("loop, writes", number, printer.format_write(write, loop.axis)):
                self._check_write(write)
        self.loop_values, self.defined = self.defined - defined_before_loop, defined_before_loop
        for number, value in enumerate([*(c.final for c in loop.carries), *(w.sequence for w in loop.writes)]):
            with self._add_location("loop, results", number, f"{value.name} {value.type}"):
                self._define(value)
        self._check_lines("after", program.after)
        for number, (port, value) in enumerate(program.outputs.items()):
            with self._add_location("outputs", number, f"{port}: {value.name}"):
                self._require_defined(value)

    @contextmanager
    def _add_location(self, part: str, number: int | None = None, text: str = "") -> Iterator[None]:
        """Add the location to the message of an error."""
        try:
            yield
        except Invalid as error:
            location = part if number is None else f"{part}, operation {number}, `{text}`"
            raise InvalidPass(f"{self.program.title}: {location}: {error}") from None

    def _check_axes(self) -> None:
        for name, axis in self.axes.items():
            unknown = [each for each in axis.factors if isinstance(each, str) and each not in self.axes]
            if name != axis.name or unknown or name in axis.factors:
                raise Invalid(f"{axis} must be declared under its own name, and be made of other declared axes")
            if axis.labels and self.axes.constant_extent(name) != len(axis.labels):
                raise Invalid(f"{axis} must have one label for each index")

    def _check_loop(self) -> None:
        axis, lengths = self.loop.axis, self.loop.lengths
        if axis not in self.axes:
            raise Invalid(f"axis {axis} is not declared")
        if lengths is not None:
            self._require_defined(lengths)
            for value in (*(carry.before for carry in self.loop.carries), *(write.value for write in self.loop.writes)):
                check_lengths(lengths, value)

    def _check_lines(self, part: str, lines: Iterable[Line]) -> None:
        for number, line in enumerate(lines):
            with self._add_location(part, number, printer.format_line(line)):
                for value in operands(line.operation):
                    self._require_defined(value)
                self._require_type(line.result, result_type(line.operation, self.axes))
                self._define(line.result)

    def _define(self, value: Value) -> None:
        if value in self.defined or value in self.loop_values:
            raise Invalid(f"{value.name} is defined twice")
        if value.name in self.names:
            raise Invalid(f"another value is called {value.name!r}")
        if value.type.axes != self.axes.sorted({*value.type.axes}) or value.type.dtype not in ("float", "bool", "int"):
            raise Invalid(
                f"{value.name} must have declared axes in the order of the pass and the dtype float, bool or int, "
                f"got {value.type}"
            )
        self.defined.add(value)
        self.names.add(value.name)

    def _require_defined(self, value: Value) -> None:
        if value in self.loop_values:
            raise Invalid(f"{value.name} is defined inside the loop only")
        if value not in self.defined:
            raise Invalid(f"{value.name} is read before it is defined")

    def _require_type(self, value: Value, expected: Type) -> None:
        if value.type != expected:
            raise Invalid(f"{value.name} must have the type {expected}, got {value.type}")

    def _check_carry(self, carry: Carry) -> None:
        self._require_defined(carry.initial)
        for value in (carry.before, carry.next, carry.final):
            self._require_type(value, carry.initial.type)
        if self.loop.axis in carry.initial.type.axes:
            raise Invalid(
                f"a carry must not have the axis of the loop, and {carry.initial.name} is {carry.initial.type}"
            )
        self._define(carry.before)

    def _check_read(self, read: Read) -> None:
        self._require_defined(read.sequence)
        self._require_type(read.sequence, self._sequence_type(read.at.type))
        self._define(read.at)

    def _check_write(self, write: Write) -> None:
        self._require_defined(write.value)
        self._require_type(write.sequence, self._sequence_type(write.value.type))

    def _sequence_type(self, step_type: Type) -> Type:
        if self.loop.axis in step_type.axes:
            raise Invalid(f"a value inside the loop must not have the axis of the loop, got {step_type}")
        return Type(self.axes.sorted({*step_type.axes, self.loop.axis}), step_type.dtype)
