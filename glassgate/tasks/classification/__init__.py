"""Classification: predict one label for a text or a series."""

from glassgate.tasks.classification.task import Classification, ClassificationOptions
from glassgate.tasks.labelled.network import POOLINGS

__all__ = ["POOLINGS", "Classification", "ClassificationOptions"]
