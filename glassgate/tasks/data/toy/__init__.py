"""Data that every machine has, for trying a task without files."""
