"""Tasks can train, score and predict with every built-in cell, selected by name."""

import math
from collections.abc import Iterator
from typing import Any

import pytest

import glassgate as gg
from glassgate.tasks import task_class
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.data.texts import Text
from glassgate.tasks.task import Split

EXAMPLES = {
    "tagging": [Tagged(["so", "fine"], ["O", "B-X"], intent="good"), Tagged(["so", "foul"], ["O", "O"], intent="bad")],
    "classification": [Labelled("so fine", "good"), Labelled("so foul", "bad")],
    "language-model": [Text("salt and pepper, bread and butter. " * 3)] * 2,
    "fill-blanks": [Text("salt and pepper, bread and butter. " * 3)] * 2,
}


def _cells() -> Iterator[Any]:
    """Yield every cell with one task, and with the mark `matrix` with the other tasks."""
    for position, cell in enumerate(gg.cells.__all__):
        for number, task in enumerate(EXAMPLES):
            is_normal = position % len(EXAMPLES) == number
            yield pytest.param(cell, task, marks=() if is_normal else pytest.mark.matrix)


@pytest.mark.parametrize(("cell", "task"), [*_cells()])
def test_every_cell(cell: str, task: str) -> None:
    kind, examples = task_class(task), EXAMPLES[task]
    made = kind(kind.options_type(hidden_size=4, embedding_size=4, epochs=1, cell=cell))
    with gg.engine("reference"):
        result = made.fit(Split(examples, test=examples))
    assert math.isfinite(result["history"][0]["loss"])
    assert result["test"]
    recurrent = [module for module in made.network.modules() if isinstance(module, gg.Recurrent)]
    assert {type(module.cell) for module in recurrent} == {getattr(gg.cells, cell)}
    assert len(recurrent) == 1 + (task == "tagging")
