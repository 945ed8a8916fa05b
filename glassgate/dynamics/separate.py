"""Separates a stack into layers of one direction, which most analyses require."""

from typing import NamedTuple

import torch
from torch import Tensor

from glassgate.dynamics.network import convert_inputs, copy_layer
from glassgate.layers.levels import Level, walk
from glassgate.layers.parts import Part
from glassgate.layers.stack import Recurrent


class SeparateLayer(NamedTuple):
    """One direction of one layer of a stack."""

    label: str
    """For example "layer0.reverse"."""
    layer: Recurrent
    """A layer with the weights of one direction, in float64 and in eval mode."""
    inputs: Tensor
    """(L, N, H_in): the inputs in the order of reading. The reverse direction reads the last step first."""


@torch.no_grad()
def separate(layer: Recurrent, inputs: Tensor) -> list[SeparateLayer]:
    """Each layer and direction of a stack as a separate layer, with the inputs that it reads inside the stack.

    The exponents and Jacobians of a stack mix its layers. Those of a separate layer describe only this layer.

    Args:
        layer: a layer of any depth, with one or two directions.
        inputs: (L, N, H_in), also for a batch-first layer.

    Returns:
        One separate layer per layer and direction, in the order of torch.nn.

    Raises:
        TypeError: `layer` is not a recurrent layer of this package.
        ShapeError: inputs do not fit the layer.

    Example:
        >>> import torch, glassgate as gg
        >>> stack = gg.GRU(3, 4, num_layers=2, bidirectional=True)
        >>> for label, layer, inputs in gg.dynamics.separate(stack, torch.randn(20, 5, 3)):
        ...     print(label, tuple(inputs.shape), bool(gg.dynamics.lyapunov(layer, inputs).exponents[0] < 0))
        layer0.forward (20, 5, 3) True
        layer0.reverse (20, 5, 3) True
        layer1.forward (20, 5, 8) True
        layer1.reverse (20, 5, 8) True
    """
    stack = copy_layer("separate", layer)
    stack.batch_first = False
    data = convert_inputs("separate", stack, inputs)
    _, _, states = stack(data, return_states=True)
    layers = []

    def separate_level(level: Level, inputs: list[Tensor]) -> list[Tensor]:
        for part in level.parts:
            below = inputs[part.direction % len(inputs)]
            below = below.flip(0) if part.direction else below
            layers.append(SeparateLayer(part.label, _extract_layer(stack, part), below))
        return [states[f"{part.label}.{stack.cell.state[0]}"] for part in level.parts]

    walk(stack.glassgate.levels, data, separate_level)
    return layers


def _extract_layer(stack: Recurrent, part: Part) -> Recurrent:
    layer = Recurrent(
        stack.cell,
        part.shapes["weight_ih"][1],
        part.hidden_size,
        bias=stack.bias,
        proj_size=stack.proj_size,
        learn_initial_state=stack.learn_initial_state,
        dtype=torch.float64,
    )
    (new_part,) = layer.glassgate.parts
    for name in (*part.shapes, *(f"{state}_0" for state in part.widths if stack.learn_initial_state)):
        getattr(layer, name + new_part.suffix).copy_(getattr(stack, name + part.suffix))
    return layer.eval().requires_grad_(False)
