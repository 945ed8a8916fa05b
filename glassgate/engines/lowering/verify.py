"""Checks a pass: every value is defined once and before it is read, and all types match."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from glassgate.engines.lowering import printer
from glassgate.engines.lowering.infer import Invalid, check_lengths, result_type
from glassgate.engines.lowering.ir import Carry, Line, Pass, Read, Type, Value, Write, operands


class InvalidPass(ValueError):
    """An invalid pass. The message has the part, the number of the operation, the line and the reason."""


def verify(program: Pass) -> Pass:
    """Check a pass and return it.

    Raises:
        InvalidPass: the pass is not valid; the message has the location.
    """
    _Verifier(program).run()
    return program


class _Verifier:
    def __init__(self, program: Pass) -> None:
        self.program, self.axes, self.loop = program, program.axes, program.loop
        self.defined: set[Value] = set()
        self.inside: set[Value] = set()
        """The values that the loop defines; empty until the loop has been checked."""
        self.names: set[str] = set()

    def run(self) -> None:
        """Check all parts in the order in which they run."""
        program, loop = self.program, self.loop
        with self._at("axes"):
            self._axes()
        for number, (port, value) in enumerate(program.inputs.items()):
            with self._at("inputs", number, f"{value.name} {value.type}: {port}"):
                self._define(value)
        self._lines("before", program.before)
        outside = set(self.defined)
        with self._at("loop"):
            self._loop()
        for number, carry in enumerate(loop.carries):
            with self._at("loop, carries", number, printer.of_carry(carry)):
                self._carry(carry)
        for number, read in enumerate(loop.reads):
            with self._at("loop, reads", number, printer.of_read(read, loop.axis)):
                self._read(read)
        self._lines("loop, body", loop.body)
        for number, carry in enumerate(loop.carries):
            with self._at("loop, carries", number, printer.of_carry(carry)):
                self._require_defined(carry.next)
        for number, write in enumerate(loop.writes):
            with self._at("loop, writes", number, printer.of_write(write, loop.axis)):
                self._write(write)
        self.inside, self.defined = self.defined - outside, outside
        for number, value in enumerate([*(c.final for c in loop.carries), *(w.sequence for w in loop.writes)]):
            with self._at("loop, results", number, f"{value.name} {value.type}"):
                self._define(value)
        self._lines("after", program.after)
        for number, (port, value) in enumerate(program.outputs.items()):
            with self._at("outputs", number, f"{port}: {value.name}"):
                self._require_defined(value)

    @contextmanager
    def _at(self, part: str, number: int | None = None, text: str = "") -> Iterator[None]:
        """Add the location to the message of an error."""
        try:
            yield
        except Invalid as error:
            where = part if number is None else f"{part}, operation {number}, `{text}`"
            raise InvalidPass(f"{self.program.title}: {where}: {error}") from None

    def _axes(self) -> None:
        for name, axis in self.axes.items():
            unknown = [part for part in axis.of if isinstance(part, str) and part not in self.axes]
            if name != axis.name or unknown or name in axis.of:
                raise Invalid(f"{axis} must be declared under its own name, and be made of other declared axes")
            if axis.labels and self.axes.number(name) != len(axis.labels):
                raise Invalid(f"{axis} must have one label for each index")

    def _loop(self) -> None:
        axis, lengths = self.loop.axis, self.loop.lengths
        if axis not in self.axes:
            raise Invalid(f"axis {axis} is not declared")
        if lengths is not None:
            self._require_defined(lengths)
            for value in (*(carry.before for carry in self.loop.carries), *(write.value for write in self.loop.writes)):
                check_lengths(lengths, value)

    def _lines(self, part: str, lines: Iterable[Line]) -> None:
        for number, line in enumerate(lines):
            with self._at(part, number, printer.of_line(line)):
                for value in operands(line.operation):
                    self._require_defined(value)
                self._require_type(line.result, result_type(line.operation, self.axes))
                self._define(line.result)

    def _define(self, value: Value) -> None:
        if value in self.defined or value in self.inside:
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
        if value in self.inside:
            raise Invalid(f"{value.name} is defined inside the loop only")
        if value not in self.defined:
            raise Invalid(f"{value.name} is read before it is defined")

    def _require_type(self, value: Value, expected: Type) -> None:
        if value.type != expected:
            raise Invalid(f"{value.name} must have the type {expected}, got {value.type}")

    def _carry(self, carry: Carry) -> None:
        self._require_defined(carry.initial)
        for value in (carry.before, carry.next, carry.final):
            self._require_type(value, carry.initial.type)
        if self.loop.axis in carry.initial.type.axes:
            raise Invalid(
                f"a carry must not have the axis of the loop, and {carry.initial.name} is {carry.initial.type}"
            )
        self._define(carry.before)

    def _read(self, read: Read) -> None:
        self._require_defined(read.sequence)
        self._require_type(read.sequence, self._sequence_type(read.at.type))
        self._define(read.at)

    def _write(self, write: Write) -> None:
        self._require_defined(write.value)
        self._require_type(write.sequence, self._sequence_type(write.value.type))

    def _sequence_type(self, step_type: Type) -> Type:
        if self.loop.axis in step_type.axes:
            raise Invalid(f"a value inside the loop must not have the axis of the loop, got {step_type}")
        return Type(self.axes.sorted({*step_type.axes, self.loop.axis}), step_type.dtype)
