"""The costs of operations and memory on a CPU, in units of one addition of vector registers."""

from glassgate.engines.symbolic.costs import Costs

_FUNCTIONS = "div sqrt rsqrt exp expm1 log log1p sigmoid tanh sin cos tan atan erf pow"

COSTS = Costs(
    operations=dict.fromkeys(("add", "sub", "mul", "neg"), 1) | dict.fromkeys(_FUNCTIONS.split(), 20),
    other=4,
    read=4,
    carry=7,
    # If tanh(c) is stored too, the training time of an LSTM changes by at most 2 %, and it takes a fifth more memory.
    keep=20,
)
