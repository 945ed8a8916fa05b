"""Trains each task on real data, with Glassgate and with plain PyTorch. `python -m results` runs the table of cases."""
