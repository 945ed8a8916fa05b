"""The index of the states of a run on its own data, stored in its folder, for searches."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

import glassgate as gg
from glassgate.tasks.data.batches import Piece, collate
from glassgate.tasks.errors import OptionError
from glassgate.tasks.progress import Progress
from glassgate.tasks.report.answers import visible
from glassgate.tasks.report.questions import Questions, questions_of
from glassgate.tasks.report.study import LAYER, Excerpt
from glassgate.tasks.runs import MODEL, Run
from glassgate.tasks.task import Task

FILE = "states.safetensors"
MOST_STEPS = 1_000_000
LONGEST = 1_000
"""Steps of a sequence of the index; a longer example is cut."""
_STEPS_OF_A_BATCH = 2**14

Read = tuple[Excerpt, dict[str, Tensor]]
"""Some steps of an example, and the states (L, H) there by name, such as "layer0.forward.h"."""


def index_of(
    task: Task[Any, Any, Any], run: Run, progress: Progress, tick: Callable[[str], None] = lambda _: None
) -> gg.dynamics.Index:
    """The index in the folder of a run; it is made if there is none, or if it is one of other weights.

    It contains the run's dev data, or else its test or training data, up to `MOST_STEPS` steps.

    Args:
        task: with its network.
        run: its folder.
        progress: of the reading of the data.
        tick: called with the next task in words.

    Raises:
        UserError: the data is not there any more, or holds no example.
    """
    path, weights = run.path / FILE, hashlib.sha256((run.path / MODEL).read_bytes()).hexdigest()
    if path.exists():
        try:
            index = gg.dynamics.Index.open(path)
        except ValueError:
            index = None
        if index is not None and (index.about or {}).get("weights") == weights:
            return index
    tick("reading the data")
    split = task.read_split(progress)
    name = next((name for name in ("dev", "test", "train") if len(getattr(split, name))), None)
    if name is None:
        raise OptionError("search: the run's data holds no example; give the run data with examples, or train again")
    tick("recording states")
    texts: list[list[str]] = []

    def sequences() -> Iterator[dict[str, Tensor]]:
        for excerpt, states in recorded(task, _excerpts(questions_of(task), getattr(split, name))):
            texts.append(text_of(task, excerpt))
            yield states

    every = list(sequences())
    index = gg.dynamics.Index.of(every, texts, {"weights": weights, "data": name})
    index.save(path)
    return index


def recorded(task: Task[Any, Any, Any], excerpts: Sequence[Excerpt]) -> Iterator[Read]:
    """The states of the recurrent layers on some excerpts."""
    questions, network = questions_of(task), task.network.eval()
    device = next(network.parameters()).device
    for some in _batches(excerpts):
        pieces = [Piece(k, each.start, each.stop) for k, each in enumerate(some)]
        batch = collate([task.encode(each.example) for each in some], pieces, task.padding)
        with torch.no_grad(), gg.record(network, first=True) as tape:
            questions.run(network, {name: tensor.to(device) for name, tensor in batch.items()})
        states = {
            f"{label}.{state}": (tape[f"{label}.{state}"], tape.inside(label))
            for label, call, _ in tape.parts()
            if label.startswith(f"{LAYER}.")
            for state in call.layer.cell.state
        }
        for row, excerpt in enumerate(some):
            yield (
                excerpt,
                {
                    name.removeprefix(f"{LAYER}."): values[inside[:, row], row]
                    for name, (values, inside) in states.items()
                },
            )


def text_of(task: Task[Any, Any, Any], excerpt: Excerpt) -> list[str]:
    """The text of each step of an excerpt."""
    shown = questions_of(task).shown(excerpt.example, excerpt.start, excerpt.stop)
    return [visible(step) for step in shown.steps]


def _excerpts(questions: Questions[Any], examples: Sequence[Any]) -> list[Excerpt]:
    """All steps of the examples, in pieces of at most `LONGEST` steps, up to `MOST_STEPS` steps."""
    found: list[Excerpt] = []
    left = MOST_STEPS
    for example in examples:
        length = len(questions.steps(example))
        usual = (0, min(length, LONGEST))
        first = questions.excerpt(example, usual)
        pieces = [first]
        if first == usual:
            pieces += [(start, min(length, start + LONGEST)) for start in range(LONGEST, length, LONGEST)]
        for start, stop in pieces:
            if left <= 0:
                return found
            found.append(Excerpt(example, start, stop))
            left -= stop - start
    return found


def _batches(excerpts: Sequence[Excerpt]) -> Iterator[list[Excerpt]]:
    """Consecutive excerpts of so many steps, padding included."""
    batch: list[Excerpt] = []
    for each in excerpts:
        longest = max((other.stop - other.start for other in [*batch, each]), default=0)
        if batch and longest * (len(batch) + 1) > _STEPS_OF_A_BATCH:
            yield batch
            batch = []
        batch.append(each)
    if batch:
        yield batch
