"""The C program of a tagging run."""

from torch import nn

from glassgate.tasks.c.program import Parts, constants, numbers, strings, units
from glassgate.tasks.tagging.network import LONGEST_WORD
from glassgate.tasks.tagging.task import Tagging


def export(task: Tagging) -> Parts:
    """Return the program of a tagging run."""
    network, vocabularies = task.network, task.vocabularies
    modules: dict[str, nn.Module] = {"words": network.embedding, "encoder": network.encoder, "labels": network.head}
    names = vocabularies["labels"].symbols
    tables = [*units(task), constants(LABELS=len(names)), strings("label_names", names)]
    reads = "the index of each token"
    if network.spelling is not None:
        modules["spelling"] = nn.Sequential(network.spelling.embedding, network.spelling.encoder)
        characters = vocabularies["characters"]
        tables += [constants(CHARACTERS=len(characters), LONGEST_WORD=LONGEST_WORD)]
        tables.append(strings("character_names", characters.symbols))
        reads += ", the number of its characters, and their indices"
    chain = network.chain()
    if chain is not None:
        chain_names = ("start_scores", "transition_scores", "end_scores")
        tables += [constants(CHAIN=1)]
        tables += [numbers(name, scores, "float") for name, scores in zip(chain_names, chain, strict=True)]
    if network.intent_head is not None:
        modules["intents"] = network.intent_head
        tables += [constants(INTENTS=1), strings("intent_names", vocabularies["intents"].symbols)]
    return Parts(modules, "tags", tables, reads, "the label of each token")
