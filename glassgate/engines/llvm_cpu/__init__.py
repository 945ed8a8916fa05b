"""Fused kernels for the CPU. A traced cell is printed as code in a subset of Python, which is translated to LLVM."""
