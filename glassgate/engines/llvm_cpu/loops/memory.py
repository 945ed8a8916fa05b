"""The memory of the values of a step that are not computed in the step: inputs of a pass, and its results."""

from typing import NamedTuple

from glassgate.engines.llvm_cpu.loops.buffers import (
    Buffers,
    Column,
    Kind,
    bias_buffer,
    noise_buffer,
    weight_buffer,
)
from glassgate.engines.lowering.forward import kept_port
from glassgate.engines.lowering.ir import Block, Elementwise, Pass, Role, Shift, Stack, Value
from glassgate.engines.lowering.step_graph import StepGraph
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import gate_of
from glassgate.engines.symbolic.ops import SavedKind
from glassgate.engines.symbolic.trace import Trace


class StateBefore(NamedTuple):
    """A state before the step: the state of the previous step, or the initial state at the start and after a reset."""

    state: str


class Store(NamedTuple):
    """Writes a value to a column, or adds it to the contents."""

    value: Value
    to: Column
    added: bool = False


class Carry(NamedTuple):
    """Passes the gradient of the state before the step to the previous step.

    In a row with a reset, the previous step receives zero, and the gradient is added to `reset`.

    Attributes:
        value: the gradient.
        to: the gradient for the previous step.
        reset: the gradient of the state after a reset.
        overwritten: the value of `to` before the step.
    """

    value: Value
    to: Column
    reset: Column
    overwritten: Value


_KIND_OF_ROLE = {
    Role.LEFT: Kind.LEFT,
    Role.UNPROJECTED: Kind.UNPROJECTED,
    Role.D_PROJECTED: Kind.D_PROJECTED,
    Role.GATE: Kind.GATE,
    Role.D_GATE: Kind.D_GATE,
    Role.D_NEW: Kind.D_NEW,
}


class Memory:
    """The columns of the buffers in which the inputs and the results of a pass are stored.

    Args:
        equations, trace: the equations of the cell and their graphs.
        graph: the graph of the step.
        backward: whether the pass is a backward pass.

    Attributes:
        buffers: the buffers of the cell's passes.
        results: the results of the step, in the order in which they are stored.
        kept: the values that the forward pass keeps for the backward pass.
    """

    def __init__(self, equations: Equations, trace: Trace, graph: StepGraph, backward: bool) -> None:
        self.equations, self.trace, self.graph = equations, trace, graph
        self.buffers = Buffers(trace, equations.axes)
        self._kept_columns = {
            kept_port(value): self.buffers.column(value) for value in trace.saved if value.kind is not SavedKind.STATE
        }
        program, origin = graph.program, graph.origin
        self._port_of_output = {sequence: port for port, sequence in program.outputs.items()}
        self.kept = [
            Store(origin(write.value), self._kept_columns[port])
            for write in program.loop.writes
            if (port := self._port_of_output.get(write.sequence)) in self._kept_columns
        ]
        self._carries = dict(zip((carry.before for carry in program.loop.carries), equations.state, strict=False))
        self._is_backward = backward
        self.results = self._backward_results(program) if backward else self._forward_results(program)

    def _forward_results(self, program: Pass) -> list[Store | Carry]:
        origin, of_state = self.graph.origin, self.buffers.of_state
        carries = zip(self.equations.state, program.loop.carries, strict=True)
        states = [Store(origin(carry.next), Column(of_state(Kind.STATE, name))) for name, carry in carries]
        return [*states, *self._other_results(program)]

    def _backward_results(self, program: Pass) -> list[Store | Carry]:
        origin, of_state = self.graph.origin, self.buffers.of_state
        results: list[Store | Carry] = [
            Store(value, Column(self.buffers[Kind.D_PRE], k)) for k, value in enumerate(self.d_pre.values())
        ]
        for name, carry in zip(self.equations.state, program.loop.carries, strict=False):
            to, reset = (Column(of_state(kind, name)) for kind in (Kind.D_NEXT, Kind.D_RESTART))
            results.append(Carry(origin(carry.next), to, reset, carry.before))
        results += self._other_results(program)
        for k, carry in enumerate(program.loop.carries[len(self.equations.state) :]):
            total = self.graph.operations[carry.next]
            assert isinstance(total, Elementwise), "the gradient of a parameter is a sum over the steps"
            (added,) = (value for value in total.args if isinstance(value, Value) and value is not carry.before)
            results.append(Store(origin(added), Column(self.buffers[Kind.D_PARAMETER], k), added=True))
        return results

    def _other_results(self, program: Pass) -> list[Store]:
        """The results that the loop writes for the operations after it, and the recorded gates and gradients."""
        results = []
        for write in program.loop.writes:
            port = write.port or self._port_of_output.get(write.sequence)
            if port is None or port.role not in _KIND_OF_ROLE:
                continue
            kind = _KIND_OF_ROLE[port.role]
            if kind in (Kind.GATE, Kind.D_GATE):
                column = Column(self.buffers.of_gate(kind, port.name))
            elif kind is Kind.D_NEW:
                column = Column(self.buffers.of_state(kind, port.name))
            else:
                column = Column(self.buffers[kind], port.number or 0)
            results.append(Store(self.graph.origin(write.value), column))
        return results

    @property
    def d_pre(self) -> dict[tuple[int, str], Value]:
        """The gradients of the pre-activations by column and gate."""
        for write in self.graph.program.loop.writes:
            if write.port is not None and write.port.role is Role.D_PRE:
                stack = self.graph.operations[self.graph.origin(write.value)]
                assert isinstance(stack, Stack), "the gradients of all gates are stacked"
                labels = self.graph.axes[stack.axis].labels
                return dict(zip(enumerate(labels), map(self.graph.origin, stack.values), strict=True))
        return {}

    def state_before(self, value: Value) -> str | None:
        """The state whose value before the step this value is; None for other values."""
        if value in self._carries and not self._is_backward:
            return self._carries[value]
        match self.graph.operations.get(self.graph.sequences.get(value, value)):
            case Shift(x):
                return self.graph.ports[x].name
        return None

    def is_input_term(self, value: Value) -> bool:
        """Whether a value is W_ih x and its bias for one gate."""
        match self.graph.operations.get(value):
            case Block(x):
                return self.graph.sequences.get(x) in self.graph.operations
        return False

    def columns(self, value: Value) -> tuple[Column, ...]:
        """The columns whose sum is a value that the step reads."""
        buffers, cell = self.buffers, self.equations
        if value in self._carries:
            return (Column(buffers.of_state(Kind.D_NEXT, self._carries[value])),)
        source, gate = value, ""
        match self.graph.operations.get(value):
            case Block(x, axis, index):
                source, gate = x, self.graph.axes[axis].labels[index]
        if self.is_input_term(value):
            column = self.trace.ih.index(gate)
            return Column(buffers[Kind.INPUT], column), Column(bias_buffer("ih", self.trace), column)
        port = self.graph.ports[self.graph.sequences.get(source, source)]
        match port.role:
            case Role.KEPT:
                return (self._kept_columns[port],)
            case Role.STATES:
                return (Column(buffers.of_state(Kind.STATE, port.name)),)
            case Role.D_STATES:
                return (Column(buffers.of_state(Kind.D_STATE, port.name)),)
            case Role.NOISE:
                return (Column(noise_buffer(cell, buffers, port.name)),)
        assert port.role is Role.WEIGHT, port
        if port.name == "bias_hh":
            gates = [*map(gate_of, self.trace.hh_only)]
            return (Column(bias_buffer("hh", self.trace), gates.index(gate)),)
        return (Column(weight_buffer(cell, port.name), cell.gates.index(gate) if gate else 0),)
