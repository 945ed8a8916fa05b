"""The torch engine is torch's own kernel, bit for bit, and names what that kernel lacks."""

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
def test_same_bits_as_torch(kind, dtype, packed):
    stock = STOCK[kind](5, 8, 2, bidirectional=True, dtype=dtype)
    ours = gg.convert(STOCK[kind](5, 8, 2, bidirectional=True, dtype=dtype))
    ours.load_state_dict(stock.state_dict())
    input = torch.randn(6, 3, 5, dtype=dtype)
    if packed:
        input = pack_padded_sequence(input, torch.tensor([2, 6, 4]), enforce_sorted=False)
    with gg.engine("torch"), torch.no_grad():
        got, wanted = ours(input), stock(input)
    torch.testing.assert_close(got, wanted, rtol=0, atol=0)


class Subclass(gg.cells.LSTM):
    """A subclass may override the step."""


UNSUPPORTED = {
    "only for LSTM, GRU and RNN, and this cell is Subclass": lambda x: gg.LSTM(3, 4, cell=Subclass())(x),
    "do not support resets": lambda x: gg.GRU(3, 4)(x, resets=torch.zeros(5, 2, dtype=torch.bool)),
    "does not support a projection for RNN": lambda x: gg.RNN(3, 4, proj_size=2)(x),
    "at least one step": lambda x: gg.GRU(3, 4)(x, lengths=[0, 0]),
    "two directions of the same size": lambda x: gg.GRU(3, (4, 5), bidirectional=True)(x),
    "do not run a single reverse direction": lambda x: gg.GRU(3, 4, 2, bidirectional=True, merge="none")(
        x, lengths=[5, 2]
    ),
}


@pytest.mark.parametrize("reason", UNSUPPORTED)
def test_error_names_the_reason(reason):
    x = torch.randn(5, 2, 3)
    with pytest.raises(gg.EngineError, match=f"engine 'torch' cannot run this call: .*{reason}"), gg.engine("torch"):
        UNSUPPORTED[reason](x)
    UNSUPPORTED[reason](x)


def test_empty_batch_has_a_gradient():
    layer = gg.LSTM(3, 4)
    output, _ = layer(torch.randn(5, 2, 3), lengths=[0, 0])
    output.sum().backward()
    assert all(not p.grad.any() for p in layer.parameters())


def test_eval_mode_trains():
    layer = gg.LSTM(3, 4).eval()
    stock = nn.LSTM(3, 4)
    stock.load_state_dict(layer.state_dict())
    x = torch.randn(5, 2, 3)
    with gg.engine("torch"):
        layer(x)[0].sum().backward()
    stock(x)[0].sum().backward()
    for ours, theirs in zip(layer.parameters(), stock.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
