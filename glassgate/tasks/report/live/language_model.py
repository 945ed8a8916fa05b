"""The data of a language model for the script of the interactive report."""

from typing import Any, cast

from torch import nn

from glassgate.glass.live.network import Network
from glassgate.tasks.data.music import KEYS, LOWEST
from glassgate.tasks.data.vocabulary import UNKNOWN
from glassgate.tasks.language_model.network import LanguageNetwork
from glassgate.tasks.language_model.task import LanguageModel, notes_of
from glassgate.tasks.networks.linear import Tied
from glassgate.tasks.report.live.tokens import tokens
from glassgate.tasks.report.study import Excerpt


def page_data(task: LanguageModel, network: Network, excerpt: Excerpt) -> dict[str, Any]:
    """Return the data that `language_model.js` reads."""
    model = cast(LanguageNetwork, task.network)
    if model.embedding is None:
        steps = excerpt.example.steps[excerpt.start : excerpt.stop]
        return {
            "keys": {"count": KEYS, "lowest": LOWEST},
            "encoder": network.layer(model.encoder, "encoder"),
            "head": network.linear(model.head),
            "initial_input": "\n".join(map(notes_of, steps)),
        }
    known, head = task.vocabularies["units"], model.head
    embedding = network.array(model.embedding.weight)
    projection: dict[str, Any] | None = None
    scores: dict[str, Any] | None
    if isinstance(head, Tied):
        projection = network.linear(head.projection) if isinstance(head.projection, nn.Linear) else None
        scores = {"weight": network.array(model.embedding.weight[UNKNOWN:]), "bias": network.array(head.bias)}
    else:
        scores = network.linear(head)
    return {
        "tokens": tokens(known, task.options.unit),
        "names": ["unknown", *known.symbols],
        "embedding": embedding,
        "size": model.embedding.embedding_dim,
        "encoder": network.layer(model.encoder, "encoder"),
        "projection": projection,
        "head": scores,
    }
