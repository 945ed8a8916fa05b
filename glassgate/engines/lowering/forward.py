"""The forward pass of one direction: bias sums, the input GEMM, and the steps."""

from collections.abc import Sequence
from typing import NamedTuple

from glassgate.engines.axes import PER_ROW, Axis
from glassgate.engines.lowering.builder import Builder
from glassgate.engines.lowering.ir import Pass, Port, Role, Value
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import Key, Node
from glassgate.engines.symbolic.operations import OPERATIONS
from glassgate.engines.symbolic.trace import Trace


class Form(NamedTuple):
    """The properties of a call that determine a pass, together with the equations of the cell.

    Attributes:
        reverse: whether the direction runs from the last step to the first.
        bias: whether the layer has `bias_ih` and `bias_hh`.
        lengths: whether the lengths of sequences may differ.
        resets: whether states are reset before some steps.
        restarts: whether the states after a reset differ from the initial states.
        save: whether the forward pass outputs the values that the backward pass reads.
        groups: whether each of B groups of M adjacent sequences has its own gradients of parameters. These then have
            an axis B.
    """

    reverse: bool = False
    bias: bool = True
    lengths: bool = False
    resets: bool = False
    restarts: bool = False
    save: bool = False
    groups: bool = False


def forward_pass(cell: Equations, trace: Trace, form: Form) -> Pass:
    """The forward pass of a cell's equations.

    Args:
        cell: the equations.
        trace: the graphs of the equations.
        form: the properties of the call.
    """
    return _Forward(cell, trace, form).program()


def axes_of(node: Node) -> tuple[str, ...]:
    """The axes of a node's value in one row: one axis, or none if the value is one number."""
    return () if node.axis == PER_ROW else (node.axis.name,)


