"""Forecasting: the next steps of series of numbers, with their uncertainty."""

from glassgate.tasks.forecasting.options import ForecastingOptions
from glassgate.tasks.forecasting.task import Forecasting

__all__ = ["Forecasting", "ForecastingOptions"]
