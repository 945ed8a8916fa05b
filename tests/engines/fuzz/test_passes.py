"""On the evaluator, the lowered passes of generated cells compute the same values and gradients as the step."""

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
    """Return a trial of one direction of the generated layer."""
    options, resets = written.options, written.resets
    D, H, P = options["input_size"], options["hidden_size"], options.get("proj_size", 0)
    shape = Shape(written.L, written.N, D, H, P, written.lengths)
    form = Form(
        options["bidirectional"], options["bias"], written.lengths is not None, resets, resets and written.seed % 2 == 0
    )
    return Trial(written.cell(), shape, form, EVERY[costs], written.seed)


@pytest.mark.filterwarnings("ignore:var.*degrees of freedom")  # a warning of torch if a step has no rows
@examples(80, 10_000)
@given(cells(), sampled_from(sorted(EVERY)))
def test_passes_equal_the_step(written, costs):
    layer = trial(written, costs)
    truth = layer.by_reference()
    assume(all(v.isfinite().all() and (v.abs() < LARGE).all() for v in truth.values()))
    check(layer.by_passes(), truth)
