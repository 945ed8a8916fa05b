"""The options of filling blanks."""

from dataclasses import dataclass
from typing import ClassVar

from glassgate.tasks.data.texts import TextOptions
from glassgate.tasks.options import option


@dataclass(frozen=True, kw_only=True)
class FillBlanksOptions(TextOptions):
    """The options of filling blanks."""

    common: ClassVar = (*TextOptions.common, "tokens", "longest_blank")

    longest_blank: int = option(4, "length of the longest blank, in tokens", minimum=1)
    longest: int = option(
        256, "cut training sequences longer than this many tokens; 0 disables it", group="training", minimum=0
    )
