"""The options of language models."""

from dataclasses import dataclass

from glassgate.tasks.data import text as texts
from glassgate.tasks.data.text import TextOptions
from glassgate.tasks.errors import OptionError
from glassgate.tasks.options import option

NOTES = "notes"


@dataclass(frozen=True, kw_only=True)
class LanguageModelOptions(TextOptions):
    """What a language model can be told.

    Raises:
        OptionError: two directions; see `Options`
    """

    unit: str = option(
        "character",
        "what is predicted; a word ends at punctuation, a token at blanks; notes are piano rolls",
        group="data",
        choices=(*texts.UNITS, NOTES),
    )
    hidden_size: int = option(256, "units", least=1, most=2**16)
    bidirectional: bool = option(False, "refused: a language model reads one way")
    tied: bool = option(False, "use the embedding as the output's weights, too")
    chunk: int = option(
        50, "units of a file between cuts of the gradient; the state is carried over them", group="training", least=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bidirectional:
            raise OptionError(
                "bidirectional: expected one direction for a language model, got two: the second one comes from the "
                "end of the text and has seen the unit that is to be predicted; leave the option out, or fill blanks, "
                "which reads from both ends: glassgate train fill-blanks"
            )
        if self.tied and self.unit == NOTES:
            raise OptionError("tied: notes have no embedding to share; leave the option out")
