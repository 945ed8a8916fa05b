"""Inspection of networks: recordings and edits of gates and states, diagrams of cells, and report pages."""
