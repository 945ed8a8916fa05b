"""Readers of data files and the order in which training sees what they read."""
