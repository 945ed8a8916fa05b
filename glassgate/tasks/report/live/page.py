"""The interactive part of a report on a run.

The module of a task has `described(task, network, stretch)`, which returns the data of its script, a file next to it.
"""

from collections.abc import Sequence
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from glassgate.glass.live.network import Network
from glassgate.glass.live.page import Live, live_part
from glassgate.glass.step import diagrams
from glassgate.tasks.data.texts import join
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
    own = task.name.replace("-", "_")
    source = files("glassgate.tasks.report.live").joinpath(f"{own}.js")
    if not source.is_file():
        raise OptionError(f"--live: a run of {task.name} has no interactive page; leave the option out")
    task.network.eval()
    network = Network(half)
    try:
        model = import_module(f"glassgate.tasks.report.live.{own}").described(task, network, stretches[0])
    except ValueError as error:
        raise OptionError(f"--live: {str(error).removeprefix('live: ')}") from None
    model["task"] = task.name
    package = type(task).__module__.rpartition(".")[0]
    names = {"module": package, "task": type(task).__name__, "path": str(run)}
    given = model.pop("given", None)
    diagram = diagrams(getattr(task.network, LAYER))[0][1]
    script = source.read_text(encoding="utf-8")
    return live_part(network, model, written(stretches[0]) if given is None else given, names, script, diagram)


def written(stretch: Stretch) -> str:
    """The text of a stretch."""
    example = stretch.example
    text = next((found for name in ("content", "source") if isinstance(found := getattr(example, name, None), str)), "")
    units = getattr(example, "units", None) or getattr(example, "content", None)
    if units is None or isinstance(getattr(example, "content", None), str):
        return text
    shown = list(units)[stretch.start : stretch.stop]
    return "".join(shown) if all(len(each) == 1 for each in shown) else join(shown, "word")
