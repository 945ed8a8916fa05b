"""The data of regression for the script of the interactive report."""

from typing import Any

from glassgate.glass.live.network import Network
from glassgate.tasks.regression.network import Regressor
from glassgate.tasks.regression.task import Regression
from glassgate.tasks.report.live.tokens import tokens
from glassgate.tasks.report.study import Excerpt


def page_data(task: Regression, network: Network, excerpt: Excerpt) -> dict[str, Any]:
    """Return the data that `regression.js` reads."""
    model = task.network
    assert isinstance(model, Regressor)
    mean, deviation = task.facts["numbers"][:2]
    content: dict[str, Any] = {
        "mean": list(mean),
        "deviation": list(deviation),
        "names": [f"number {k + 1}" for k in range(len(mean))] if len(mean) > 1 else ["the number"],
        "encoder": network.layer(model.encoder, "encoder"),
        "head": network.linear(model.head),
    }
    if model.embedding is None:
        rows = excerpt.example.content[excerpt.start : excerpt.stop]
        return content | {
            "series": [list(each) for each in task.facts["series"]],
            "initial_input": {"rows": rows.tolist()},
        }
    return content | {
        "tokens": tokens(task.vocabularies["units"], task.options.unit),
        "embedding": network.array(model.embedding.weight),
        "size": model.embedding.embedding_dim,
    }
