"""Measures the speed and memory of Glassgate and of other programs (peers), and studies of single features.

`python -m benchmarks` measures the rows of rows.py. benchmarks/README.md describes the method.
"""
