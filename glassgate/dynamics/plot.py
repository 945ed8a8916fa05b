"""The picture of fixed points: in the plane of a trajectory's two principal components, by matplotlib."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from glassgate.dynamics.points import FixedPoints

STABLE, UNSTABLE, SLOW, PATH = "#0b6e4f", "#c8553d", "#9a8f97", "#b9c4cf"


def plot(found: "FixedPoints", trajectories: Tensor, path: str | Path) -> None:
    """Write the picture; see `FixedPoints.plot`."""
    from matplotlib.figure import Figure

    visited = trajectories.detach().double()
    flat = visited.flatten(0, -2)
    centre = flat.mean(0)
    _, singular, basis = torch.linalg.svd(flat - centre, full_matrices=False)
    plane = basis[:2].T
    explained = (singular.square() / singular.square().sum())[:2]
    figure = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.subplots()
    for sequence in ((visited - centre) @ plane).unbind(1) if visited.dim() == 3 else [(flat - centre) @ plane]:
        axes.plot(*sequence.T, color=PATH, linewidth=0.6, zorder=1)
    groups = [
        ("stable", STABLE, "o", found.states[found.stable]),
        ("unstable", UNSTABLE, "X", found.states[~found.stable]),
        ("slow", SLOW, ".", found.slow.states if found.slow is not None else found.states[:0]),
    ]
    for name, colour, marker, states in groups:
        if len(states):
            label = f"{name} ({len(states)})"
            x, y = ((states - centre) @ plane).T
            axes.scatter(x, y, c=colour, marker=marker, s=40, label=label, zorder=3)
    length = 0.12 * float(((flat - centre) @ plane).abs().max())
    for state, jacobian, stable in zip(found.states, found.jacobians, found.stable, strict=True):
        values, vectors = torch.linalg.eig(jacobian)
        slowest = vectors[:, values.abs().argmax()].real
        along = (slowest / slowest.norm().clamp_min(1e-12)) @ plane * length
        middle = (state - centre) @ plane
        ends = torch.stack([middle - along, middle + along])
        axes.plot(*ends.T, color=STABLE if stable else UNSTABLE, linewidth=1.4, zorder=2)
    axes.set_xlabel(f"first principal component ({explained[0]:.0%} of the variance)")
    axes.set_ylabel(f"second principal component ({explained[1]:.0%})")
    axes.legend(frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=120)
