"""The options of regression."""

from dataclasses import dataclass

from glassgate.tasks.data.labelled import LabelledOptions
from glassgate.tasks.options import option


@dataclass(frozen=True, kw_only=True)
class RegressionOptions(LabelledOptions):
    """The options of regression."""

    label_column: str = option("label", "column of the numbers: a name, or a number from 1", group="data")
