"""The data of classification for the script of the interactive report."""

from typing import Any, cast

from glassgate.glass.live.network import Network
from glassgate.tasks.classification.network import Classifier
from glassgate.tasks.classification.task import Classification
from glassgate.tasks.live.page import labelled_input
from glassgate.tasks.report.study import Excerpt


def page_data(task: Classification, network: Network, excerpt: Excerpt) -> dict[str, Any]:
    """Return the data that `live.js` reads."""
    model = cast(Classifier, task.network)
    content: dict[str, Any] = {
        "labels": task.vocabularies["labels"].symbols,
        "pooling": model.pooling,
        "encoder": network.add_layer(model.encoder, "encoder"),
        "head": network.add_linear(model.head),
    }
    if model.pooling == "attention":
        content["attention"] = [network.add_linear(model.attention[0]), network.add_linear(model.attention[2])]
    splits_unknown = task.options.tokens in ("word", "token")
    return content | labelled_input(task, network, excerpt, splits_unknown)
