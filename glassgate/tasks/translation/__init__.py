"""Translation: predict a target sequence of tokens from a source sequence, with an encoder and a decoder."""

from glassgate.tasks.translation.options import TranslationOptions
from glassgate.tasks.translation.search import Search
from glassgate.tasks.translation.task import Translated, Translation

__all__ = ["Search", "Translated", "Translation", "TranslationOptions"]
