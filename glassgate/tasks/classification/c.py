"""The C program of a classification run."""

from glassgate.tasks.c.parts import Parts
from glassgate.tasks.c.sequences import sequence_program
from glassgate.tasks.c.source import strings
from glassgate.tasks.classification.task import Classification


def export(task: Classification) -> Parts:
    """Return the program of a classification run."""
    pooling = task.options.pooling
    labels = task.vocabularies["labels"].symbols
    modules = {"attention": task.network.attention} if pooling == "attention" else {}
    code = [strings("label_names", labels)]
    return sequence_program(task, modules, code, pooling, "the label and its probability")
