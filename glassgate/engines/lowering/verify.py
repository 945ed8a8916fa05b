"""Checks a pass: every value is defined once and before it is read, and every type fits."""

from collections.abc import Iterable

from glassgate.engines.lowering import printer
from glassgate.engines.lowering.infer import Invalid, check_lengths, result_type
from glassgate.engines.lowering.ir import Axes, Carry, Line, Pass, Read, Type, Value, Write, operands


class InvalidPass(ValueError):
    """A pass that has no meaning. The message gives the part, the number of the operation, the line and the reason."""


def verify(program: Pass) -> Pass:
    """The pass itself, if it is valid.

    Raises:
        InvalidPass: it is not; the message gives the location.
    """
    _Verifier(program).run()
    return program


class _Verifier:
    def __init__(self, program: Pass) -> None:
        self.program, self.axes = program, program.axes
        self.defined: set[Value] = set()
        self.names: set[str] = set()
        self.inside: set[Value] = set()

    def run(self) -> None:
        """Every part in the order in which it runs."""
        program, loop = self.program, self.program.loop
        self._axes()
        for number, (port, value) in enumerate(program.inputs.items()):
            self._at("inputs", number, f"{value.name} {value.type}: {port}", lambda v=value: self._define(v))
        self._lines("before", program.before)
        outside = set(self.defined)
        if loop.axis not in self.axes:
            raise InvalidPass(f"loop: axis {loop.axis} is not declared")
        if loop.lengths is not None:
            lengths = loop.lengths
            self._at("loop", None, f"up to {lengths.name}", lambda: self._lengths(lengths))
        for number, carry in enumerate(loop.carries):
            self._at("loop, carries", number, printer.of_carry(carry), lambda c=carry: self._carry_in(c))
        for number, read in enumerate(loop.reads):
            self._at("loop, reads", number, printer.of_read(read, loop.axis), lambda r=read: self._read(r))
        self._lines("loop, body", loop.body)
        for number, carry in enumerate(loop.carries):
            self._at("loop, carries", number, printer.of_carry(carry), lambda c=carry: self._known(c.next))
        results = [carry.final for carry in loop.carries]
        for number, write in enumerate(loop.writes):
            self._at("loop, writes", number, printer.of_write(write, loop.axis), lambda w=write: self._write(w))
            results.append(write.sequence)
        self.inside, self.defined = self.defined - outside, outside
        for number, value in enumerate(results):
            self._at("loop, results", number, f"{value.name} {value.type}", lambda v=value: self._define(v))
        self._lines("after", program.after)
        for number, (port, value) in enumerate(program.outputs.items()):
            self._at("outputs", number, f"{port}: {value.name}", lambda v=value: self._known(v))

    def _axes(self) -> None:
        seen: set[str] = set()
        for name, axis in self.axes.items():
            unknown = [part for part in axis.of if isinstance(part, str) and part not in self.axes]
            if name != axis.name or unknown or name in axis.of:
                raise InvalidPass(f"axes: {axis} must be declared under its name, of declared axes")
            if axis.labels and self.axes.number(name) != len(axis.labels):
                raise InvalidPass(f"axes: {axis} must have one label for each index")
            seen.add(name)

    def _at(self, part: str, number: int | None, text: str, check: object) -> None:
        try:
            check()  # type: ignore[operator]
        except Invalid as error:
            where = part if number is None else f"{part}, operation {number}"
            raise InvalidPass(f"{self.program.title}: {where}, `{text}`: {error}") from None

    def _lines(self, part: str, lines: Iterable[Line]) -> None:
        for number, line in enumerate(lines):
            self._at(part, number, printer.of_line(line), lambda one=line: self._line(one))

    def _line(self, line: Line) -> None:
        for value in operands(line.operation):
            self._known(value)
        self._same(line.result, result_type(line.operation, self.axes))
        self._define(line.result)

    def _define(self, value: Value) -> None:
        if value in self.defined or value in self.inside:
            raise Invalid(f"{value.name} is defined twice")
        if value.name in self.names:
            raise Invalid(f"another value is called {value.name!r}")
        if value.type.axes != self.axes.sorted({*value.type.axes}) or value.type.dtype not in ("float", "bool", "int"):
            raise Invalid(f"{value.name} must have declared axes in the order of the pass, got {value.type}")
        self.defined.add(value)
        self.names.add(value.name)

    def _known(self, value: Value) -> None:
        if value in self.inside:
            raise Invalid(f"{value.name} is defined inside the loop only")
        if value not in self.defined:
            raise Invalid(f"{value.name} is read before it is defined")

    def _same(self, value: Value, expected: Type) -> None:
        if value.type != expected:
            raise Invalid(f"{value.name} must have the type {expected}, got {value.type}")

    def _lengths(self, lengths: Value) -> None:
        self._known(lengths)
        for carry in self.program.loop.carries:
            check_lengths(lengths, carry.before)
        for write in self.program.loop.writes:
            check_lengths(lengths, write.value)

    def _carry_in(self, carry: Carry) -> None:
        self._known(carry.initial)
        for value in (carry.before, carry.next, carry.final):
            self._same(value, carry.initial.type)
        if self.program.loop.axis in carry.initial.type.axes:
            raise Invalid(f"a carry is of one step, and {carry.initial.name} is {carry.initial.type}")
        self._define(carry.before)

    def _read(self, read: Read) -> None:
        self._known(read.sequence)
        self._same(read.sequence, self._of_steps(read.at.type))
        self._define(read.at)

    def _write(self, write: Write) -> None:
        self._known(write.value)
        self._same(write.sequence, self._of_steps(write.value.type))

    def _of_steps(self, of_one: Type) -> Type:
        if self.program.loop.axis in of_one.axes:
            raise Invalid(f"a value inside the loop is of one step, got {of_one}")
        return Type(Axes(self.axes).sorted({*of_one.axes, self.program.loop.axis}), of_one.dtype)
