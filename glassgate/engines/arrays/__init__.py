"""The passes of cells whose states are arrays, such as one matrix per head, and the calls of their kernels."""
