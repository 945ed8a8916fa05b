"""A layer's kernels as operators of torch: their names, their gradients, the shapes of their results."""
