"""Fixed points and slow points of a layer under constant input (Sussillo and Barak 2013)."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassgate.dynamics.network import Network
from glassgate.dynamics.plot import plot
from glassgate.layers.stack import Recurrent

MIN_FRACTION = 2.0**-10
"""The smallest fraction to which a Newton step is shortened before a damped step is tried; see `fixed_points`."""
CONTRACTION = 0.25
"""Newton's method converges quadratically if each step is at most this fraction of the step before (Deuflhard)."""
MAX_REPRESENTATIVES = 128
"""The maximum number of points that one step of the search compares with all others."""
ELEMENTS_AT_ONCE = 2**19
"""The maximum number of elements of the Jacobians that a step of the search holds in memory: 4 MiB of float64."""


@dataclass(frozen=True)
class FixedPoints:
    """States that one step maps to themselves, exactly or almost.

    Attributes:
        states: (K, S), in float64, slowest first.
        speeds: (K,): the speed q = |F(s) - s|² / 2 of each state, where F is one step.
        jacobians: (K, S, S), the Jacobian of one step at each point.
        labels: the layer and state of each of the S columns, for example "layer0.c".
        slow: the slow points, whose q is above the tolerance of fixed points. Most of them are near a local minimum of
            q. Their own `slow` is None.
    """

    states: Tensor
    speeds: Tensor
    jacobians: Tensor
    labels: tuple[str, ...]
    slow: "FixedPoints | None" = None

    @cached_property
    def eigenvalues(self) -> Tensor:
        """(K, S), complex, largest magnitude first."""
        if not len(self.states):
            return self.states.new_zeros(self.states.shape, dtype=torch.complex128)
        values = torch.linalg.eigvals(self.jacobians)
        return values.gather(1, values.abs().argsort(1, descending=True))

    @cached_property
    def stable(self) -> Tensor:
        """(K,) bool: whether all eigenvalues are inside the unit circle."""
        return (self.eigenvalues.abs() < 1).all(1)

    @cached_property
    def unstable_directions(self) -> Tensor:
        """(K,) int64: the number of eigenvalues on or outside the unit circle. A saddle also has eigenvalues inside."""
        return (self.eigenvalues.abs() >= 1).sum(1)

    @cached_property
    def time_constants(self) -> Tensor:
        """(K, S): the number of steps in which a deviation along each eigenvector grows or shrinks by a factor of e."""
        return 1 / self.eigenvalues.abs().log().abs()

    def plot(self, trajectories: Tensor, path: str | Path) -> None:
        """Draw the points and trajectories in the plane of the first two principal components of the trajectories.

        A line through each point shows the direction of the eigenvector with the largest eigenvalue. Along it, a
        deviation shrinks slowest at a stable point and grows fastest at an unstable point.

        Args:
            trajectories: (L, N, S) or (L, S): flat states, such as `trajectory(layer, inputs).states`.
            path: the file of the picture. The suffix selects the format: .png, .svg or .pdf.

        Raises:
            ModuleNotFoundError: matplotlib is not installed; `pip install glassgate[pictures]` installs it.
        """
        slow = self.states[:0] if self.slow is None else self.slow.states
        plot(self.states, self.jacobians, self.stable, slow, trajectories, path)

    def __len__(self) -> int:
        return len(self.states)

    def __repr__(self) -> str:
        slow = f", {len(self.slow)} slow points" if self.slow is not None else ""
        return f"FixedPoints({len(self)}, {int(self.stable.sum())} of them stable{slow})"


