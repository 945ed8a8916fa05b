"""The lowered forward pass of a direction in eval mode, with only the operations that the exported outputs need."""

from collections.abc import Collection
from dataclasses import replace

from glassgate.engines.lowering.forward import Form, forward_pass
from glassgate.engines.lowering.ir import Line, Pass, Port, Role, Value, operands
from glassgate.engines.symbolic.costs import Costs
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.trace import build_trace

_COSTS = Costs(operations={}, other=1, read=1, carry=1, keep=1)
"""Costs decide which values a training pass saves. They have no effect on an export."""


def lowered_pass(equations: Equations, form: Form, all_states: bool = False, gates: bool = False) -> Pass:
    """The forward pass of one direction.

    Args:
        equations: the equations of one step.
        form: the form of the call.
        all_states: whether to output all states at every step, not only the first state.
        gates: whether to output all gates at every step.
    """
    program = forward_pass(equations, build_trace(equations, _COSTS, record=gates), form)
    ports = [Port(Role.STATES, state) for state in (equations.state if all_states else equations.state[:1])]
    ports += [port for port in program.outputs if gates and port.role is Role.GATE]
    return _with_outputs(program, [*ports, *(Port(Role.FINAL, state) for state in equations.state)])


def _with_outputs(program: Pass, ports: Collection[Port]) -> Pass:
    """The pass with only these outputs and the operations that they need."""
    outputs = {port: program.outputs[port] for port in ports}
    loop = program.loop
    used = {*outputs.values(), *(carry.next for carry in loop.carries), *(carry.initial for carry in loop.carries)}
    used |= {loop.lengths} if loop.lengths else set()
    writes = tuple(write for write in loop.writes if write.sequence in used)
    used |= {write.value for write in writes}
    body = _live(loop.body, used)
    reads = tuple(read for read in loop.reads if read.at in used)
    used |= {read.sequence for read in reads}
    loop = loop._replace(reads=reads, body=body, writes=writes)
    return replace(program, before=_live(program.before, used), loop=loop, outputs=outputs)


def _live(lines: tuple[Line, ...], used: set[Value]) -> tuple[Line, ...]:
    """The lines that compute values in `used`. Adds the values that these lines read to `used`."""
    live = []
    for line in reversed(lines):
        if line.result in used:
            used.update(operands(line.operation))
            live.append(line)
    return tuple(reversed(live))


def base_extents(equations: Equations, hidden_size: int, output_size: int, input_size: int) -> dict[str, int]:
    """Return the extents of features (D), units (H) and outputs (P), and of units (U) and outputs (V) per head."""
    sizes = {"D": input_size, "H": hidden_size, "P": output_size}
    if equations.heads > 1:
        sizes |= {"U": hidden_size // equations.heads, "V": output_size // equations.heads}
    return sizes
