"""Choosing an engine: a named one runs or says why it cannot, `auto` takes the first that can, `explain` tells."""

import threading

import pytest
import torch

import glassgate as gg
from glassgate.engines.choose import engines

X = torch.randn(5, 2, 3)
RESETS = torch.zeros(5, 2, dtype=torch.bool)


@pytest.mark.parametrize("name", engines())
def test_named_engine_is_the_one(name):
    with gg.engine(name):
        choice = gg.explain(gg.LSTM(3, 4), X)
        assert choice.engine == name
        assert str(choice).startswith(f"{name} runs this call\n")
        assert all(f"  {other}: " in str(choice) for other in engines() if other != name)


def test_auto_takes_the_first_that_can():
    for options in ({}, {"resets": RESETS}):
        choice = gg.explain(gg.LSTM(3, 4), X, **options)
        assert list(choice.reasons) == list(engines())
        assert choice.engine == next(name for name, reason in choice.reasons.items() if reason is None)
        assert choice.reasons["reference"] is None
    assert choice.engine != "torch"
    assert "  torch: torch's kernels know no resets" in str(choice)


def test_reference_could_always_run():
    with gg.engine("torch"):
        assert "  reference: could run it, and is not first choice" in str(gg.explain(gg.LSTM(3, 4), X))


def test_named_engine_never_falls_back():
    layer = gg.LSTM(3, 4)
    with (
        gg.engine("torch"),
        pytest.raises(gg.EngineError, match="engine 'torch' cannot run this call: torch's kernels"),
    ):
        layer(X, resets=RESETS)
    layer(X, resets=RESETS)


def test_innermost_wins_and_ends():
    def chosen():
        return gg.explain(gg.LSTM(3, 4), X).engine

    auto = chosen()
    with gg.engine("torch"):
        with gg.engine("reference"):
            assert chosen() == "reference"
        assert chosen() == "torch"
        with pytest.raises(KeyError), gg.engine("reference"):
            raise KeyError
        assert chosen() == "torch"
        with gg.engine("auto"):
            assert chosen() == auto
    assert chosen() == auto


def test_threads_choose_for_themselves():
    seen = []
    with gg.engine("reference"):
        thread = threading.Thread(target=lambda: seen.append(gg.explain(gg.LSTM(3, 4), X).engine))
        thread.start()
        thread.join()
    assert seen == [gg.explain(gg.LSTM(3, 4), X).engine]


def test_unknown_engine():
    with (
        pytest.raises(ValueError, match=r"engine: name must be one of 'auto', .*'reference'.*, got 'gpu'"),
        gg.engine("gpu"),
    ):
        pass


def test_explain_checks_the_call():
    with pytest.raises(gg.ShapeError, match="LSTM: input must have H_in = input_size = 3 features, got 2"):
        gg.explain(gg.LSTM(3, 4), X[..., :2])
