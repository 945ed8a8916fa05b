"""Every operation equals torch at extreme values on the kernels of a GPU, in Triton's interpreter."""

import pytest
import torch

from tests.mathematics.compare import Rules, check
from tests.mathematics.table import GROUPS
from tests.mathematics.test_table import run

POWERS = ("pow", "pow__minus_three_halves", "pow__of_2", "pow__of_0")
RULES = Rules(zero_signs=False, error=tuple((name, 5e-5, 0.0) for name in POWERS))
PARTS = [0, *(pytest.param(k, marks=pytest.mark.gpu) for k in range(1, len(GROUPS)))]
"""`make test-gpu` runs the whole table."""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy reports logarithms of zero
@pytest.mark.parametrize("part", PARTS)
def test_values_and_gradients(part: int) -> None:
    check(run("triton", GROUPS[part], torch.float32), GROUPS[part], torch.float32, RULES)
