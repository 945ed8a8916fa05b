"""Compares Glassgate with its peers. `python -m benchmarks` runs every row of rows.py; README.md has the method."""
