"""Trains each task on real data, with Glassgate and with plain PyTorch, by `python -m experiments.quality`."""
