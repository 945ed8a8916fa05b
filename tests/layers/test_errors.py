"""Mistakes in calls raise the exception types of `torch.nn` or subclasses of them, with clear messages."""

import re
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import glassgate as gg
from tests.cases import STOCK

X = torch.randn(5, 2, 3)
with warnings.catch_warnings(action="ignore"):  # torch calls these tensors prototypes or deprecated
    NESTED = torch.nested.nested_tensor([X[:, 0], X[:2, 1]])
    QUANTIZED = torch.quantize_per_tensor(X, 0.1, 0, torch.quint8)
PACKED = pack_padded_sequence(X, torch.tensor([5, 2]))


# calls that torch.nn refuses too: the message
CALLS = {
    "1D input": (lambda f: f(X[0, 0]), r"input must be 2D (L, H_in) or 3D (L, N, H_in), got 1D (3,)"),
    "4D input": (lambda f: f(X[None]), r"input must be 2D (L, H_in) or 3D (L, N, H_in), got 4D (1, 5, 2, 3)"),
    "features": (lambda f: f(X[..., :2]), "input must have H_in = input_size = 3 features, got 2"),
    "packed features": (
        lambda f: f(PACKED._replace(data=PACKED.data[:, :2])),
        "input must have H_in = input_size = 3 features, got 2",
    ),
    "dtype": (
        lambda f: f(X.double()),
        "input must have the layer's dtype torch.float32, got torch.float64; convert it: input.to(torch.float32)",
    ),
    "integers": (lambda f: f(X.long()), "input must have the layer's dtype torch.float32, got torch.int64"),
    "no steps": (lambda f: f(X[:0]), "input must have at least one step, got (0, 2, 3)"),
    "no steps unbatched": (lambda f: f(X[:0, 0]), "input must have at least one step, got (0, 3)"),
    "rows of hx": (lambda f: f(X, 3), "h_0 must be (num_layers * D, N, H_out) = (2, 2, 4), got (2, 3, 4)"),
    "width of hx": (lambda f: f(X, 2, 5), "h_0 must be (num_layers * D, N, H_out) = (2, 2, 4), got (2, 2, 5)"),
    "unbatched hx for a batch": (
        lambda f: f(X, None),
        "h_0 must be (num_layers * D, N, H_out) = (2, 2, 4), got (2, 4)",
    ),
    "batched hx unbatched": (
        lambda f: f(X[:, 0], 1),
        "h_0 must be (num_layers * D, H_out) = (2, 4), got (2, 1, 4)",
    ),
    "packed rows of hx": (lambda f: f(PACKED, 1), "h_0 must be (num_layers * D, N, H_out) = (2, 2, 4), got (2, 1, 4)"),
    "dtype of hx": (
        lambda f: f(X, 2, 4, torch.float64),
        "h_0 must have input's dtype torch.float32, got torch.float64; convert it: h_0.to(torch.float32)",
    ),
    "device": (
        lambda f: f(X.to("meta")),
        "input must be on the layer's device cpu, got meta; move it: input.to('cpu')",
    ),
}


@pytest.mark.parametrize("kind", STOCK)
@pytest.mark.parametrize("case", CALLS)
def test_calls_raise_the_types_of_torch(engine, kind, case):
    call, message = CALLS[case]

    def on(layer):
        def f(input, rows=0, width=4, dtype=torch.float32):
            if rows == 0:
                return layer(input)
            lead = (2,) if rows is None else (2, rows)
            state = torch.zeros(*lead, width, dtype=dtype)
            return layer(input, (state, torch.zeros_like(state)) if kind == "LSTM" else state)

        return call(f)

    layer = getattr(gg, kind)(3, 4, bidirectional=True)
    check_error(layer, lambda: on(layer), gg.ShapeError, f"{kind}: {message}")
    stock = STOCK[kind](3, 4, bidirectional=True)
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        on(stock)
    assert issubclass(gg.ShapeError, theirs.type) or theirs.type is NotImplementedError


def check_error(layer, call, kind, message):
    """Check that a call raises an error and changes neither the random state nor anything in the layer."""
    state = {name: v.clone() for name, v in layer.state_dict().items()}
    attributes, seed = dict(vars(layer)), torch.get_rng_state()
    with pytest.raises(kind, match=f"^{re.escape(message)}"):
        call()
    assert vars(layer) == attributes
    assert all(torch.equal(v, state[name]) for name, v in layer.state_dict().items())
    assert all(p.grad is None for p in layer.parameters())
    assert torch.equal(torch.get_rng_state(), seed)


