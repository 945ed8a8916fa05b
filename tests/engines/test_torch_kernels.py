"""The engine "torch": results bitwise equal to those of torch.nn, and errors for calls that torch's kernels lack."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import glassgate as gg
from tests.cases import STOCK

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("kind", STOCK)
def test_results_are_bitwise_equal_to_torch(kind, dtype, packed):
    torch_layer = STOCK[kind](5, 8, 2, bidirectional=True, dtype=dtype)
    layer = gg.convert(STOCK[kind](5, 8, 2, bidirectional=True, dtype=dtype))
    layer.load_state_dict(torch_layer.state_dict())
    input = torch.randn(6, 3, 5, dtype=dtype)
    if packed:
        input = pack_padded_sequence(input, torch.tensor([2, 6, 4]), enforce_sorted=False)
    with gg.engine("torch"), torch.no_grad():
        results, expected = layer(input), torch_layer(input)
    torch.testing.assert_close(results, expected, rtol=0, atol=0)


class Subclass(gg.cells.LSTM):
    """A cell that torch's kernels cannot run, because a subclass may override the step."""


UNSUPPORTED = {
    "only for LSTM, GRU and RNN, and this cell is Subclass": lambda x: gg.LSTM(3, 4, cell=Subclass())(x),
    "do not support resets": lambda x: gg.GRU(3, 4)(x, resets=torch.zeros(5, 2, dtype=torch.bool)),
    "does not support a projection for RNN": lambda x: gg.RNN(3, 4, proj_size=2)(x),
    "at least one sequence and one step": lambda x: gg.GRU(3, 4)(x, lengths=[0, 0]),
    "two directions of the same size": lambda x: gg.GRU(3, (4, 5), bidirectional=True)(x),
    "do not run a single reverse direction": lambda x: gg.GRU(3, 4, 2, bidirectional=True, merge="none")(
        x, lengths=[5, 2]
    ),
}


@pytest.mark.parametrize("reason", UNSUPPORTED)
def test_errors_state_the_reason(reason):
    x = torch.randn(5, 2, 3)
    with pytest.raises(gg.EngineError, match=f"engine 'torch' cannot run this call: .*{reason}"), gg.engine("torch"):
        UNSUPPORTED[reason](x)
    UNSUPPORTED[reason](x)


def test_sequences_without_steps_have_zero_gradients():
    layer = gg.LSTM(3, 4)
    output, _ = layer(torch.randn(5, 2, 3), lengths=[0, 0])
    output.sum().backward()
    assert all(not p.grad.any() for p in layer.parameters())


def test_gradients_in_eval_mode():
    layer = gg.LSTM(3, 4).eval()
    torch_layer = nn.LSTM(3, 4)
    torch_layer.load_state_dict(layer.state_dict())
    x = torch.randn(5, 2, 3)
    with gg.engine("torch"):
        layer(x)[0].sum().backward()
    torch_layer(x)[0].sum().backward()
    for parameter, expected in zip(layer.parameters(), torch_layer.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected.grad)
