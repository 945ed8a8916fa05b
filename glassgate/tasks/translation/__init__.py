"""Translation: any sequence of tokens to any other, by an encoder and a decoder that attends to it."""

from glassgate.tasks.translation.options import TranslationOptions
from glassgate.tasks.translation.search import Search
from glassgate.tasks.translation.task import Translated, Translation

__all__ = ["Search", "Translated", "Translation", "TranslationOptions"]
