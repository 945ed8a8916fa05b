"""The options of translation."""

from dataclasses import dataclass

from glassgate.tasks.data import text
from glassgate.tasks.data.pairs import BETWEEN
from glassgate.tasks.errors import OptionError
from glassgate.tasks.options import Options, option
from glassgate.tasks.translation.attention import KINDS
from glassgate.tasks.translation.scores import TOKENIZERS

SUBWORD = "subword"
UNITS = (SUBWORD, *text.UNITS)
SCHEDULES = ("constant", "linear", "sigmoid")


@dataclass(frozen=True, kw_only=True)
class TranslationOptions(Options):
    """The options of translation.

    Raises:
        OptionError: one of two files alone, or other units for the sides of one vocabulary; see `Options`
    """

    data: str | None = option(
        None, "file of pairs to train on, a tab between the two; or two files, A,B; without one, dates and numbers",
        group="data",
    )  # fmt: skip
    source: str | None = option(None, "in place of --data: file of the sources, a sentence a line", group="data")
    target: str | None = option(None, "in place of --data: file of their translations", group="data")
    reverse: bool = option(False, "translate the second column, or file, to the first", group="data")
    source_unit: str = option(SUBWORD, "what a source is made of", group="data", choices=UNITS)
    target_unit: str = option(SUBWORD, "what a translation is made of", group="data", choices=UNITS)
    subwords: int = option(4000, "subwords of a language, at most", group="data", least=1)
    least_count: int = option(1, "times a unit must occur in training to be known", group="data", least=1)
    joint: bool = option(False, "one vocabulary, and one vector a unit, for both sides", group="data")
    lower: bool = option(False, "turn all letters to lower case", group="data")
    longest: int = option(100, "leave longer sentences out of training, in units; 0 for none", group="data", least=0)
    held_out: float = option(
        0.05,
        "fraction of --data kept as dev, and as test, where neither is given; by a hash of the source",
        group="data",
        least=0,
        most=0.4,
    )
    bleu: str = option(
        "auto", "words that BLEU counts, by sacrebleu's name", group="data", choices=("auto", *TOKENIZERS)
    )

    hidden_size: int = option(256, "units of one direction, and of the decoder", least=1)
    embedding_size: int = option(128, "numbers that stand for one unit of input", least=1)
    dropout: float = option(0.3, "fraction of values zeroed after the embedding and each layer", least=0, most=1)
    attention: str = option("general", "how a step is compared with the source", choices=(*KINDS, "none"))
    input_feeding: bool = option(False, "let a step know where the one before it looked; slower training")
    wide_output: bool = option(
        False, "score units from the state, the context and the last unit's vector, with no layer between"
    )
    tied: bool = option(False, "use the target's vectors as the output's weights, too")

    learning_rate: float = option(
        0.0, "largest rate of AdamW; 0: by the batch size, from 0.002 to 0.004", group="training", least=0
    )  # fmt: skip
    label_smoothing: float = option(0.1, "fraction of certainty given to all units", group="training", least=0, most=1)
    teacher_forcing: float = option(
        1.0, "fraction of steps that read the true unit before them, at the end", group="training", least=0, most=1
    )  # fmt: skip
    teacher_schedule: str = option("linear", "how that fraction falls from 1", group="training", choices=SCHEDULES)
    best_by: str = option(
        "bleu", "score that decides which epoch is best", group="training", choices=("bleu", "chrf", "exact_match")
    )

    beam: int = option(5, "unfinished translations that go on; 1 takes the likeliest unit", group="model", least=1)
    length_penalty: float = option(1.0, "0 favours short translations, 1 their mean score", group="model", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.source is None) != (self.target is None):
            raise OptionError("source, target: expected both files, got one; give the other, or pairs with --data")
        if self.data and self.source:
            raise OptionError("data, source: expected one of them, got both; leave one out")
        if self.joint and self.source_unit != self.target_unit:
            raise OptionError(
                f"joint: expected the same units on both sides, got {self.source_unit} and {self.target_unit}; "
                "choose one of them for both"
            )

    def rate_for(self, batch_size: int) -> float:
        return self.learning_rate or min(4e-3, max(2e-3, 5e-4 * batch_size))

    @property
    def training_file(self) -> str | None:
        return self.data or (self.source and f"{self.source}{BETWEEN}{self.target}")

    def teacher_at(self, done: float) -> float:
        """The fraction of steps that read the true unit, when so much of the training is done, from 0 to 1."""
        fall = {"constant": 1.0, "linear": done, "sigmoid": 1 / (1 + 2.718281828 ** (10 * (0.5 - done)))}
        return 1.0 - (1.0 - self.teacher_forcing) * fall[self.teacher_schedule]
