"""Measures how close the defaults are to the best settings that a search finds, on three data sets per task."""
