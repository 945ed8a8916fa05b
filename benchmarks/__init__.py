"""Measures Glassgate beside its peers. `python -m benchmarks` runs every row of rows.py; README.md says how."""
