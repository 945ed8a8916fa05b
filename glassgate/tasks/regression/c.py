"""The C program of a regression run."""

from glassgate.tasks.c.program import Parts, answer_parts, numbers
from glassgate.tasks.regression.task import Regression


def export(task: Regression) -> Parts:
    """Return the program of a regression run."""
    means, deviations = task.fitted["numbers"]
    tables = [numbers("number_means", means), numbers("number_deviations", deviations)]
    return answer_parts(task, {}, tables, "last", "the numbers")
