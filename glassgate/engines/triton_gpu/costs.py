"""Every constant of the cost model of a GPU. None of them has been measured with these kernels yet."""

from glassgate.engines.symbolic.costs import Costs

COSTS = Costs(
    operations=dict.fromkeys(("add", "sub", "mul", "neg"), 1) | dict.fromkeys(("div", "sqrt", "tanh", "sigmoid"), 8),
    other=4,
    read=4,
    carry=8,
    keep=40,
)
"""Costs of operations and memory, in additions. Memory is expensive: at each step every program reads the weights."""
