"""Compares the speed and memory of Glassgate with those of other programs (peers).

`python -m benchmarks` measures the rows of rows.py. README.md describes the method.
"""
