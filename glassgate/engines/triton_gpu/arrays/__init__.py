"""Kernels for recurrences whose states are arrays: a program per row and head keeps them in registers."""
