"""Thread pools that run kernels: the OpenMP threads of torch, or threads of this package under CPU contention."""
