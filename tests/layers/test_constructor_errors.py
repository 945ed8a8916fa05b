"""Wrong arguments of constructors raise the exception types of `torch.nn`, with clear messages."""

import pytest
from torch import nn

import glassgate as gg
from glassgate.engines.torch_names import VERSION

# Arguments of a constructor, and the type and the message of its error.
CONSTRUCTORS = {
    "input_size=0": ({"input_size": 0}, ValueError, "input_size must be greater than zero, got 0"),
    "input_size=-1": ({"input_size": -1}, ValueError, "input_size must be greater than zero, got -1"),
    "input_size=2.0": ({"input_size": 2.0}, TypeError, "input_size must be an int above zero, got 2.0 of type float"),
    "hidden_size=0": ({"hidden_size": 0}, ValueError, "hidden_size must be greater than zero, got 0"),
    "hidden_size=''": ({"hidden_size": "4"}, TypeError, "hidden_size must be an int above zero, got '4' of type str"),
    "num_layers=0": ({"num_layers": 0}, ValueError, "num_layers must be greater than zero, got 0"),
    "num_layers=1.5": ({"num_layers": 1.5}, TypeError, "num_layers must be an int above zero, got 1.5"),
    "bias": ({"bias": 1}, TypeError, "bias must be a bool, got 1 of type int"),
    "batch_first": ({"batch_first": "yes"}, TypeError, "batch_first must be a bool, got 'yes' of type str"),
    "dropout>1": ({"dropout": 1.5}, ValueError, r"dropout must be a number in range \[0, 1\], got 1.5"),
    "dropout<0": ({"dropout": -0.5}, ValueError, r"dropout must be a number in range \[0, 1\], got -0.5"),
    "dropout=True": ({"dropout": True}, ValueError, r"dropout must be a number in range \[0, 1\], got True"),
    "proj_size<0": ({"proj_size": -1}, ValueError, "proj_size should be a positive integer or zero .*, got -1"),
    "proj_size=4": ({"proj_size": 4}, ValueError, "proj_size has to be smaller than hidden_size, got 4 and 4"),
    "proj_size=1.5": ({"proj_size": 1.5}, TypeError, "proj_size must be an int, got 1.5 of type float"),
}


OWN_CONSTRUCTORS = {
    "merge": ({"merge": "max"}, ValueError, "merge must be one of 'concat', 'sum', 'mean', 'none', got 'max'"),
    "residual": ({"residual": 1}, TypeError, "residual must be a bool, got 1"),
    "learn": ({"learn_initial_state": None}, TypeError, "learn_initial_state must be a bool, got None"),
    "pair for one direction": (
        {"hidden_size": (4, 5)},
        ValueError,
        r"hidden_size must be an int or a tuple of 1 \(one per direction\), got \(4, 5\)",
    ),
    "triple": (
        {"hidden_size": (4, 5, 6), "bidirectional": True},
        ValueError,
        r"hidden_size must be an int or a tuple of 2 \(one per direction\), got \(4, 5, 6\)",
    ),
    "list": (
        {"hidden_size": [4, 5, 6], "num_layers": 2},
        ValueError,
        "hidden_size as a list must have num_layers = 2 entries, got 3",
    ),
    "zero in a list": (
        {"hidden_size": [4, 0], "num_layers": 2},
        ValueError,
        "hidden_size must be greater than zero, got 0",
    ),
    "sum of two sizes": (
        {"hidden_size": (4, 5), "bidirectional": True, "merge": "sum"},
        ValueError,
        r"merge='sum' needs two directions of equal size, got \(4, 5\)",
    ),
    "projection of the smaller": (
        {"hidden_size": (4, 5), "bidirectional": True, "proj_size": 4},
        ValueError,
        "proj_size has to be smaller than hidden_size, got 4 and 4",
    ),
    "cell": ({"cell": gg.cells.LSTM}, TypeError, r"cell must be an instance .* call the class: LSTM\(\)"),
}


@pytest.mark.parametrize("case", CONSTRUCTORS)
def test_constructors_raise_the_types_of_torch(case):
    options, kind, message = CONSTRUCTORS[case]
    arguments = {"input_size": 3, "hidden_size": 4} | options
    with pytest.raises(kind, match=f"^LSTM: {message}"):
        gg.LSTM(**arguments)
    if VERSION >= (2, 11):  # earlier versions accept some of these arguments
        with pytest.raises(kind):
            nn.LSTM(**arguments)


@pytest.mark.parametrize("case", OWN_CONSTRUCTORS)
def test_constructors_raise_clear_messages(case):
    options, kind, message = OWN_CONSTRUCTORS[case]
    with pytest.raises(kind, match=f"^GRU: {message}"):
        gg.GRU(**({"input_size": 3, "hidden_size": 4} | options))


def test_an_unknown_nonlinearity_is_rejected():
    for layer in (gg.RNN, gg.RNNCell):
        with pytest.raises(ValueError, match="RNN: nonlinearity must be 'tanh' or 'relu', got 'selu'"):
            layer(3, 4, nonlinearity="selu")
    with pytest.raises(ValueError, match="nonlinearity"):
        nn.RNN(3, 4, nonlinearity="selu")
