"""The C program of a regression run."""

from glassgate.tasks.c.parts import Parts
from glassgate.tasks.c.sequences import sequence_program
from glassgate.tasks.c.source import numbers
from glassgate.tasks.regression.task import Regression


def export(task: Regression) -> Parts:
    """Return the program of a regression run."""
    means, deviations = task.fitted["numbers"]
    code = [numbers("number_means", means), numbers("number_deviations", deviations)]
    return sequence_program(task, {}, code, "last", "the numbers")
