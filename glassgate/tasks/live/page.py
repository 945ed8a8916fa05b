"""The interactive part of a report on a run.

A task with an interactive page has a script, `live.js`, and a module, `live.py`, in its folder. The module's function
`page_data(task, network, excerpt)` returns the data that the script reads.
"""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from glassgate.glass.cell_section import diagrams
from glassgate.glass.live.network import Network
from glassgate.glass.live.page import Live, live_part
from glassgate.tasks import part_of
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.data.pairs import Pair
from glassgate.tasks.data.texts import join
from glassgate.tasks.errors import OptionError
from glassgate.tasks.report.study import Excerpt
from glassgate.tasks.report.task_view import LAYER
from glassgate.tasks.task import Task


def live(
    task: Task[Any, Any, Any], excerpts: Sequence[Excerpt], run: Path, half_precision: bool = False, file: str = ""
) -> Live:
    """Return the interactive part of a report.

    Args:
        task: the task, with its trained network.
        excerpts: the examples of the report; the first one is the initial input of the page.
        run: the folder of the run.
        half_precision: whether the page stores weights as 16-bit numbers.
        file: the file of the examples; empty for the run's own data.

    Raises:
        OptionError: the task has no interactive page, or a cell uses an operation that JavaScript cannot express.
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
    initial_input = data.pop("initial_input", None)
    diagram = diagrams(getattr(task.network, LAYER))[0][1]
    if initial_input is None:
        initial_input = text_of(excerpts[0])
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