def fixed_points(
    layer: Recurrent,
    input: Tensor,
    starts: Any,
    *,
    tolerance: float = 1e-20,
    slow: float = 1e-6,
    distance: float = 1e-4,
    steps: int = 200,
) -> FixedPoints:
    """The fixed points of a layer under constant input, searched from many starts at once.

    The search runs Newton's method on F(s) - s = 0 from each start. If a Newton step does not reduce the speed q, a
    damped step minimises q instead (Levenberg-Marquardt). Points closer than `distance` are merged.

    Args:
        layer: a layer of one direction. It is analysed in eval mode, in float64.
        input: the constant input, (H_in,).
        starts: the initial states of the search, flat (M, S) or in the form of the layer's `hx`. States that the
            network visits are good starts, with or without noise: `trajectory(layer, inputs).states.flatten(0, 1)`.
        tolerance: the largest q of a fixed point.
        slow: the largest q of a slow point.
        distance: the Euclidean distance between two states below which they are merged.
        steps: the maximum number of steps of the search.

    Raises:
        ShapeError: starts or input have a wrong shape.
        ValueError: the layer has two directions.

    Example:
        >>> import torch, glassgate as gg
        >>> layer = gg.RNN(1, 2, bias=False)
        >>> _ = layer.weight_hh_l0.data.copy_(2.0 * torch.eye(2))  # each unit: h = tanh(2 h)
        >>> points = gg.dynamics.fixed_points(layer, torch.zeros(1), torch.randn(200, 2))
        >>> len(points), int(points.stable.sum())  # four corners, four saddles, and an unstable origin
        (9, 4)
    """
    network = Network("fixed_points", layer)
    starts = network.flatten(starts, "starts")
    x = network.expand_input(input, 1)
    ends = _search(network, starts, x, tolerance, steps)
    speeds = _speeds(network, ends, x)
    fixed = _without_duplicates(ends[speeds <= tolerance], distance)
    others = _without_duplicates(ends[(speeds > tolerance) & (speeds <= slow)], distance)
    if len(fixed) and len(others):
        others = others[torch.cdist(others, fixed).amin(1) > distance]
    return _analyse_points(network, fixed, x, _analyse_points(network, others, x))


def _analyse_points(network: Network, states: Tensor, x: Tensor, slow: FixedPoints | None = None) -> FixedPoints:
    """Sort points by speed, and compute their Jacobians."""
    speeds = _speeds(network, states, x)
    order = speeds.argsort()
    states = states[order]
    jacobians = [
        network.jacobian(states[rows], x.expand(len(states[rows]), -1)) for rows in network.chunks(len(states))
    ]
    empty = states.new_zeros(0, network.size, network.size)
    return FixedPoints(states, speeds[order], torch.cat([empty, *jacobians]), network.labels, slow)


def _speeds(network: Network, states: Tensor, x: Tensor) -> Tensor:
    """The speed q of each state, (B,)."""
    with torch.no_grad():
        return (network.step(states, x.expand(len(states), -1)) - states).square().sum(1) / 2


