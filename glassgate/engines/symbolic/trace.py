"""A cell's step as a graph, and the graph of its gradient."""

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from glassgate.cell import Cell
from glassgate.engines.symbolic.costs import Costs
from glassgate.engines.symbolic.differentiate import gradients
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import Graph, Key, Node, make, ordered, spread
from glassgate.engines.symbolic.keep import reading
from glassgate.engines.symbolic.rewrite import distinguish, merged
from glassgate.engines.symbolic.step import equations_of


@dataclass(frozen=True, eq=False)
class Trace:
    """A cell's forward and backward graphs, and the columns of the buffers that they read and write.

    Columns, each as wide as its value:
        ("state", k): the new state `cell.state[k]`; an output of `forward`, which `backward` may read.
        ("ih", k): the input half of gate `ih[k]`. In training the forward pass overwrites it with the value that the
            backward pass reads: the pre-activation of the gate, or a value that is computed from it alone.
        ("kept", k): another value that the backward pass reads, because the backend's costs favour memory.
        ("hh", k): the recurrent product `hh_only[k]`, or a value that is computed from it alone, saved in training.
        ("row", k), ("hr", 0): the sum of a row, the result of the projection, saved in training if the backward pass
            reads it.
        ("d_pre", k): the gradient of `[*hh_only, *shared, *ih_only][k]`; an output of `backward`, as are the following.
        ("d_state", k): the gradient of the state before the step, without that of the step's own outputs.
        ("d_parameter", k): of the parameters whose `parameter_columns` are k, one value per unit and row.
        ("left", k): the row vector `left[k]` that `weight_hh` is multiplied by, if that is not the state itself.
        ("raw", 0), ("d_hr", 0): the row vector that `weight_hr` is multiplied by, and the gradient of the product.
        ("gate", "f"), ("d_gate", "f"), ("d_new", "c"): for recordings, a gate, an output of `forward`, and the total
            gradients of it and of each new state, outputs of `backward`.
        ("d_gate", "pre0"), ("d_gate", "left0"), ("d_gate", "own0"): if rows are shown, once more the columns 0 of
            "d_pre" and "left", and the gradient of `parameters[0]` at each step.

    Attributes:
        forward: the new states from the leaves `ih`, `state`, `parameter` and the products `hh`, `sum`, `hr`.
        backward: the gradients from the leaves `grad`, `saved`, `state` and `parameter`.
        saved: the values that the forward pass saves for the backward pass, by column.
        hh_only: products of gates whose recurrent half the step uses separately.
        shared: products of gates of which the step uses only the sum of both halves.
        ih_only: gates whose input half the step uses separately.
        left: row vectors, other than the state, that `weight_hh` is multiplied by.
        parameters: the cell's own parameters, each with its gate or None.
        parameter_columns: the column of each parameter's gradient; equal gradients share a column.
        recorded: names of the recorded gates; empty without a recording.
        costs: of the backend that these graphs are for.
    """

    forward: Graph
    backward: Graph
    saved: dict[Key, Node]
    hh_only: tuple[Node, ...]
    shared: tuple[Node, ...]
    ih_only: tuple[str, ...]
    left: tuple[Node, ...]
    parameters: tuple[tuple[str, str | None], ...]
    parameter_columns: tuple[int, ...]
    recorded: tuple[str, ...]
    costs: Costs

    @cached_property
    def ih(self) -> tuple[str, ...]:
        """The gates whose input half is computed, in the order of the columns."""
        return (*(product.args[0] for product in self.shared), *self.ih_only)

    @cached_property
    def row_columns(self) -> int:
        """The number of row sums that the backward pass reads."""
        return max((column + 1 for name, column in self.saved if name == "row"), default=0)

    @cached_property
    def kept_columns(self) -> int:
        """The number of values that it reads from memory of their own."""
        return sum(name == "kept" for name, _ in self.saved)

    @cached_property
    def gradients(self) -> Counter[str]:
        """The number of columns of each buffer of the backward pass."""
        return Counter(name for name, _ in self.backward.outputs)


def trace(cell: Cell, costs: Costs, projected: bool = False, record: bool = False) -> Trace:
    """The graphs of the cell's `step` and of its gradient.

    Args:
        cell: the cell.
        costs: of the backend.
        projected: whether the output goes through `weight_hr`.
        record: whether gates and their gradients are results too.

    Raises:
        NotTraceable: naming the part of the step that no kernel supports.
    """
    return differentiated(equations_of(cell, projected), costs, record)


def _with_shared_halves(states: tuple[Node, ...]) -> dict[Node, Node]:
    """The same values, with one node for each pre-activation of which the step uses only the sum of its halves."""
    users = Counter([*states, *(arg for node in ordered(states) for arg in node.inputs)])

    def fold(node: Node, args: tuple[Any, ...]) -> Node | None:
        halves = {arg.op: arg for arg in node.inputs}
        if node.op != "add" or halves.keys() != {"ih", "hh"}:
            return None
        ih, hh = halves["ih"], halves["hh"]
        if ih.args[0] != hh.args[0] or users[ih] != 1 or users[hh] != 1:
            return None
        _, u = next(arg for arg in args if arg.op == "hh").args
        return Node("sum", (hh.args[0], u), "H", node.name or f"{hh.args[0]}_pre")

    new = merged(states, fold)
    distinguish([new[s] for s in states])
    return new


