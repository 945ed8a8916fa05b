"""Readers of data files, and the order in which training uses their examples."""
