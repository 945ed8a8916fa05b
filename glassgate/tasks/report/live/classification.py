"""The data of classification for the script of the interactive report."""

from typing import Any, cast

from glassgate.glass.live.network import Network
from glassgate.tasks.classification.network import Classifier
from glassgate.tasks.classification.task import Classification
from glassgate.tasks.report.live.tokens import tokens
from glassgate.tasks.report.study import Excerpt


def page_data(task: Classification, network: Network, excerpt: Excerpt) -> dict[str, Any]:
    """Return the data that `classification.js` reads."""
    model = cast(Classifier, task.network)
    content: dict[str, Any] = {
        "labels": task.vocabularies["labels"].symbols,
        "pooling": model.pooling,
        "encoder": network.layer(model.encoder, "encoder"),
        "head": network.linear(model.head),
    }
    if model.pooling == "attention":
        content["attention"] = [network.linear(model.attention[0]), network.linear(model.attention[2])]
    if model.embedding is None:
        rows = excerpt.example.content[excerpt.start : excerpt.stop].tolist()
        facts = {name: task.facts[name] for name in ("mean", "deviation")}
        return content | facts | {"initial_input": {"rows": rows}}
    unit = task.options.unit
    return content | {
        "tokens": tokens(task.vocabularies["units"], unit, raw=unit in ("word", "token")),
        "embedding": network.array(model.embedding.weight),
        "size": model.embedding.embedding_dim,
    }
