"""In Triton's interpreter, the kernels of generated cells compute the values and gradients of the step."""

from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given

from tests.engines.fuzz.array_writing import array_cells
from tests.engines.fuzz.test_fuzz import LARGE, Trial, examples
from tests.engines.fuzz.writing import Written, cells

CLOSE = 2e-3
"""The maximum error in float32, as a fraction of the largest value of a result, or of one if that is larger."""


def differences(written: Written, record: bool) -> list[str]:
    """Return the results of a training call in float32 that differ from the reference in float64."""
    trial = Trial(written)
    torch.manual_seed(written.seed)  # of zoneout
    truth = trial.call("reference", record=record)
    assume(all(v.isfinite().all() and (v.abs() < LARGE).all() for v in truth.values()))
    trial.layer.float()
    trial.x = trial.x.float()
    faults = []
    torch.manual_seed(written.seed)
    for name, value in trial.call("triton", record=record).items():
        if value.numel():
            error, largest = (value - truth[name]).abs().max().item(), truth[name].abs().max().item()
            if not error <= CLOSE * max(1.0, largest):
                faults.append(f"{name}: off by {error:.1e}, largest {largest:.1e}")
    return faults


@pytest.mark.filterwarnings("ignore:var.*degrees of freedom")
@examples(12, 10_000)
@given(cells(max_lines=6))
def test_kernels_equal_the_step(written: Written) -> None:
    check(written, record=True)


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # of numbers beyond the size of an axis
@examples(8, 10_000)
@given(array_cells())
def test_kernels_of_arrays_equal_the_step(written: Written) -> None:
    check(written, record=False)


def check(written: Written, record: bool) -> None:
    """Compare a generated cell with the reference engine."""
    torch.manual_seed(0)
    if differences(written, record):
        # A number that is rounded or compared may be within the error of float32. Other numbers are not.
        faults = differences(replace(written, seed=written.seed + 1), record)
        assert not faults, "\n".join(faults)