LSTM = gg.LSTM(3, 4)
LSTMP = gg.LSTM(3, 4, proj_size=2)
PAIR = gg.LSTM(3, (4, 5), bidirectional=True)
GRU = gg.GRU(3, 4)
SECOND = gg.GRU(3, 4, batch_first=True)
h, c = torch.zeros(1, 2, 4), torch.zeros(1, 2, 4)

OWN_CALLS = {
    "no tensor": (LSTM, lambda f: f([1, 2]), TypeError, "LSTM: input must be a tensor or a PackedSequence, got list"),
    "hx of one state": (
        LSTM,
        lambda f: f(X, h),
        gg.ShapeError,
        "LSTM: hx must be a tuple of 2 states (h_0, c_0), got T",
    ),
    "hx of three": (
        LSTM,
        lambda f: f(X, (h, c, c)),
        gg.ShapeError,
        "LSTM: hx must be a tuple of 2 states (h_0, c_0), got 3 of them",
    ),
    "hx of no tensor": (
        LSTM,
        lambda f: f(X, (h, 0)),
        TypeError,
        "LSTM: c_0 must be a tensor (num_layers * D, N, H_cell) = (1, 2, 4), got int",
    ),
    "c_0 as wide as h_0": (
        LSTMP,
        lambda f: f(X, (h[..., :2], c[..., :2])),
        gg.ShapeError,
        "LSTM: c_0 must be (num_layers * D, N, H_cell) = (1, 2, 4), got (1, 2, 2)",
    ),
    "hx stacked where widths differ": (
        PAIR,
        lambda f: f(X, (h.expand(2, 2, 4), c.expand(2, 2, 4))),
        gg.ShapeError,
        "LSTM: h_0 must be a tuple of num_layers * D = 2 tensors, as sizes differ, got (2, 2, 4)",
    ),
    "one of hx": (
        PAIR,
        lambda f: f(X, ((h[0], h[0]), (c[0], c[0]))),
        gg.ShapeError,
        "LSTM: h_0[1] must be (N, H_out) = (2, 5), got (2, 4)",
    ),
    "too few where widths differ": (
        PAIR,
        lambda f: f(X, ((h[0],), (c[0], c[0]))),
        gg.ShapeError,
        "LSTM: h_0 must be a tuple of num_layers * D = 2 tensors, as sizes differ, got 1 of them",
    ),
    "hx of an LSTM": (
        GRU,
        lambda f: f(X, (h, c)),
        TypeError,
        "GRU: h_0 must be a tensor (num_layers * D, N, H_out) = (1, 2, 4), got tuple",
    ),
    "device of hx": (
        LSTM,
        lambda f: f(X, (h.to("meta"), c)),
        gg.ShapeError,
        "LSTM: h_0 must be on input's device cpu, got meta; move it: h_0.to('cpu')",
    ),
    "batch first": (
        SECOND,
        lambda f: f(X[0, 0]),
        gg.ShapeError,
        "GRU: input must be 2D (L, H_in) or 3D (N, L, H_in), got 1D (3,)",
    ),
    "long lengths": (
        LSTM,
        lambda f: f(X, lengths=[6, 1]),
        gg.ShapeError,
        "LSTM: lengths must be between 0 and L = 5, got [6, 1]",
    ),
    "negative lengths": (
        LSTM,
        lambda f: f(X, lengths=[5, -1]),
        gg.ShapeError,
        "LSTM: lengths must be between 0 and L = 5, got [5, -1]",
    ),
    "too many lengths": (
        LSTM,
        lambda f: f(X, lengths=[5, 5, 5]),
        gg.ShapeError,
        "LSTM: lengths must be (N,) = (2,), got (3,)",
    ),
    "one length for a batch": (
        LSTM,
        lambda f: f(X, lengths=5),
        gg.ShapeError,
        "LSTM: lengths must be (N,) = (2,), got ()",
    ),
    "broken lengths": (
        LSTM,
        lambda f: f(X, lengths=[1.5, 2.0]),
        TypeError,
        "LSTM: lengths must be integers, got torch.float32",
    ),
    "text in lengths": (
        LSTM,
        lambda f: f(X, lengths=["a", 1]),
        TypeError,
        "LSTM: lengths must be (N,) integers, such as [5, 2], got ['a', 1]",
    ),
    "lengths of two kinds": (
        LSTM,
        lambda f: f(X, lengths=[[1], 2]),
        TypeError,
        "LSTM: lengths must be (N,) integers, such as [5, 2], got [[1], 2]",
    ),
    "no length": (
        LSTM,
        lambda f: f(X, lengths=[None, 2]),
        TypeError,
        "LSTM: lengths must be (N,) integers, such as [5, 2], got [None, 2]",
    ),
    "packed list": (
        LSTM,
        lambda f: f(PackedSequence([[0.0] * 3], torch.tensor([1]))),
        TypeError,
        "LSTM: input must be a tensor or a PackedSequence, got a PackedSequence of list",
    ),
    "batch sizes as a list": (
        LSTM,
        lambda f: f(PACKED._replace(batch_sizes=[2, 2, 1, 1, 1])),
        TypeError,
        "LSTM: batch_sizes of a PackedSequence must be a tensor, got list",
    ),
    "nested input": (
        LSTM,
        lambda f: f(NESTED),
        gg.ShapeError,
        "LSTM: input must be a dense tensor, got a nested tensor; convert it: torch.nested.to_padded_tensor(input",
    ),
    "sparse input": (
        LSTM,
        lambda f: f(X.to_sparse()),
        gg.ShapeError,
        "LSTM: input must be a dense tensor, got the layout torch.sparse_coo; convert it: input.to_dense()",
    ),
    "quantized input": (
        LSTM,
        lambda f: f(QUANTIZED),
        gg.ShapeError,
        "LSTM: input must be a dense tensor, got a quantized tensor; convert it: input.dequantize()",
    ),
    "hx as text": (
        LSTM,
        lambda f: f(X, "zeros"),
        AttributeError,
        "LSTM: hx must be a tuple of 2 states (h_0, c_0), got str",
    ),
    "lengths of packed": (
        LSTM,
        lambda f: f(PACKED, lengths=[5, 2]),
        ValueError,
        "LSTM: lengths must be left out with a PackedSequence, which has its own",
    ),
    "shape of resets": (
        LSTM,
        lambda f: f(X, resets=torch.zeros(2, 5)),
        gg.ShapeError,
        "LSTM: resets must be (L, N) = (5, 2), got (2, 5)",
    ),
    "shape of resets, batch first": (
        SECOND,
        lambda f: f(X, resets=torch.zeros(2, 5)),
        gg.ShapeError,
        "GRU: resets must be (N, L) = (5, 2), got (2, 5)",
    ),
    "shape of resets, unbatched": (
        LSTM,
        lambda f: f(X[:, 0], resets=torch.zeros(5, 1)),
        gg.ShapeError,
        "LSTM: resets must be (L,) = (5,), got (5, 1)",
    ),
    "shape of resets, packed": (
        LSTM,
        lambda f: f(PACKED, resets=torch.zeros(5, 2)),
        gg.ShapeError,
        "LSTM: resets must be (S,) = (7,), got (5, 2)",
    ),
    "resets of no tensor": (
        LSTM,
        lambda f: f(X, resets=[[0, 1]]),
        TypeError,
        "LSTM: resets must be a mask (bool or 0 and 1), got list",
    ),
    "resets of a probability": (
        LSTM,
        lambda f: f(X, resets=torch.full((5, 2), 0.5)),
        ValueError,
        "LSTM: resets must be a mask (bool or 0 and 1), got the value 0.5; compare it with a threshold",
    ),
    "restart without resets": (
        LSTM,
        lambda f: f(X, restart=(torch.zeros(1, 2, 4),) * 2),
        TypeError,
        "LSTM: restart sets the states after a reset, so it must be given with resets",
    ),
    "restart of one state": (
        LSTM,
        lambda f: f(X, resets=torch.zeros(5, 2), restart=torch.zeros(1, 2, 4)),
        gg.ShapeError,
        "LSTM: restart must be a tuple of 2 states (h_0, c_0), got Tensor",
    ),
    "device of resets": (
        LSTM,
        lambda f: f(X, resets=torch.zeros(5, 2, device="meta")),
        gg.ShapeError,
        "LSTM: resets must be on input's device cpu, got meta",
    ),
    "rising batch sizes": (
        LSTM,
        lambda f: f(PackedSequence(torch.zeros(3, 3), torch.tensor([1, 2]))),
        gg.ShapeError,
        "LSTM: batch_sizes of a PackedSequence must add up to its 3 rows, be at least 1 and never increase, got [1, 2]",
    ),
    "missing rows": (
        LSTM,
        lambda f: f(PackedSequence(torch.zeros(3, 3), torch.tensor([2, 2]))),
        gg.ShapeError,
        "LSTM: batch_sizes of a PackedSequence must add up to its 3 rows, be at least 1 and never increase, got [2, 2]",
    ),
    "packed vectors": (
        LSTM,
        lambda f: f(PackedSequence(torch.zeros(3), torch.tensor([2, 1]))),
        gg.ShapeError,
        "LSTM: input must have packed data of shape (S, H_in), got 1D (3,)",
    ),
}


