"""Regression: one or several numbers for a text or a series, such as a score or a remaining useful life."""

from glassgate.tasks.regression.options import RegressionOptions
from glassgate.tasks.regression.task import Regression

__all__ = ["Regression", "RegressionOptions"]
