"""The trace of a cell: the graph of its step (forward), and the graph of the gradient of the step (backward)."""

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from glassgate.engines.axes import UNITS, Axis
from glassgate.engines.symbolic.costs import Costs
from glassgate.engines.symbolic.differentiate import gradients
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import Graph, Key, Node, SavedKey, broadcast, make
from glassgate.engines.symbolic.operations import OPERATIONS, PRIMITIVES
from glassgate.engines.symbolic.rewrite import make_names_unique, rewrite_graph
from glassgate.engines.symbolic.saved_values import read_saved_values, saved_value
from glassgate.engines.symbolic.values import topological_order


@dataclass(frozen=True, eq=False)
class Trace:
    """The forward and backward graphs of a cell's step, and the values that the backward graph reads.

    Results of the forward graph, and values that it saves:
        ("state", k): the new state `cell.state[k]`.
        ("ih", k): the input half W_ih x + b_ih of gate `ih[k]`, the pre-activation of the gate, or a value that depends
            only on it.
        ("hh", k): the recurrent half `hh_only[k]`, or a value that depends only on it.
        ("row", k), ("hr", 0): a row sum, and the result of the projection.
        ("kept", k): another saved value. The backend's costs decide that reading it is cheaper than recomputing it.
        ("gate", "f"): a gate, for recordings.
    Results of the backward graph:
        ("d_pre", k): the gradient of `[*hh_only, *shared, *ih_only][k]`.
        ("d_state", k): the gradient of the old state k through this step.
        ("d_parameter", k): the gradient of the parameters whose number in `parameter_numbers` is k, per unit and row.
        ("left", k): the row vector `left[k]`, a factor of the gradient of `weight_hh`.
        ("raw", 0), ("d_hr", 0): the row vector that `weight_hr` multiplies, and the gradient of the product.
        ("d_gate", "f"), ("d_new", "c"): for recordings, the total gradients of a gate and of a new state.
        ("d_gate", "left0"), ("d_gate", "own0"): with `records_factors`, ("left", 0) again, and the gradient of
            `parameters[0]` at each step.

    Attributes:
        forward: computes the new states from the leaves of the equations and the products `hh`, `sum`, `hr`.
        backward: computes the gradients from the same leaves except `ih`, and from `grad` and `saved`.
        saved: the values that the forward pass saves for the backward pass, by key.
        hh_only: the recurrent halves W_hh u + b_hh that the step uses separately.
        shared: the sums of both halves of gates, if the step uses neither half separately.
        ih_only: the gates whose input half the step uses separately.
        left: the row vectors, other than the state, that `weight_hh` multiplies.
        parameters: the parameters that the cell defines, each with its gate or None.
        parameter_numbers: the number of each parameter's gradient; equal gradients share a number.
        recorded: the names of the recorded gates; empty without a recording.
        costs: the costs of the backend that these graphs are for.
        records_factors: whether the backward pass records all factors of the gradients of parameters: all of "d_pre",
            and "left0", "left1", ..., "own0", "own1", ....
    """

    forward: Graph
    backward: Graph
    saved: dict[SavedKey, Node]
    hh_only: tuple[Node, ...]
    shared: tuple[Node, ...]
    ih_only: tuple[str, ...]
    left: tuple[Node, ...]
    parameters: tuple[tuple[str, str | None], ...]
    parameter_numbers: tuple[int, ...]
    recorded: tuple[str, ...]
    costs: Costs
    records_factors: bool

    @cached_property
    def ih(self) -> tuple[str, ...]:
        """The gates whose input half is computed, in the order of their numbers."""
        return (*(product.label for product in self.shared), *self.ih_only)

    @cached_property
    def row_count(self) -> int:
        """The number of row sums that the backward pass reads."""
        return max((column + 1 for name, column in self.saved if name == "row"), default=0)

    @cached_property
    def kept_count(self) -> int:
        """The number of values of the kind "kept"."""
        return sum(name == "kept" for name, _ in self.saved)

    @cached_property
    def gradient_counts(self) -> Counter[str]:
        """The number of results of each kind of the backward graph."""
        return Counter(name for name, _ in self.backward.outputs)


