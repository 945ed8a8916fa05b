"""Measurements for the documentation: `speed`, `quality`, `defaults`, `claims`; with one store and one page writer."""
