"""The kernels of a layer as torch operators: schemas, gradients, fake kernels, rules for transforms of torch.func."""
