"""Lowers the forward pass of one direction: sums of biases, the input GEMM, and the loop over the steps."""

from typing import NamedTuple

from glassgate.engines.axes import PER_ROW, Axis
from glassgate.engines.lowering.builder import Builder
from glassgate.engines.lowering.ir import Pass, Port, Role, Value
from glassgate.engines.lowering.weights import input_products, recurrent_products, weight_axes
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import Node, gate_of
from glassgate.engines.symbolic.trace import Trace


class Form(NamedTuple):
    """The properties of a call that change its passes. A pass is determined by its form and the cell's equations.

    Attributes:
        reverse: whether the direction runs from the last step to the first.
        bias: whether the layer has `bias_ih` and `bias_hh`.
        lengths: whether the lengths of sequences may differ.
        resets: whether states are reset before some steps.
        restarts: whether the states after a reset differ from the initial states.
        save: whether the forward pass outputs the values that the backward pass reads.
        groups: whether gradients of parameters have an axis B, with one gradient for each of B groups of M adjacent
            sequences.
    """

    reverse: bool = False
    bias: bool = True
    lengths: bool = False
    resets: bool = False
    restarts: bool = False
    save: bool = False
    groups: bool = False


def forward_pass(cell: Equations, trace: Trace, form: Form) -> Pass:
    """Lower the forward pass of one direction.

    Args:
        cell: the equations of the cell.
        trace: the forward and backward graphs of the equations.
        form: the properties of the call.
    """
    return _Forward(cell, trace, form).lower()


def axes_of(node: Node) -> tuple[str, ...]:
    """The axes of a node's value in one row: one axis, or none if the value is one number."""
    return () if node.axis == PER_ROW else (node.axis.name,)


def kept_port(value: ops.Saved) -> Port:
    """The port of a value that the forward pass keeps for the backward pass."""
    return Port(Role.KEPT, value.kind, value.number)


