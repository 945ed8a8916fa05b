"""A network inside a page: its weights, the functions of its recurrent layers, and a description that scripts read."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from glassgate.cell import Cell
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import Node, NotTraceable, ordered
from glassgate.engines.symbolic.rewrite import merged
from glassgate.engines.symbolic.step import equations_of
from glassgate.export.javascript import Weights, emit
from glassgate.glass.diagrams.cell import name_of
from glassgate.glass.diagrams.flow import Value, flow
from glassgate.glass.measures import ranges
from glassgate.layers.stack import Recurrent


class Network:
    """Collects the parts of a network.

    Args:
        half: whether weights are stored with 16 bits.

    Attributes:
        weights: all numbers.
        steps: the functions of one step of each direction.
    """

    def __init__(self, half: bool = False) -> None:
        self.weights = Weights(half)
        self.steps: list[str] = []

    def array(self, values: Tensor) -> dict[str, Any]:
        """The address of an array."""
        return self.weights.add(values.detach().float().cpu().numpy())

    def linear(self, module: nn.Module | None) -> dict[str, Any] | None:
        """A module with `weight` (O, I) and `bias` (O,) or None; None for no module."""
        if module is None:
            return None
        weight, bias = getattr(module, "weight"), getattr(module, "bias", None)  # noqa: B009
        return {"weight": self.array(weight), "bias": None if bias is None else self.array(bias)}

    def layer(self, layer: Recurrent, name: str) -> dict[str, Any]:
        """A recurrent layer.

        Args:
            layer: any cell, depth and directions.
            name: of the layer in its model, "encoder" for example.

        Raises:
            ValueError: its cell uses an operation that JavaScript cannot express; the message names it.
        """
        read = partial(wired, layer.cell, layer.proj_size > 0)
        script = emit(layer, self.weights, name, read=read)
        self.steps.append(script.steps)
        kinds = ranges(layer.cell)
        for level in script.layer["levels"]:
            for direction in level["directions"]:
                direction["kinds"] = kinds
        return script.layer


def wired(cell: Cell, projected: bool, equations: Equations) -> Equations:
    """The equations with a name for each value that the diagram of the cell shows: `wire_2_0` for its `2.0`.

    A layer whose equations differ from those of its cell, because of a regulariser, keeps its own names.
    """
    fresh = equations_of(cell, projected)
    if fresh.text != equations.text:
        return equations
    try:
        read = flow(cell, projected)
    except NotTraceable:
        return equations
    states = [value.item.nodes[value.port] for value in read.new.values()]
    new = merged(states)
    drawn, places = ordered(new[state] for state in states), {}
    for item in read.items:
        for port, node in enumerate(item.nodes):
            if node in new:
                places[new[node]] = name_of(Value(item, port), read)
    if [node.op for node in drawn] != [node.op for node in fresh.nodes]:
        return equations
    for node, own in zip(drawn, fresh.nodes, strict=True):
        if node in places and _is_unnamed(own):
            own.name = wire_key(places[node])
    return fresh


def _is_unnamed(node: Node) -> bool:
    return node.name is None and node.op not in ("state", "noise", "parameter", "constant", "size")


def wire_key(name: str) -> str:
    """The name of a value in scripts, for its name in a diagram.

    Example:
        >>> wire_key("f"), wire_key("2.0")
        ('f', 'wire_2_0')
    """
    return name if name.isidentifier() else f"wire_{name.replace('.', '_')}"


def parameters(module: nn.Module) -> int:
    """The count of a module's parameters."""
    return sum(each.numel() for each in module.parameters())


def halved(module: nn.Module) -> None:
    """Rounds all parameters to 16 bits, as a page with 16-bit weights stores them."""
    with torch.no_grad():
        for each in module.parameters():
            each.copy_(each.half())
