"""Kernels for recurrences whose states are arrays, such as one matrix per head: one loop over time per row and head."""