class PassLowering:
    """The part that the lowerings of forward and backward passes share: axes, inputs, weights by gate.

    Args:
        cell, trace, form: as in `forward_pass`.
        backward: whether the pass is a backward pass.
    """

    def __init__(self, cell: Equations, trace: Trace, form: Form, backward: bool) -> None:
        self.cell, self.trace, self.form = cell, trace, form
        self.graph = trace.backward if backward else trace.forward
        self.values: dict[Node, Value] = {}
        self.state_axis = {state: axis.name for state, axis in cell.axes.items()}
        self.products = [*trace.hh_only, *trace.shared]
        self.gate_of_column = [*(node.args[0] for node in self.products), *trace.ih_only]
        """The gate of each column of `d_pre`, the gradients of the pre-activations."""
        self.ih_gates = tuple(gate for gate in cell.gates if gate in trace.ih)
        self.axis_of_gates: dict[tuple[str, ...], str] = {cell.gates: "G"}
        for gates in [
            self.ih_gates,
            *(gates for _, gates in self.groups()),
            *([tuple(self.gate_of_column), *self._gates_with_gradients()] if backward else []),
        ]:
            self.axis_of_gates.setdefault(gates, f"G{len(self.axis_of_gates)}")
        title = f"{'backward' if backward else 'forward'} pass{' of the reverse direction' if form.reverse else ''}"
        self.b = Builder(title, self._axes(), reverse=form.reverse != backward)
        self.weights: dict[str, Value] = {}
        self.noise: dict[str, Value] = {}

    @property
    def out(self) -> str:
        """The axis of the output."""
        return self.state_axis[self.cell.state[0]]

    def groups(self) -> list[tuple[Node, tuple[str, ...]]]:
        """The row vectors that recurrent weights multiply, each with its gates in the order of the weights."""
        lefts = list(dict.fromkeys(node.args[1] for node in self.products))
        return [(u, tuple(g for g in self.cell.gates if self.column_of(u, g) is not None)) for u in lefts]

    def _gates_with_gradients(self) -> list[tuple[str, ...]]:
        """For each gradient of a left operand, the gates over which it sums. Detached gates are missing."""
        sums = [node.args[0] for node in self.trace.backward.nodes if node.op == "hh_t"]
        return [tuple(gate for gate in self.cell.gates if gate in gates) for gates in sums]

    def column_of(self, u: Node, gate: str) -> int | None:
        """The column of `d_pre` for the product of a gate's weights and a row vector; None if the step has none."""
        return next((k for k, node in enumerate(self.products) if node.args[0] == gate and node.args[1] is u), None)

    def _axes(self) -> list[Axis]:
        cell, K = self.cell, self.cell.heads
        gates = [Axis(name, (len(labels),), labels) for labels, name in self.axis_of_gates.items() if labels]
        # A recurrent product sums over J, which has the extent of the output but another name.
        if K > 1:
            P = [Axis("P", ("K", "V"))] if cell.projected else []
            V = Axis("V") if cell.projected else Axis("V", ("U",))
            units = [*P, Axis("H", ("K", "U")), Axis("K", (K,)), Axis("U"), V]
        else:
            units = [*([Axis("P")] if cell.projected else []), Axis("H"), Axis("J", (self.out,))]
        sequences = [Axis("N", ("B", "M")), Axis("B"), Axis("M")] if self.form.groups else [Axis("N")]
        return [Axis("T"), *sequences, *gates, *units, Axis("D")]

    def declare(self) -> None:
        """Declare the inputs of both passes: data, weights, noise, lengths, initial states, resets."""
        cell, form, b = self.cell, self.form, self.b
        self.data = b.input(Port(Role.DATA), ("T", "N", "D"), name="x")
        recurrent = ("G", "K", "U", "V") if cell.heads > 1 else ("G", "H", "J")
        shapes: dict[str, Sequence[str]] = {"weight_ih": "GHD"}
        if cell.recurrent:
            shapes["weight_hh"] = recurrent
        if form.bias:
            shapes["bias_ih"] = "GH"
            if cell.recurrent:
                shapes["bias_hh"] = "GH"
        if cell.projected:
            shapes["weight_hr"] = "PH"
        shapes |= {name: "GH" if spec.per_gate else "H" for name, spec in cell.parameters.items()}
        self.weights = {name: b.input(Port(Role.WEIGHT, name), axes) for name, axes in shapes.items()}
        for name, spec in cell.noise.items():
            axes = *("T" if spec.per_step else ""), "N", self.state_axis.get(spec.state or "", "H")
            self.noise[name] = b.input(Port(Role.NOISE, name), axes, name=f"{name}_noise")
        if form.lengths:
            b.input(Port(Role.LENGTHS), "N", "int")
        self.initial = {s: b.input(Port(Role.INITIAL, s), ("N", a), name=f"{s}_0") for s, a in self.state_axis.items()}
        self.restart = self.initial
        if form.resets:
            self.resets = b.input(Port(Role.RESETS), ("T", "N"), "bool")
            if form.restarts:
                self.restart = {
                    s: b.input(Port(Role.RESTART, s), ("N", a), name=f"{s}_restart") for s, a in self.state_axis.items()
                }

    def rows(self, weight: str, gates: tuple[str, ...]) -> Value:
        """The rows of some gates of a weight."""
        places = [self.cell.gates.index(gate) for gate in gates]
        return self.b.take(self.weights[weight], "G", places, self.axis_of_gates[gates], f"{weight}_of_{len(gates)}")

    def by_head(self, x: Value, axis: str, left: bool = False) -> Value:
        """A value whose units are split by head, as in the recurrent weights.

        Args:
            x: the value.
            axis: the axis of its units.
            left: whether the weights multiply the value. Otherwise its units are rows of the weights.
        """
        to = ("K", "V" if left else "U") if self.cell.heads > 1 else ("J" if left else axis,)
        return self.b.reshape(x, {*x.type.axes} - {axis} | {*to})

    def join_heads(self, x: Value, axis: str, name: str = "") -> Value:
        """The inverse of `by_head`: a value with the units of all heads along one axis."""
        return self.b.reshape(x, {*x.type.axes} - {"J", "K", "U", "V"} | {axis}, name)

    def common_value(self, node: Node, args: tuple[Value | float, ...]) -> Value:
        """The value of a node that both the forward and the backward graph can contain."""
        b, name = self.b, node.name or ""
        match node.op, node.args:
            case "parameter", (parameter, gate):
                weight = self.weights[parameter]
                return weight if gate is None else b.block(weight, "G", self.cell.gates.index(gate), name)
            case "noise", (noise,):
                value = self.noise[noise]
                return b.read(value) if "T" in value.type.axes else value
            case "size", (axis,):
                return b.size(axis.name, name)
            case "constant", (number,):
                return b.broadcast(b.constant(number), axes_of(node), name)
            case "row_sum", _:
                assert isinstance(args[0], Value)
                return b.sum(args[0], axes_of(node.inputs[0]), name)
        assert node.op in OPERATIONS, node
        return b.elementwise(node.op, *args, name=name)

    def unless_reset(self, resets: Value | None, restart: Value, x: Value, name: str) -> Value:
        """The state `x` before a step, with `restart` in the rows with a reset; x if `resets` is None."""
        return x if resets is None else self.b.elementwise("where", resets, restart, x, name=name)

    def per_row(self, node: Node) -> Value:
        """The value of a node, broadcast to every row and unit."""
        return self.b.broadcast(self.values[node], ("N", *axes_of(node)))

    def result(self, name: str, k: int | str) -> Value:
        """A result of the graph, broadcast to every row and unit."""
        return self.per_row(self.graph.outputs[name, k])

    def kept(self) -> dict[Key, Port]:
        """The port of each value that the forward pass keeps in addition to the states."""
        return {key: Port(Role.KEPT, f"{key[0]}{key[1]}") for key in self.trace.saved if key[0] != "state"}


