"""A cell whose step evaluates a graph. Plans, edited cells and cells read from JSON use this class."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from glassgate.cell import Cell, Named, PreActivations
from glassgate.engines.axes import PER_ROW, UNITS
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.evaluate import argument, evaluate
from glassgate.engines.symbolic.graph import Node, size


class GraphCell(Cell):
    """A cell that evaluates equations with torch's functions.

    Args:
        equations: the equations of the step. For a layer with a projection, they include the projection.
        recorded: whether the cell runs in a recording. Values that need no gradient, such as constants, are then
            attached to the autograd graph, and only gates have names.

    Example:
        >>> import torch, glassgate as gg
        >>> from glassgate.engines.symbolic.step import equations_of
        >>> doubled = equations_of(gg.cells.LSTM()).replaced({"o": lambda o: o * 2})
        >>> output, _ = gg.Recurrent(GraphCell(doubled), 3, 4)(torch.randn(5, 2, 3))
    """

    def __init__(self, equations: Equations, recorded: bool = False) -> None:
        self.equations, self.recorded = equations, recorded
        self.gates, self.state = equations.gates, equations.state  # type: ignore[misc]
        self.parameters, self.noise = equations.parameters, equations.noise
        self.recurrent, self.heads = equations.recurrent, equations.heads  # type: ignore[misc]

    def new_state(self, a: PreActivations, s: Named, p: Named, projection: Any = None) -> tuple[Any, ...]:
        """The states after a step, in the order of `state`."""
        equations = self.equations
        if equations.projected != (projection is not None):
            raise ValueError(f"these equations are of a layer {'with' if equations.projected else 'without'} proj_size")
        wide = next(iter(a.ih))  # any value with one number per unit
        templates = dict(zip(equations.axes.values(), s, strict=True)) | {UNITS: wide}
        templates[PER_ROW] = wide[..., :1] if isinstance(wide, Tensor) else size(UNITS)
        template_of = {axis.name: template for axis, template in templates.items()}
        products: dict[Node, Named] = {}

        def product(vector: Node, u: Any) -> Any:
            if vector.op == ops.State(self.state[0]):
                return a.hh
            if vector not in products:
                products[vector] = a.hh(u)
            return products[vector]

        def special(node: Node, args: tuple[Any, ...]) -> Any:
            match node.op:
                case ops.Leaf():
                    return argument(node.op, a, s, p)
                case ops.RecurrentHalf(gate):
                    return getattr(product(node.inputs[0], args[0]), gate)
                case ops.Projection() if projection is not None:
                    return projection(args[0])
                case ops.RowSum():
                    return args[0].sum(-1, keepdim=True)
                case ops.Size(axis):
                    template = template_of[axis]
                    return float(template.shape[-1]) if isinstance(template, Tensor) else template.units
                case ops.Constant(number):
                    template = templates[node.axis]
                    if isinstance(template, Tensor):
                        return template.new_full(template.shape, number)
                    return template.constant_like(number)
            raise AssertionError(f"a step has no {node.op}")

        to_attach = {*equations.states, *equations.gate_values.values()} if self.recorded else set()

        def attach(node: Node, value: Any) -> Any:
            """Return a recorded value as part of the autograd graph."""
            if node not in to_attach or value.requires_grad or not wide.requires_grad:
                return value
            return torch.where(torch.ones_like(value, dtype=torch.bool), value, wide[..., :1])

        dtype = wide.dtype if isinstance(wide, Tensor) else None
        values = evaluate(equations.nodes, special, dtype, attach)
        # A gate may be called `x_ih`, which is also the name of the value `a.ih.x`. The gate has priority.
        named = () if self.recorded else equations.nodes
        # `values_by_name` reads `names` from the local variables of this function.
        names = {node.name: values[node] for node in named if node.name is not None}
        names |= {gate: values[node] for gate, node in equations.gate_values.items()}
        return tuple(values[node] for node in equations.states)

    def values_by_name(self, variables: Mapping[str, Any]) -> Mapping[str, Any]:
        """The named values of the graph, from the local variables of `new_state`."""
        names: Mapping[str, Any] = variables.get("names", {})
        return names

    def __repr__(self) -> str:
        return f"GraphCell({len(self.equations.nodes)} operations)"
