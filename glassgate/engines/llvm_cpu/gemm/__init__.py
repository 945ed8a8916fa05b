"""GEMMs over whole sequences, and the packing of matrices for them and for the kernels."""
