"""What operations and memory cost on a CPU, in additions of one vector register."""

from glassgate.engines.symbolic.costs import Costs

_FUNCTIONS = "div sqrt rsqrt exp expm1 log log1p sigmoid tanh sin cos tan atan erf pow"

COSTS = Costs(
    operations=dict.fromkeys(("add", "sub", "mul", "neg"), 1) | dict.fromkeys(_FUNCTIONS.split(), 20),
    other=4,
    read=4,
    carry=7,
    # With tanh(c) kept too an LSTM trains as fast, within 2 %, and takes a fifth more memory.
    keep=20,
)
