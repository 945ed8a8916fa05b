"""The step of a cell that declares axes, as a graph of values over named axes, and the gradient of this graph.

Kernels for states of any shape are derived from this graph. Use it in this order:

    from glassgate.engines.symbolic.arrays.step import array_step       # cell -> ArrayStep
    from glassgate.engines.symbolic.arrays.differentiate import gradient  # ArrayStep -> Gradient
    from glassgate.engines.symbolic.arrays.evaluate import evaluate     # either one, with torch, for tests

    step = array_step(gg.cells.DeltaNet(heads=4, key_size=32), input_size=64, hidden_size=128)
    print(step)           # each operation on one line, in index notation
    step.sizes            # {"heads": 4, "key_size": 32, "value": 32}
    step.states           # the new states: values whose axes are the declared axes

A value is a function of the row (a sequence at one step) and of its axes; it has no positions. An operation on values
with different axes broadcasts by the names of the axes. `k[..., None] * s.S` becomes
`mul(k[heads, key], S[heads, key, value])`, so a kernel has one loop per axis, and `unsqueeze`, `squeeze`, `expand`,
`permute` and `transpose` have no operation. A matrix product and an einsum are `mul` and `sum`. `value.Value` lists
all operations.
"""
