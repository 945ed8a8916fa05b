"""The data of a tagging model for `live.js`, the script of the interactive report."""

from typing import Any

from glassgate.glass.live.network import Network
from glassgate.tasks.data.raw_text import raw_tokeniser
from glassgate.tasks.live.page import tokeniser_rules
from glassgate.tasks.report.study import Excerpt
from glassgate.tasks.tagging.task import Tagging


def page_data(task: Tagging, network: Network, excerpt: Excerpt) -> dict[str, Any]:
    """Return the data that `live.js` reads. "chain" has the scores of first labels, transitions and last labels."""
    model, vocabulary = task.network, task.vocabularies["units"]
    reads_characters = task.options.format == "python" or raw_tokeniser(vocabulary).is_character_level
    token_kind = "character" if reads_characters else "blank"
    intents, spelling, chain = task.vocabularies.get("intents"), model.spelling, model.chain()
    return {
        "tokens": tokeniser_rules(vocabulary, token_kind, splits_unknown=not reads_characters),
        "labels": task.vocabularies["labels"].symbols,
        "intents": intents and intents.symbols,
        "embedding": network.add_array(model.embedding.weight),
        "size": model.embedding.embedding_dim,
        "spelling": spelling
        and {
            "symbols": task.vocabularies["characters"].symbols,
            "embedding": network.add_array(spelling.embedding.weight),
            "size": spelling.embedding.embedding_dim,
            "layer": network.add_layer(spelling.encoder, "spelling.encoder"),
        },
        "encoder": network.add_layer(model.encoder, "encoder"),
        "head": network.add_linear(model.head),
        "intent_head": network.add_linear(model.intent_head),
        "chain": chain and dict(zip(("start", "transitions", "end"), map(network.add_array, chain), strict=True)),
    }
