"""Diagrams of cells and layers as SVG: what a step says, where its parts stand, how wires run, how it is drawn."""
