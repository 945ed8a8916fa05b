"""`gg.functional` equals one direction of a layer of `torch.nn`, for every layout of input and states."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import glassgate as gg
from tests.cases import STATES, STOCK
from tests.compare import check, measure, noise

KINDS = pytest.mark.parametrize("kind", STOCK)


@given(
    kind=st.sampled_from(sorted(STOCK)),
    sizes=st.tuples(*[st.integers(1, 6)] * 4),
    proj_size=st.integers(0, 4),
    bias=st.booleans(),
    batch_first=st.booleans(),
    form=st.sampled_from(["padded", "unbatched", "packed"]),
    hx=st.sampled_from([None, "plain", "stacked"]),
    seed=st.integers(0, 10**6),
)
def test_functions_equal_torch(engine, kind, sizes, proj_size, bias, batch_first, form, hx, seed):
    L, N, H_in, H = sizes
    options = {"proj_size": proj_size} if kind == "LSTM" and proj_size < H else {}
    stock = STOCK[kind](H_in, H, bias=bias, batch_first=batch_first, dtype=torch.float64, **options)
    rows = () if form == "unbatched" else (N,)
    widths = (options.get("proj_size") or H, H)
    leaves = {"input": noise(seed, *((N, L, H_in) if batch_first and rows else (L, *rows, H_in)))}
    if hx:
        leaves |= {
            f"{s}_0": noise(seed + k, *rows, w) for k, (s, w) in enumerate(zip(STATES[kind], widths, strict=False))
        }
    leaves = {name: v.requires_grad_() for name, v in leaves.items()}
    states = list(leaves.values())[1:]

    def input():
        if form != "packed":
            return leaves["input"]
        return pack_padded_sequence(leaves["input"], torch.arange(N) % L + 1, batch_first, enforce_sorted=False)

    def results(output, final):
        output = output.data if isinstance(output, PackedSequence) else output
        final = final if isinstance(final, tuple) else (final,)
        outputs = {"output": output} | {
            f"{s}_n": v.reshape(*rows, -1) for s, v in zip(STATES[kind], final, strict=True)
        }
        return measure(outputs, leaves | dict(stock.named_parameters()), seed)

    def given(values):
        return None if not values else values[0] if len(values) == 1 else tuple(values)

    weights = {name.removesuffix("_l0"): w for name, w in stock.named_parameters()}
    ours = given([v[None] for v in states] if hx == "stacked" else states)
    got = getattr(gg.functional, kind.lower())(input(), ours, **weights, batch_first=batch_first)
    for state in got[1] if isinstance(got[1], tuple) else (got[1],):
        assert state.dim() == len(rows) + 1 + (hx == "stacked")
    check(results(*got), results(*stock(input(), given([v[None] for v in states]))))


@KINDS
def test_lengths_and_resets_give_the_results_of_a_layer(kind):
    layer = getattr(gg, kind)(3, 4, dtype=torch.float64)
    x, options = noise(1, 5, 3, 3), {"lengths": [5, 0, 2], "resets": noise(2, 5, 3) > 0}
    output, _ = getattr(gg.functional, kind.lower())(x, None, *layer.parameters(), **options)
    assert torch.equal(output, layer(x, **options)[0])


@pytest.mark.parametrize("name", ["bias_ih", "bias_hh"])
def test_a_missing_bias_is_zero(name):
    layer = gg.GRU(3, 4)
    weights = {n.removesuffix("_l0"): w for n, w in layer.named_parameters() if not n.startswith("bias")}
    bias = torch.randn(12)
    other = {"bias_ih", "bias_hh"} - {name}
    x = torch.randn(5, 2, 3)
    one, _ = gg.functional.gru(x, None, **weights, **{name: bias})
    both, _ = gg.functional.gru(x, None, **weights, **{name: bias}, **{other.pop(): torch.zeros(12)})
    assert torch.equal(one, both)


def test_rnn_with_relu_equals_torch():
    layer = torch.nn.RNN(3, 4, nonlinearity="relu")
    x = torch.randn(5, 2, 3)
    output, h_n = gg.functional.rnn(x, None, *layer.parameters(), nonlinearity="relu")
    torch.testing.assert_close((output, h_n[None]), layer(x))


X, W_IH, W_HH, B = torch.zeros(5, 2, 3), torch.zeros(16, 3), torch.zeros(16, 4), torch.zeros(16)
H = torch.zeros(2, 4)
FAULTS = {
    "LSTM: weight_ih must be (4 * H_cell, H_in), got (15, 3)": lambda f: f(X, None, W_IH[:15], W_HH),
    "LSTM: weight_ih must be (4 * H_cell, H_in), got (16,)": lambda f: f(X, None, W_IH[:, 0], W_HH),
    "LSTM: weight_hh must be (4 * H_cell, H_out) = (16, 4), got (16, 3)": lambda f: f(X, None, W_IH, W_HH[:, 1:]),
    "LSTM: bias_ih must be (4 * H_cell) = (16,), got (15,)": lambda f: f(X, None, W_IH, W_HH, B[1:], B),
    "LSTM: weight_hr must be (H_out, H_cell) = (2, 4), got (2, 5)": (
        lambda f: f(X, None, W_IH, W_HH[:, :2], weight_hr=torch.zeros(2, 5))
    ),
    "LSTM: weight_hr must be (H_out, H_cell), got (2,)": (
        lambda f: f(X, None, W_IH, W_HH[:, :2], weight_hr=torch.zeros(2))
    ),
    "LSTM: weight_hh must have weight_ih's dtype torch.float32, got torch.float64": (
        lambda f: f(X, None, W_IH, W_HH.double())
    ),
    "LSTM: input must have weight_ih's dtype torch.float32, got torch.float64": (
        lambda f: f(X.double(), None, W_IH, W_HH)
    ),
    "LSTM: input must have H_in = input_size = 3 features, got 2": lambda f: f(X[..., 1:], None, W_IH, W_HH),
    "LSTM: h_0 must be (N, H_out) = (2, 4), got (3, 4)": lambda f: f(X, (torch.zeros(3, 4), H), W_IH, W_HH),
    "LSTM: c_0 must be (1, N, H_cell) = (1, 2, 4), got (2, 4)": lambda f: f(X, (H[None], H), W_IH, W_HH),
    "LSTM: h_0 must be (1, H_out) = (1, 4), got (2, 4)": lambda f: f(X[:, 0], (H, H), W_IH, W_HH),
    "LSTM: hx must be a tuple of 2 states ('h', 'c'), got Tensor": lambda f: f(X, H, W_IH, W_HH),
    "LSTM: hx must be a tuple of 2 states ('h', 'c'), got 1 of them": lambda f: f(X, (H,), W_IH, W_HH),
    "LSTM: lengths must be (N,) = (2,), got (1,)": lambda f: f(X, None, W_IH, W_HH, lengths=[5]),
}


WEIGHTS, IH = {"weight_ih": W_IH, "weight_hh": W_HH}, torch.zeros(2, 5, 16)
STEP_FAULTS = {
    "LSTM: states must be a tuple of 2 states ('h', 'c'), got Tensor": (IH, H),
    "LSTM: states must be a tuple of 2 states ('h', 'c'), got 1 of them": (IH, (H,)),
    "LSTM: ih must be (..., 16), got (2, 5, 15)": (IH[..., 1:], (H[:, None], H[:, None])),
    "LSTM: c must be (..., 4), got (2, 1, 3)": (IH, (H[:, None], H[:, None, 1:])),
    "LSTM: ih must have weight_ih's dtype torch.float32, got torch.float64": (IH.double(), (H[:, None], H[:, None])),
    "LSTM: ih and states must broadcast, got (2, 5, 16) and [(3, 1, 4), (3, 1, 4)]": (IH, (torch.zeros(3, 1, 4),) * 2),
}


@pytest.mark.parametrize("message", STEP_FAULTS)
def test_wrong_arguments_of_step_are_rejected(message):
    ih, states = STEP_FAULTS[message]
    with pytest.raises(gg.ShapeError) as error:
        gg.functional.step(gg.cells.LSTM(), ih, states, WEIGHTS)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("message", FAULTS)
def test_wrong_arguments_are_rejected(message):
    with pytest.raises(gg.ShapeError) as error:
        FAULTS[message](gg.functional.lstm)
    assert str(error.value).startswith(message)
