"""The answers of a run for a text or a series. Interactive pages show Python code that calls `ask`."""

from collections.abc import Sequence
from typing import Any

from glassgate.glass.study import Answer
from glassgate.tasks.report.study import Excerpt, excerpts_of_text
from glassgate.tasks.report.task_view import view_of
from glassgate.tasks.task import Task


def ask(
    task: Task[Any, Any, Any], content: str | Excerpt, rows: Sequence[Sequence[float]] | None = None
) -> list[Answer]:
    """Return the answers of a run; inside `gg.edit`, the answers of the edited network.

    Args:
        task: a trained task
        content: a text, or an excerpt of an example
        rows: new values `(L, C)` of the last L steps of the series; in forecasting, of the look-back window

    Raises:
        UserError: the text is empty, or the run's vocabulary contains none of its symbols
    """
    view = view_of(task)
    excerpt = excerpts_of_text(task, content)[0] if isinstance(content, str) else content
    if rows is not None:
        excerpt = excerpt._replace(example=view.with_series(excerpt.example, excerpt.stop, rows))
    return view.answers_for_example(excerpt.example, excerpt.start, excerpt.stop).answers
