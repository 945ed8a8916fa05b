"""The C program of a classification run."""

from glassgate.tasks.c.program import Parts, answer_parts, constants, strings
from glassgate.tasks.classification.task import Classification


def export(task: Classification) -> Parts:
    """Return the program of a classification run."""
    pooling = task.options.pooling
    modules = {"attention": task.network.attention} if pooling == "attention" else {}
    tables = [constants(LABELLED=1), strings("label_names", task.vocabularies["labels"].symbols)]
    return answer_parts(task, modules, tables, pooling, "the label and its probability")
