"""A backend for CUDA GPUs: the lowered pass with its loop as Triton kernels, everything else in torch."""
