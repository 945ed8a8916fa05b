"""The data of classification and regression for the script of the interactive report."""

from typing import Any

from glassgate.glass.languages import say
from glassgate.glass.live.network import Network
from glassgate.tasks.labelled.task import LabelledTask
from glassgate.tasks.live.page import tokeniser_rules
from glassgate.tasks.networks.maps import KernelScores, StepScores, TokenScores
from glassgate.tasks.report.study import Excerpt


def page_data(task: LabelledTask[Any, Any], network: Network, excerpt: Excerpt) -> dict[str, Any]:
    """Return the data that `live.js` reads."""
    model = task.network
    content: dict[str, Any] = {
        "pooling": model.pooling,
        "encoder": network.add_layer(model.encoder, "encoder"),
        "head": network.add_linear(model.head),
    }
    if task.predicts_numbers:
        mean, deviation = task.fitted["numbers"]
        names = [say("live.number", number=k + 1) for k in range(len(mean))]
        content |= {"mean": mean, "deviation": deviation, "names": names if len(mean) > 1 else [say("live.the_number")]}
    else:
        content["labels"] = task.vocabularies["labels"].symbols
    if model.pooling == "attention":
        content["attention"] = [network.add_linear(model.attention[k]) for k in (0, 2)]
    if model.embedding is None:
        rows = excerpt.example.content[excerpt.start : excerpt.stop]
        content |= {"series": task.series_scale, "initial_input": {"rows": rows.tolist()}}
    else:
        kind = task.options.tokens
        splits_unknown = kind in ("word", "token") and not task.predicts_numbers
        content["tokens"] = tokeniser_rules(task.vocabularies["units"], kind, splits_unknown=splits_unknown)
        content |= {"embedding": network.add_array(model.embedding.weight), "size": model.embedding.embedding_dim}
    return content | {"linear": _map(network, model.linear)}


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
