"""Tagging: a label for each token of a sequence, and an intent for the whole where the data has one."""

from glassgate.tasks.tagging.options import TaggingOptions
from glassgate.tasks.tagging.task import Labels, Tagging

__all__ = ["Labels", "Tagging", "TaggingOptions"]
