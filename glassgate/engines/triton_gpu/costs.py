"""Every constant of the cost model of a GPU: estimates for an H100. None has been measured with these kernels."""

from glassgate.engines.symbolic.costs import Costs

COSTS = Costs(
    operations=dict.fromkeys(("add", "sub", "mul", "neg"), 1) | dict.fromkeys(("div", "sqrt", "tanh", "sigmoid"), 8),
    other=4,
    read=4,
    carry=8,
    keep=40,
)
"""Costs of operations and memory, in additions. Memory is expensive: at each step every program reads the weights."""

LAUNCH = 1.4
"""Microseconds of one launch inside a CUDA graph."""

BARRIER = 1.1
"""Microseconds of a barrier of all programs."""

L2_BYTES = 5.5e6
"""Bytes per microsecond that all programs together read from the L2 cache."""

PRODUCTS = 1.2e6
"""Multiplications and additions per microsecond of the tensor cores of one multiprocessor, in blocks of 16 rows."""

POINTWISE = 0.4
"""Microseconds of the elementwise operations of a step."""

SOLO_BYTES = 150_000
"""The largest size in bytes of the weights that a program of kernel A keeps on the chip."""
