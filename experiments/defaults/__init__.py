"""Compares the default settings with the best settings that a search finds, on three data sets per task."""
