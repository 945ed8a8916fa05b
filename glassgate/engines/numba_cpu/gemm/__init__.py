"""Products of whole sequences, and matrices packed for them and for the kernels."""
