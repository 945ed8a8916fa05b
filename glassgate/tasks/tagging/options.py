"""The options of tagging."""

from dataclasses import dataclass
from typing import ClassVar

from glassgate.tasks.data.columns import LABEL_SUFFIX
from glassgate.tasks.data.formats import FORMATS, TOKEN_KINDS
from glassgate.tasks.options import Options, option, override


@dataclass(frozen=True, kw_only=True)
class TaggingOptions(Options):
    """The options of tagging."""

    common: ClassVar = (*Options.common, "label_column", "head")
    file_options: ClassVar = (*Options.file_options, "format", "label_column", "text_column")

    data: str | None = override("data", None, if_unset="Python's library")
    format: str = option("auto", "format of the files; auto detects it", group="data", choices=FORMATS)
    label_column: str | None = option(
        None,
        "label column: the name of a CoNLL-U column, a number from 1, or a key of JSON objects",
        group="data",
        if_unset="detected",
    )
    text_column: str | None = option(None, "word column: a number from 1, or a key", group="data", if_unset="detected")
    tokens: str = option("word", "kind of tokens in plain text", group="data", choices=TOKEN_KINDS)
    label_suffix: str = option(LABEL_SUFFIX, "suffix of the label file of a text file", group="data", metavar="SUFFIX")
    vectors: str | None = option(
        None,
        "pretrained vectors in the text format of word2vec, fastText or GloVe",
        group="data",
        if_unset="none; vectors are learned",
        metavar="FILE",
    )
    least_count: int = option(1, "minimum occurrences in training; rarer tokens are unknown", minimum=1)
    singleton_dropout: float = option(
        0.5, "fraction of the tokens with one occurrence that training treats as unknown", minimum=0, maximum=1
    )
    character_size: int = option(
        48, "hidden units per direction of the character network; 0 disables it", minimum=0, maximum=2**12
    )
    character_embedding_size: int = option(32, "size of the vector of a character", minimum=1, maximum=2**16)
    dropout: float = override("dropout", 0.2, help="dropout before and after each layer")
    head: str = option("softmax", "independent labels, or a conditional random field", choices=("softmax", "crf"))
    transitions: str = option(
        "auto",
        "label transitions allowed in predictions; auto is bio if the training labels follow BIO",
        choices=("auto", "bio", "any"),
    )
    learning_rate: float = override("learning_rate", 8e-3)
    longest: int = option(
        256, "cut training sequences longer than this many tokens; 0 disables it", group="training", minimum=0
    )
