"""Kernel ridge regression, which is fitted before training, and its outputs for examples that are left out."""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

MAX_EXAMPLES = 2**10
"""The maximum number of examples of a regression, because its kernel has the square of this number of values."""
_PENALTIES = tuple(10.0**power for power in range(-3, 5))  # leave-one-out errors choose one of them
_FACTORS = (0.0, *(2.0 ** (power / 2) for power in range(-2, 11)))


class Ridge(NamedTuple):
    """A ridge regression. Its outputs are the products of kernel values, `(..., N)`, and the coefficients.

    Attributes:
        coefficients: of the N training examples, `(N, K)`
        left_out: the output for each training example of a regression on all others, `(N, K)`
        error: the mean squared error of `left_out`
    """

    coefficients: np.ndarray
    left_out: np.ndarray
    error: float


def ridge(kernel: np.ndarray, targets: np.ndarray, penalties: tuple[float, ...] = _PENALTIES) -> Ridge:
    """Return the regression of targets, `(N, K)`, whose penalty has the smallest error for examples that are left out.

    The kernel has a value for each pair of training examples, `(N, N)`. For a linear map, these are the dot products of
    their values, and the weights are the products of the values and the coefficients.
    """
    eigenvalues, vectors = np.linalg.eigh(kernel)

    def fit(penalty: float) -> Ridge:
        factors = 1 / (eigenvalues.clip(0) + penalty)[:, None]
        coefficients = vectors @ (factors * (vectors.T @ targets))
        errors = coefficients / (np.square(vectors) @ factors)  # divided by the diagonal of the inverse
        return Ridge(coefficients, targets - errors, float(np.square(errors).mean()))

    return min(map(fit, penalties), key=lambda fitted: fitted.error)


def log_odds_factor(left_out: np.ndarray, targets: np.ndarray) -> float:
    """Return the factor by which the outputs of a ridge regression of labels become differences of log-odds.

    It has the smallest cross entropy on examples that are left out, given their outputs without a constant and 1 for
    their labels, both `(N, K)`. The less the outputs depend on the labels, the smaller it is. It is 0 for a map that is
    of no use. As in Platt 1999, the targets are smoothed, by one more example that has each label as often as the
    others, so that perfect outputs do not become certain.
    """
    frequencies = targets.mean(0)
    smoothed = torch.tensor((len(targets) * targets + frequencies) / (len(targets) + 1))

    def loss(factor: float) -> float:
        return float(F.cross_entropy(torch.tensor(factor * left_out + np.log(frequencies)), smoothed))

    return min(_FACTORS, key=loss)
