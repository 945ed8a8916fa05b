"""A pass as text for readers: one line for each operation."""

from collections.abc import Iterator

from glassgate.engines.lowering.ir import Axes, Carry, Line, Operation, Pass, Read, Value, Write


def printed(program: Pass) -> str:
    """The listing of a pass."""
    return "\n".join(_lines(program)) + "\n"


def of_line(line: Line) -> str:
    """One line: its result, the result's type and the operation."""
    return f"{line.result.name} {line.result.type} = {of_operation(line.operation)}"


def of_operation(operation: Operation) -> str:
    """An operation and its arguments."""
    fields = operation._asdict()
    name = fields.pop("op", type(operation).__name__.lower())
    args: list[str] = []
    for key, part in fields.items():
        match part:
            case Value():
                args.append(f"{key}={part.name}" if key == "lengths" else part.name)
            case tuple() if key in ("args", "values"):
                args += [v.name if isinstance(v, Value) else str(v) for v in part]
            case tuple():
                args.append(f"{key}=[{', '.join(map(str, part))}]")
            case None | False:
                pass
            case True:
                args.append(key)
            case _:
                args.append(f"{key}={part}" if key != "value" else str(part))
    return f"{name}({', '.join(args)})"


def of_read(read: Read, axis: str) -> str:
    """One read of a loop."""
    return f"{read.at.name} {read.at.type} = {read.sequence.name} at {axis}"


def of_carry(carry: Carry) -> str:
    """One carry of a loop."""
    return (
        f"carry {carry.before.name} {carry.before.type}: starts as {carry.initial.name}, then {carry.next.name}; "
        f"ends as {carry.final.name}"
    )


def of_write(write: Write, axis: str) -> str:
    """One write of a loop."""
    return f"{write.sequence.name} {write.sequence.type} at {axis} = {write.value.name}"


def _lines(program: Pass) -> Iterator[str]:
    yield program.title
    yield f"  axes {', '.join(_axes(program.axes))}"
    for port, value in program.inputs.items():
        yield f"  {value.name} {value.type}: {port}"
    if program.before:
        yield "before the loop"
        yield from (f"  {of_line(line)}" for line in program.before)
    loop = program.loop
    how = "from the last to the first" if loop.reverse else "from the first to the last"
    yield f"for each step of {loop.axis}, {how}{f', up to {loop.lengths.name}' if loop.lengths else ''}"
    yield from (f"  {of_carry(carry)}" for carry in loop.carries)
    yield from (f"  {of_read(read, loop.axis)}" for read in loop.reads)
    yield from (f"  {of_line(line)}" for line in loop.body)
    yield from (f"  {of_write(write, loop.axis)}" for write in loop.writes)
    yield "after the loop"
    yield from (f"  {of_line(line)}" for line in program.after)
    for port, value in program.outputs.items():
        yield f"  {port}: {value.name} {value.type}"


def _axes(axes: Axes) -> Iterator[str]:
    for axis in axes.values():
        extent = f" = {' * '.join(map(str, axis.of))}" if axis.of else ""
        labels = f" ({' '.join(axis.labels)})" if axis.labels else ""
        yield f"{axis.name}{extent}{labels}"
