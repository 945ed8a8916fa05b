"""Lyapunov exponents of a layer along its trajectories (Vogt et al. 2020, arXiv:2006.14123)."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassgate.dynamics.network import Network
from glassgate.layers.stack import Recurrent
from glassgate.shapes import check_size

Z_95 = 1.959964
"""Half the width of a 95 % confidence interval, in standard errors."""


class Lyapunov(NamedTuple):
    """The leading Lyapunov exponents per step, as natural logarithms.

    If the largest exponent is above 0, small differences between states grow (chaos). If it is below 0, they shrink.
    """

    exponents: Tensor
    """(k,), largest first: the mean over sequences."""
    interval: Tensor
    """(k, 2): the 95 % confidence interval of the mean over sequences; NaN for one sequence."""
    per_sequence: Tensor
    """(N, k)."""


def lyapunov(layer: Recurrent, inputs: Tensor, k: int = 1, hx: Any = None, *, warm_up: int = 0) -> Lyapunov:
    """The k leading Lyapunov exponents along the trajectories of a layer under given inputs.

    The Jacobian of each step maps k orthogonal directions. A QR decomposition then makes them orthogonal again. The
    exponents are the mean logarithms of the growth factors.

    Args:
        layer: a layer of one direction. It is analysed in eval mode, in float64.
        inputs: (L, N, H_in): N sequences of L steps, for example from different passages of a text.
        k: the number of exponents, at most S, the number of state variables.
        hx: initial states, flat (N, S) or in the form of the layer's `hx`; by default, the layer's own.
        warm_up: the number of first steps to ignore, in which states reach their attractor and directions align.

    Raises:
        ValueError: k is larger than S, or no step is left after the warm-up.
        ShapeError: inputs do not fit the layer.

    Example:
        The exponents of a linear network are the logarithms of the magnitudes of its eigenvalues.

        >>> import torch, glassgate as gg
        >>> class Linear(gg.Cell):
        ...     gates, state = ("n",), ("h",)
        ...     def step(self, a, s):
        ...         return a.n
        >>> layer = gg.Recurrent(Linear(), 1, 2, bias=False)
        >>> _ = layer.weight_hh_l0.data.copy_(torch.tensor([[0.5, 0.0], [0.3, 0.25]]))
        >>> result = gg.dynamics.lyapunov(layer, torch.zeros(2000, 1, 1), k=2)
        >>> result.exponents.exp().round(decimals=3)
        tensor([0.5000, 0.2500], dtype=torch.float64)
    """
    network = Network("lyapunov", layer)
    check_size("lyapunov", "k", k)
    if k > network.size:
        raise ValueError(f"lyapunov: k must be at most S = {network.size}, the number of state variables, got {k}")
    states = network.run(inputs, hx)
    inputs = inputs.detach().to("cpu", torch.float64)
    steps, rows, _ = inputs.shape
    if not 0 <= warm_up < steps:
        raise ValueError(f"lyapunov: warm_up must be from 0 to {steps - 1}, the number of steps - 1, got {warm_up}")
    directions = torch.eye(network.size, k, dtype=torch.float64).expand(rows, -1, -1)
    directions, _ = torch.linalg.qr(directions + 1e-3 * _fixed_noise(network.size, k))
    total = directions.new_zeros(rows, k)
    steps_at_once = max(1, next(network.chunks(1)).stop // max(rows, 1))
    for first in range(0, steps, steps_at_once):
        chunk = slice(first, min(first + steps_at_once, steps))
        jacobians = network.jacobian(states[:-1][chunk].flatten(0, 1), inputs[chunk].flatten(0, 1))
        for t, step_jacobians in enumerate(jacobians.unflatten(0, (-1, rows)), first):
            directions, lengths = torch.linalg.qr(step_jacobians @ directions)
            if t >= warm_up:
                total += lengths.diagonal(dim1=1, dim2=2).abs().clamp_min(torch.finfo(torch.float64).tiny).log()
    per_sequence = (total / (steps - warm_up)).sort(1, descending=True).values
    mean = per_sequence.mean(0)
    error = per_sequence.std(0) / math.sqrt(rows) if rows > 1 else torch.full_like(mean, math.nan)
    return Lyapunov(mean, torch.stack([mean - Z_95 * error, mean + Z_95 * error], 1), per_sequence)


def _fixed_noise(size: int, k: int) -> Tensor:
    """The same noise in every call. It keeps initial directions from being orthogonal to growing directions."""
    return torch.randn(size, k, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
