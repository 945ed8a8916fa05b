"""Classification: predict one label for a text or a series."""

from glassgate.tasks.classification.options import POOLINGS, ClassificationOptions
from glassgate.tasks.classification.task import Classification

__all__ = ["POOLINGS", "Classification", "ClassificationOptions"]
