"""From kernels to LLVM code: the translator, vectors and their mathematics, the microkernel of matrix products."""
