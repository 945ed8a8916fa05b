"""Threads that run launches: torch's own, or ours while other processes have the cores."""
