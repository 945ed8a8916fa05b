"""The table of tasks. The module of a task is imported when the task is used."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from glassgate.tasks.task import Task


class TaskEntry(NamedTuple):
    """The location of a task's class, as `module:name`, and a summary of the task."""

    location: str
    summary: str


TASKS = {
    "tagging": TaskEntry(
        "glassgate.tasks.tagging:Tagging", "label each word of a sentence or each character of a text"
    ),
    "classification": TaskEntry(
        "glassgate.tasks.classification:Classification", "find the label of a text or of a series"
    ),
    "language-model": TaskEntry(
        "glassgate.tasks.language_model:LanguageModel", "predict and continue a text, or music"
    ),
    "translation": TaskEntry(
        "glassgate.tasks.translation:Translation", "translate sequences, for example sentences or dates, with attention"
    ),
    "fill-blanks": TaskEntry(
        "glassgate.tasks.fill_blanks:FillBlanks", "fill blanks in a text from the text before and after them"
    ),
    "regression": TaskEntry("glassgate.tasks.regression:Regression", "predict numbers for a text or a series"),
    "forecasting": TaskEntry("glassgate.tasks.forecasting:Forecasting", "forecast the next steps of series of numbers"),
}


def task_class(name: str) -> "type[Task[Any, Any, Any]]":
    """Return the class of a task.

    Raises:
        OptionError: no task has this name
    """
    from glassgate.tasks.errors import OptionError

    if name not in TASKS:
        raise OptionError(f"no task is called {name!r}; there are {', '.join(TASKS)}")
    module, attribute = TASKS[name].location.split(":")
    loaded: type[Task[Any, Any, Any]] = getattr(import_module(module), attribute)
    return loaded


def part_of(task: "Task[Any, Any, Any]", name: str) -> ModuleType | None:
    """Return an optional module of the folder of a task, such as `view`; None if it does not exist.

    The folder is that of the task's class, or of the class from which it is derived.
    """
    for each in type(task).__mro__:
        package = getattr(import_module(each.__module__), "__package__", None)
        if package and package != __name__ and find_spec(f"{package}.{name}"):
            return import_module(f"{package}.{name}")
    return None


def task_class_of_run(path: str | Path) -> "type[Task[Any, Any, Any]]":
    """Return the class of the task that a run folder was trained for.

    Raises:
        RunError: see `Run.open`
    """
    from glassgate.tasks.errors import OptionError
    from glassgate.tasks.runs import Run, version_error

    name = Run.open(path).content["task"]
    try:
        return task_class(name)
    except OptionError as error:
        raise version_error(path, error) from None
