"""The trace of a cell: the graph of its step (forward), and the graph of the gradient of the step (backward)."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Self

from glassgate.engines.axes import UNITS, Axis
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.costs import Costs
from glassgate.engines.symbolic.differentiate import gradients
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import Node, broadcast, gate_of, leaf, make
from glassgate.engines.symbolic.rewrite import in_primitives, make_names_unique, rewrite_graph, without_detach
from glassgate.engines.symbolic.saved_values import read_saved_values
from glassgate.engines.symbolic.values import halves_of, topological_order


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph, defined by its results. Each field of a subclass has the results of one kind."""

    @property
    def results(self) -> list[Node]:
        """All results."""
        return [node for field in fields(self) for node in getattr(self, field.name)]

    @cached_property
    def nodes(self) -> list[Node]:
        """All nodes that the results depend on, each after its inputs."""
        return topological_order(self.results)

    def replaced(self, new: Mapping[Node, Node]) -> Self:
        """The graph with other results."""
        return replace(self, **{f.name: tuple([new.get(v, v) for v in getattr(self, f.name)]) for f in fields(self)})


@dataclass(frozen=True, eq=False)
class ForwardGraph(Graph):
    """The graph of a step. It reads the leaves of the equations.

    Attributes:
        states: the new states, in the order of `Equations.state`.
        gates: the values of `Trace.recorded`.
    """

    states: tuple[Node, ...]
    gates: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class BackwardGraph(Graph):
    """The graph of the gradient of a step. It reads the leaves of the equations, except input halves, and
    `ops.Gradient` and `ops.Saved`.

    Attributes:
        d_pre: the gradients of the recurrent halves `Trace.hh_only`, the pre-activations `Trace.shared`, and the input
            halves of `Trace.ih_only`.
        d_states: the gradients of the old states through this step.
        left: the row vectors `Trace.left`, which are factors of the gradient of `weight_hh`.
        raw, d_hr: with a projection, the row vector that `weight_hr` multiplies, and the gradient of the product.
        d_gates: the total gradients of the values of `Trace.recorded`.
        d_new: with a recording, the total gradients of the new states.
        d_parameters: the gradients of the parameters per unit and row, by their numbers in `Trace.parameter_numbers`.
    """

    d_pre: tuple[Node, ...]
    d_states: tuple[Node, ...]
    left: tuple[Node, ...]
    raw: tuple[Node, ...]
    d_hr: tuple[Node, ...]
    d_gates: tuple[Node, ...]
    d_new: tuple[Node, ...]
    d_parameters: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Trace:
    """The forward and backward graphs of a cell's step, and the values that the backward graph reads.

    Attributes:
        forward: computes the new states.
        backward: computes the gradients.
        saved: the values that the forward pass saves for the backward pass, by the leaves that read them.
        hh_only: the recurrent halves W_hh u + b_hh that the step uses separately.
        shared: the sums of both halves of gates, if the step uses neither half separately.
        ih_only: the gates whose input half the step uses separately.
        left: the row vectors, other than the state, that `weight_hh` multiplies.
        parameters: the parameters that the cell defines.
        parameter_numbers: the number of each parameter's gradient; equal gradients share a number.
        recorded: the names of the recorded gates; empty without a recording.
        costs: the costs of the backend that these graphs are for.
        records_factors: whether the backward pass records all factors of the gradients of parameters at each step:
            `d_pre`, `left` and `d_parameters`.
    """

    forward: ForwardGraph
    backward: BackwardGraph
    saved: dict[ops.Saved, Node]
    hh_only: tuple[Node, ...]
    shared: tuple[Node, ...]
    ih_only: tuple[str, ...]
    left: tuple[Node, ...]
    parameters: tuple[ops.Parameter, ...]
    parameter_numbers: tuple[int, ...]
    recorded: tuple[str, ...]
    costs: Costs
    records_factors: bool

    @cached_property
    def ih(self) -> tuple[str, ...]:
        """The gates whose input half is computed, in the order of their numbers."""
        return (*map(gate_of, self.shared), *self.ih_only)

    @cached_property
    def factors(self) -> dict[str, Node]:
        """The factors of gradients of parameters that a recording stores at each step; empty if it stores none."""
        if not self.records_factors:
            return {}
        own = [self.backward.d_parameters[number] for number in self.parameter_numbers]
        named = {f"left{k}": node for k, node in enumerate(self.backward.left)}
        return named | {f"own{k}": node for k, node in enumerate(own)}

    def saved_count(self, kind: ops.SavedKind) -> int:
        """The number of values of a kind that the forward pass has room for."""
        return max((value.number + 1 for value in self.saved if value.kind is kind), default=0)


def _fold_halves(states: tuple[Node, ...]) -> dict[Node, Node]:
    """Map nodes to new nodes. The sum of two halves becomes a pre-activation if the step reads neither elsewhere."""
    users = Counter([*states, *(arg for node in topological_order(states) for arg in node.inputs)])

    def fold(node: Node, copy: Node) -> Node | None:
        halves = halves_of(node)
        if halves is None:
            return None
        ih, hh = halves
        gate = gate_of(hh)
        if ih.op != ops.InputHalf(gate) or users[ih] != 1 or users[hh] != 1:
            return None
        (product,) = (arg for arg in copy.inputs if isinstance(arg.op, ops.RecurrentHalf))
        return Node(ops.PreActivation(gate), product.args, UNITS, node.name or f"{gate}_pre")

    new = rewrite_graph(states, fold)
    make_names_unique([new[s] for s in states])
    return new


