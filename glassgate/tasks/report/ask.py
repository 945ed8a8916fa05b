"""The answers of a run to a text or a series: the Python code that an interactive report shows calls `ask`."""

from collections.abc import Sequence
from typing import Any

from glassgate.tasks.report.answers import Answer
from glassgate.tasks.report.questions import questions_of
from glassgate.tasks.report.study import Excerpt, given
from glassgate.tasks.task import Task


def ask(
    task: Task[Any, Any, Any], content: str | Excerpt, rows: Sequence[Sequence[float]] | None = None
) -> list[Answer]:
    """Return the answers of a run; inside `gg.edit`, those of the changed network.

    Args:
        task: a trained task
        content: a text, or an excerpt of an example
        rows: a series, `(L, C)`, that replaces the end of the excerpt's series, or of the look-back window

    Raises:
        UserError: the text is empty, or the run's vocabulary contains none of its symbols

    Example:
        >>> from glassgate.tasks.data.tagged import Tagged
        >>> from glassgate.tasks.tagging import Tagging, TaggingOptions
        >>> from glassgate.tasks.task import Split
        >>> task = Tagging(TaggingOptions(hidden_size=4, embedding_size=4, epochs=1))
        >>> _ = task.fit(Split([Tagged(("play", "jazz"), ("O", "B-genre"))] * 2))
        >>> len(ask(task, "play jazz"))
        2
    """
    questions = questions_of(task)
    excerpt = given(task, content)[0] if isinstance(content, str) else content
    if rows is not None:
        excerpt = excerpt._replace(example=questions.with_series(excerpt.example, excerpt.stop, rows))
    return questions.answers_to(excerpt.example, excerpt.start, excerpt.stop).answers
