"""Filling blanks: the missing tokens of a text, from both of its sides."""

from glassgate.tasks.fill_blanks.options import FillBlanksOptions
from glassgate.tasks.fill_blanks.task import BLANK, FillBlanks

__all__ = ["BLANK", "FillBlanks", "FillBlanksOptions"]
