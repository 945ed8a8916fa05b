"""The C program of a task with one answer per sequence."""

from typing import Any

from glassgate.tasks.c.parts import Parts
from glassgate.tasks.c.source import constants, numbers, template
from glassgate.tasks.c.texts import TEXTS, tokeniser_code
from glassgate.tasks.data.raw_text import raw_tokeniser
from glassgate.tasks.labelled_task import LabelledTask

_SERIES = "series in the .ts format of sktime"


def sequence_program(
    task: LabelledTask[Any, Any], modules: dict[str, Any], code: list[str], pooling: str, prints: str
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
    is_labelled = "labels" in task.vocabularies
    modules |= {"encoder": network.encoder, "head": network.head}
    code.append(constants(DIRECTIONS=1 + task.options.bidirectional))
    if scales is not None:
        code += [constants(CHANNELS=len(scales[0])), numbers("means", scales[0]), numbers("deviations", scales[1])]
    else:
        assert network.embedding is not None
        modules["words"] = network.embedding
        vocabulary, token_kind = task.vocabularies["units"], task.options.tokens
        refines_tokens = is_labelled and token_kind in ("word", "token")
        raw = raw_tokeniser(vocabulary) if refines_tokens else None
        code.append(tokeniser_code(vocabulary, token_kind, raw, {}))
    flags = {pooling.upper(): True, "SERIES": scales is not None, "LABELLED": is_labelled}
    reads = TEXTS if scales is None else _SERIES
    return Parts(modules, "\n".join([*code, template("sequence.c", flags)]), reads, prints)
