"""Trained runs as C programs. Each task has a module `c` with its part of the program."""
