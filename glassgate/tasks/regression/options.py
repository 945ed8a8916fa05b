"""The options of regression."""

from dataclasses import dataclass
from typing import ClassVar

from glassgate.tasks.data import labelled
from glassgate.tasks.data import texts as text
from glassgate.tasks.options import Options, option


@dataclass(frozen=True, kw_only=True)
class RegressionOptions(Options):
    """The options of regression."""

    common: ClassVar = (*Options.common, "text_column", "label_column")

    format: str = option("auto", "format of the files; auto detects it", group="data", choices=labelled.FORMATS)
    text_column: str = option("text", "text column: a name, or a number from 1", group="data")
    label_column: str = option("label", "column of the numbers: a name, or a number from 1", group="data")
    unit: str = option("word", "unit that a text is split into", group="data", choices=text.UNITS)
    missing: str = option("error", "treatment of series with missing values", group="data", choices=labelled.MISSING)
    least_count: int = option(2, "occurrences in training that give a token its own vector", least=1)