class PassLowering:
    """The common part of the forward and backward lowering: axes, inputs, and the nodes that occur in both graphs.

    Args:
        cell, trace, form: as in `forward_pass`.
        backward: whether the pass is a backward pass.
    """

    def __init__(self, cell: Equations, trace: Trace, form: Form, backward: bool) -> None:
        self.cell, self.trace, self.form = cell, trace, form
        self.values: dict[Node, Value] = {}
        self.axis_of_state = {state: axis.name for state, axis in cell.axes.items()}
        self.input_products, self.recurrent_products = input_products(cell, trace), recurrent_products(cell, trace)
        self.gate_of_column = [*map(gate_of, (*trace.hh_only, *trace.shared)), *trace.ih_only]
        """The gate of each column of `d_pre`, the gradients of the pre-activations."""
        self.axis_of_gates: dict[tuple[str, ...], str] = {cell.gates: "G"}
        for gates in [
            self.input_products.gates,
            *(products.gates for products in self.recurrent_products),
            *([tuple(self.gate_of_column), *self._gates_with_gradients()] if backward else []),
        ]:
            self.axis_of_gates.setdefault(gates, f"G{len(self.axis_of_gates)}")
        title = f"{'backward' if backward else 'forward'} pass{' of the reverse direction' if form.reverse else ''}"
        self.build = Builder(title, self._axes(), reverse=form.reverse != backward)
        self.weights: dict[str, Value] = {}
        self.noise: dict[str, Value] = {}

    @property
    def output_axis(self) -> str:
        """The axis of the units of the output: P with a projection, otherwise H."""
        return self.axis_of_state[self.cell.state[0]]

    def _gates_with_gradients(self) -> list[tuple[str, ...]]:
        """For each gradient of a left operand, the gates over which it is summed. Detached gates are omitted."""
        sums = [node.op for node in self.trace.backward.nodes if isinstance(node.op, ops.RecurrentTranspose)]
        return [tuple(gate for gate in self.cell.gates if gate in op.gates) for op in sums]

    def _axes(self) -> list[Axis]:
        cell, K = self.cell, self.cell.heads
        gates = [Axis(name, (len(labels),), labels) for labels, name in self.axis_of_gates.items() if labels]
        # A recurrent product sums over J, a separate axis with the extent of the output.
        if K > 1:
            P = [Axis("P", ("K", "V"))] if cell.projected else []
            V = Axis("V") if cell.projected else Axis("V", ("U",))
            units = [*P, Axis("H", ("K", "U")), Axis("K", (K,)), Axis("U"), V]
        else:
            units = [*([Axis("P")] if cell.projected else []), Axis("H"), Axis("J", (self.output_axis,))]
        sequences = [Axis("N", ("B", "M")), Axis("B"), Axis("M")] if self.form.groups else [Axis("N")]
        return [Axis("T"), *sequences, *gates, *units, Axis("D")]

    def declare_inputs(self) -> None:
        """Declare the inputs of both passes: data, weights, noise, lengths, initial states, resets."""
        cell, form, build = self.cell, self.form, self.build
        self.data = build.input(Port(Role.DATA), ("T", "N", "D"), name="x")
        weights = weight_axes(cell, form.bias)
        self.weights = {name: build.input(Port(Role.WEIGHT, name), axes) for name, axes in weights.items()}
        for name, spec in cell.noise.items():
            axes = *("T" if spec.per_step else ""), "N", self.axis_of_state.get(spec.state or "", "H")
            self.noise[name] = build.input(Port(Role.NOISE, name), axes, name=f"{name}_noise")
        if form.lengths:
            build.input(Port(Role.LENGTHS), "N", "int")
        self.initial = {
            s: build.input(Port(Role.INITIAL, s), ("N", a), name=f"{s}_0") for s, a in self.axis_of_state.items()
        }
        self.restart = self.initial
        if form.resets:
            self.resets = build.input(Port(Role.RESETS), ("T", "N"), "bool")
            if form.restarts:
                self.restart = {
                    s: build.input(Port(Role.RESTART, s), ("N", a), name=f"{s}_restart")
                    for s, a in self.axis_of_state.items()
                }

    def weight_rows(self, weight: str, gates: tuple[str, ...]) -> Value:
        """The rows of a weight for some gates."""
        indices = [self.cell.gates.index(gate) for gate in gates]
        return self.build.take(
            self.weights[weight], "G", indices, self.axis_of_gates[gates], f"{weight}_of_{len(gates)}"
        )

    def split_heads(self, x: Value, axis: str, is_left: bool = False) -> Value:
        """Replace the axis of units by the axes of the recurrent weights: one for heads, one for the units of a head.

        Args:
            x: the value.
            axis: the value's axis of units.
            is_left: true if the units are the columns of the weights, as in a left operand; false if they are the rows.
        """
        to = ("K", "V" if is_left else "U") if self.cell.heads > 1 else ("J" if is_left else axis,)
        return self.build.reshape(x, {*x.type.axes} - {axis} | {*to})

    def join_heads(self, x: Value, axis: str, name: str = "") -> Value:
        """The inverse of `split_heads`: put the units of all heads along one axis."""
        return self.build.reshape(x, {*x.type.axes} - {"J", "K", "U", "V"} | {axis}, name)

    def value_of_common_node(self, node: Node, args: tuple[Value | float, ...]) -> Value:
        """The value of a node whose operation occurs in both the forward and the backward graph."""
        build, name = self.build, node.name or ""
        match node.op:
            case str(op):
                return build.elementwise(op, *args, name=name)
            case ops.Parameter(parameter, gate):
                weight = self.weights[parameter]
                return weight if gate is None else build.block(weight, "G", self.cell.gates.index(gate), name)
            case ops.Noise(noise):
                value = self.noise[noise]
                return build.read(value) if "T" in value.type.axes else value
            case ops.Size(axis):
                return build.size(axis, name)
            case ops.Constant(number):
                return build.broadcast(build.constant(number), axes_of(node), name)
            case ops.RowSum():
                return build.sum(self.values[node.inputs[0]], axes_of(node.inputs[0]), name)
        raise AssertionError(f"a pass has no {node.op}")

    def apply_resets(self, resets: Value | None, restart: Value, x: Value, name: str) -> Value:
        """Replace the previous state `x` by `restart` in the rows with a reset. Return x if `resets` is None."""
        return x if resets is None else self.build.elementwise("where", resets, restart, x, name=name)

    def in_every_row(self, node: Node) -> Value:
        """The value of a node, broadcast to all rows and units."""
        return self.build.broadcast(self.values[node], ("N", *axes_of(node)))

    def kept_ports(self) -> dict[ops.Saved, Port]:
        """The port of each value that the forward pass keeps for the backward pass, except states."""
        return {value: kept_port(value) for value in self.trace.saved if value.kind is not ops.SavedKind.STATE}


