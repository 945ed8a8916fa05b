"""The data of a language model for the script of the interactive report."""

from typing import Any

from glassgate.glass.languages import say
from glassgate.glass.live.network import Network
from glassgate.tasks.language_model.music import LOWEST_KEY, NUM_KEYS
from glassgate.tasks.language_model.task import LanguageModel, notes_of
from glassgate.tasks.live.page import output_layer, tokeniser_rules
from glassgate.tasks.report.study import Excerpt


def page_data(task: LanguageModel, network: Network, excerpt: Excerpt) -> dict[str, Any]:
    """Return the data that `live.js` reads."""
    model = task.network
    if model.embedding is None:
        steps = excerpt.example.steps[excerpt.start : excerpt.stop]
        return {
            "keys": {"count": NUM_KEYS, "lowest": LOWEST_KEY},
            "encoder": network.add_layer(model.encoder, "encoder"),
            "head": network.add_linear(model.head),
            "initial_input": "\n".join(map(notes_of, steps)),
        }
    vocabulary = task.vocabularies["units"]
    return {
        "tokens": tokeniser_rules(vocabulary, task.options.tokens),
        "names": [say("answers.unknown"), *vocabulary.symbols],
        "embedding": network.add_array(model.embedding.weight),
        "size": model.embedding.embedding_dim,
        "encoder": network.add_layer(model.encoder, "encoder"),
        **output_layer(network, model.head, model.embedding),
    }
