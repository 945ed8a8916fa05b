"""Diagrams of cells and layers as SVG.

`flow` converts a step to items and wires, `placing` places items, `routing` routes wires, and `cell` draws both.
"""
