"""The interactive part of a report on a run: its network, the reader's input, and what a task's `live` module adds.

A task has `live.py` with `described(task, network)`, which returns what its script reads, and `live.js`, that script.
"""

from collections.abc import Sequence
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from glassgate.glass.live.network import Network
from glassgate.glass.live.page import Live, live_part
from glassgate.glass.step import diagrams
from glassgate.tasks.data.raw_text import raw_text_like
from glassgate.tasks.data.texts import join
from glassgate.tasks.data.vocabulary import Vocabulary
from glassgate.tasks.errors import OptionError
from glassgate.tasks.report.study import LAYER, Stretch
from glassgate.tasks.task import Task


def live(task: Task[Any, Any, Any], stretches: Sequence[Stretch], run: Path, half: bool = False) -> Live:
    """The interactive part of a report.

    Args:
        task: with its network.
        stretches: the first one is the input that the page begins with.
        run: its folder.
        half: whether the page stores weights with 16 bits.

    Raises:
        OptionError: the task has no such page, or a cell uses an operation that JavaScript cannot express.
    """
    package = type(task).__module__.rpartition(".")[0]
    source = files(package).joinpath("live.js")
    if not source.is_file():
        raise OptionError(f"--live: a run of {task.name} has no interactive page; leave the option out")
    task.network.eval()
    network = Network(half)
    try:
        model = import_module(f"{package}.live").described(task, network)
    except ValueError as error:
        raise OptionError(f"--live: {str(error).removeprefix('live: ')}") from None
    model["task"] = task.name
    names = {"module": package, "task": type(task).__name__, "path": str(run)}
    given = model.pop("given", None)
    diagram = diagrams(getattr(task.network, LAYER))[0][1]
    script = source.read_text(encoding="utf-8")
    return live_part(network, model, written(stretches[0]) if given is None else given, names, script, diagram)


def tokens(vocabulary: Vocabulary, unit: str, *, raw: bool = False, lower: bool = False) -> dict[str, Any]:
    """How the page splits texts.

    Args:
        vocabulary: of the tokens.
        unit: "character", "byte", "word", "token" or "blank".
        raw: whether unknown tokens are split further, as raw text is.
        lower: whether texts are in lower case.
    """
    finer = raw_text_like(vocabulary) if raw else None
    return {
        "unit": unit,
        "symbols": vocabulary.symbols,
        "lower": lower,
        "raw": finer and {"tokenised": finer.tokenised, "segmented": finer.segmented, "longest": finer._longest},
    }


def written(stretch: Stretch) -> str:
    """The text of a stretch."""
    example = stretch.example
    units = next((found for name in ("units", "content", "source") if (found := getattr(example, name, None))), "")
    if isinstance(units, str):
        return units[stretch.start : stretch.stop]
    shown = list(units)[stretch.start : stretch.stop]
    return "".join(shown) if all(len(each) == 1 for each in shown) else join(shown, "word")
