"""Choice of an engine: a named engine runs a call or raises an error, "auto" selects one, `explain` reports it."""

import threading

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import glassgate as gg
from glassgate.engines import torch_kernels
from glassgate.engines.choose import engines, preferred_engines
from glassgate.engines.contract import Direction, Steps

X = torch.randn(5, 2, 3)
RESETS = torch.zeros(5, 2, dtype=torch.bool)


@pytest.mark.parametrize("name", engines())
def test_the_named_engine_is_selected(name):
    with gg.engine(name):
        choice = gg.explain(gg.LSTM(3, 4), X)
        assert choice.engine == name
        assert str(choice).startswith(f"{name} runs this call\n")
        assert all(f"  {other}: " in str(choice) for other in engines() if other != name)


def test_auto_selects_the_first_capable_engine():
    for options in ({}, {"resets": RESETS}):
        choice = gg.explain(gg.LSTM(3, 4), X, **options)
        assert list(choice.reasons) == list(engines())
        assert choice.engine == next(name for name, reason in choice.reasons.items() if reason is None)
        assert choice.reasons["reference"] is None
    assert choice.engine != "torch"
    assert "  torch: torch's kernels do not support resets" in str(choice)


def test_the_reference_is_always_capable():
    with gg.engine("torch"):
        assert "  reference: could run this call, but another engine is preferred" in str(gg.explain(gg.LSTM(3, 4), X))


def test_explain_accepts_the_arguments_of_a_call():
    choice = gg.explain(gg.LSTM(3, 4), X, return_states=True)
    assert choice.engine == "cpu"
    assert "return" in choice.reasons["torch"]
    with pytest.raises(TypeError, match=r"explain: expected a layer of glassgate, .*torch\.nn"):
        gg.explain(torch.nn.LSTM(3, 4), X)


def test_a_named_engine_raises_an_error_instead_of_falling_back():
    layer = gg.LSTM(3, 4)
    with (
        gg.engine("torch"),
        pytest.raises(gg.EngineError, match="engine 'torch' cannot run this call: torch's kernels"),
    ):
        layer(X, resets=RESETS)
    layer(X, resets=RESETS)


def test_the_innermost_context_applies():
    def selected():
        return gg.explain(gg.LSTM(3, 4), X).engine

    default = selected()
    with gg.engine("torch"):
        with gg.engine("reference"):
            assert selected() == "reference"
        assert selected() == "torch"
        with pytest.raises(KeyError), gg.engine("reference"):
            raise KeyError
        assert selected() == "torch"
        with gg.engine("auto"):
            assert selected() == default
    assert selected() == default


def test_the_context_applies_to_its_thread_only():
    selected = []
    with gg.engine("reference"):
        thread = threading.Thread(target=lambda: selected.append(gg.explain(gg.LSTM(3, 4), X).engine))
        thread.start()
        thread.join()
    assert selected == [gg.explain(gg.LSTM(3, 4), X).engine]


def test_error_for_an_unknown_engine():
    with (
        pytest.raises(ValueError, match=r"engine: name must be one of 'auto', .*'reference'.*, got 'gpu'"),
        gg.engine("gpu"),
    ):
        pass


def test_explain_checks_shapes():
    with pytest.raises(gg.ShapeError, match="LSTM: input must have H_in = input_size = 3 features, got 2"):
        gg.explain(gg.LSTM(3, 4), X[..., :2])


HALF, BF16, SINGLE = torch.float16, torch.bfloat16, torch.float32


@pytest.mark.parametrize(
    ("cell", "dtype", "sizes", "options", "expected"),
    [
        (gg.cells.LSTM(), HALF, (16, 768, 768), {}, True),
        (gg.cells.LSTM(), BF16, (16, 768, 768), {}, False),
        (gg.cells.LSTM(), HALF, (16, 768, 768), {"directions": 2}, False),
        (gg.cells.LSTM(), HALF, (12, 768, 768), {}, False),
        (gg.cells.LSTM(), HALF, (16, 100, 768), {}, False),
        (gg.cells.LSTM(), HALF, (16, 768, 1152), {}, False),
        (gg.cells.GRU(), HALF, (16, 768, 768), {}, False),
        (gg.cells.LSTM(), SINGLE, (5, 7, 128), {}, True),
        (gg.cells.LSTM(), SINGLE, (5, 7, 129), {}, False),
        (gg.cells.GRU(), SINGLE, (5, 7, 192), {"train": False}, True),
        (gg.cells.GRU(), SINGLE, (5, 7, 64), {"packed": True}, False),
        (gg.cells.LSTM(), SINGLE, (5, 7, 64), {"projected": True}, False),
        (gg.cells.RNN(), SINGLE, (5, 7, 64), {}, False),
        (gg.cells.MGU(), SINGLE, (5, 7, 64), {}, False),
    ],
)
def test_calls_for_which_cudnn_has_persistent_kernels(cell, dtype, sizes, options, expected):
    options = {"directions": 1, "packed": False, "projected": False, "train": True} | options
    assert torch_kernels.is_persistent(cell, dtype, sizes, **options) is expected


def test_auto_on_a_gpu_prefers_persistent_kernels_of_cudnn():
    with FakeTensorMode(allow_non_fake_inputs=True):
        data = torch.empty(8, 16, device="cuda")
    assert order_of(gg.LSTM(16, 64), data)[0] == "torch"
    assert order_of(gg.LSTM(16, 256), data)[:2] == ["cpu", "triton"]
    assert order_of(gg.LSTM(16, 64), torch.empty(8, 16))[0] == "cpu"


def order_of(layer, data):
    weights = {name.removesuffix("_l0"): v for name, v in layer.named_parameters()}
    initial = tuple(torch.zeros(2, layer.hidden_size) for _ in layer.cell.state)
    return preferred_engines(Steps(data, None, None), [Direction(layer.cell, weights, initial, False)])
