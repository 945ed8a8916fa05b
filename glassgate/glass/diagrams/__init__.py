"""Diagrams of cells and layers as SVG: the parts of a step, their places, the routes of wires, the drawing."""