@pytest.mark.parametrize("case", OWN_CALLS)
def test_calls_raise_clear_messages(case):
    layer, call, kind, message = OWN_CALLS[case]
    check_error(layer, lambda: call(layer), kind, message)


@pytest.mark.parametrize("packed", [False, True])
def test_an_error_is_raised_before_dropout_draws_numbers(packed):
    layer = gg.LSTM(3, 4, 2, dropout=0.5)
    check_error(
        layer,
        lambda: layer(PACKED if packed else X, (torch.zeros(2, 2, 4), torch.zeros(2, 2, 3))),
        gg.ShapeError,
        "LSTM: c_0 must be (num_layers * D, N, H_cell) = (2, 2, 4), got (2, 2, 3)",
    )


def test_a_state_dict_of_another_size_is_rejected():
    layer, other = gg.LSTM(3, 4), nn.LSTM(3, 5).state_dict()
    check_error(
        layer,
        lambda: layer.load_state_dict(other, strict=True),
        RuntimeError,
        "Error(s) in loading state_dict for LSTM:",
    )


CELL_CALLS = {
    "3D input": (lambda m, s: m(X), "input must be 1D (H_in) or 2D (N, H_in), got 3D (5, 2, 3)"),
    "features": (lambda m, s: m(X[0, :, :2]), "input must be (N, H_in) = (2, 3), got (2, 2)"),
    "one row's features": (lambda m, s: m(X[0, 0, :2]), "input must be (H_in) = (3,), got (2,)"),
    "rows of hx": (lambda m, s: m(X[0], s(3, 4)), "h_0 must be (N, H_cell) = (2, 4), got (3, 4)"),
    "width of hx": (lambda m, s: m(X[0], s(2, 5)), "h_0 must be (N, H_cell) = (2, 4), got (2, 5)"),
    "dtype": (lambda m, s: m(X[0].double()), "input must have the cell's dtype torch.float32, got torch.float64"),
    "device": (lambda m, s: m(X[0].to("meta")), "input must be on the cell's device cpu, got meta"),
    "3D hx": (lambda m, s: m(X[0], s(1, 2, 4)), "h_0 must be (N, H_cell) = (2, 4), got (1, 2, 4)"),
}