def _search(network: Network, states: Tensor, x: Tensor, tolerance: float, steps: int) -> Tensor:
    """The states at which the searches from M start states end, (K, S) with K <= M.

    The search of a row ends if its q is far below the tolerance or no longer falls. A row is dropped if it converges to
    the same point as another row.
    """
    states = states.clone()
    speeds = _speeds(network, states, x)
    damping, newton_lengths = torch.full_like(speeds, 1e-3), torch.full_like(speeds, torch.nan)
    dropped = torch.zeros(len(states), dtype=torch.bool)
    active = torch.arange(len(states))
    at_once = max(1, ELEMENTS_AT_ONCE // network.size**2)
    for _ in range(steps):
        # One or two Newton steps beyond the tolerance cost little and leave only rounding errors.
        active = active[(speeds[active] > tolerance * 1e-4) & (damping[active] < 1e12) & speeds[active].isfinite()]
        if not len(active):
            break
        parts = [_search_step(network, states[rows], x, speeds[rows], damping[rows]) for rows in active.split(at_once)]
        moved, speeds[active], length, factors = map(torch.cat, zip(*parts, strict=True))
        states[active], damping[active] = moved, damping[active] * factors
        contraction = length / newton_lengths[active]
        newton_lengths[active] = length
        # With quadratic convergence, the next length is about `contraction`² times `length`. The radius
        # `contraction * length` is a safe upper bound of the distance to the fixed point.
        duplicates = _duplicates(moved, torch.where(contraction < CONTRACTION, contraction * length, torch.nan))
        dropped[active[duplicates]] = True
        active = active[~duplicates]
    return states[~dropped]


def _search_step(network: Network, states: Tensor, x: Tensor, q: Tensor, damping: Tensor) -> tuple[Tensor, ...]:
    """One step of the search.

    Returns:
        The new states, their q, the length of the Newton step, which is NaN for a damped step, and the factor by which
        the damping changes.
    """
    new, derivative = network.linearize(states, x.expand(len(states), -1))
    residual = new - states
    derivative.diagonal(dim1=1, dim2=2).sub_(1)
    moved, q_moved, length = _newton_step(network, states, x, q, residual, derivative)
    factors = torch.ones_like(q)
    rows = (~(q_moved < q)).nonzero().squeeze(1)
    if len(rows):
        length[rows] = torch.nan
        moved[rows], q_moved[rows], factors[rows] = _damped_step(
            network, states[rows], x, q[rows], residual[rows], derivative[rows], damping[rows]
        )
    return moved, q_moved, length, factors


def _duplicates(states: Tensor, radii: Tensor) -> Tensor:
    """(B,) bool: the rows that converge to the same point as another row, except one row per point.

    Two rows converge to the same point if the balls of their radii overlap.

    Args:
        states: (B, S).
        radii: (B,): a bound of the distance between the state and its fixed point; NaN if it is unknown.
    """
    known = radii.isfinite().nonzero().squeeze(1)
    order = known[radii[known].argsort()]
    first = order[:MAX_REPRESENTATIVES]
    distances = torch.cdist(states[order], states[first], compute_mode="donot_use_mm_for_euclid_dist")
    near = distances <= radii[order, None] + radii[first]
    earlier = torch.arange(len(order))[:, None] > torch.arange(len(first))
    return torch.zeros(len(states), dtype=torch.bool).index_fill(0, order[(near & earlier).any(1)], True)


def _damped_step(
    network: Network, states: Tensor, x: Tensor, q: Tensor, residual: Tensor, derivative: Tensor, damping: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Take a damped step (Levenberg-Marquardt) in each row in which this step reduces q.

    Returns:
        The states, their q, and the factor by which the damping of each row changes.
    """
    normal = derivative.mT @ derivative
    normal.diagonal(dim1=1, dim2=2).add_((damping * normal.diagonal(dim1=1, dim2=2).amax(1))[:, None])
    tried = states + torch.linalg.solve(normal, -(derivative.mT @ residual.unsqueeze(2))).squeeze(2)
    q_tried = _speeds(network, tried, x)
    better = q_tried < q
    factors = torch.where(better, 0.2, 10.0).to(q)
    return torch.where(better[:, None], tried, states), torch.where(better, q_tried, q), factors


def _newton_step(
    network: Network, states: Tensor, x: Tensor, q: Tensor, residual: Tensor, derivative: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Take a Newton step in each row, and shorten it until q falls.

    Returns:
        The states, their q, and the length of the full step.
    """
    step, info = torch.linalg.solve_ex(derivative, -residual)
    step = torch.where((info == 0)[:, None] & step.isfinite().all(1, keepdim=True), step, 0.0)
    moved, q_moved = states + step, _speeds(network, states + step, x)
    fraction = 0.5
    while fraction >= MIN_FRACTION:
        rows = (~(q_moved < q)).nonzero().squeeze(1)
        if not len(rows):
            break
        shorter = states[rows] + fraction * step[rows]
        moved[rows], q_moved[rows] = shorter, _speeds(network, shorter, x)
        fraction /= 4
    return moved, q_moved, step.norm(dim=1)


def _without_duplicates(states: Tensor, distance: float) -> Tensor:
    """Keep the first point, drop all points within `distance` of it, and repeat with the remaining ones."""
    kept: list[Tensor] = []
    while len(states):
        kept.append(states[0])
        states = states[(states - states[0]).norm(dim=1) > distance]
    return torch.stack(kept) if kept else states
