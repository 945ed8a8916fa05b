"""Converts a network to data of a page: weights, JavaScript functions of recurrent layers, and descriptions."""

from functools import partial
from typing import Any

from torch import Tensor, nn

from glassgate.cell import Cell
from glassgate.engines.retention import memory_of
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import Node
from glassgate.engines.symbolic.rewrite import rewrite_graph
from glassgate.engines.symbolic.step import equations_of
from glassgate.engines.symbolic.values import NotTraceable, topological_order
from glassgate.export.javascript import Weights, emit
from glassgate.glass.diagrams.flow import Value, flow
from glassgate.glass.measures import ranges
from glassgate.layers.stack import Recurrent


class Network:
    """The weights and functions of a network, added layer by layer.

    Args:
        half: whether weights are stored with 16 bits.

    Attributes:
        weights: all arrays that were added.
        steps: the JavaScript functions of one step, for each direction.
    """

    def __init__(self, half: bool = False) -> None:
        self.weights = Weights(half)
        self.steps: list[str] = []

    def add_array(self, values: Tensor) -> dict[str, Any]:
        """Add an array to the weights and return its offset and shape."""
        return self.weights.add(values.detach().float().cpu().numpy())

    def add_linear(self, module: nn.Module | None) -> dict[str, Any] | None:
        """Add a linear module, with or without bias, and return its description. Return None if the module is None."""
        if module is None:
            return None
        weight, bias = getattr(module, "weight"), getattr(module, "bias", None)  # noqa: B009
        return {"weight": self.add_array(weight), "bias": None if bias is None else self.add_array(bias)}

    def add_layer(self, layer: Recurrent, name: str) -> dict[str, Any]:
        """Add a recurrent layer and return its description.

        Args:
            layer: a layer of any cell and depth, with one or two directions.
            name: the name of the layer in its model, "encoder" for example.

        Raises:
            ValueError: JavaScript cannot express an operation of the cell. The message names the operation.
        """
        rewrite = partial(name_wires, layer.cell, layer.proj_size > 0)
        script = emit(layer, self.weights, name, rewrite=rewrite)
        self.steps.append(script.steps)
        kinds, keeping = ranges(layer.cell), dict[str, Any]()
        if layer.cell.declaration is None:  # scripts of other cells store states, but no gates
            keeping |= memory_of(layer.cell, layer.glassgate.parts[0].hidden_size).keeping
        for level in script.layer["levels"]:
            for direction in level["directions"]:
                direction |= {"kinds": kinds, "keeping": [gate for gate in direction["gates"] if gate in keeping]}
        return script.layer


def name_wires(cell: Cell, projected: bool, equations: Equations) -> Equations:
    """Give values of the equations the names of their wires in the cell's diagram. `2.0` becomes `wire_2_0`.

    The equations of a layer whose regularisers change the step are returned unchanged.
    """
    of_cell = equations_of(cell, projected)
    if of_cell.text != equations.text:
        return equations
    try:
        diagram = flow(cell, projected)
    except NotTraceable:
        return equations
    states = [value.item.nodes[value.port] for value in diagram.new.values()]
    merged_node = rewrite_graph(states)
    drawn, diagram_names = topological_order(merged_node[state] for state in states), {}
    for item in diagram.items:
        for port, node in enumerate(item.nodes):
            if node in merged_node:
                diagram_names[merged_node[node]] = diagram.name_of(Value(item, port))
    if [node.op for node in drawn] != [node.op for node in of_cell.nodes]:
        return equations
    for node, node_of_cell in zip(drawn, of_cell.nodes, strict=True):
        if node in diagram_names and _is_unnamed(node_of_cell):
            node_of_cell.name = wire_key(diagram_names[node])
    return of_cell


def _is_unnamed(node: Node) -> bool:
    return node.name is None and not isinstance(
        node.op, ops.State | ops.Noise | ops.Parameter | ops.Constant | ops.Size
    )


def wire_key(name: str) -> str:
    """Convert the name of a value in a diagram to its name in scripts.

    Example:
        >>> wire_key("f"), wire_key("2.0")
        ('f', 'wire_2_0')
    """
    return name if name.isidentifier() else f"wire_{name.replace('.', '_')}"
