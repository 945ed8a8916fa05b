"""Jacobians of one step of a layer, and their products along a trajectory."""

from typing import Any

import torch
from torch import Tensor

from glassgate.dynamics.network import Network
from glassgate.layers.stack import Recurrent
from glassgate.shapes import check_size


def jacobian(layer: Recurrent, states: Any, input: Tensor, *, by_gate: bool = False) -> Any:
    """The exact derivative of the states after a step with respect to the states before it.

    Args:
        layer: a layer of one direction. It is analysed in eval mode, in float64.
        states: flat (B, S) or in the form of `hx`. Flat states are the states of all layers side by side, layer by
            layer in the order of `cell.state`. The form of `hx` is (num_layers, B, H), or a tuple of these tensors for
            a cell with several states.
        input: (B, H_in), or (H_in,) for all rows.
        by_gate: whether to split the Jacobian by the last gate on each path from state to state. The part "direct"
            contains the paths without a gate. The parts add up to the Jacobian.

    Returns:
        (B, S, S): row i, column j is the derivative of state variable i after the step with respect to state variable j
        before it. With `by_gate`, a dict of such tensors.

    Raises:
        ShapeError: states or input do not fit the layer.
        ValueError: the layer has two directions, or `by_gate` is set and a cell has no graph.

    Example:
        >>> import torch, glassgate as gg
        >>> layer = gg.LSTM(3, 4)
        >>> gg.dynamics.jacobian(layer, torch.randn(10, 8), torch.zeros(3)).shape
        torch.Size([10, 8, 8])
        >>> sorted(gg.dynamics.jacobian(layer, torch.randn(10, 8), torch.zeros(3), by_gate=True))
        ['direct', 'f', 'g', 'i', 'o']
    """
    network = Network("jacobian", layer)
    flat = network.flatten(states)
    x = network.expand_input(input, flat.shape[0])
    if not by_gate:
        return torch.cat([network.jacobian(flat[rows], x[rows]) for rows in network.chunks(flat.shape[0])])
    parts = network.jacobian_by_gate(flat, x)
    del parts["total"]
    return parts


class Trajectory:
    """The states of a layer over a sequence, with the Jacobian of each step.

    Attributes:
        states: (L + 1, N, S), before the first step and after each step, in float64.
        jacobians: (L, N, S, S), one for each step of each sequence.
        labels: the layer and state of each of the S columns, for example "layer0.c".
    """

    def __init__(self, network: Network, states: Tensor, inputs: Tensor) -> None:
        self.states = states
        steps, rows, _ = inputs.shape
        before, x = states[:-1].flatten(0, 1), inputs.flatten(0, 1)
        jacobians = [network.jacobian(before[at], x[at]) for at in network.chunks(steps * rows)]
        self.jacobians = torch.cat(jacobians).unflatten(0, (steps, rows))
        self.labels = network.labels

    def product(self, start: int = 0, stop: int | None = None) -> Tensor:
        """(N, S, S): the derivative of the states after step `stop` - 1 with respect to those before step `start`."""
        total = torch.eye(self.states.shape[2], dtype=torch.float64).expand(self.states.shape[1], -1, -1)
        for step_jacobians in self.jacobians[start:stop]:
            total = step_jacobians @ total
        return total

    def singular_values(self, start: int = 0) -> Tensor:
        """(L - start, N, S): the singular values of the products of the first 1, 2, ... Jacobians, largest first.

        They are the factors by which a small difference of the states before step `start` grows or shrinks.
        """
        total = torch.eye(self.states.shape[2], dtype=torch.float64).expand(self.states.shape[1], -1, -1)
        values = []
        for step_jacobians in self.jacobians[start:]:
            total = step_jacobians @ total
            values.append(torch.linalg.svdvals(total))
        return torch.stack(values)


def trajectory(layer: Recurrent, inputs: Tensor, hx: Any = None) -> Trajectory:
    """The states of a layer over sequences, with the Jacobian of each step.

    Args:
        layer: a layer of one direction. It is analysed in eval mode, in float64.
        inputs: (L, N, H_in).
        hx: initial states, flat (N, S) or in the form of the layer's `hx`; by default, those of the layer.

    Example:
        >>> import torch, glassgate as gg
        >>> path = gg.dynamics.trajectory(gg.GRU(3, 4), torch.randn(20, 2, 3))
        >>> path.jacobians.shape, path.singular_values().shape
        (torch.Size([20, 2, 4, 4]), torch.Size([20, 2, 4]))
    """
    network = Network("trajectory", layer)
    states = network.run(inputs, hx)
    return Trajectory(network, states, inputs.detach().to("cpu", torch.float64))


def survival(layer: Recurrent, inputs: Tensor, hx: Any = None, *, differences: int = 16) -> Tensor:
    """The fraction of a small random difference (perturbation) of the states that is left after each step.

    After k steps it is the root mean square of the singular values of the product of the first k Jacobians. It is
    computed without these products, by propagation of orthogonal differences through the steps, which takes less time.
    With fewer differences than state variables, the result is an estimate from a fixed sample.

    Args:
        layer: a layer of one direction. It is analysed in eval mode, in float64.
        inputs: (L, N, H_in).
        hx: initial states, flat (N, S) or in the form of the layer's `hx`; by default, those of the layer.
        differences: the maximum number of differences for each sequence.

    Returns:
        (L, N), for each step of each sequence.

    Raises:
        ShapeError: inputs do not fit the layer.
        NotTraceable: a cell has no graph.

    Example:
        >>> import torch, glassgate as gg
        >>> layer, inputs = gg.GRU(3, 4), torch.randn(20, 2, 3)
        >>> found = gg.dynamics.survival(layer, inputs)
        >>> singular_values = gg.dynamics.trajectory(layer, inputs).singular_values()
        >>> torch.allclose(found, singular_values.square().mean(2).sqrt())
        True
    """
    check_size("survival", "differences", differences)
    network = Network("survival", layer, needs_graph=True)
    states = network.run(inputs, hx)
    rows, size = states.shape[1:]
    sample = torch.randn(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    carried = torch.linalg.qr(sample).Q[:, :differences].expand(rows, -1, -1)
    fractions = []
    for before, x in zip(states, inputs.detach().to("cpu", torch.float64), strict=False):
        _, carried = network.step_with_differences(before, x, carried)
        fractions.append(carried.square().sum(1).mean(1).sqrt())
    return torch.stack(fractions)
