"""A cell's step as a graph, and that graph's gradient as another one of the same kind; printing them is elsewhere."""

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

    Columns, each as wide as the value that it holds:
        ("state", k): the new state `cell.state[k]`; an output of `forward`, which `backward` may read.
        ("ih", k): in memory the input half of gate `ih[k]`; the forward pass in training replaces it by what the
            backward pass reads: the pre-activation of the gate, or what the step makes of that alone.
        ("kept", k): another value that the backward pass reads, for the backend says that memory costs less.
        ("hh", k): the recurrent product `hh_only[k]`, or what the step makes of it alone, kept in training.
        ("row", k), ("hr", 0): a row's sum, the projection's result, kept in training where the backward pass reads it.
        ("d_pre", k): the gradient of `[*hh_only, *shared, *ih_only][k]`; an output of `backward`, as are the following.
        ("d_state", k): what reaches the state before, beside what comes from the step's own outputs.
        ("d_parameter", k): of the parameters whose `parameter_columns` are k, one value a unit and row.
        ("left", k): the row vector `left[k]` that `weight_hh` is multiplied by, where that is not the state itself.
        ("raw", 0), ("d_hr", 0): the row vector that `weight_hr` is multiplied by, and the gradient of the product.
        ("gate", "f"), ("d_gate", "f"), ("d_new", "c"): where recording is asked for, a gate, an output of `forward`,
            and the whole gradients of it and of each new state, outputs of `backward`.

    Attributes:
        forward: the new states from the leaves `ih`, `state`, `parameter` and the products `hh`, `sum`, `hr`.
        backward: the gradients from the leaves `grad`, `saved`, `state` and `parameter`.
        saved: what the forward pass keeps for the backward pass, by column.
        hh_only: products of gates whose recurrent half the step uses on its own.
        shared: products of gates of which the step uses the sum of both halves alone.
        ih_only: gates whose input half the step uses on its own.
        left: row vectors, other than the state, that `weight_hh` is multiplied by.
        parameters: the cell's own parameters, each with its gate or None.
        parameter_columns: where the gradient of each of them is; parameters with equal ones share a column.
        recorded: names of the gates that recording takes; empty where it is not asked for.
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
        """How many sums over a row the backward pass reads."""
        return max((column + 1 for name, column in self.saved if name == "row"), default=0)

    @cached_property
    def kept_columns(self) -> int:
        """How many values it reads that have memory for this alone."""
        return sum(name == "kept" for name, _ in self.saved)

    @cached_property
    def gradients(self) -> Counter[str]:
        """How many columns each buffer of the backward pass has."""
        return Counter(name for name, _ in self.backward.outputs)


def trace(cell: Cell, costs: Costs, projected: bool = False, record: bool = False) -> Trace:
    """What the cell's `step` computes, and its gradient.

    Args:
        cell: the cell.
        costs: of the backend.
        projected: whether the output goes through `weight_hr`.
        record: whether gates and the gradients that reach them are results too.

    Raises:
        NotTraceable: naming what the step uses that no kernel has.
    """
    return differentiated(equations_of(cell, projected), costs, record)


def _with_shared_halves(states: tuple[Node, ...]) -> dict[Node, Node]:
    """The same values, each pre-activation of which the step uses the sum of its halves alone as one value."""
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


def differentiated(cell: Equations, costs: Costs, record: bool = False) -> Trace:
    """The forward and backward graphs of a cell's equations.

    Args:
        cell: the equations.
        costs: of the backend, which decide what training keeps.
        record: whether gates and the gradients that reach them are results too.
    """
    folded = _with_shared_halves(cell.states)
    states = [folded[state] for state in cell.states]
    order = ordered(states)
    products = sorted(
        (node for node in order if node.op in ("hh", "sum")), key=lambda node: cell.gates.index(node.args[0])
    )
    # Products with the same row vector lie side by side, those with the state in the middle.
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
    """The gradient of a state before a step that does not read it: 0, but not before the present one has been read."""
    d = Node("grad", (state,), axis)
    return make("where", d == d, 0.0, 0.0)


def _undetached(node: Node, args: tuple[Any, ...]) -> Node | None:
    """What `detach` was called on: once gradients are known, the value itself."""
    return args[0] if node.op == "detach" else None


def _without_detached(trace: Trace) -> Trace:
    """The same, `detach` gone from the forward graph too."""
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
