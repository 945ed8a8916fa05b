"""Language models: predict the next token of a text, or the notes of the next step of a piece of music."""

from glassgate.tasks.language_model.task import LanguageModel, LanguageModelOptions

__all__ = ["LanguageModel", "LanguageModelOptions"]
