"""Lowers the backward pass of one direction: the loop over the steps in reverse order, then the weight gradients."""

from functools import reduce

from glassgate.engines.lowering.forward import Form, PassLowering, axes_of
from glassgate.engines.lowering.ir import Pass, Port, Role, Value
from glassgate.engines.lowering.weights import GateProducts
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import Node
from glassgate.engines.symbolic.trace import Trace


def backward_pass(cell: Equations, trace: Trace, form: Form) -> Pass:
    """Lower the backward pass of one direction, which computes the gradients of all inputs of the forward pass.

    Its inputs are those of the forward pass, the gradients of the states, and the values that the forward pass keeps.

    Args:
        cell: the equations of the cell.
        trace: the forward and backward graphs of the equations.
        form: the properties of the call that change the pass.
    """
    return _Backward(cell, trace, form).lower()


class _Backward(PassLowering):
    def __init__(self, cell: Equations, trace: Trace, form: Form) -> None:
        super().__init__(cell, trace, form, backward=True)
        self.row_axes = ("T", "M") if form.groups else ("T", "N")
        """The axes over which gradients of weights are summed."""
        self.outputs: dict[Port, Value] = {}
        self.sequences: dict[Port, Value] = {}
        """The sequences, except `d_pre`, that the loop writes for the contractions after the loop."""

    def lower(self) -> Pass:
        build = self.build
        self.declare_inputs()
        self._declare_states()
        carries = {s: build.carry(f"d_{s}_next", self.d_final[s]) for s in self.cell.state}
        self.d_next = dict(carries)
        d_restart = {}
        if self.form.resets:
            d_restart = {
                s: build.carry(f"d_{s}_restart", self._zeros("N", axis)) for s, axis in self.axis_of_state.items()
            }
        graph = self.trace.backward
        sums = [build.carry(f"d_parameter_{k}", self._zeros("N", "H")) for k, _ in enumerate(graph.d_parameters)]
        for node in graph.nodes:
            args = tuple(self.values[arg] if isinstance(arg, Node) else arg for arg in node.args)
            self.values[node] = self._value(node, args)
        next_values: dict[Value, Value] = {}
        for state, node in zip(self.cell.state, graph.d_states, strict=True):
            d = self.in_every_row(node)
            if self.form.resets:
                resets = build.read(self.resets)
                d_reset = build.elementwise("where", resets, d, 0.0)
                next_values[d_restart[state]] = build.elementwise("add", d_restart[state], d_reset)
                d = build.elementwise("where", resets, 0.0, d)
            next_values[carries[state]] = d
        for total, node in zip(sums, graph.d_parameters, strict=True):
            next_values[total] = build.elementwise("add", total, self.in_every_row(node))
        self._write_sequences()
        finals = build.end_loop(next_values)
        for state in self.cell.state:
            d = finals[carries[state]]
            if d_restart and not self.form.restarts:
                d = build.elementwise("add", d, finals[d_restart[state]])
            elif d_restart:
                self.outputs[Port(Role.D_RESTART, state)] = finals[d_restart[state]]
            self.outputs[Port(Role.D_INITIAL, state)] = d
        self._input_weight_gradients()
        self._recurrent_weight_gradients()
        self._parameter_gradients([build.sum(self._split_groups(finals[total]), self.row_axes) for total in sums])
        return build.finish(self.outputs)

    def _zeros(self, *axes: str) -> Value:
        return self.build.broadcast(self.build.constant(0.0), axes)

    def _split_groups(self, x: Value) -> Value:
        """Split the batch axis of a value into groups and members if the form has groups."""
        return self.build.reshape(x, {*x.type.axes} - {"N"} | {"B", "M"}) if self.form.groups else x

    def _declare_states(self) -> None:
        """Declare states, kept values and gradients as inputs. Shift a state if steps read its previous value."""
        build, trace = self.build, self.trace
        read = {node.op.name for node in trace.backward.nodes if isinstance(node.op, ops.State)}
        if any(products.left is None for products in self.recurrent_products):
            read.add(self.cell.state[0])
        saved = {self.cell.state[value.number] for value in trace.saved if value.kind is ops.SavedKind.STATE}
        axes = {s: ("T", "N", axis) for s, axis in self.axis_of_state.items()}
        self.states = {
            s: build.input(Port(Role.STATES, s), axes[s], name=f"{s}_all") for s in axes if s in read | saved
        }
        self.kept_values = {}
        for key, port in self.kept_ports().items():
            node = trace.saved[key]
            self.kept_values[key] = build.input(port, ("T", "N", *axes_of(node)), name=node.name or port.label)
        self.d_states = {s: build.input(Port(Role.D_STATES, s), axes[s], name=f"d_{s}_all") for s in axes}
        self.d_final = {s: build.input(Port(Role.D_FINAL, s), axes[s][1:], name=f"d_{s}_n") for s in axes}
        self.states_before = {}
        for state in [s for s in axes if s in read]:
            name = f"{state}_prev_all" if not self.form.resets else ""
            shifted = build.shift(self.states[state], self.initial[state], self.form.reverse, name)
            resets = self.resets if self.form.resets else None
            self.states_before[state] = self.apply_resets(resets, self.restart[state], shifted, f"{state}_prev_all")

    def _value(self, node: Node, args: tuple[Value | float, ...]) -> Value:
        build, name = self.build, node.name or ""
        match node.op:
            case ops.State(state):
                return build.read(self.states_before[state])
            case ops.Saved(ops.SavedKind.STATE, k):
                return build.read(self.states[self.cell.state[k]])
            case ops.Saved():
                return build.read(self.kept_values[node.op])
            case ops.Gradient(state):
                return build.elementwise("add", build.read(self.d_states[state]), self.d_next[state], name=name)
            case ops.RecurrentTranspose(gates):
                return self._left_operand_gradient(dict(zip(gates, node.inputs, strict=True)), name)
            case ops.ProjectionTranspose():
                (d_hr,) = node.inputs
                return build.contract(self.in_every_row(d_hr), self.weights["weight_hr"], axes_of(d_hr), name)
        return self.value_of_common_node(node, args)

    def _left_operand_gradient(self, d: dict[str, Node], name: str) -> Value:
        """The gradient of the left operand of a recurrent matrix product, from the gradients of its gates."""
        build, gates = self.build, tuple(gate for gate in self.cell.gates if gate in d)
        stacked = build.stack([self.in_every_row(d[gate]) for gate in gates], self.axis_of_gates[gates])
        units = "U" if self.cell.heads > 1 else "H"
        over = (self.axis_of_gates[gates], units)
        product = build.contract(self.split_heads(stacked, "H"), self.weight_rows("weight_hh", gates), over)
        return self.join_heads(product, self.output_axis, name)

    def _write_sequences(self) -> None:
        """Write the sequences that are read after the loop, and the recorded gradients."""
        build, trace, graph = self.build, self.trace, self.trace.backward
        if self.gate_of_column:
            d = [*map(self.in_every_row, graph.d_pre)]
            d_pre = build.stack(d, self.axis_of_gates[tuple(self.gate_of_column)], "d_pre")
            self.d_pre = build.write(d_pre, port=Port(Role.D_PRE))
            if trace.records_factors:
                self.outputs[Port(Role.D_GATE, "d_pre")] = self.d_pre
        for role, nodes in ((Role.LEFT, graph.left), (Role.UNPROJECTED, graph.raw), (Role.D_PROJECTED, graph.d_hr)):
            for k, node in enumerate(nodes):
                port = Port(role, number=k)
                self.sequences[port] = build.write(self.in_every_row(node), f"{role.value}{k}", port)
        recorded = [
            *((Role.D_GATE, gate, node) for gate, node in zip(trace.recorded, graph.d_gates, strict=True)),
            *((Role.D_NEW, state, node) for state, node in zip(self.cell.state, graph.d_new, strict=False)),
            *((Role.D_GATE, name, node) for name, node in trace.factors.items()),
        ]
        for role, name, node in recorded:
            prefix = "d_gate" if role is Role.D_GATE else "d_new"
            self.outputs[Port(role, name)] = build.write(self.in_every_row(node), f"{prefix}_{name}")

    def _gradients_of(self, products: GateProducts, name: str) -> Value:
        """The gradients of matrix products at every step: columns of `d_pre`."""
        of_columns, of_gates = self.axis_of_gates[tuple(self.gate_of_column)], self.axis_of_gates[products.gates]
        return self.build.take(self.d_pre, of_columns, products.columns, of_gates, name)

    def _input_weight_gradients(self) -> None:
        build, gates = self.build, self.input_products.gates
        parts, biases = [], []
        if gates:
            d = self._gradients_of(self.input_products, "d_ih")
            parts.append((gates, self._weight_gradient(d, self.data, "d_weight_ih")))
            biases.append((gates, build.sum(self._split_groups(d), self.row_axes)))
            over = (self.axis_of_gates[gates], "H")
            d_x = build.contract(d, self.weight_rows("weight_ih", gates), over, "d_x")
        else:
            d_x = self._zeros("T", "N", "D")
        self.outputs[Port(Role.D_DATA)] = d_x
        self._output_gradient("weight_ih", parts)
        if self.form.bias:
            self._output_gradient("bias_ih", biases)

    def _recurrent_weight_gradients(self) -> None:
        build, parts, biases = self.build, [], []
        for products in self.recurrent_products:
            d = self._gradients_of(products, "d_hh")
            if products.left is None:
                left = self.states_before[self.cell.state[0]]
            else:
                left = self.sequences[Port(Role.LEFT, number=products.left)]
            left = self.split_heads(left, self.output_axis, is_left=True)
            parts.append((products.gates, self._weight_gradient(self.split_heads(d, "H"), left, "d_weight_hh")))
            biases.append((products.gates, build.sum(self._split_groups(d), self.row_axes)))
        if self.cell.recurrent:
            self._output_gradient("weight_hh", parts)
            if self.form.bias:
                self._output_gradient("bias_hh", biases)
        if self.cell.projected:
            d, raw = (self.sequences[Port(role, number=0)] for role in (Role.D_PROJECTED, Role.UNPROJECTED))
            self.outputs[Port(Role.D_WEIGHT, "weight_hr")] = self._weight_gradient(d, raw, "d_weight_hr")

    def _weight_gradient(self, d: Value, right: Value, name: str) -> Value:
        """The gradient of a weight: the sum over all rows of the outer products of `d` and `right`."""
        return self.build.contract(self._split_groups(d), self._split_groups(right), self.row_axes, name)

    def _parameter_gradients(self, sums: list[Value]) -> None:
        for name, spec in self.cell.parameters.items():
            by_gate = [
                (parameter.gate, sums[column])
                for parameter, column in zip(self.trace.parameters, self.trace.parameter_numbers, strict=True)
                if parameter.name == name
            ]
            if spec.per_gate:
                self._output_from_blocks(name, {gate or "": [value] for gate, value in by_gate})
            else:
                self.outputs[Port(Role.D_WEIGHT, name)] = (
                    by_gate[0][1] if by_gate else self._zeros(*self._gradient_axes("H"))
                )

    def _gradient_axes(self, *axes: str) -> tuple[str, ...]:
        """The axes of a weight's gradient: the axes of the weight, and B if the form has groups."""
        return (*axes, "B") if self.form.groups else axes

    def _output_gradient(self, weight: str, parts: list[tuple[tuple[str, ...], Value]]) -> None:
        """Output the gradient of a weight. Each item of `parts` has the gradient for the rows of some gates."""
        if len(parts) == 1 and parts[0][0] == self.cell.gates:
            self.outputs[Port(Role.D_WEIGHT, weight)] = parts[0][1]
            return
        blocks: dict[str, list[Value]] = {gate: [] for gate in self.cell.gates}
        for gates, value in parts:
            for k, gate in enumerate(gates):
                blocks[gate].append(self.build.block(value, self.axis_of_gates[gates], k))
        self._output_from_blocks(weight, blocks)

    def _output_from_blocks(self, weight: str, blocks: dict[str, list[Value]]) -> None:
        """Output the gradient of a weight. The terms of a gate in `blocks` add up to the gradient of its rows."""
        build, axes = self.build, self._gradient_axes(*{*self.weights[weight].type.axes} - {"G"})
        rows = [
            reduce(lambda x, y: build.elementwise("add", x, y), terms)
            if (terms := blocks.get(gate))
            else self._zeros(*axes)
            for gate in self.cell.gates
        ]
        self.outputs[Port(Role.D_WEIGHT, weight)] = build.stack(rows, "G", f"d_{weight}")
