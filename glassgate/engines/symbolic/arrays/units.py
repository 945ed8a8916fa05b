"""The equations of a cell with one number per unit as an `ArrayStep`: a cell whose values have one axis or none."""

from glassgate.engines.axes import PER_ROW, PROJECTED, UNITS
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.step import ArrayStep, Local
from glassgate.engines.symbolic.arrays.value import Value
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import Node
from glassgate.engines.symbolic.rewrite import make_names_unique

AXES = {UNITS: ("u",), PROJECTED: ("p",), PER_ROW: ()}
"""The axes of a value with one number per unit, per projected unit, and per row."""


def step_of_units(equations: Equations, hidden_size: int, output_size: int) -> ArrayStep:
    """Return the step of a direction with H_cell units and H_out outputs.

    Its local variables are the values that recordings store for each gate.
    """
    sizes = {UNITS.name: hidden_size, PROJECTED.name: output_size}
    values: dict[Node, Value] = {}
    for node in equations.nodes:
        args = tuple(values[arg] if isinstance(arg, Node) else arg for arg in node.args)
        op = node.op
        if isinstance(op, ops.Size):
            op = ops.Constant(float(sizes[op.axis]))
        elif isinstance(op, ops.RowSum):
            op = ops.Sum(AXES[node.inputs[0].axis])
        values[node] = Value(op, args, AXES[node.axis], node.name)
    states = tuple(values[node] for node in equations.states)
    return ArrayStep(
        sizes={"u": hidden_size, "p": output_size},
        gates=dict.fromkeys(equations.gates, AXES[UNITS]),
        state={name: AXES[axis] for name, axis in equations.axes.items()},
        states=states,
        named=make_names_unique(states),
        joined=frozenset(),
        reads=dict.fromkeys(equations.gates, "xh" if equations.recurrent else "x"),
        inputs={},
        locals={gate: Local(values[node], AXES[UNITS]) for gate, node in equations.gate_values.items()},
    )
