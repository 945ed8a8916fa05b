"""Parameters can be replaced in many ways. Each call checks all of them before a kernel receives an address."""

import timeit

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.utils._pytree import tree_map

import glassgate as gg
from glassgate.layers.arguments import checked_weights
from glassgate.shapes import check_parameters

X = torch.randn(5, 2, 3)


class Wrapped(torch.Tensor):
    """A tensor subclass without memory of its own, as in libraries that shard or quantise parameters."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def unwrapped(v):
            return v.inner if isinstance(v, Wrapped) else v

        return func(*tree_map(unwrapped, args), **tree_map(unwrapped, kwargs or {}))


class FirstRows(nn.Module):
    """A parametrization that returns only the first 8 rows of a weight."""

    def forward(self, weight):
        return weight[:8]


def by_data(layer, name, value):
    getattr(layer, name).data = value
    return layer(X)


def by_attribute(layer, name, value):
    setattr(layer, name, nn.Parameter(value, requires_grad=value.is_floating_point()))
    return layer(X)


def by_functional_call(layer, name, value):
    return functional_call(layer, {name: value}, (X,))


def by_load(layer, name, value):
    return layer.load_state_dict({**layer.state_dict(), name: value}, assign=True) and layer(X)


def by_stream(layer, name, value):
    getattr(layer, name).data = value
    return layer.stream(2).step(X[0])


WAYS = [by_data, by_attribute, by_functional_call, by_load, by_stream]
VALUES = {
    "too small": ("weight_hh_l0", lambda: torch.randn(4, 4), r"weight_hh_l0 must be \(16, 4\), got \(4, 4\)"),
    "too large": ("bias_hh_l0", lambda: torch.randn(32), r"bias_hh_l0 must be \(16,\), got \(32,\)"),
    "one number": ("bias_ih_l0", lambda: torch.randn(1), r"bias_ih_l0 must be \(16,\), got \(1,\)"),
    "other dtype": (
        "weight_hh_l0",
        lambda: torch.randn(16, 4).double(),
        r"weight_hh_l0 must have weight_ih_l0's dtype torch.float32, got torch.float64",
    ),
    "integers": (
        "weight_hh_l0",
        lambda: torch.ones(16, 4, dtype=torch.int64),
        "weight_hh_l0 must have floating point numbers, got torch.int64",
    ),
    "no memory": (
        "weight_hh_l0",
        lambda: torch.empty(16, 4, device="meta"),
        "weight_hh_l0 must be on weight_ih_l0's device cpu, got meta",
    ),
    "sparse": (
        "weight_hh_l0",
        lambda: torch.randn(16, 4).to_sparse(),
        "weight_hh_l0 must be a dense tensor, got the layout torch.sparse_coo",
    ),
}


REJECTED_BY_TORCH = {
    **dict.fromkeys([by_data, by_stream], ("integers", "no memory", "sparse")),
    by_load: ("too small", "too large", "one number", "integers"),
}
"""For each way to replace a parameter, the values that torch itself rejects."""


@pytest.mark.parametrize(
    ("way", "what"),
    [(way, what) for way in WAYS for what in VALUES if what not in REJECTED_BY_TORCH.get(way, ())],
    ids=lambda v: v if isinstance(v, str) else v.__name__,
)
def test_invalid_parameters_raise_errors(way, what):
    name, value, message = VALUES[what]
    with pytest.raises(gg.ShapeError, match=f"LSTM: {message}"):
        way(gg.LSTM(3, 4), name, value())


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"bidirectional": True}, "weight_ih_l0_reverse"),
        ({"num_layers": 2}, "weight_ih_l1"),
        ({"proj_size": 2}, "weight_hr_l0"),
        ({"cell": gg.cells.PeepholeLSTM()}, "peep_i_l0"),
        ({"learn_initial_state": True}, "c_0_l0"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_every_parameter_is_checked(options, name):
    with pytest.raises(gg.ShapeError, match=f"LSTM: {name} must be .*, got"):
        by_data(gg.LSTM(3, 4, **options), name, torch.randn(7, 7))


def test_a_parametrization_is_checked():
    layer = gg.GRU(3, 4)
    nn.utils.parametrize.register_parametrization(layer, "weight_hh_l0", FirstRows(), unsafe=True)
    with pytest.raises(gg.ShapeError, match=r"GRU: weight_hh_l0 must be \(12, 4\), got \(8, 4\)"):
        layer(X)


@pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l0"])
def test_a_parameter_set_to_none_is_rejected(name):
    layer = gg.LSTM(3, 4)
    setattr(layer, name, None)
    with pytest.raises(TypeError, match=f"LSTM: {name} must be a tensor.*, got NoneType"):
        layer(X)


def test_a_single_step_cell_checks_its_parameters():
    cell = gg.LSTMCell(3, 4)
    cell.bias_hh.data = torch.zeros(4)
    with pytest.raises(gg.ShapeError, match=r"LSTMCell: bias_hh must be \(16,\), got \(4,\)"):
        cell(X[0])


def test_functional_calls_check_their_parameters():
    w_ih, w_hh = torch.randn(16, 3), torch.randn(16, 4)
    with pytest.raises(gg.ShapeError, match="LSTM: weight_hh must be a dense tensor"):
        gg.functional.lstm(X, None, w_ih, w_hh.to_sparse())
    with pytest.raises(gg.ShapeError, match="LSTM: weight_hh must be on weight_ih's device cpu, got meta"):
        gg.functional.lstm(X, None, w_ih, w_hh.to("meta"))


@pytest.mark.parametrize(
    "value", [torch.randn(4, 16).t(), torch.randn(16, 1).expand(16, 4), torch.randn(16, 8)[:, ::2]]
)
def test_any_strides_are_accepted(value):
    layer = gg.LSTM(3, 4)
    output, _ = by_functional_call(layer, "weight_hh_l0", value)
    torch.testing.assert_close(output, by_functional_call(layer, "weight_hh_l0", value.contiguous())[0])


def test_a_tensor_without_memory_runs_on_the_reference():
    layer, weight = gg.LSTM(3, 4), torch.randn(16, 4)
    output, _ = by_functional_call(layer, "weight_hh_l0", Wrapped(weight))
    torch.testing.assert_close(output, by_functional_call(layer, "weight_hh_l0", weight)[0])
    with gg.engine("cpu"), pytest.raises(gg.EngineError, match="kernels read memory, and a Wrapped overrides"):
        by_functional_call(layer, "weight_hh_l0", Wrapped(weight))


def test_the_check_takes_microseconds():
    layer = gg.LSTM(3, 4)
    (part,), (weights,) = layer.glassgate.parts, checked_weights(layer)
    like = weights["weight_ih"]

    def look():
        check_parameters("LSTM", weights, part.shapes, like.dtype, like.device, part.suffix)

    assert min(timeit.repeat(look, number=200, repeat=50)) / 200 < 10e-6


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_another_default_device_does_not_affect_the_kernels(kind):
    layer, x = getattr(gg, kind)(3, 7), torch.randn(45, 5, 3)
    with gg.engine("cpu"):
        expected, _ = layer(x)
        expected.sum().backward()
        gradient, layer.weight_hh_l0.grad = layer.weight_hh_l0.grad, None
        fresh = getattr(gg, kind)(3, 7)
        fresh.load_state_dict(layer.state_dict())
        with torch.device("meta"):
            output, _ = fresh(x[:, :4])
            output.sum().backward()
        assert torch.allclose(output, expected[:, :4], atol=1e-6)
        output, _ = layer(x)
        output.sum().backward()
    assert torch.equal(output, expected)
    assert torch.equal(layer.weight_hh_l0.grad, gradient)


def test_a_parameter_with_the_name_of_a_learned_state_is_rejected():
    class Clashing(gg.Cell):
        gates, state = ("x",), ("h",)
        parameters = {"h_0": gg.Parameter(1.0)}

        def step(self, a, s, p):
            return torch.tanh(a.x) * p.h_0

    with pytest.raises(ValueError, match=r"cell Clashing: parameters must have other names than \['h_0'\]"):
        gg.Recurrent(Clashing(), 3, 4)
