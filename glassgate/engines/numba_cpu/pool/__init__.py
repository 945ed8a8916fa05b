"""Threads that run launches: torch's own, or ours under CPU contention."""
