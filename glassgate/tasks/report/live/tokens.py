"""How a page splits texts into tokens: as the run's training data was split."""

from typing import Any

from glassgate.tasks.data.raw_text import raw_text_like
from glassgate.tasks.data.vocabulary import Vocabulary


def tokens(vocabulary: Vocabulary, unit: str, *, raw: bool = False, lower: bool = False) -> dict[str, Any]:
    """How the page splits texts.

    Args:
        vocabulary: of the tokens.
        unit: "character", "byte", "word", "token" or "blank".
        raw: whether unknown tokens are split further, as raw text is.
        lower: whether texts are in lower case.
    """
    finer = raw_text_like(vocabulary) if raw else None
    return {
        "unit": unit,
        "symbols": vocabulary.symbols,
        "lower": lower,
        "raw": finer and {"tokenised": finer.tokenised, "segmented": finer.segmented, "longest": finer._longest},
    }
