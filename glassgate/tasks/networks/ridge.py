"""Ridge regression that is fitted before training, and its outputs for examples that are left out."""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

MAX_WEIGHTS = 2**14
"""The maximum number of weights of a map; one that would need more is not fitted."""
MAX_VALUES = 2**20
"""The maximum number of values of all examples to which a map is fitted."""
_PENALTIES = tuple(10.0**power for power in range(-3, 5))  # leave-one-out errors choose one of them
_FACTORS = (0.0, *(2.0 ** (power / 2) for power in range(-2, 11)))


class Ridge(NamedTuple):
    """A linear map of F values to K outputs.

    Attributes:
        weight: `(F, K)`; the constant is left out
        left_out: the prediction for each example by a map that is fitted to all others, `(N, K)`
    """

    weight: np.ndarray
    left_out: np.ndarray


def ridge(values: np.ndarray, targets: np.ndarray, has_constant: bool = True) -> Ridge:
    """Return the ridge regression of targets, `(N, K)`, on values, `(N, F)`.

    Args:
        has_constant: whether a constant is fitted, too
    """
    from sklearn.linear_model import RidgeCV

    model = RidgeCV(_PENALTIES, fit_intercept=has_constant, scoring="neg_mean_squared_error", store_cv_results=True)
    model.fit(values, targets)
    left_out = model.cv_results_[..., _PENALTIES.index(model.alpha_)]
    return Ridge(model.coef_.reshape(targets.shape[1], -1).T, left_out)


def log_odds_factor(left_out: np.ndarray, targets: np.ndarray) -> float:
    """Return the factor by which the outputs of a ridge regression of labels become differences of log-odds.

    It has the smallest cross entropy on examples that are left out. The less their outputs depend on their labels, the
    smaller it is. It is 0 for a map that is of no use. As in Platt 1999, the targets are smoothed, by one more example
    that has each label as often as the others, so that perfect outputs do not become certain.

    Args:
        left_out: the outputs for examples that are left out, without a constant, `(N, K)`
        targets: 1 for the label of each example and 0 for others, `(N, K)`
    """
    frequencies = targets.mean(0)
    smoothed = torch.tensor((len(targets) * targets + frequencies) / (len(targets) + 1))

    def loss(factor: float) -> float:
        return float(F.cross_entropy(torch.tensor(factor * left_out + np.log(frequencies)), smoothed))

    return min(_FACTORS, key=loss)
