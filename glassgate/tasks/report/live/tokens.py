"""The rules by which a page splits texts into tokens, and the data of tasks that read texts or series."""

from typing import Any

from torch import nn

from glassgate.glass.live.network import Network
from glassgate.tasks.data.raw_text import raw_tokeniser
from glassgate.tasks.data.vocabulary import UNKNOWN, Vocabulary
from glassgate.tasks.labelled_task import LabelledTask
from glassgate.tasks.networks.linear import Tied
from glassgate.tasks.report.study import Excerpt


def tokens(vocabulary: Vocabulary, unit: str, *, raw: bool = False, lower: bool = False) -> dict[str, Any]:
    """Return the rules by which the page splits texts.

    Args:
        vocabulary: the vocabulary of the tokens
        unit: "character", "byte", "word", "token", "blank" or "subword"
        raw: whether unknown tokens are split further, as in raw text
        lower: whether texts are converted to lower case
    """
    finer = raw_tokeniser(vocabulary) if raw else None
    return {
        "unit": unit,
        "symbols": vocabulary.symbols,
        "lower": lower,
        "raw": finer
        and {"tokenised": finer.splits_punctuation, "segmented": finer.segments_cjk, "longest": finer.longest_cjk},
    }


def labelled_input(
    task: LabelledTask[Any, Any], network: Network, excerpt: Excerpt, raw: bool = False
) -> dict[str, Any]:
    """Return the embeddings and the rules of texts, or the scale and the first rows of series.

    Args:
        raw: whether unknown tokens are split further, as in raw text
    """
    embedding = task.network.embedding
    if embedding is None:
        rows = excerpt.example.content[excerpt.start : excerpt.stop]
        return {"series": task.series_scale, "initial_input": {"rows": rows.tolist()}}
    assert isinstance(embedding, nn.Embedding)
    return {
        "tokens": tokens(task.vocabularies["units"], task.options.tokens, raw=raw),
        "embedding": network.array(embedding.weight),
        "size": embedding.embedding_dim,
    }


def output_layer(network: Network, head: nn.Module, embedding: nn.Embedding) -> dict[str, Any]:
    """Return the output layer of a model of tokens, and the projection of its states before it, if any."""
    if not isinstance(head, Tied):
        return {"head": network.linear(head), "projection": None}
    projection = network.linear(head.projection) if isinstance(head.projection, nn.Linear) else None
    weight = network.array(embedding.weight[UNKNOWN:])
    return {"head": {"weight": weight, "bias": network.array(head.bias)}, "projection": projection}


def merges(subwords: dict[str, Any] | None) -> dict[str, Any]:
    """Return the letters and merges of byte-pair encoding, from the stored form of a run; nothing without subwords."""
    if subwords is None:
        return {}
    model = subwords["model"]
    pairs = [each.split(" ") if isinstance(each, str) else each for each in model["merges"]]
    return {"letters": [each for each in model["vocab"] if len(each) == 1], "merges": pairs}
