"""Fused kernels for the CPU: a traced cell is printed in a subset of Python, which is compiled by LLVM."""
