"""Formats a pass as text for readers, with one line for each operation."""

from collections.abc import Iterator

from glassgate.engines.lowering.ir import Axes, Carry, Line, Operation, Pass, Read, Value, Write


def format_pass(program: Pass) -> str:
    """Return the text of a pass."""
    return "\n".join(_lines(program)) + "\n"


def format_line(line: Line) -> str:
    """Return the text of a line: its result, the type of the result, and the operation."""
    return f"{line.result.name} {line.result.type} = {format_operation(line.operation)}"


def format_operation(operation: Operation) -> str:
    """Return the text of an operation with its arguments."""
    fields = operation._asdict()
    name = fields.pop("op", type(operation).__name__.lower())
    args: list[str] = []
    for key, field in fields.items():
        match field:
            case Value():
                args.append(f"{key}={field.name}" if key == "lengths" else field.name)
            case tuple() if key in ("args", "values"):
                args += [v.name if isinstance(v, Value) else str(v) for v in field]
            case tuple():
                args.append(f"{key}=[{', '.join(map(str, field))}]")
            case None | False:
                pass
            case True:
                args.append(key)
            case _:
                args.append(f"{key}={field}" if key != "value" else str(field))
    return f"{name}({', '.join(args)})"


def format_read(read: Read, axis: str) -> str:
    """Return the text of a `Read`, for example "x_t [N, D] = x at T"."""
    return f"{read.at.name} {read.at.type} = {read.sequence.name} at {axis}"


def format_carry(carry: Carry) -> str:
    """Return the text of a `Carry`."""
    return (
        f"carry {carry.before.name} {carry.before.type}: starts as {carry.initial.name}, then {carry.next.name}; "
        f"ends as {carry.final.name}"
    )


def format_write(write: Write, axis: str) -> str:
    """Return the text of a `Write`."""
    return f"{write.sequence.name} {write.sequence.type} at {axis} = {write.value.name}"


def _lines(program: Pass) -> Iterator[str]:
    yield program.title
    yield f"  axes {', '.join(_format_axes(program.axes))}"
    for port, value in program.inputs.items():
        yield f"  {value.name} {value.type}: {port}"
    if program.before:
        yield "before the loop"
        yield from (f"  {format_line(line)}" for line in program.before)
    loop = program.loop
    order = "from the last to the first" if loop.reverse else "from the first to the last"
    yield f"for each step of {loop.axis}, {order}{f', up to {loop.lengths.name}' if loop.lengths else ''}"
    yield from (f"  {format_carry(carry)}" for carry in loop.carries)
    yield from (f"  {format_read(read, loop.axis)}" for read in loop.reads)
    yield from (f"  {format_line(line)}" for line in loop.body)
    yield from (f"  {format_write(write, loop.axis)}" for write in loop.writes)
    yield "after the loop"
    yield from (f"  {format_line(line)}" for line in program.after)
    for port, value in program.outputs.items():
        yield f"  {port}: {value.name} {value.type}"


def _format_axes(axes: Axes) -> Iterator[str]:
    for axis in axes.values():
        extent = f" = {' * '.join(map(str, axis.factors))}" if axis.factors else ""
        labels = f" ({' '.join(axis.labels)})" if axis.labels else ""
        yield f"{axis.name}{extent}{labels}"
