"""Draws fixed points in the plane of the first two principal components of trajectories, with matplotlib."""

from pathlib import Path

import torch
from torch import Tensor

STABLE, UNSTABLE, SLOW, PATH = "#0b6e4f", "#c8553d", "#9a8f97", "#b9c4cf"


def plot(
    states: Tensor, jacobians: Tensor, stable: Tensor, slow: Tensor, trajectories: Tensor, path: str | Path
) -> None:
    """Write the picture of fixed points (K, S) and slow points (M, S); see `FixedPoints.plot`."""
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
        ("stable", STABLE, "o", states[stable]),
        ("unstable", UNSTABLE, "X", states[~stable]),
        ("slow", SLOW, ".", slow),
    ]
    for name, colour, marker, points in groups:
        if len(points):
            label = f"{name} ({len(points)})"
            x, y = ((points - centre) @ plane).T
            axes.scatter(x, y, c=colour, marker=marker, s=40, label=label, zorder=3)
    length = 0.12 * float(((flat - centre) @ plane).abs().max())
    for state, jacobian, is_stable in zip(states, jacobians, stable, strict=True):
        values, vectors = torch.linalg.eig(jacobian)
        slowest = vectors[:, values.abs().argmax()].real
        along = (slowest / slowest.norm().clamp_min(1e-12)) @ plane * length
        middle = (state - centre) @ plane
        ends = torch.stack([middle - along, middle + along])
        axes.plot(*ends.T, color=STABLE if is_stable else UNSTABLE, linewidth=1.4, zorder=2)
    axes.set_xlabel(f"first principal component ({explained[0]:.0%} of the variance)")
    axes.set_ylabel(f"second principal component ({explained[1]:.0%})")
    axes.legend(frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=120)
