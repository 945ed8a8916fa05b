"""A backend needs only an entry in the registry. These tests register the evaluator of lowered passes as a backend."""

import pytest
import torch

import glassgate as gg
from glassgate.engines.registry import BACKENDS
from tests.compare import check, measure, noise
from tests.engines import test_engines
from tests.engines.evaluated import Evaluated


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "evaluated", Evaluated())


@pytest.mark.parametrize("cell", test_engines.CELLS)
def test_the_evaluator_equals_the_reference(cell: str) -> None:
    calls = test_engines.some_calls([*test_engines.CELLS].index(cell))
    test_engines.check_engine("evaluated", torch.float64, cell, calls)


@pytest.mark.matrix
@pytest.mark.parametrize("cell", test_engines.CELLS)
def test_the_evaluator_equals_the_reference_in_every_call(cell: str) -> None:
    test_engines.check_engine("evaluated", torch.float64, cell)


def test_the_evaluator_computes_bfloat16_in_float32() -> None:
    test_engines.check_engine("evaluated", torch.bfloat16, "RNN", test_engines.some_calls(0))


def results(layer: gg.Recurrent, run: object, x: torch.Tensor) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    output, final = run(x, lengths=torch.tensor([4, 0, 2]))  # type: ignore[operator]
    return measure({"output": output, "final": final}, {"input": x, **dict(layer.named_parameters())})


def test_layers_recordings_and_compiled_graphs_run_on_the_evaluator() -> None:
    layer = gg.Recurrent(gg.cells.GRU(), 3, 4, zoneout=0.3, bidirectional=True, dtype=torch.float64)
    x = noise(1, 4, 3, 3).requires_grad_()
    with gg.engine("reference"):
        truth = results(layer, layer, x)
        with gg.record(layer) as expected:
            results(layer, layer, x)
    with gg.engine("evaluated"):
        check(results(layer, layer, x), truth)
        with gg.record(layer) as tape:
            results(layer, layer, x)
        check(dict(tape.items()), dict(expected.items()))
        check(dict(tape.grad.items()), dict(expected.grad.items()))
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        check(results(layer, compiled, x), truth)
        choice = gg.explain(layer, x)
        assert choice.engine == "evaluated"
        assert "every operation is a call of torch" in str(choice)
    assert gg.explain(layer, x).engine == "cpu"