def _fold_halves(states: tuple[Node, ...]) -> dict[Node, Node]:
    """Map nodes to new nodes. The sum of two halves becomes one node "sum" if the step reads neither half elsewhere."""
    users = Counter([*states, *(arg for node in topological_order(states) for arg in node.inputs)])

    def fold(node: Node, args: tuple[Any, ...]) -> Node | None:
        halves = {arg.op: arg for arg in node.inputs}
        if node.op != "add" or halves.keys() != {"ih", "hh"}:
            return None
        ih, hh = halves["ih"], halves["hh"]
        if ih.label != hh.label or users[ih] != 1 or users[hh] != 1:
            return None
        (product,) = (arg for arg in args if arg.op == "hh")
        return Node("sum", product.args, UNITS, hh.labels, node.name or f"{hh.label}_pre")

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
        (node for node in order if node.op in ("hh", "sum")), key=lambda node: cell.gates.index(node.label)
    )
    # Products with the same row vector have adjacent columns. Products with the state are in the middle.
    hh_only = tuple(sorted((node for node in products if node.op == "hh"), key=lambda node: -node.inputs[0].serial))
    shared = tuple(sorted((node for node in products if node.op == "sum"), key=lambda node: node.inputs[0].serial))
    ih_leaves = {node.label: node for node in order if node.op == "ih"}
    ih_only = tuple(gate for gate in cell.gates if gate in ih_leaves)
    parameters = tuple((node.label, node.gate) for node in order if node.op == "parameter")
    left = tuple(dict.fromkeys(u for node in products for u in node.inputs if not _is_state(u, cell.state[0])))

    columns = {("ih", k): node for k, node in enumerate([*shared, *(ih_leaves[gate] for gate in ih_only)])}
    columns |= {("hh", k): node for k, node in enumerate(hh_only)}
    columns |= {("row", k): node for k, node in enumerate(n for n in order if n.op == "row_sum")}
    columns |= {("hr", k): node for k, node in enumerate(n for n in order if n.op == "hr")}
    leaf = {node: saved_value(key, node.axis) for key, node in columns.items()}
    replay = rewrite_graph(states, lambda node, args: leaf[node] if node in leaf else _remove_detach(node, args))
    d_pre = [*hh_only, *shared, *(ih_leaves[gate] for gate in ih_only)]
    d = gradients(cell, states, {node: k for k, node in enumerate(d_pre)}, replay)

    def gradient(node: Node) -> Node:
        return broadcast(d.get(node, 0.0), node.axis)

    outputs: dict[Key, Node] = {("d_pre", k): gradient(node) for k, node in enumerate(d_pre)}
    old = {node.label: node for node in order if node.op == "state"}
    for k, (name, new_state) in enumerate(zip(cell.state, states, strict=True)):
        outputs["d_state", k] = gradient(old[name]) if name in old else _zero_gradient(name, new_state.axis)
    outputs |= {("left", k): replay[u] for k, u in enumerate(left)}
    for node in order:
        if node.op == "hr":
            outputs |= {("raw", 0): replay[node.inputs[0]], ("d_hr", 0): gradient(node)}
    gates = {name: folded[node] for name, node in cell.gate_values.items()} if record else {}
    for name, node in gates.items():
        outputs["d_gate", name] = gradient(node)
    for name, node in zip(cell.state, states, strict=True) if record else ():
        outputs["d_new", name] = gradient(node)
    d_parameters = [gradient(node) for node in order if node.op == "parameter"]
    if record_factors:
        outputs |= {("d_gate", f"left{k}"): replay[u] for k, u in enumerate(left)}
        outputs |= {("d_gate", f"own{k}"): d_p for k, d_p in enumerate(d_parameters)}
    new = rewrite_graph([*outputs.values(), *d_parameters])
    columns_of = {node: k for k, node in enumerate(dict.fromkeys(new[d_p] for d_p in d_parameters))}
    outputs |= {("d_parameter", k): node for node, k in columns_of.items()}
    outputs = {key: new.get(node, node) for key, node in outputs.items()}
    recomputed = {node: new[replay[node]] for node in order if replay[node] in new}
    backward, saved = read_saved_values(outputs, columns, states, recomputed, costs)
    trace = Trace(
        forward=Graph(
            {("state", k): node for k, node in enumerate(states)}
            | {("gate", name): node for name, node in gates.items()}
        ),
        backward=backward,
        saved=saved,
        hh_only=hh_only,
        shared=shared,
        ih_only=ih_only,
        left=left,
        parameters=parameters,
        parameter_numbers=tuple(columns_of[new[d_p]] for d_p in d_parameters),
        recorded=tuple(gates),
        costs=costs,
        records_factors=record_factors,
    )
    return _in_primitives(trace)


def _is_state(node: Node, name: str) -> bool:
    return node.op == "state" and node.label == name


def _zero_gradient(state: str, axis: Axis) -> Node:
    """The gradient of an old state that the step does not read.

    It is 0, but depends on the gradient of the new state, so that kernels read that gradient before they store the 0.
    """
    d = Node("grad", (), axis, (state,))
    return make("where", d == d, 0.0, 0.0)


def _remove_detach(node: Node, args: tuple[Any, ...]) -> Node | None:
    """A rule for `rewrite_graph` that replaces `detach` by its argument, in graphs that are not differentiated."""
    return args[0] if node.op == "detach" else None


def _in_primitives(trace: Trace) -> Trace:
    """The trace without `detach`, and with operations that are not primitive replaced by primitive ones."""
    products = (*trace.hh_only, *trace.shared)
    new = _to_primitives([*trace.forward.outputs.values(), *trace.saved.values(), *products, *trace.left])
    new_backward = _to_primitives([*trace.backward.outputs.values()])
    return replace(
        trace,
        forward=Graph({key: new[node] for key, node in trace.forward.outputs.items()}),
        backward=Graph({key: new_backward[node] for key, node in trace.backward.outputs.items()}),
        saved={key: new[node] for key, node in trace.saved.items()},
        hh_only=tuple(new[node] for node in trace.hh_only),
        shared=tuple(new[node] for node in trace.shared),
        left=tuple(new[node] for node in trace.left),
    )


def _to_primitives(results: list[Node]) -> dict[Node, Node]:
    """Rewrite results in primitive operations. Return the new node of each result."""

    def rule(node: Node, args: tuple[Any, ...]) -> Node | None:
        if node.op in PRIMITIVES or node.op not in OPERATIONS:
            return _remove_detach(node, args)
        compose = OPERATIONS[node.op].composed
        assert compose is not None
        result: Node = compose(*args)
        return result

    new = {node: node for node in results}
    while any(_is_rewritten(node) for node in topological_order(new.values())):
        composed = rewrite_graph(new.values(), rule)
        merged = rewrite_graph(composed[node] for node in new.values())
        new = {node: merged[composed[value]] for node, value in new.items()}
    return new


def _is_rewritten(node: Node) -> bool:
    return node.op == "detach" or (node.op in OPERATIONS and node.op not in PRIMITIVES)
