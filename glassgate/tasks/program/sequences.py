"""The C programs of tagging, classification and regression runs."""

from typing import Any

from torch import nn

from glassgate.tasks.classification.task import Classification
from glassgate.tasks.data.raw_text import raw_tokeniser
from glassgate.tasks.program.parts import Parts, unsupported_error
from glassgate.tasks.program.source import constants, matrix, numbers, ranges, strings, template
from glassgate.tasks.program.texts import tokeniser_code
from glassgate.tasks.regression.task import Regression
from glassgate.tasks.tagging.spelling import LONGEST_WORD
from glassgate.tasks.tagging.task import Tagging

_TEXTS = "texts, one per line"
_SERIES = "series in the .ts format of sktime"


def tagging(task: Tagging) -> Parts:
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
    return Parts(modules, "\n".join([*code, template("tagging.c", flags)]), _TEXTS, "each token and its label")


def classification(task: Classification) -> Parts:
    """Return the program of a classification run."""
    pooling = task.options.pooling
    labels = task.vocabularies["labels"].symbols
    modules = {"attention": task.network.attention} if pooling == "attention" else {}
    code = [strings("label_names", labels)]
    return _sequence_program(task, modules, code, pooling, "the label and its probability")


def regression(task: Regression) -> Parts:
    """Return the program of a regression run."""
    means, deviations = task.fitted["numbers"]
    code = [numbers("number_means", means), numbers("number_deviations", deviations)]
    return _sequence_program(task, {}, code, "last", "the numbers")


def _sequence_program(
    task: Classification | Regression, modules: dict[str, Any], code: list[str], pooling: str, prints: str
) -> Parts:
    """The program of a run with one answer per sequence.

    Args:
        task: the task
        modules: the modules of the task in addition to the encoder and the head
        code: the tables of the task
        pooling: how the outputs of all steps are combined
        prints: a description of the output
    """
    network, scales = task.network, task.series_scale
    modules |= {"encoder": network.encoder, "head": network.head}
    code.append(constants(DIRECTIONS=1 + task.options.bidirectional))
    if scales is not None:
        code += [constants(CHANNELS=len(scales[0])), numbers("means", scales[0]), numbers("deviations", scales[1])]
    else:
        assert network.embedding is not None
        modules["words"] = network.embedding
        vocabulary, token_kind = task.vocabularies["units"], task.options.tokens
        refines_tokens = isinstance(task, Classification) and token_kind in ("word", "token")
        raw = raw_tokeniser(vocabulary) if refines_tokens else None
        code.append(tokeniser_code(vocabulary, token_kind, raw, {}))
    flags = {pooling.upper(): True, "SERIES": scales is not None, "LABELLED": isinstance(task, Classification)}
    reads = _TEXTS if scales is None else _SERIES
    return Parts(modules, "\n".join([*code, template("sequence.c", flags)]), reads, prints)