def build_trace(cell: Equations, costs: Costs, record: bool = False, record_factors: bool = False) -> Trace:
    """Build the forward and backward graphs of the equations of a cell.

    Args:
        cell: the equations.
        costs: the costs of the backend. They determine the values that training keeps.
        record: whether gates and their gradients are results too.
        record_factors: see `Trace.records_factors`.
    """
    folded = _fold_halves(cell.states)
    states = [folded[state] for state in cell.states]
    order = topological_order(states)
    products = sorted(
        (node for node in order if isinstance(node.op, ops.Product)), key=lambda node: cell.gates.index(gate_of(node))
    )

    def of_kind(kind: type[ops.Op]) -> list[Node]:
        return [node for node in order if isinstance(node.op, kind)]

    # Products with the same row vector have adjacent columns. Products with the state are in the middle.
    hh_only = tuple(
        sorted((p for p in products if isinstance(p.op, ops.RecurrentHalf)), key=lambda p: -p.inputs[0].serial)
    )
    shared = tuple(
        sorted((p for p in products if isinstance(p.op, ops.PreActivation)), key=lambda p: p.inputs[0].serial)
    )
    ih_leaves = {node.op: node for node in of_kind(ops.InputHalf)}
    ih_only = tuple(gate for gate in cell.gates if ops.InputHalf(gate) in ih_leaves)
    ih_halves = [ih_leaves[ops.InputHalf(gate)] for gate in ih_only]
    parameters = {node.op: node for node in order if isinstance(node.op, ops.Parameter)}
    left = tuple(dict.fromkeys(u for node in products for u in node.inputs if u.op != ops.State(cell.state[0])))

    saved_kinds = {
        ops.SavedKind.INPUT: [*shared, *ih_halves],
        ops.SavedKind.RECURRENT: hh_only,
        ops.SavedKind.ROW_SUM: of_kind(ops.RowSum),
        ops.SavedKind.PROJECTED: of_kind(ops.Projection),
    }
    columns = {ops.Saved(kind, k): node for kind, nodes in saved_kinds.items() for k, node in enumerate(nodes)}
    saved_leaf = {node: Node(key, (), node.axis) for key, node in columns.items()}
    replay = rewrite_graph(states, lambda v, copy: saved_leaf[v] if v in saved_leaf else without_detach(v, copy))
    d_pre = [*hh_only, *shared, *ih_halves]
    d = gradients(cell, states, {node: k for k, node in enumerate(d_pre)}, replay)

    def gradient(node: Node) -> Node:
        return broadcast(d.get(node, 0.0), node.axis)

    def gradient_of_state(name: str, new_state: Node) -> Node:
        old = [node for node in order if node.op == ops.State(name)]
        return gradient(old[0]) if old else _zero_gradient(name, new_state.axis)

    gates = {name: folded[node] for name, node in cell.gate_values.items()} if record else {}
    pairs = [*zip(cell.state, states, strict=True)]
    backward = BackwardGraph(
        d_pre=tuple(map(gradient, d_pre)),
        d_states=tuple([gradient_of_state(name, new_state) for name, new_state in pairs]),
        left=tuple([replay[u] for u in left]),
        raw=tuple([replay[node.inputs[0]] for node in of_kind(ops.Projection)]),
        d_hr=tuple([gradient(node) for node in of_kind(ops.Projection)]),
        d_gates=tuple(map(gradient, gates.values())),
        d_new=tuple(map(gradient, states)) if record else (),
        d_parameters=tuple(map(gradient, parameters.values())),
    )
    merged = rewrite_graph(backward.results)
    backward = backward.replaced(merged)
    numbers = {node: k for k, node in enumerate(dict.fromkeys(backward.d_parameters))}
    parameter_numbers = tuple([numbers[node] for node in backward.d_parameters])
    backward = replace(backward, d_parameters=tuple(numbers))
    recomputed = {node: merged[replay[node]] for node in order if replay[node] in merged}
    reading, saved = read_saved_values(backward.results, columns, states, recomputed, costs)
    backward = backward.replaced(reading)
    trace = Trace(
        forward=ForwardGraph(tuple(states), tuple(gates.values())),
        backward=backward,
        saved=saved,
        hh_only=hh_only,
        shared=shared,
        ih_only=ih_only,
        left=left,
        parameters=tuple(parameters),
        parameter_numbers=parameter_numbers,
        recorded=tuple(gates),
        costs=costs,
        records_factors=record_factors,
    )
    return _with_primitives(trace)


def _zero_gradient(state: str, axis: Axis) -> Node:
    """The gradient of an old state that the step does not read.

    It is 0, but depends on the gradient of the new state, so that kernels read that gradient before they store the 0.
    """
    d = leaf(ops.Gradient(state), axis)
    return make("where", d == d, 0.0, 0.0)


def _with_primitives(trace: Trace) -> Trace:
    """The trace without `detach`, and with operations that are not primitive replaced by primitive ones."""
    products = (*trace.hh_only, *trace.shared)
    new = in_primitives([*trace.forward.results, *trace.saved.values(), *products, *trace.left])
    return replace(
        trace,
        forward=trace.forward.replaced(new),
        backward=trace.backward.replaced(in_primitives(trace.backward.results)),
        saved={key: new[node] for key, node in trace.saved.items()},
        hh_only=tuple(new[node] for node in trace.hh_only),
        shared=tuple(new[node] for node in trace.shared),
        left=tuple(new[node] for node in trace.left),
    )
