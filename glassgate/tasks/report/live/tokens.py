"""The rules by which a page splits texts into tokens: those of the run's training data."""

from typing import Any

from glassgate.tasks.data.raw_text import raw_text_like
from glassgate.tasks.data.vocabulary import Vocabulary


def tokens(vocabulary: Vocabulary, unit: str, *, raw: bool = False, lower: bool = False) -> dict[str, Any]:
    """Return the rules by which the page splits texts.

    Args:
        vocabulary: of the tokens
        unit: "character", "byte", "word", "token", "blank" or "subword"
        raw: whether unknown tokens are split further, as in raw text
        lower: whether texts are converted to lower case
    """
    finer = raw_text_like(vocabulary) if raw else None
    return {
        "unit": unit,
        "symbols": vocabulary.symbols,
        "lower": lower,
        "raw": finer and {"tokenised": finer.tokenised, "segmented": finer.segmented, "longest": finer.longest},
    }


def merges(subwords: dict[str, Any] | None) -> dict[str, Any]:
    """Return the letters and merges of byte-pair encoding, from the stored form of a run; nothing without subwords."""
    if subwords is None:
        return {}
    model = subwords["model"]
    pairs = [each.split(" ") if isinstance(each, str) else each for each in model["merges"]]
    return {"letters": [each for each in model["vocab"] if len(each) == 1], "merges": pairs}
