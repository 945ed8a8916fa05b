"""The lowered passes of any cell equal its step on the evaluator: values and every gradient."""

import pytest
from hypothesis import assume, given
from hypothesis.strategies import sampled_from

from glassgate.engines.lowering.forward import Form
from tests.cases import Shape
from tests.compare import check
from tests.engines.costs import EVERY
from tests.engines.fuzz.test_fuzz import LARGE, examples
from tests.engines.fuzz.writing import Written, cells
from tests.engines.lowering.trial import Trial


def trial(written: Written, costs: str) -> Trial:
    """One direction of the layer that the cell is written for."""
    of, resets = written.options, written.resets
    shape = Shape(written.L, written.N, of["input_size"], of["hidden_size"], of.get("proj_size", 0), written.lengths)
    form = Form(of["bidirectional"], of["bias"], written.lengths is not None, resets, resets and written.seed % 2 == 0)
    return Trial(written.cell(), shape, form, EVERY[costs], written.seed)


@pytest.mark.filterwarnings("ignore:var.*degrees of freedom")  # torch's, where a step has no rows
@examples(200, 10_000)
@given(cells(), sampled_from(sorted(EVERY)))
def test_passes_equal_the_step(written, costs):
    one = trial(written, costs)
    truth = one.by_reference()
    assume(all(v.isfinite().all() and (v.abs() < LARGE).all() for v in truth.values()))
    check(one.by_passes(), truth)
