"""The options of classification."""

from dataclasses import dataclass

from glassgate.tasks.data import table, text
from glassgate.tasks.options import Options, option

POOLINGS = ("last", "mean", "max", "attention")


@dataclass(frozen=True, kw_only=True)
class ClassificationOptions(Options):
    """What classification can be told."""

    format: str = option("auto", "of the files; by their suffix if auto", group="data", choices=table.FORMATS)
    text_column: str = option(
        "text", "column of the texts: its name, or a number from 1 without a header", group="data"
    )
    label_column: str = option("label", "column of the labels, likewise", group="data")
    unit: str = option("word", "what a text is made of", group="data", choices=text.UNITS)
    missing: str = option(
        "error", "what to do with a series that lacks a value (NaN)", group="data", choices=table.MISSING
    )
    held_out: float = option(
        0.1, "fraction of --data kept as dev, and as test, where neither is given", group="data", least=0, most=0.4
    )
    pooling: str = option("last", "how the states of all steps become one", choices=POOLINGS)
    least_count: int = option(2, "times a unit must occur in training to have a vector of its own", least=1)
