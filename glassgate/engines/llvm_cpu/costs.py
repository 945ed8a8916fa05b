"""The costs of operations and memory on a CPU. The unit is one addition of vector registers."""

from glassgate.engines.symbolic.costs import Costs

_FUNCTIONS = "div sqrt rsqrt exp expm1 log log1p sigmoid tanh sin cos tan atan erf pow"

COSTS = Costs(
    operations=dict.fromkeys(("add", "sub", "mul", "neg"), 1) | dict.fromkeys(_FUNCTIONS.split(), 20),
    other=4,
    read=4,
    carry=7,
    # With a smaller value, tanh(c) of an LSTM would be stored too. This would take a fifth more memory, and change the
    # training time by at most 2 %.
    keep=20,
)
