"""Finds tasks: the built-in ones, and those that installed packages declare. A task is imported when it is used."""

from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glassgate.tasks.task import Task

TASKS = {
    "tagging": "glassgate.tasks.tagging:Tagging",
    "classification": "glassgate.tasks.classification:Classification",
    "language-model": "glassgate.tasks.language_model:LanguageModel",
    "translation": "glassgate.tasks.translation:Translation",
    "fill-blanks": "glassgate.tasks.fill_blanks:FillBlanks",
    "regression": "glassgate.tasks.regression:Regression",
    "forecasting": "glassgate.tasks.forecasting:Forecasting",
}
"""The class of each built-in task, as `module:name`."""

ENTRY_POINTS = "glassgate.tasks"
"""The group of entry points by which other packages declare tasks."""


def installed_tasks() -> dict[str, str]:
    """Return the class of each task, as `module:name`: the built-in tasks, then those of other packages."""
    from glassgate.tasks.errors import OptionError

    found = dict(TASKS)
    for each in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: (point.name, point.value)):
        if found.setdefault(each.name, each.value) != each.value:
            raise OptionError(
                f"two tasks are called {each.name!r}: {found[each.name]} and {each.value}; uninstall a package of them"
            )
    return found


def task_class(name: str) -> "type[Task[Any, Any, Any]]":
    """Return the class of a task."""
    from glassgate.tasks.errors import OptionError

    location = TASKS.get(name) or installed_tasks().get(name)
    if location is None:
        raise OptionError(f"no task is called {name!r}; there are {', '.join(installed_tasks())}")
    module, attribute = location.split(":")
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
    """Return the class of the task that a run folder was trained for."""
    from glassgate.tasks.errors import OptionError
    from glassgate.tasks.runs import Run, version_error

    name = Run.open(path).content["task"]
    try:
        return task_class(name)
    except OptionError as error:
        raise version_error(path, f"{error}; install the package of the task, if it has one") from None
