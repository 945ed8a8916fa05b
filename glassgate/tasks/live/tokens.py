"""Data for the scripts of pages: the rules that split texts into tokens, embeddings, series and output layers."""

from typing import Any

from torch import nn

from glassgate.glass.live.network import Network
from glassgate.tasks.data.raw_text import raw_tokeniser
from glassgate.tasks.data.vocabulary import UNKNOWN, Vocabulary
from glassgate.tasks.labelled_task import LabelledTask
from glassgate.tasks.networks.linear import Tied
from glassgate.tasks.networks.maps import KernelScores, StepScores, TokenScores
from glassgate.tasks.report.study import Excerpt


def tokeniser_rules(
    vocabulary: Vocabulary, token_kind: str, *, splits_unknown: bool = False, lower: bool = False
) -> dict[str, Any]:
    """Return the rules by which the page splits texts into tokens.

    Args:
        vocabulary: the vocabulary of the tokens
        token_kind: "character", "byte", "word", "token", "blank" or "subword"
        splits_unknown: whether unknown tokens are split further, as `RawTokeniser` does
        lower: whether texts are converted to lower case
    """
    raw = raw_tokeniser(vocabulary) if splits_unknown else None
    return {
        "unit": token_kind,
        "symbols": vocabulary.symbols,
        "lower": lower,
        "raw": raw and {"tokenised": raw.splits_punctuation, "segmented": raw.segments_cjk, "longest": raw.longest_cjk},
    }


def labelled_input(
    task: LabelledTask[Any, Any], network: Network, excerpt: Excerpt, splits_unknown: bool = False
) -> dict[str, Any]:
    """Return the data of the input: for texts, tokeniser rules and embeddings; for series, scale and excerpt steps.

    Args:
        splits_unknown: whether unknown tokens are split further, as `RawTokeniser` does
    """
    embedding = task.network.embedding
    if embedding is None:
        rows = excerpt.example.content[excerpt.start : excerpt.stop]
        return {
            "series": task.series_scale,
            "initial_input": {"rows": rows.tolist()},
            "linear": _map(network, task.network.linear),
        }
    assert isinstance(embedding, nn.Embedding)
    return {
        "tokens": tokeniser_rules(task.vocabularies["units"], task.options.tokens, splits_unknown=splits_unknown),
        "embedding": network.add_array(embedding.weight),
        "size": embedding.embedding_dim,
        "linear": _map(network, task.network.linear),
    }


def _map(network: Network, linear: object) -> dict[str, Any] | None:
    """The values of the map of a text or a series that the network corrects; None for none."""
    match linear:
        case TokenScores():
            return {"table": network.add_array(linear.table()), "rarity": network.add_array(linear.rarity)}
        case StepScores():
            return {"weight": network.add_array(linear.weight[:-1]), "bias": network.add_array(linear.bias[:-1])}
        case KernelScores():
            support, coefficients = network.add_array(linear.support), network.add_array(linear.coefficients)
            numbers = {"features": linear.support.shape[1], "differences": linear.differences, "rate": linear.rate}
            return {"support": support, "coefficients": coefficients, **numbers}
    return None


def output_layer(network: Network, head: nn.Module, embedding: nn.Embedding) -> dict[str, Any]:
    """Return the output layer for tokens. "projection" is None unless `head` is a `Tied` layer with a projection."""
    if not isinstance(head, Tied):
        return {"head": network.add_linear(head), "projection": None}
    projection = network.add_linear(head.projection) if isinstance(head.projection, nn.Linear) else None
    weight = network.add_array(embedding.weight[UNKNOWN:])
    return {"head": {"weight": weight, "bias": network.add_array(head.bias)}, "projection": projection}


def byte_pair_merges(subwords: dict[str, Any] | None) -> dict[str, Any]:
    """Return the letters and the merges of the subword tokeniser in run.json; empty for None."""
    if subwords is None:
        return {}
    model = subwords["model"]
    pairs = [each.split(" ") if isinstance(each, str) else each for each in model["merges"]]
    return {"letters": [each for each in model["vocab"] if len(each) == 1], "merges": pairs}
