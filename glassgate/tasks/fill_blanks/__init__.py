"""Filling blanks: predict missing tokens from the text before and after them."""

from glassgate.tasks.fill_blanks.task import BLANK, FillBlanks, FillBlanksOptions

__all__ = ["BLANK", "FillBlanks", "FillBlanksOptions"]
