"""The options of tagging."""

from dataclasses import dataclass

from glassgate.tasks.data.formats import FORMATS, LABEL_SUFFIX, UNITS
from glassgate.tasks.options import Options, option


@dataclass(frozen=True, kw_only=True)
class TaggingOptions(Options):
    """What tagging can be told."""

    format: str = option("auto", "of the files; by their suffix if auto", group="data", choices=FORMATS)
    column: str | None = option(
        None, "column of the labels: a name in CoNLL-U (upos, xpos, ...), else a number from 1, or a key", group="data"
    )
    text_column: str | None = option(
        None, "column of the words, where it is not recognised: a number from 1, or a key", group="data"
    )
    unit: str = option("word", "what has a label in plain text", group="data", choices=UNITS)
    label_suffix: str = option(LABEL_SUFFIX, "turns a text file's name into its label file's", group="data")
    vectors: str | None = option(
        None, "file of pretrained vectors, text of word2vec or GloVe; it sets --embedding-size", group="data"
    )
    least_count: int = option(1, "times a unit must occur in training to have a vector of its own", least=1)
    singleton_dropout: float = option(
        0.5,
        "fraction of the units seen once that training replaces by the unknown one",
        least=0,
        most=1,
    )
    character_size: int = option(
        48, "units of each direction of a network over the characters of each word; 0 for none", least=0, most=2**12
    )
    character_embedding_size: int = option(32, "numbers that stand for one character of a word", least=1, most=2**16)
    dropout: float = option(0.2, "fraction of values zeroed before and after each layer", least=0, most=1)
    head: str = option(
        "softmax", "each label independently, or a chain of them (conditional random field)", choices=("softmax", "crf")
    )
    transitions: str = option(
        "auto",
        "which labels may follow each other in results: bio, where I-X only goes on with X; any; auto: "
        "bio if the training labels keep to it",
        choices=("auto", "bio", "any"),
    )
    learning_rate: float = option(8e-3, "largest rate of AdamW", group="training", least=0)
    longest: int = option(
        256, "units; longer sequences are cut for training, never for results; 0 to cut none", group="training", least=0
    )