@pytest.mark.parametrize("kind", STOCK)
@pytest.mark.parametrize("case", CELL_CALLS)
def test_cells_raise_the_types_of_torch(kind, case):
    call, message = CELL_CALLS[case]

    def states(*shape):
        return (torch.zeros(shape), torch.zeros(shape)) if kind == "LSTM" else torch.zeros(shape)

    cell = getattr(gg, f"{kind}Cell")(3, 4)
    check_error(cell, lambda: call(cell, states), gg.ShapeError, f"{kind}Cell: {message}")
    with pytest.raises((RuntimeError, ValueError)) as theirs:
        call(getattr(nn, f"{kind}Cell")(3, 4), states)
    assert issubclass(gg.ShapeError, theirs.type)


def test_cells_raise_clear_messages():
    cell = gg.LSTMCell(3, 4)
    message = "LSTMCell: hx must be a tuple of 2 states ('h', 'c'), got Tensor"
    check_error(cell, lambda: cell(X[0], h[0]), gg.ShapeError, message)
    check_error(cell, lambda: cell([1.0]), TypeError, "LSTMCell: input must be a tensor, got list")
    message = r"negative dimension|hidden_size must be an int of at least zero, got -1"
    for library in (nn, gg):
        with pytest.raises(RuntimeError, match=message):
            library.LSTMCell(3, -1)
    with pytest.raises(TypeError, match=r"RecurrentCell: cell must be an instance of glassgate.Cell, got 3"):
        gg.RecurrentCell(3, 3, 4)
