"""The search index of a run: the states of its layers on its own data. The run folder stores the index."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

import glassgate as gg
from glassgate.glass.gradients import evenly_spaced
from glassgate.glass.places import MAX_BYTES, Places, steps_within
from glassgate.glass.study import Study
from glassgate.tasks.data.batching import Piece
from glassgate.tasks.errors import OptionError
from glassgate.tasks.progress import Progress
from glassgate.tasks.report.study import Excerpt, read_data
from glassgate.tasks.report.task_view import LAYER, TaskView, view_of, visible
from glassgate.tasks.runs import MODEL, Run
from glassgate.tasks.task import Split, Task

FILE = "states.safetensors"
MAX_STEPS = 1_000_000
"""The approximate maximum number of steps in the index, which ends with a whole excerpt."""
MAX_LENGTH = 1_000
"""The maximum number of steps of a sequence in the index; longer examples are cut into several sequences."""
_STEPS_PER_BATCH = 2**14


def index_of(
    task: Task[Any, Any, Any], run: Run, progress: Progress, tick: Callable[[str], None] = lambda _: None
) -> gg.dynamics.Index:
    """Return the index in the folder of a run. Build it if it is missing or belongs to other weights.

    The index contains up to about `MAX_STEPS` steps of the dev data or, if it is empty, of the test or training data.
    `tick` is called at the start of each stage, with its name.
    """
    index = _stored_index(run)
    if index is not None:
        return index
    tick("reading the data")
    data, examples = _search_data(read_data(task, run, progress))
    if not len(examples):
        raise OptionError("search: the run's data contains no example; restore its files, or train again")
    tick("recording states")
    index = _build_index(task, examples, MAX_STEPS, {"weights": _weights_hash(run), "data": data})
    index.save(run.path / FILE)
    return index


def places_of(
    task: Task[Any, Any, Any], run: Run, split: Split[Any] | None, study: Study, size: int = MAX_BYTES
) -> Places | None:
    """The sequences of the run's data that a report embeds for searches, in about `size` bytes; None without any.

    They are evenly spaced sequences of the index in the run's folder or, without an index, of `split`, which is None if
    the run's data has not been read. Sequences that the report shows are left out.
    """
    state_names = {each.label: f"{each.label.removeprefix(f'{LAYER}.')}.{each.states[0]}" for each in study.directions}
    units = sum(each.values[each.states[0]].shape[1] for each in study.directions)
    bytes_per_step = float(np.mean([len(step.encode()) for each in study.passages for step in each.steps]))
    max_steps = steps_within(size, units, bytes_per_step)
    index = _stored_index(run)
    if index is None:
        data, examples = _search_data(split) if split is not None else ("", ())
        if not len(examples):
            return None
        chosen = [examples[k] for k in evenly_spaced(len(examples), max_steps)]
        index = _build_index(task, chosen, 2 * max_steps, {"data": data})
    passages = ["\0".join(map(visible, each.steps)) for each in study.passages]
    texts, sequences, states, left = list[list[str]](), list[int](), [], max_steps
    sequence_count = len(index.starts) - 1
    for sequence in evenly_spaced(sequence_count, max(1, 2 * max_steps * sequence_count // index.steps)):
        steps = index.text(sequence, 0, index.steps)
        text = "\0".join(steps)
        if left > 0 and not any(text in passage or passage in text for passage in passages):
            texts.append(steps[:left])
            sequences.append(sequence)
            states.append({label: index.values(name, sequence)[:left] for label, name in state_names.items()})
            left -= len(steps)
    if not texts:
        return None
    values = {label: torch.cat([each[label] for each in states]).numpy().T for label in state_names}
    mean = {label: index.mean(name).numpy() for label, name in state_names.items()}
    deviation = {label: index.deviation[name].numpy() for label, name in state_names.items()}
    return Places(values, mean, deviation, texts, sequences, (index.about or {}).get("data", ""), index.steps)


def _search_data(split: Split[Any]) -> tuple[str, Sequence[Any]]:
    """The name and the examples of the dev data; if it is empty, of the test data or else the training data."""
    parts = {name: getattr(split, name) for name in ("dev", "test", "train")}
    return next(((name, part) for name, part in parts.items() if len(part)), ("", ()))


def _build_index(
    task: Task[Any, Any, Any], examples: Sequence[Any], max_steps: int, about: dict[str, str]
) -> gg.dynamics.Index:
    results = list(record_states(task, _excerpts(view_of(task), examples, max_steps)))
    return gg.dynamics.Index.of([states for _, states in results], [text_of(task, each) for each, _ in results], about)


def _stored_index(run: Run) -> gg.dynamics.Index | None:
    """The index in the folder of a run; None if it is missing, damaged, or belongs to other weights."""
    path = run.path / FILE
    if not path.exists():
        return None
    try:
        index = gg.dynamics.Index.open(path)
    except ValueError:
        return None
    return index if (index.about or {}).get("weights") == _weights_hash(run) else None


def _weights_hash(run: Run) -> str:
    return hashlib.sha256((run.path / MODEL).read_bytes()).hexdigest()


def record_states(
    task: Task[Any, Any, Any], excerpts: Sequence[Excerpt]
) -> Iterator[tuple[Excerpt, dict[str, Tensor]]]:
    """Yield each excerpt, with the states (L, H) at its steps by name, such as "layer0.forward.h"."""
    view, network = view_of(task), task.network.eval()
    for group in _batches(excerpts):
        pieces = [Piece(k, each.start, each.stop) for k, each in enumerate(group)]
        batch = view.batch([task.encode(each.example) for each in group], pieces)
        with torch.no_grad(), gg.record(network, first=True) as recording:
            view.run(network, batch)
        states = {
            f"{label}.{state}": (recording[f"{label}.{state}"], recording.unpadded(label))
            for label, call, _ in recording.directions()
            if label.startswith(f"{LAYER}.")
            for state in call.layer.cell.state
        }
        for row, excerpt in enumerate(group):
            rows = {name: values[inside[:, row], row] for name, (values, inside) in states.items()}
            yield excerpt, {name.removeprefix(f"{LAYER}."): values for name, values in rows.items()}


def text_of(task: Task[Any, Any, Any], excerpt: Excerpt) -> list[str]:
    """The text of each step of an excerpt."""
    return [visible(step) for step in view_of(task).layer_input(excerpt.example, excerpt.start, excerpt.stop).steps]


def _excerpts(view: TaskView[Any], examples: Sequence[Any], max_steps: int) -> list[Excerpt]:
    """Cut examples into excerpts of at most `MAX_LENGTH` steps, until there are about `max_steps` steps in total."""
    excerpts: list[Excerpt] = []
    left = max_steps
    for example in examples:
        length = len(view.steps(example))
        default = (0, min(length, MAX_LENGTH))
        ranges = [view.excerpt(example, default)]
        if ranges == [default]:
            ranges += [(start, min(length, start + MAX_LENGTH)) for start in range(MAX_LENGTH, length, MAX_LENGTH)]
        for start, stop in ranges:
            if left <= 0:
                return excerpts
            excerpts.append(Excerpt(example, start, stop))
            left -= stop - start
    return excerpts


def _batches(excerpts: Sequence[Excerpt]) -> Iterator[list[Excerpt]]:
    """Consecutive excerpts with at most `_STEPS_PER_BATCH` steps per batch, including padding."""
    batch: list[Excerpt] = []
    for excerpt in excerpts:
        longest = max(each.stop - each.start for each in [*batch, excerpt])
        if batch and longest * (len(batch) + 1) > _STEPS_PER_BATCH:
            yield batch
            batch = []
        batch.append(excerpt)
    if batch:
        yield batch
