"""Filling blanks: predict missing tokens from the text before and after them."""

from glassgate.tasks.fill_blanks.options import FillBlanksOptions
from glassgate.tasks.fill_blanks.task import BLANK, FillBlanks

__all__ = ["BLANK", "FillBlanks", "FillBlanksOptions"]
