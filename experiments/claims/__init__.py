"""Writes the results of `glassgate compare` in docs/why-lstm.md, by `python -m experiments.claims FOLDER`."""
