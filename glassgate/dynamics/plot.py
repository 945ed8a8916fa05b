"""A matplotlib figure of fixed points, in the plane of the first two principal components of trajectories."""

import io
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from glassgate.storage import write_file

STABLE, UNSTABLE, SLOW, PATH = "#0b6e4f", "#c8553d", "#9a8f97", "#b9c4cf"
"""The colours of stable, unstable and slow points, and of trajectories."""


class Plane(NamedTuple):
    """The plane of the first two principal components of states."""

    centre: Tensor
    """(S,)."""
    axes: Tensor
    """(S, 2)."""
    explained: Tensor
    """(2,): the fraction of the variance along each axis."""

    @classmethod
    def of(cls, states: Tensor) -> "Plane":
        """The plane of states (B, S)."""
        centre = states.mean(0)
        _, singular, basis = torch.linalg.svd(states - centre, full_matrices=False)
        variances = singular.square() / singular.square().sum().clamp_min(torch.finfo(states.dtype).tiny)
        return cls(centre, pad(basis, (0, 0, 0, 1))[:2].T, pad(variances, (0, 1))[:2])

    def project(self, states: Tensor) -> Tensor:
        """The coordinates in the plane, (..., 2), of states (..., S)."""
        return (states - self.centre) @ self.axes


def plot(
    fixed: Tensor, jacobians: Tensor, is_stable: Tensor, slow_points: Tensor, trajectories: Tensor, path: str | Path
) -> None:
    """Write the figure of fixed points (K, S) and slow points (M, S), as described in `FixedPoints.plot`."""
    from matplotlib.figure import Figure

    visited = trajectories.detach().double()
    plane = Plane.of(visited.flatten(0, -2))
    paths = plane.project(visited)
    figure = Figure(figsize=(6, 5), layout="constrained")
    ax = figure.subplots()
    for sequence in paths.unbind(1) if visited.dim() == 3 else [paths]:
        ax.plot(*sequence.T, color=PATH, linewidth=0.6, zorder=1)
    groups = [
        ("stable", STABLE, "o", fixed[is_stable]),
        ("unstable", UNSTABLE, "X", fixed[~is_stable]),
        ("slow", SLOW, ".", slow_points),
    ]
    for name, colour, marker, points in groups:
        if len(points):
            label = f"{name} ({len(points)})"
            x, y = plane.project(points).T
            ax.scatter(x, y, c=colour, marker=marker, s=40, label=label, zorder=3)
    length = 0.12 * float(paths.abs().max())
    for point, jacobian, stable in zip(fixed, jacobians, is_stable, strict=True):
        values, vectors = torch.linalg.eig(jacobian)
        leading = vectors[:, values.abs().argmax()].real
        along = (leading / leading.norm().clamp_min(1e-12)) @ plane.axes * length
        middle = plane.project(point)
        ends = torch.stack([middle - along, middle + along])
        ax.plot(*ends.T, color=STABLE if stable else UNSTABLE, linewidth=1.4, zorder=2)
    ax.set_xlabel(f"first principal component ({plane.explained[0]:.0%} of the variance)")
    ax.set_ylabel(f"second principal component ({plane.explained[1]:.0%})")
    ax.legend(frameon=False)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=120, format=Path(path).suffix[1:] or "png")
    write_file(path, picture.getvalue())
