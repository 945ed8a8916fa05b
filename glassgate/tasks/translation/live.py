"""The data of a translation model for `live.js`, the script of the interactive report."""

from typing import Any

from torch import nn

from glassgate.glass.languages import say
from glassgate.glass.live.network import Network
from glassgate.tasks.live.page import byte_pair_merges, output_layer, tokeniser_rules
from glassgate.tasks.report.study import Excerpt
from glassgate.tasks.translation.task import Translation


def page_data(task: Translation, network: Network, excerpt: Excerpt) -> dict[str, Any]:
    """Return the data that `live.js` reads."""
    model, options = task.network, task.options
    decoder, attention = model.decoder, model.decoder.attention
    embedding = network.add_array(decoder.embedding.weight)
    kind = options.source_tokens
    splits_unknown = kind in ("word", "token")
    rules = tokeniser_rules(task.vocabularies["source"], kind, splits_unknown=splits_unknown, lower=options.lower)
    return {
        "tokens": rules | byte_pair_merges(task.fitted["subwords"][0]),
        "names": [say("answers.unknown"), say("answers.end"), *task.vocabularies["target"].symbols[1:]],
        "target_unit": options.target_tokens,
        "ratio": task.fitted["ratio"],
        "beam": task.search.beam,
        "penalty": task.search.length_penalty,
        "embedding": embedding if model.embedding is None else network.add_array(model.embedding.weight),
        "target_embedding": embedding,
        "size": decoder.embedding.embedding_dim,
        "encoder": network.add_layer(model.encoder, "encoder"),
        "decoder": network.add_layer(decoder.layer, "decoder.layer"),
        "bridge": {
            name: [network.add_linear(each) for each in layers.children()]
            for name, layers in model.bridge.layers.items()
        },
        "input_feeding": decoder.input_feeding,
        "feedback_size": decoder.feedback_size,
        "readout_size": decoder.readout_size,
        "wide": decoder.wide,
        "attention": attention
        and {
            "kind": attention.kind,
            "directions": attention.directions,
            "value": None if isinstance(attention.value, nn.Identity) else network.add_linear(attention.value),
            **{name: network.add_linear(getattr(attention, name, None)) for name in ("key", "query", "score")},
        },
        "combine": network.add_linear(decoder.combine),
        **output_layer(network, decoder.head, decoder.embedding),
    }