class _Forward(PassLowering):
    def __init__(self, cell: Equations, trace: Trace, form: Form) -> None:
        super().__init__(cell, trace, form, backward=False)
        self.by_left: dict[Node, Value] = {}
        self.groups_of = dict(self.groups())

    def program(self) -> Pass:
        b, trace = self.b, self.trace
        self.declare()
        self.ih = self._input_halves()
        resets = b.read(self.resets) if self.form.resets else None
        name = "{}_prev" if resets is None else "{}_carried"
        carries = {state: b.carry(name.format(state), initial) for state, initial in self.initial.items()}
        self.before = {s: self.unless_reset(resets, self.restart[s], v, f"{s}_prev") for s, v in carries.items()}
        for node in self.graph.nodes:
            args = tuple(self.values[arg] if isinstance(arg, Node) else arg for arg in node.args)
            self.values[node] = self._value(node, args)
        following, outputs = {}, {}
        for k, state in enumerate(self.cell.state):
            new = self.result("state", k)
            following[carries[state]] = new
            outputs[Port(Role.STATES, state)] = b.write(new, state)
        for key, port in self.kept().items() if self.form.save else ():
            outputs[port] = b.write(b.broadcast(self.values[trace.saved[key]], "N"))
        for gate in trace.recorded:
            outputs[Port(Role.GATE, gate)] = b.write(self.result("gate", gate), f"gate_{gate}")
        finals = b.end_loop(following)
        outputs |= {Port(Role.FINAL, state): finals[carries[state]] for state in self.cell.state}
        return b.finish(outputs)

    def _value(self, node: Node, args: tuple[Value | float, ...]) -> Value:
        b, name = self.b, node.name or ""
        match node.op, node.args:
            case "state", (state,):
                return self.before[state]
            case "ih", (gate,):
                return self._input_half(gate, name)
            case "hh", (gate, _):
                return self._recurrent(node, gate, name)
            case "sum", (gate, _):
                return b.elementwise(
                    "add", self._input_half(gate, f"{gate}_ih"), self._recurrent(node, gate, f"{gate}_hh"), name=name
                )
            case "hr", (raw,):
                return b.contract(self.per_row(raw), self.weights["weight_hr"], axes_of(raw), name)
        return self.common_value(node, args)

    def _input_halves(self) -> Value | None:
        """`W_ih x + b_ih` of all steps, plus `b_hh` for gates of which the step uses only the sum of both halves."""
        gates, b = self.ih_gates, self.b
        if not gates:
            return None
        products = b.contract(self.data, self.rows("weight_ih", gates), "D", "Wx")
        if not self.form.bias:
            return products
        bias = self.rows("bias_ih", gates)
        shared = {node.args[0] for node in self.trace.shared}
        if shared == {*gates}:
            bias = b.elementwise("add", bias, self.rows("bias_hh", gates), name="bias")
        elif shared:
            halves = [b.block(self.weights["bias_ih"], "G", self.cell.gates.index(gate)) for gate in gates]
            for k, gate in enumerate(gates):
                if gate in shared:
                    of_state = b.block(self.weights["bias_hh"], "G", self.cell.gates.index(gate))
                    halves[k] = b.elementwise("add", halves[k], of_state)
            bias = b.stack(halves, self.axis_of_gates[gates], "bias")
        return b.elementwise("add", products, bias, name="ih")

    def _input_half(self, gate: str, name: str) -> Value:
        assert self.ih is not None
        gates = self.ih_gates
        return self.b.block(self.b.read(self.ih), self.axis_of_gates[gates], gates.index(gate), name)

    def _recurrent(self, node: Node, gate: str, name: str) -> Value:
        b, u = self.b, node.args[1]
        gates = self.groups_of[u]
        if u not in self.by_left:
            left = self.by_head(self.per_row(u), self.out, left=True)
            product = b.contract(left, self.rows("weight_hh", gates), "J" if self.cell.heads == 1 else "V", "Wh")
            self.by_left[u] = self.join_heads(product, "H")
        half = b.block(self.by_left[u], self.axis_of_gates[gates], gates.index(gate), "" if node.op == "hh" else name)
        if node.op == "sum" or not self.form.bias:
            return half
        bias = b.block(self.weights["bias_hh"], "G", self.cell.gates.index(gate))
        return b.elementwise("add", half, bias, name=name)
