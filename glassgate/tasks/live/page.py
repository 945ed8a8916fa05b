"""The interactive part of a report on a run, and the data of its scripts.

A task with an interactive page has a script, `live.js`, and a module, `live.py`, in its folder. The module's function
`page_data(task, network, excerpt)` returns the data that the script reads.
"""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from torch import nn

from glassgate.glass.cell_section import diagrams
from glassgate.glass.live.network import Network
from glassgate.glass.live.page import Live, live_part
from glassgate.tasks import part_of
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.data.pairs import Pair
from glassgate.tasks.data.raw_text import raw_tokeniser
from glassgate.tasks.data.texts import join
from glassgate.tasks.data.vocabulary import UNKNOWN, Vocabulary
from glassgate.tasks.errors import OptionError
from glassgate.tasks.networks.linear import Tied
from glassgate.tasks.report.study import Excerpt
from glassgate.tasks.report.task_view import LAYER
from glassgate.tasks.task import Task


def live(
    task: Task[Any, Any, Any], excerpts: Sequence[Excerpt], run: Path, half_precision: bool = False, file: str = ""
) -> Live:
    """Return the interactive part of a report, whose first excerpt is the initial input of the page.

    With `half_precision`, the page stores weights as 16-bit numbers. `file` is the file of the examples; empty for the
    run's own data.
    """
    module = part_of(task, "live")
    if module is None:
        raise OptionError(f"--live: a run of {task.name} has no interactive page; leave the option out")
    script = files(str(module.__package__)).joinpath("live.js")
    task.network.eval()
    network = Network(half_precision)
    try:
        data = module.page_data(task, network, excerpts[0])
    except ValueError as error:
        raise OptionError(f"--live: {str(error).removeprefix('live: ')}") from None
    data["task"] = task.name
    source = {"path": str(run), "file": file}
    initial_input = data.pop("initial_input") if "initial_input" in data else text_of(excerpts[0])
    diagram = diagrams(getattr(task.network, LAYER))[0][1]
    return live_part(network, data, initial_input, source, script.read_text(encoding="utf-8"), diagram)


def text_of(excerpt: Excerpt) -> str:
    """Return the text of an excerpt: the source of a pair, a whole text, or the joined tokens of the excerpt."""
    example = excerpt.example
    if isinstance(example, Pair):
        return example.source
    content = example.content if isinstance(example, Labelled) else example.tokens
    if isinstance(example, Labelled) and isinstance(content, str):
        return content
    shown = list(content)[excerpt.start : excerpt.stop]
    return "".join(shown) if all(len(each) == 1 for each in shown) else join(shown, "word")


def tokeniser_rules(
    vocabulary: Vocabulary, token_kind: str, *, splits_unknown: bool = False, lower: bool = False
) -> dict[str, Any]:
    """Return the rules by which the page splits texts into tokens.

    `token_kind` is a kind of tokens, or "blank". With `splits_unknown`, unknown tokens are split further, as
    `RawTokeniser` does. With `lower`, texts are converted to lower case.
    """
    raw = raw_tokeniser(vocabulary) if splits_unknown else None
    return {
        "unit": token_kind,
        "symbols": vocabulary.symbols,
        "lower": lower,
        "raw": raw and {"tokenised": raw.splits_punctuation, "segmented": raw.segments_cjk, "longest": raw.longest_cjk},
    }


def output_layer(network: Network, head: nn.Module, embedding: nn.Embedding) -> dict[str, Any]:
    """Return the output layer for tokens. "projection" is None unless `head` is a `Tied` layer with a projection."""
    if not isinstance(head, Tied):
        return {"head": network.add_linear(head), "projection": None}
    projection = network.add_linear(head.projection) if isinstance(head.projection, nn.Linear) else None
    weight = network.add_array(embedding.weight[UNKNOWN:])
    return {"head": {"weight": weight, "bias": network.add_array(head.bias)}, "projection": projection}


def byte_pair_merges(subwords: dict[str, Any] | None) -> dict[str, Any]:
    """Return the letters and the merges of the subword tokeniser in run.json; empty for None."""
    if subwords is None:
        return {}
    model = subwords["model"]
    pairs = [each.split(" ") if isinstance(each, str) else each for each in model["merges"]]
    return {"letters": [each for each in model["vocab"] if len(each) == 1], "merges": pairs}
