"""Forecasting: the next steps of series of numbers, with how sure the model is of them."""
