"""The backward pass of one direction: the steps in reverse order, and the weight gradients as contractions."""

from functools import reduce

from glassgate.engines.lowering.forward import Form, PassLowering, axes_of
from glassgate.engines.lowering.ir import Pass, Port, Role, Value
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import Node
from glassgate.engines.symbolic.trace import Trace


def backward_pass(cell: Equations, trace: Trace, form: Form) -> Pass:
    """The pass that computes the gradients of all inputs of one direction.

    Its inputs are those of the forward pass, the gradients of the states, and the values that the forward pass keeps.

    Args:
        cell: the equations of the cell.
        trace: the forward and backward graphs of the equations.
        form: the properties of the call that change the pass.
    """
    return _Backward(cell, trace, form).program()


class _Backward(PassLowering):
    def __init__(self, cell: Equations, trace: Trace, form: Form) -> None:
        super().__init__(cell, trace, form, backward=True)
        self.every_row = ("T", "M") if form.groups else ("T", "N")
        """The axes over which gradients of weights are summed."""
        self.outputs: dict[Port, Value] = {}
        self.sequences: dict[Port, Value] = {}
        """The sequences other than `d_pre` that the loop writes for the contractions after it."""

    def program(self) -> Pass:
        b = self.b
        self.declare()
        self._declare_states()
        carries = {s: b.carry(f"d_{s}_next", self.d_final[s]) for s in self.cell.state}
        self.d_next = dict(carries)
        d_restart = {}
        if self.form.resets:
            d_restart = {s: b.carry(f"d_{s}_restart", self._zeros("N", axis)) for s, axis in self.state_axis.items()}
        count = self.trace.gradients["d_parameter"]
        sums = [b.carry(f"d_parameter_{k}", self._zeros("N", "H")) for k in range(count)]
        for node in self.graph.nodes:
            args = tuple(self.values[arg] if isinstance(arg, Node) else arg for arg in node.args)
            self.values[node] = self._value(node, args)
        following: dict[Value, Value] = {}
        for k, state in enumerate(self.cell.state):
            d = self.result("d_state", k)
            if self.form.resets:
                resets = b.read(self.resets)
                kept = b.elementwise("where", resets, d, 0.0)
                following[d_restart[state]] = b.elementwise("add", d_restart[state], kept)
                d = b.elementwise("where", resets, 0.0, d)
            following[carries[state]] = d
        for k, total in enumerate(sums):
            following[total] = b.elementwise("add", total, self.result("d_parameter", k))
        self._write()
        finals = b.end_loop(following)
        for state in self.cell.state:
            d = finals[carries[state]]
            if d_restart and not self.form.restarts:
                d = b.elementwise("add", d, finals[d_restart[state]])
            elif d_restart:
                self.outputs[Port(Role.D_RESTART, state)] = finals[d_restart[state]]
            self.outputs[Port(Role.D_INITIAL, state)] = d
        self._input_weight_gradients()
        self._recurrent_weight_gradients()
        self._parameter_gradients([b.sum(self._grouped(finals[total]), self.every_row) for total in sums])
        return b.finish(self.outputs)

    def _zeros(self, *axes: str) -> Value:
        return self.b.broadcast(self.b.constant(0.0), axes)

    def _grouped(self, x: Value) -> Value:
        """A value with its sequences split by group, if there are groups."""
        return self.b.reshape(x, {*x.type.axes} - {"N"} | {"B", "M"}) if self.form.groups else x

    def _declare_states(self) -> None:
        """Declare states, kept values and gradients as inputs. Compute the states before each step that are read."""
        b, trace = self.b, self.trace
        read = {node.args[0] for node in self.graph.nodes if node.op == "state"}
        read |= {u.args[0] for u, _ in self.groups() if self._left_column(u) is None}
        saved = {self.cell.state[key[1]] for key in trace.saved if key[0] == "state"}
        axes = {s: ("T", "N", axis) for s, axis in self.state_axis.items()}
        self.states = {s: b.input(Port(Role.STATES, s), axes[s], name=f"{s}_all") for s in axes if s in read | saved}
        self.kept_values = {}
        for key, port in self.kept().items():
            node = trace.saved[key]
            self.kept_values[key] = b.input(port, ("T", "N", *axes_of(node)), name=node.name or port.name)
        self.d_states = {s: b.input(Port(Role.D_STATES, s), axes[s], name=f"d_{s}_all") for s in axes}
        self.d_final = {s: b.input(Port(Role.D_FINAL, s), axes[s][1:], name=f"d_{s}_n") for s in axes}
        self.before = {}
        for state in [s for s in axes if s in read]:
            name = f"{state}_prev_all" if not self.form.resets else ""
            shifted = b.shift(self.states[state], self.initial[state], self.form.reverse, name)
            resets = self.resets if self.form.resets else None
            self.before[state] = self.unless_reset(resets, self.restart[state], shifted, f"{state}_prev_all")

    def _left_column(self, u: Node) -> int | None:
        """The column of a row vector in "left"; None for a state before the step."""
        return next((k for k, left in enumerate(self.trace.left) if left is u), None)

    def _value(self, node: Node, args: tuple[Value | float, ...]) -> Value:
        b, name = self.b, node.name or ""
        match node.op, node.args:
            case "state", (state,):
                return b.read(self.before[state])
            case "saved", ("state", k):
                return b.read(self.states[self.cell.state[k]])
            case "saved", key:
                return b.read(self.kept_values[key])
            case "grad", (state,):
                return b.elementwise("add", b.read(self.d_states[state]), self.d_next[state], name=name)
            case "hh_t", (gates, *d):
                return self._transposed(dict(zip(gates, d, strict=True)), name)
            case "hr_t", (d_hr,):
                return b.contract(self.per_row(d_hr), self.weights["weight_hr"], axes_of(d_hr), name)
        return self.common_value(node, args)

    def _transposed(self, d: dict[str, Node], name: str) -> Value:
        """The gradient of the left operand of a recurrent matrix product, from the gradients of its gates."""
        b, gates = self.b, tuple(gate for gate in self.cell.gates if gate in d)
        stacked = b.stack([self.per_row(d[gate]) for gate in gates], self.axis_of_gates[gates])
        units = "U" if self.cell.heads > 1 else "H"
        over = (self.axis_of_gates[gates], units)
        product = b.contract(self.by_head(stacked, "H"), self.rows("weight_hh", gates), over)
        return self.join_heads(product, self.out, name)

    def _write(self) -> None:
        """Write the sequences that are read after the loop, and recorded gradients."""
        b = self.b
        if self.gate_of_column:
            d = [self.result("d_pre", k) for k in range(len(self.gate_of_column))]
            d_pre = b.stack(d, self.axis_of_gates[tuple(self.gate_of_column)], "d_pre")
            self.d_pre = b.write(d_pre, port=Port(Role.D_PRE))
            if self.trace.records_factors:
                self.outputs[Port(Role.D_GATE, "d_pre")] = self.d_pre
        for name, k in self.graph.outputs:
            if name in ("left", "raw", "d_hr"):
                port = Port(Role(name), str(k))
                self.sequences[port] = b.write(self.result(name, k), f"{name}{k}", port)
            elif name in ("d_gate", "d_new"):
                role = Role.D_GATE if name == "d_gate" else Role.D_NEW
                self.outputs[Port(role, str(k))] = b.write(self.result(name, k), f"{name}_{k}")

    def _columns(self, gates: tuple[str, ...], columns: list[int], name: str) -> Value:
        """The gradients of the matrix products of some gates at every step."""
        return self.b.take(
            self.d_pre, self.axis_of_gates[tuple(self.gate_of_column)], columns, self.axis_of_gates[gates], name
        )

    def _input_weight_gradients(self) -> None:
        b, gates, first = self.b, self.ih_gates, len(self.trace.hh_only)
        parts, biases = [], []
        if gates:
            d = self._columns(gates, [first + self.trace.ih.index(gate) for gate in gates], "d_ih")
            parts.append((gates, self._over_rows(d, self.data, "d_weight_ih")))
            biases.append((gates, b.sum(self._grouped(d), self.every_row)))
            over = (self.axis_of_gates[gates], "H")
            d_x = b.contract(d, self.rows("weight_ih", gates), over, "d_x")
        else:
            d_x = self._zeros("T", "N", "D")
        self.outputs[Port(Role.D_DATA)] = d_x
        self._place("weight_ih", parts)
        if self.form.bias:
            self._place("bias_ih", biases)

    def _recurrent_weight_gradients(self) -> None:
        b, parts, biases = self.b, [], []
        for u, gates in self.groups():
            d = self._columns(gates, [k for k in (self.column_of(u, gate) for gate in gates) if k is not None], "d_hh")
            k = self._left_column(u)
            left = self.before[u.args[0]] if k is None else self.sequences[Port(Role.LEFT, str(k))]
            left = self.by_head(left, self.out, left=True)
            parts.append((gates, self._over_rows(self.by_head(d, "H"), left, "d_weight_hh")))
            biases.append((gates, b.sum(self._grouped(d), self.every_row)))
        if self.cell.recurrent:
            self._place("weight_hh", parts)
            if self.form.bias:
                self._place("bias_hh", biases)
        if self.cell.projected:
            d, raw = (self.sequences[Port(role, "0")] for role in (Role.D_PROJECTED, Role.UNPROJECTED))
            self.outputs[Port(Role.D_WEIGHT, "weight_hr")] = self._over_rows(d, raw, "d_weight_hr")

    def _over_rows(self, d: Value, right: Value, name: str) -> Value:
        """A weight gradient: the sum over rows of the outer products of gradients and other row vectors."""
        return self.b.contract(self._grouped(d), self._grouped(right), self.every_row, name)

    def _parameter_gradients(self, sums: list[Value]) -> None:
        for name, spec in self.cell.parameters.items():
            by_gate = [
                (gate, sums[column])
                for (of, gate), column in zip(self.trace.parameters, self.trace.parameter_columns, strict=True)
                if of == name
            ]
            if spec.per_gate:
                self._place_blocks(name, {gate or "": [value] for gate, value in by_gate})
            else:
                self.outputs[Port(Role.D_WEIGHT, name)] = by_gate[0][1] if by_gate else self._zeros(*self._own("H"))

    def _own(self, *axes: str) -> tuple[str, ...]:
        """The axes of the gradient of a weight with these axes."""
        return (*axes, "B") if self.form.groups else axes

    def _place(self, weight: str, parts: list[tuple[tuple[str, ...], Value]]) -> None:
        """Output the gradient of a weight. Each part has the gradient of the rows of some gates."""
        if len(parts) == 1 and parts[0][0] == self.cell.gates:
            self.outputs[Port(Role.D_WEIGHT, weight)] = parts[0][1]
            return
        blocks: dict[str, list[Value]] = {gate: [] for gate in self.cell.gates}
        for gates, value in parts:
            for k, gate in enumerate(gates):
                blocks[gate].append(self.b.block(value, self.axis_of_gates[gates], k))
        self._place_blocks(weight, blocks)

    def _place_blocks(self, weight: str, blocks: dict[str, list[Value]]) -> None:
        """Output the gradient of a weight. `blocks` has the terms of each gate's rows. Without terms they are zero."""
        b, axes = self.b, self._own(*{*self.weights[weight].type.axes} - {"G"})
        rows = [
            reduce(lambda x, y: b.elementwise("add", x, y), terms)
            if (terms := blocks.get(gate))
            else self._zeros(*axes)
            for gate in self.cell.gates
        ]
        self.outputs[Port(Role.D_WEIGHT, weight)] = b.stack(rows, "G", f"d_{weight}")
