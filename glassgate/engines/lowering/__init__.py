"""Lowering: converts the equations of a cell to a pass, the typed program of one direction through time.

A pass does not depend on a backend: it contains no vectors, caches or addresses.
"""
