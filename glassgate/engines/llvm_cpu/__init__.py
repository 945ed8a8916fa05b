"""Fused kernels for the CPU. A traced cell is printed in a subset of Python, and LLVM compiles the text."""
