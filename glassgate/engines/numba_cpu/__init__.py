"""Fused kernels for the CPU: a traced cell is printed as Numba, compiled by LLVM."""
