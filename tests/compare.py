"""Compares results and gradients of a call with float64. The allowed error depends on the error of eager torch."""

import torch
from torch import Tensor

Results = dict[str, Tensor]

EXACT = 1e-12
"""The allowed error between two float64 computations, as a fraction of the largest value, or of 1 if it is larger."""

FLOOR = {torch.float64: 1e-10, torch.float32: 1e-6, torch.bfloat16: 1e-2, torch.float16: 1e-3}
"""The error that is always allowed, as a fraction of the largest true value."""

MULTIPLE = {torch.float64: 10.0, torch.float32: 10.0, torch.bfloat16: 2.0, torch.float16: 2.0}
"""The allowed error as a multiple of the error of eager torch."""


def check(got: Results, truth: Results, eager: Results | None = None, slack: float = 1.0) -> None:
    """Raise AssertionError if the error of a result is too large.

    Args:
        got: the tested results.
        truth: the same results in float64.
        eager: the results of the reference engine in the dtype of `got`. Without them, `got` is float64.
        slack: the factor of the allowed error, above 1 for other programs.
    """
    assert got.keys() == truth.keys(), f"expected results {sorted(truth)}, got {sorted(got)}"
    faults = []
    for name, value in got.items():
        expected = truth[name]
        assert expected.dtype == torch.float64, f"{name}: expected a truth in float64, got {expected.dtype}"
        assert value.shape == expected.shape, f"{name}: expected {tuple(expected.shape)}, got {tuple(value.shape)}"
        largest = expected.abs().max().item() if expected.numel() else 0.0
        if eager is None:
            assert value.dtype == torch.float64, f"{name}: expected float64 without `eager`, got {value.dtype}"
            allowed = EXACT * max(1.0, largest)
        else:
            assert value.dtype == eager[name].dtype, f"{name}: expected {eager[name].dtype}, got {value.dtype}"
            allowed = slack * max(MULTIPLE[value.dtype] * error(eager[name], expected), FLOOR[value.dtype] * largest)
        if not (off := error(value, expected)) <= allowed:
            faults.append(f"{name}: off by {off:.3g}, allowed {allowed:.3g}, largest value {largest:.3g}")
    assert not faults, "\n".join(faults)


def error(value: Tensor, truth: Tensor) -> float:
    """Return the largest absolute difference; NaN if a tensor contains NaN."""
    return (value.double() - truth).abs().max().item() if truth.numel() else 0.0


def measure(outputs: Results, leaves: Results, seed: int = 0) -> Results:
    """Return the outputs, and the gradients of all leaves for random gradients of the outputs.

    The random gradients depend only on the seed, the order and the shapes of the outputs, not on the dtype.
    """
    weights = [noise(seed + k, *v.shape).to(v) for k, v in enumerate(outputs.values())]
    gradients = torch.autograd.grad(list(outputs.values()), list(leaves.values()), weights, materialize_grads=True)
    return {k: v.detach() for k, v in outputs.items()} | {
        f"grad {k}": g for k, g in zip(leaves, gradients, strict=True)
    }


def noise(seed: int, *shape: int) -> Tensor:
    """Draw standard normal numbers in float64."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
