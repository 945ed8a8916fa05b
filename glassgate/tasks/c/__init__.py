"""Trained runs as C programs: `write_program` writes the network and a program that predicts from standard input."""

from glassgate.tasks.c.write import write_program

__all__ = ["write_program"]
