"""Code on vector registers: the vector as a Numba type, its mathematics, the microkernel of matrix products."""
