"""Trains each task on real data, ours and plain PyTorch. `python -m results` runs the cases of cases.py."""
