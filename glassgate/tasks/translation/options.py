"""The options of translation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from glassgate.tasks.data import texts
from glassgate.tasks.data.pairs import FILE_SEPARATOR
from glassgate.tasks.errors import OptionError
from glassgate.tasks.options import Options, option, override
from glassgate.tasks.translation.attention import KINDS

SUBWORD = "subword"
TOKEN_KINDS = (SUBWORD, *texts.TOKEN_KINDS)
TEACHER_SCHEDULES = ("constant", "linear", "sigmoid")
"""The decay of the fraction of steps that read the true previous token; see `TranslationOptions.teacher_fraction`."""
BLEU_TOKENIZERS = ("13a", "zh", "char", "intl", "none")
"""The tokenizers of BLEU in sacrebleu."""


@dataclass(frozen=True, kw_only=True)
class TranslationOptions(Options):
    """The options of translation.

    Raises:
        OptionError: only one of `source` and `target` is given, `source` is given in addition to `data`, or the
            kinds of tokens differ with `joint`; see `Options`
    """

    common: ClassVar = (*Options.common, "source_tokens", "attention")
    file_options: ClassVar = (*Options.file_options, "source_column", "target_column")

    data: str | None = override("data", None, help="file of pairs separated by a tab, or two files A,B")
    source: str | None = option(
        None, "file of source sentences, instead of --data", group="data", if_unset="none", metavar="FILE"
    )
    target: str | None = option(
        None, "file of target sentences, instead of --data", group="data", if_unset="none", metavar="FILE"
    )
    source_column: str | None = option(
        None, "column of source sentences: a name, a number from 1, or a key", group="data", if_unset="detected"
    )
    target_column: str | None = option(
        None, "column of target sentences: a name, a number from 1, or a key", group="data", if_unset="detected"
    )
    reverse: bool = option(False, "translate the second side to the first, if no column is named", group="data")
    source_tokens: str = option(SUBWORD, "kind of tokens", group="data", choices=TOKEN_KINDS)
    target_tokens: str = option(SUBWORD, "kind of tokens of translations", group="data", choices=TOKEN_KINDS)
    subwords: int = option(4000, "maximum number of subwords per language", group="data", minimum=1)
    least_count: int = option(1, "minimum occurrences in training; rarer tokens are unknown", group="data", minimum=1)
    joint: bool = option(False, "one vocabulary and embedding for both sides", group="data")
    lower: bool = option(False, "convert letters to lower case", group="data")
    longest: int = option(100, "longest sentence to train on, in tokens; 0 disables it", group="data", minimum=0)
    held_out: float = override("held_out", 0.05)
    bleu: str = option(
        "auto", "tokenizer of BLEU, by its name in sacrebleu", group="data", choices=("auto", *BLEU_TOKENIZERS)
    )

    hidden_size: int = override("hidden_size", 256)
    embedding_size: int = override("embedding_size", 128)
    dropout: float = override("dropout", 0.3)
    attention: str = option("general", "score function of the attention", choices=(*KINDS, "none"))
    input_feeding: bool = option(False, "each step also reads the context of the previous one; slower training")
    wide_output: bool = option(False, "compute scores directly from the state, context and previous embedding")
    tied: bool = option(False, "share the weights of target embedding and output")

    learning_rate: float = override("learning_rate", 0.0, if_unset="0.002 to 0.004, by batch size")
    label_smoothing: float = option(0.1, "label smoothing", group="training", minimum=0, maximum=1)
    teacher_forcing: float = option(
        1.0, "final fraction of steps that read the true previous token", group="training", minimum=0, maximum=1
    )
    teacher_schedule: str = option(
        "linear", "decay to --teacher-forcing from 1", group="training", choices=TEACHER_SCHEDULES
    )
    best_by: str = option(
        "bleu", "score that selects the best epoch", group="training", choices=("bleu", "chrf", "exact_match")
    )

    beam: int = option(5, "size of the beam; 1 is greedy", group="model", minimum=1)
    length_penalty: float = option(1.0, "length penalty of the beam search", group="model", minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.source is None) != (self.target is None):
            raise OptionError("source, target: expected both files, got one; give the other, or pairs with --data")
        if self.data and self.source:
            raise OptionError("data, source: expected one of them, got both; leave one out")
        if self.joint and self.source_tokens != self.target_tokens:
            raise OptionError(
                f"joint: expected one kind of tokens for both sides, got {self.source_tokens} and "
                f"{self.target_tokens}; choose one of them for both"
            )

    def rate_for(self, batch_size: int) -> float:
        return self.learning_rate or min(4e-3, max(2e-3, 5e-4 * batch_size))

    @property
    def training_file(self) -> str | None:
        return self.data or (self.source and f"{self.source}{FILE_SEPARATOR}{self.target}")

    def teacher_fraction(self, done: float) -> float:
        """Return the fraction of steps that read the true previous token, instead of the predicted one.

        Args:
            done: the completed fraction of the training
        """
        decay = {"constant": 1.0, "linear": done, "sigmoid": 1 / (1 + 2.718281828 ** (10 * (0.5 - done)))}
        return 1.0 - (1.0 - self.teacher_forcing) * decay[self.teacher_schedule]


def tokenizer_for(sentences: Sequence[str]) -> str:
    """Return the sacrebleu tokenizer for a language: "zh" for Chinese, "char" for Japanese, "13a" for any other.

    Args:
        sentences: sentences in the language

    Example:
        >>> tokenizer_for(["a cat", "two cats"]), tokenizer_for(["一隻貓。"])
        ('13a', 'zh')
    """
    letters = [character for sentence in sentences for character in sentence if character.isalpha()]
    han = sum("\u4e00" <= character <= "\u9fff" for character in letters)
    kana = sum("\u3040" <= character <= "\u30ff" for character in letters)
    if 2 * (han + kana) > len(letters):
        return "char" if kana > 0.05 * len(letters) else "zh"
    return "13a"
