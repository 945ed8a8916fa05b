"""Modules that the networks of several tasks share."""
