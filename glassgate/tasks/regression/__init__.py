"""Regression: one or several numbers for a text or a series, such as a score or a remaining useful life."""
