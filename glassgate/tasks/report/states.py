"""The index of the states of a run on its own data, stored in its folder, for searches."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

import glassgate as gg
from glassgate.glass.gradients import evenly
from glassgate.glass.places import BYTES, Places, steps_within
from glassgate.glass.study import Study
from glassgate.tasks.data.pieces import Piece
from glassgate.tasks.errors import OptionError
from glassgate.tasks.progress import Progress
from glassgate.tasks.report.answers import visible
from glassgate.tasks.report.questions import LAYER, Questions, questions_of
from glassgate.tasks.report.study import Excerpt
from glassgate.tasks.runs import MODEL, Run
from glassgate.tasks.task import Split, Task

FILE = "states.safetensors"
MOST_STEPS = 1_000_000
LONGEST = 1_000
"""The maximum number of steps of a sequence in the index; a longer example is cut."""
_STEPS_OF_A_BATCH = 2**14

Read = tuple[Excerpt, dict[str, Tensor]]
"""Some steps of an example, and the states (L, H) there by name, such as "layer0.forward.h"."""


def index_of(
    task: Task[Any, Any, Any], run: Run, progress: Progress, tick: Callable[[str], None] = lambda _: None
) -> gg.dynamics.Index:
    """The index in the folder of a run. It is created if it is missing or belongs to other weights.

    It contains the run's dev data, or else its test or training data, up to `MOST_STEPS` steps.

    Args:
        task: the trained task.
        run: the folder of its run.
        progress: shows how much of the data has been read.
        tick: called with the name of each stage of the work.

    Raises:
        UserError: the data no longer exists, or contains no example.
    """
    index = _stored(run)
    if index is not None:
        return index
    tick("reading the data")
    data, examples = _held_out(task.read_split(progress))
    if not len(examples):
        raise OptionError("search: the run's data holds no example; give the run data with examples, or train again")
    tick("recording states")
    index = _index(task, examples, MOST_STEPS, {"weights": _weights(run), "data": data})
    index.save(run.path / FILE)
    return index


def places_of(
    task: Task[Any, Any, Any], run: Run, split: Split[Any] | None, shown: Study, size: int = BYTES
) -> Places | None:
    """The steps of the run's data that a report embeds for searches; None if there are none to choose from.

    They are evenly chosen sequences of the index in the run's folder, or else of data that has been read. Sequences of
    the report itself are left out.

    Args:
        task: the trained task.
        run: the folder of its run.
        split: the run's data; None if it has not been read.
        shown: the report, with its passages and directions.
        size: the approximate size in bytes.
    """
    labels = {each.label: f"{each.label.removeprefix(f'{LAYER}.')}.{each.states[0]}" for each in shown.directions}
    units = sum(each.values[each.states[0]].shape[1] for each in shown.directions)
    letters = float(np.mean([len(step.encode()) for each in shown.passages for step in each.steps]))
    most = steps_within(size, units, letters)
    index = _stored(run)
    if index is None:
        data, examples = _held_out(split) if split is not None else ("", ())
        if not len(examples):
            return None
        index = _index(task, [examples[k] for k in evenly(len(examples), most)], 2 * most, {"data": data})
    here = ["\0".join(map(visible, each.steps)) for each in shown.passages]
    texts, numbers, states, left = list[list[str]](), list[int](), [], most
    sequences = len(index.starts) - 1
    for number in evenly(sequences, max(1, 2 * most * sequences // index.steps)):
        text = index.text(number, 0, index.steps)
        words = "\0".join(text)
        if left > 0 and not any(words in passage or passage in words for passage in here):
            texts.append(text[:left])
            numbers.append(number)
            states.append({label: index.values(name, number)[:left] for label, name in labels.items()})
            left -= len(text)
    if not texts:
        return None
    values = {label: torch.cat([each[label] for each in states]).numpy().T for label in labels}
    mean = {label: index.mean(name).numpy() for label, name in labels.items()}
    deviation = {label: index.deviation[name].numpy() for label, name in labels.items()}
    return Places(values, mean, deviation, texts, numbers, (index.about or {}).get("data", ""), index.steps)


def _held_out(split: Split[Any]) -> tuple[str, Sequence[Any]]:
    """The name and the examples of the first part with examples: dev, test or train."""
    parts = {name: getattr(split, name) for name in ("dev", "test", "train")}
    return next(((name, part) for name, part in parts.items() if len(part)), ("", ()))


def _index(task: Task[Any, Any, Any], examples: Sequence[Any], most: int, about: dict[str, str]) -> gg.dynamics.Index:
    """The index of the states on some examples, up to so many steps."""
    read = list(recorded(task, _excerpts(questions_of(task), examples, most)))
    return gg.dynamics.Index.of([states for _, states in read], [text_of(task, each) for each, _ in read], about)


def _stored(run: Run) -> gg.dynamics.Index | None:
    """The index in the folder of a run, if it is one of the run's weights."""
    path = run.path / FILE
    if not path.exists():
        return None
    try:
        index = gg.dynamics.Index.open(path)
    except ValueError:
        return None
    return index if (index.about or {}).get("weights") == _weights(run) else None


def _weights(run: Run) -> str:
    return hashlib.sha256((run.path / MODEL).read_bytes()).hexdigest()


def recorded(task: Task[Any, Any, Any], excerpts: Sequence[Excerpt]) -> Iterator[Read]:
    """The states of the recurrent layers on some excerpts."""
    questions, network = questions_of(task), task.network.eval()
    for some in _batches(excerpts):
        pieces = [Piece(k, each.start, each.stop) for k, each in enumerate(some)]
        batch = questions.batch([task.encode(each.example) for each in some], pieces)
        with torch.no_grad(), gg.record(network, first=True) as tape:
            questions.run(network, batch)
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


def _excerpts(questions: Questions[Any], examples: Sequence[Any], most: int) -> list[Excerpt]:
    """All steps of the examples, in pieces of at most `LONGEST` steps, up to so many steps."""
    excerpts: list[Excerpt] = []
    left = most
    for example in examples:
        length = len(questions.steps(example))
        usual = (0, min(length, LONGEST))
        first = questions.excerpt(example, usual)
        pieces = [first]
        if first == usual:
            pieces += [(start, min(length, start + LONGEST)) for start in range(LONGEST, length, LONGEST)]
        for start, stop in pieces:
            if left <= 0:
                return excerpts
            excerpts.append(Excerpt(example, start, stop))
            left -= stop - start
    return excerpts


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
