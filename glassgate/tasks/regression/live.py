"""The data of regression for the script of the interactive report."""

from typing import Any

from glassgate.glass.languages import say
from glassgate.glass.live.network import Network
from glassgate.tasks.live.page import labelled_input
from glassgate.tasks.regression.network import Regressor
from glassgate.tasks.regression.task import Regression
from glassgate.tasks.report.study import Excerpt


def page_data(task: Regression, network: Network, excerpt: Excerpt) -> dict[str, Any]:
    """Return the data that `live.js` reads."""
    model = task.network
    assert isinstance(model, Regressor)
    mean, deviation = task.fitted["numbers"][:2]
    content: dict[str, Any] = {
        "mean": list(mean),
        "deviation": list(deviation),
        "names": _names(len(mean)),
        "encoder": network.add_layer(model.encoder, "encoder"),
        "head": network.add_linear(model.head),
    }
    return content | labelled_input(task, network, excerpt)


def _names(count: int) -> list[str]:
    return [say("live.number", number=k + 1) for k in range(count)] if count > 1 else [say("live.the_number")]
