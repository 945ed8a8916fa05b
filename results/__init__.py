"""Trains each task on real data beside plain PyTorch. `python -m results` runs the cases of cases.py."""
