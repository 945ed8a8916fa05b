"""The options of language models."""

from dataclasses import dataclass
from typing import ClassVar

from glassgate.tasks.data import texts
from glassgate.tasks.data.texts import TextOptions
from glassgate.tasks.errors import OptionError
from glassgate.tasks.options import option, override

NOTES = "notes"
"""The kind of tokens of piano rolls."""


@dataclass(frozen=True, kw_only=True)
class LanguageModelOptions(TextOptions):
    """The options of language models.

    Raises:
        OptionError: the model is bidirectional, or notes have tied weights; see `Options`
    """

    common: ClassVar = (*TextOptions.common, "tokens", "chunk")

    tokens: str = option(
        "character",
        "kind of predicted tokens; notes are piano rolls",
        group="data",
        choices=(*texts.TOKEN_KINDS, NOTES),
    )
    hidden_size: int = override("hidden_size", 256, help="hidden units")
    bidirectional: bool = override(
        "bidirectional", False, help="not available: a language model reads in one direction"
    )
    tied: bool = option(False, "share the weights of embedding and output")
    chunk: int = option(
        50,
        "tokens or steps of music per chunk; the state is carried to the next chunk, the gradient is not",
        group="training",
        minimum=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bidirectional:
            raise OptionError(
                "bidirectional: expected one direction for a language model, got two: the second one comes from the "
                "end of the text and has seen the token that is to be predicted; leave the option out, or fill blanks, "
                "which reads from both ends: glassgate train fill-blanks"
            )
        if self.tied and self.tokens == NOTES:
            raise OptionError("tied: notes have no embedding to share; leave the option out")
