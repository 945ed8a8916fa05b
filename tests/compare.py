"""The one comparison: results of a call and all its gradients against float64, bounded by the error of eager torch."""

import torch
from torch import Tensor

Results = dict[str, Tensor]

EXACT = 1e-12
"""Error allowed between two float64 computations, as a share of the largest value, or of one where that is larger."""

FLOOR = {torch.float64: 1e-10, torch.float32: 1e-6, torch.bfloat16: 1e-2, torch.float16: 1e-3}
"""Error that is always allowed, as a share of the largest true value."""

MULTIPLE = {torch.float64: 10.0, torch.float32: 10.0, torch.bfloat16: 2.0, torch.float16: 2.0}
"""Allowed error as a multiple of eager's."""


def check(got: Results, truth: Results, eager: Results | None = None, slack: float = 1.0) -> None:
    """Raises AssertionError unless every result is near enough to the truth.

    Args:
        got: what is tested.
        truth: the same in float64.
        eager: the same from the reference engine in the dtype of `got`; without it `got` is float64 and must be exact.
        slack: how many times the usual error is allowed, for other people's programs.
    """
    assert got.keys() == truth.keys(), f"results {sorted(got)}, wanted {sorted(truth)}"
    faults = []
    for name, value in got.items():
        wanted = truth[name]
        assert wanted.dtype == torch.float64, f"{name}: the truth must be float64, is {wanted.dtype}"
        assert value.shape == wanted.shape, f"{name}: shape {tuple(value.shape)}, wanted {tuple(wanted.shape)}"
        largest = wanted.abs().max().item() if wanted.numel() else 0.0
        if eager is None:
            assert value.dtype == torch.float64, f"{name}: without eager's error only float64 can be judged"
            allowed = EXACT * max(1.0, largest)
        else:
            assert value.dtype == eager[name].dtype, f"{name}: {value.dtype}, eager has {eager[name].dtype}"
            allowed = slack * max(MULTIPLE[value.dtype] * error(eager[name], wanted), FLOOR[value.dtype] * largest)
        if not (off := error(value, wanted)) <= allowed:
            faults.append(f"{name}: off by {off:.3g}, allowed {allowed:.3g}, largest value {largest:.3g}")
    assert not faults, "\n".join(faults)


def error(value: Tensor, truth: Tensor) -> float:
    """Largest absolute difference; NaN where either has one."""
    return (value.double() - truth).abs().max().item() if truth.numel() else 0.0


def measure(outputs: Results, leaves: Results, seed: int = 0) -> Results:
    """The outputs and the gradients of all leaves, for a random weight on every number of every output.

    The weights depend on the seed, the name and the shape alone, so runs in several dtypes compare.
    """
    weights = [noise(seed + k, *v.shape).to(v) for k, v in enumerate(outputs.values())]
    gradients = torch.autograd.grad(list(outputs.values()), list(leaves.values()), weights, materialize_grads=True)
    return {k: v.detach() for k, v in outputs.items()} | {
        f"grad {k}": g for k, g in zip(leaves, gradients, strict=True)
    }


def noise(seed: int, *shape: int) -> Tensor:
    """Standard normal numbers in float64."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