class _Forward(PassLowering):
    def __init__(self, cell: Equations, trace: Trace, form: Form) -> None:
        super().__init__(cell, trace, form, backward=False)
        self.product_of_operand: dict[Node, Value] = {}
        self.gates_of_operand = {products.operand: products.gates for products in self.recurrent_products}

    def lower(self) -> Pass:
        build, trace = self.build, self.trace
        self.declare_inputs()
        self.ih = self._input_terms()
        resets = build.read(self.resets) if self.form.resets else None
        name = "{}_prev" if resets is None else "{}_carried"
        carries = {state: build.carry(name.format(state), initial) for state, initial in self.initial.items()}
        self.states_before = {s: self.apply_resets(resets, self.restart[s], v, f"{s}_prev") for s, v in carries.items()}
        for node in trace.forward.nodes:
            args = tuple(self.values[arg] if isinstance(arg, Node) else arg for arg in node.args)
            self.values[node] = self._value(node, args)
        next_values, outputs = {}, {}
        for state, node in zip(self.cell.state, trace.forward.states, strict=True):
            new = self.in_every_row(node)
            next_values[carries[state]] = new
            outputs[Port(Role.STATES, state)] = build.write(new, state)
        for key, port in self.kept_ports().items() if self.form.save else ():
            outputs[port] = build.write(build.broadcast(self.values[trace.saved[key]], "N"))
        for gate, node in zip(trace.recorded, trace.forward.gates, strict=True):
            outputs[Port(Role.GATE, gate)] = build.write(self.in_every_row(node), f"gate_{gate}")
        finals = build.end_loop(next_values)
        outputs |= {Port(Role.FINAL, state): finals[carries[state]] for state in self.cell.state}
        return build.finish(outputs)

    def _value(self, node: Node, args: tuple[Value | float, ...]) -> Value:
        build, name = self.build, node.name or ""
        match node.op:
            case ops.State(state):
                return self.states_before[state]
            case ops.InputHalf(gate):
                return self._input_term(gate, name)
            case ops.RecurrentHalf(gate):
                term = self._recurrent_term(gate, node.inputs[0], "")
                if not self.form.bias:
                    return term
                bias = build.block(self.weights["bias_hh"], "G", self.cell.gates.index(gate))
                return build.elementwise("add", term, bias, name=name)
            case ops.PreActivation(gate):
                terms = self._input_term(gate, f"{gate}_ih"), self._recurrent_term(gate, node.inputs[0], f"{gate}_hh")
                return build.elementwise("add", *terms, name=name)
            case ops.Projection():
                (raw,) = node.inputs
                return build.contract(self.in_every_row(raw), self.weights["weight_hr"], axes_of(raw), name)
        return self.value_of_common_node(node, args)

    def _input_terms(self) -> Value | None:
        """`W_ih x + b_ih` of all steps. Includes `b_hh` for gates that do not read `W_hh u + b_hh` separately."""
        gates, build = self.input_products.gates, self.build
        if not gates:
            return None
        products = build.contract(self.data, self.weight_rows("weight_ih", gates), "D", "Wx")
        if not self.form.bias:
            return products
        bias = self.weight_rows("bias_ih", gates)
        shared = {*map(gate_of, self.trace.shared)}
        if shared == {*gates}:
            bias = build.elementwise("add", bias, self.weight_rows("bias_hh", gates), name="bias")
        elif shared:
            biases = [build.block(self.weights["bias_ih"], "G", self.cell.gates.index(gate)) for gate in gates]
            for k, gate in enumerate(gates):
                if gate in shared:
                    bias_hh = build.block(self.weights["bias_hh"], "G", self.cell.gates.index(gate))
                    biases[k] = build.elementwise("add", biases[k], bias_hh)
            bias = build.stack(biases, self.axis_of_gates[gates], "bias")
        return build.elementwise("add", products, bias, name="ih")

    def _input_term(self, gate: str, name: str) -> Value:
        assert self.ih is not None
        gates = self.input_products.gates
        return self.build.block(self.build.read(self.ih), self.axis_of_gates[gates], gates.index(gate), name)

    def _recurrent_term(self, gate: str, u: Node, name: str) -> Value:
        """The rows of a gate of W_hh u."""
        build = self.build
        gates = self.gates_of_operand[u]
        if u not in self.product_of_operand:
            left = self.split_heads(self.in_every_row(u), self.output_axis, is_left=True)
            product = build.contract(
                left, self.weight_rows("weight_hh", gates), "J" if self.cell.heads == 1 else "V", "Wh"
            )
            self.product_of_operand[u] = self.join_heads(product, "H")
        return build.block(self.product_of_operand[u], self.axis_of_gates[gates], gates.index(gate), name)
