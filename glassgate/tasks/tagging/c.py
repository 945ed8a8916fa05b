"""The C program of a tagging run."""

from torch import nn

from glassgate.tasks.c.parts import Parts, unsupported_error
from glassgate.tasks.c.source import constants, matrix, numbers, ranges, strings, template
from glassgate.tasks.c.texts import TEXTS, tokeniser_code
from glassgate.tasks.data.raw_text import raw_tokeniser
from glassgate.tasks.tagging.spelling import LONGEST_WORD
from glassgate.tasks.tagging.task import Tagging


def export(task: Tagging) -> Parts:
    """Return the program of a tagging run."""
    if task.options.format == "python":
        raise unsupported_error(
            task, "the tokenizer of Python files", "train it on text: glassgate train tagging --data FILE"
        )
    network, vocabularies = task.network, task.vocabularies
    raw = None if task.options.tokens == "character" else raw_tokeniser(vocabularies["units"])
    modules: dict[str, nn.Module] = {"words": network.embedding, "encoder": network.encoder, "labels": network.head}
    tables = {}
    if network.spelling is not None:
        modules["spelling"] = nn.Sequential(network.spelling.embedding, network.spelling.encoder)
        tables["character_table"] = vocabularies["characters"]
    names = vocabularies["labels"].symbols
    # "token" splits at blanks, which separate the words of tagged files. "word" would also split off punctuation.
    token_kind = "character" if raw is None or raw.is_character_level else "token"
    code = [tokeniser_code(vocabularies["units"], token_kind, raw, tables)]
    code += [ranges("printable", str.isprintable), strings("label_names", names)]
    code.append(constants(LABELS=len(names), LONGEST_WORD=LONGEST_WORD))
    chain = network.chain()
    if chain is not None:
        start, transitions, end = (scores.detach().tolist() for scores in chain)
        code += [numbers("start_scores", start, "float"), matrix("transition_scores", transitions)]
        code.append(numbers("end_scores", end, "float"))
    if network.intent_head is not None:
        modules["intents"] = network.intent_head
        code.append(strings("intent_names", vocabularies["intents"].symbols))
    flags = {"SPELLING": "spelling" in modules, "CHAIN": chain is not None, "INTENTS": "intents" in modules}
    return Parts(modules, "\n".join([*code, template("tagging.c", flags)]), TEXTS, "each token and its label")