def differentiated(cell: Equations, costs: Costs, record: bool = False, rows: bool = False) -> Trace:
    """The forward and backward graphs of a cell's equations.

    Args:
        cell: the equations.
        costs: of the backend, which decide what training keeps.
        record: whether gates and the gradients that reach them are results too.
        rows: whether the backward pass shows all factors of the gradients of parameters at each step.
    """
    folded = _with_shared_halves(cell.states)
    states = [folded[state] for state in cell.states]
    order = ordered(states)
    products = sorted(
        (node for node in order if node.op in ("hh", "sum")), key=lambda node: cell.gates.index(node.args[0])
    )
    # Products with the same row vector have adjacent columns, those with the state in the middle.
    hh_only = tuple(sorted((node for node in products if node.op == "hh"), key=lambda node: -node.args[1].serial))
    shared = tuple(sorted((node for node in products if node.op == "sum"), key=lambda node: node.args[1].serial))
    ih_leaves = {node.args[0]: node for node in order if node.op == "ih"}
    ih_only = tuple(gate for gate in cell.gates if gate in ih_leaves)
    parameters = tuple(node.args for node in order if node.op == "parameter")
    left = tuple(dict.fromkeys(node.args[1] for node in products if not _is_state(node.args[1], cell.state[0])))

    columns = {("ih", k): node for k, node in enumerate([*shared, *(ih_leaves[gate] for gate in ih_only)])}
    columns |= {("hh", k): node for k, node in enumerate(hh_only)}
    columns |= {("row", k): node for k, node in enumerate(n for n in order if n.op == "row_sum")}
    columns |= {("hr", k): node for k, node in enumerate(n for n in order if n.op == "hr")}
    leaf = {node: Node("saved", key, node.axis) for key, node in columns.items()}
    replay = merged(states, lambda node, args: leaf[node] if node in leaf else _undetached(node, args))
    d_pre = [*hh_only, *shared, *(ih_leaves[gate] for gate in ih_only)]
    d = gradients(cell, states, {node: k for k, node in enumerate(d_pre)}, replay)

    def gradient(node: Node) -> Node:
        return spread(d.get(node, 0.0), node.axis)

    outputs: dict[Key, Node] = {("d_pre", k): gradient(node) for k, node in enumerate(d_pre)}
    leaves = {node.args: node for node in order if node.op in ("state", "parameter")}
    for k, (name, new_state) in enumerate(zip(cell.state, states, strict=True)):
        outputs["d_state", k] = gradient(leaves[name,]) if (name,) in leaves else _ended(name, new_state.axis)
    outputs |= {("left", k): replay[u] for k, u in enumerate(left)}
    for node in order:
        if node.op == "hr":
            outputs |= {("raw", 0): replay[node.args[0]], ("d_hr", 0): gradient(node)}
    gates = {name: folded[node] for name, node in cell.shown.items()} if record else {}
    for name, node in gates.items():
        outputs["d_gate", name] = gradient(node)
    for name, node in zip(cell.state, states, strict=True) if record else ():
        outputs["d_new", name] = gradient(node)
    of_parameters = [gradient(leaves[parameter]) for parameter in parameters]
    if rows:
        outputs |= {("d_gate", f"pre{k}"): gradient(node) for k, node in enumerate(d_pre)}
        outputs |= {("d_gate", f"left{k}"): replay[u] for k, u in enumerate(left)}
        outputs |= {("d_gate", f"own{k}"): d_p for k, d_p in enumerate(of_parameters)}
    new = merged([*outputs.values(), *of_parameters])
    columns_of = {node: k for k, node in enumerate(dict.fromkeys(new[d_p] for d_p in of_parameters))}
    outputs |= {("d_parameter", k): node for node, k in columns_of.items()}
    outputs = {key: new.get(node, node) for key, node in outputs.items()}
    again = {node: new[replay[node]] for node in order if replay[node] in new}
    backward, saved = reading(outputs, columns, states, again, costs)
    traced = Trace(
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
        parameter_columns=tuple(columns_of[new[d_p]] for d_p in of_parameters),
        recorded=tuple(gates),
        costs=costs,
    )
    return _without_detached(traced) if any(node.op == "detach" for node in order) else traced


def _is_state(node: Node, name: str) -> bool:
    return node.op == "state" and node.args[0] == name


def _ended(state: str, axis: str) -> Node:
    """The gradient of an old state that the step does not read: 0, after the gradient of the new one has been read."""
    d = Node("grad", (state,), axis)
    return make("where", d == d, 0.0, 0.0)


def _undetached(node: Node, args: tuple[Any, ...]) -> Node | None:
    """The argument of `detach`: once gradients are known, the two have the same value."""
    return args[0] if node.op == "detach" else None


def _without_detached(trace: Trace) -> Trace:
    """The same, with `detach` removed from the forward graph, too."""
    products = (*trace.hh_only, *trace.shared)
    new = merged([*trace.forward.outputs.values(), *trace.saved.values(), *products, *trace.left], _undetached)
    return replace(
        trace,
        forward=Graph({key: new[node] for key, node in trace.forward.outputs.items()}),
        saved={key: new[node] for key, node in trace.saved.items()},
        hh_only=tuple(new[node] for node in trace.hh_only),
        shared=tuple(new[node] for node in trace.shared),
        left=tuple(new[node] for node in trace.left),
    )
