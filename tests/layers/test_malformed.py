"""Malformed arguments of every entry point: no crash, no silent result, and the exception types of `torch.nn`."""

import pytest
import torch
from torch import nn

import glassgate as gg
from tests.forked import run_python
from tests.layers.malformed import cases

SAMPLE = (
    "GRUCell N=4 hx=True: h",
    "LSTMCell N=4 hx=True: c",
    "layer LSTM padded hx=True: h",
    "stream GRU N=3: input",
)
FAMILIES = ("RNNCell", "GRUCell", "LSTMCell", "layer", "session", "functional", "stream")


def faults(*texts: str) -> str:
    """Run cases in a process of their own. Return their faults, and the last case if the process crashed."""
    done = run_python("-m", "tests.layers.malformed", *texts, timeout=3600)
    lines = ["before the first case", *done.stdout.splitlines()]
    complete = lines[-1].startswith("done: ") and lines[-1] != "done: 0 cases"
    last = [] if complete else [f"crash: {lines[-1]}, exit code {done.returncode}\n{done.stderr[-2000:]}"]
    return "\n".join([line for line in lines if line.startswith("fault")] + last)


def test_malformed_calls_are_errors_as_in_torch():
    assert not faults(*SAMPLE, "-fake", "-csr")


def test_every_family_has_cases():
    assert all(next(cases([family]), None) for family in FAMILIES)


@pytest.mark.matrix
@pytest.mark.parametrize("family", FAMILIES)
def test_malformed_calls_of_a_family_are_errors_as_in_torch(family):
    assert not faults(family)


@pytest.mark.parametrize("lazy", ["strided", "contiguous", "zero"])
@pytest.mark.parametrize("H", [1, 4])
def test_gradients_that_torch_computes_later_are_read(H, lazy):
    """A gradient from `z.conj().imag` is negated when it is read, and a zero gradient may have no memory."""
    stock, own = nn.GRU(3, H).double(), gg.GRU(3, H).double()
    own.load_state_dict(stock.state_dict())
    x, ones = torch.randn(5, 2, 3, dtype=torch.float64), torch.ones(5, 2, H, dtype=torch.float64)
    gradient = {
        "strided": torch.complex(ones, ones).conj().imag,
        "contiguous": torch._neg_view(ones),
        "zero": torch._efficientzerotensor(ones.shape, dtype=torch.float64),
    }[lazy]
    stock(x)[0].backward(-ones if lazy != "zero" else 0 * ones)
    for _ in range(3):  # the general path, then prepared calls
        own.zero_grad()
        own(x)[0].backward(gradient)
        torch.testing.assert_close(own.weight_hh_l0.grad, stock.weight_hh_l0.grad, rtol=1e-9, atol=1e-12)


def test_a_stream_is_not_transformed():
    with pytest.raises(
        RuntimeError, match="Stream: a stream cannot be traced, compiled or transformed; call the layer"
    ):
        torch.func.vmap(gg.GRU(3, 4).stream(1).step)(torch.randn(2, 1, 3))
