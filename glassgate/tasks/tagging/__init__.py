"""Tagging: predict a label for each token of a sequence, and an intent if the training data has intents."""

from glassgate.tasks.tagging.options import TaggingOptions
from glassgate.tasks.tagging.task import Labels, Tagging

__all__ = ["Labels", "Tagging", "TaggingOptions"]
