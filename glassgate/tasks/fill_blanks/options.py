"""The options of filling blanks."""

from dataclasses import dataclass

from glassgate.tasks.data.text import TextOptions
from glassgate.tasks.options import option


@dataclass(frozen=True, kw_only=True)
class FillBlanksOptions(TextOptions):
    """What filling blanks can be told."""

    longest_blank: int = option(4, "units of the longest blank that the model learns to fill", least=1)
    longest: int = option(256, "units; longer sequences are cut for training; 0 to cut none", group="training", least=0)
