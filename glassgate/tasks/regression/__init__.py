"""Regression: predict one or several numbers for a text or a series, such as a score or a remaining useful life."""

from glassgate.tasks.regression.task import Regression, RegressionOptions

__all__ = ["Regression", "RegressionOptions"]
