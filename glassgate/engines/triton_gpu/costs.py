"""The constants of the GPU cost model. They are estimates for an H100, not measurements of these kernels."""

from glassgate.engines.symbolic.costs import Costs

COSTS = Costs(
    operations=dict.fromkeys(("add", "sub", "mul", "neg"), 1) | dict.fromkeys(("div", "sqrt", "tanh", "sigmoid"), 8),
    other=4,
    read=4,
    carry=8,
    keep=40,
)
"""Costs relative to one addition. Memory is expensive, because every program also reads weights."""

LAUNCH_TIME = 1.4
"""The microseconds of one launch inside a CUDA graph."""

BARRIER_TIME = 1.1
"""The microseconds of a barrier of all programs."""

L2_BANDWIDTH = 5.5e6
"""The bytes per microsecond that all programs together can read from the L2 cache."""

PRODUCT_RATE = 1.2e6
"""The multiply-adds per microsecond of the tensor cores of one multiprocessor, with blocks of 16 rows."""

POINTWISE_TIME = 0.4
"""The microseconds of the elementwise operations of a step."""

MAX_SOLO_BYTES = 150_000
"""The largest size in bytes of the weights that a program of kernel A (see `launch.py`) keeps on the chip."""
