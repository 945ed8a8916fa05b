"""The data of filling blanks for the script of the interactive report."""

from typing import Any

from glassgate.glass.languages import say
from glassgate.glass.live.network import Network
from glassgate.tasks.fill_blanks.task import FillBlanks
from glassgate.tasks.live.page import tokeniser_rules
from glassgate.tasks.report.study import Excerpt


def page_data(task: FillBlanks, network: Network, excerpt: Excerpt) -> dict[str, Any]:
    """Return the data that `live.js` reads."""
    model, vocabulary = task.network, task.vocabularies["units"]
    return {
        "tokens": tokeniser_rules(vocabulary, task.options.tokens),
        "names": [say("answers.unknown"), *vocabulary.symbols],
        "units": task.options.hidden_size,
        "embedding": network.add_array(model.embedding.weight),
        "size": model.embedding.embedding_dim,
        "encoder": network.add_layer(model.encoder, "encoder"),
        "beside": network.add_linear(model.beside),
        "left": network.add_array(model.left.weight),
        "head": network.add_linear(model.units),
    }
