"""Thread pools that run launches: the OpenMP threads of torch, or threads of this package under CPU contention."""
