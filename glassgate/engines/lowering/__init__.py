"""Lowering converts the equations of a cell to passes. A pass is a typed program for one direction of a layer.

A pass does not depend on a backend: it contains no vectors, caches or addresses.
"""
