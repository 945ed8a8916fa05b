"""The kernels of a layer as torch operators: schemas, gradients, and fake kernels for the shapes of results."""
