"""A trained run, and a text or examples, as what the report shows."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import glassgate as gg
from glassgate.glass.study import Passage, Said, Study, differentiate, directions
from glassgate.tasks.data.batches import Batch, Encoded, Piece, collate
from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.logs import FILE, FOLDER
from glassgate.tasks.progress import Progress
from glassgate.tasks.runs import Run
from glassgate.tasks.seen import visible
from glassgate.tasks.task import Task

MOST_STEPS = 2000
# Without a text so many steps of the run's examples are shown, whole ones where that is possible.
_OWN_STEPS = 240
_OWN_EXAMPLES = 24
LAYER = "encoder"


class Stretch(NamedTuple):
    """Some steps of an example."""

    example: Any
    start: int
    stop: int


def given(task: Task[Any, Any, Any], text: str) -> list[Stretch]:
    """A text that a user has written.

    Raises:
        UserError: it is empty, too long, in symbols that the run does not know, or the task reads no text
    """
    if not text.strip():
        raise OptionError("text: expected some text, got an empty one; leave it out to see examples of the run's data")
    example = task.of_text(text)
    length = len(task.steps(example))
    _check_length("text", length)
    known = task.vocabularies.get("units")
    units = list(getattr(example, "units", None) or task.steps(example))
    if known is not None and not any(unit in known for unit in units):
        raise OptionError(
            f"text: none of its {len(units)} units ({', '.join(map(repr, units[:5]))}) was in the training data, so "
            "every one is the same unknown unit to the run; give a text in its language"
        )
    return [Stretch(example, 0, length)]


def read(task: Task[Any, Any, Any], path: str, progress: Progress) -> list[Stretch]:
    """The examples of a file, with labels where it has them.

    Raises:
        UserError: it cannot be read, holds nothing, or is too long
    """
    try:
        examples = task.read(path, progress=progress)
    except DataError:
        examples = task.read(path, labelled=False, progress=progress)
    if not len(examples):
        raise DataError(path, None, "expected something to show, got an empty file")
    stretches = [Stretch(example, 0, len(task.steps(example))) for example in examples[: MOST_STEPS + 1]]
    _check_length(path, sum(each.stop for each in stretches))
    return stretches


def own(task: Task[Any, Any, Any], progress: Progress) -> list[Stretch]:
    """Examples of the run's dev data, or of its test or training data where it has none.

    Raises:
        UserError: the data is not there any more
    """
    split = task.read_split(progress)
    examples = split.dev or split.test or split.train
    chosen: list[Stretch] = []
    left = _OWN_STEPS
    for example in (examples[place] for place in range(len(examples))):
        length = len(task.steps(example))
        if chosen and (length > left or len(chosen) == _OWN_EXAMPLES):
            break
        chosen.append(Stretch(example, 0, min(length, _OWN_STEPS)))
        left -= length
    if not chosen:
        raise OptionError("the run's data holds no example; give a text, or a file with --file")
    return chosen


def _check_length(name: str, length: int) -> None:
    if length > MOST_STEPS:
        raise OptionError(
            f"{name}: {length:,} steps or more are too long for one page, which shows up to {MOST_STEPS:,}; "
            "give a part of it"
        )


def study(
    task: Task[Any, Any, Any],
    stretches: Sequence[Stretch],
    title: str,
    run: Path | None = None,
    tick: Callable[[str], None] = lambda _: None,
) -> Study:
    """Run the model over stretches, and measure.

    Args:
        task: with its network
        stretches: what it reads
        title: of the page
        run: the folder, for the course of the training
        tick: called with what comes next
    """
    encoded: list[Encoded] = [task.encode(each.example) for each in stretches]
    pieces = [Piece(0, each.start, each.stop) for each in stretches]
    device = next(task.network.parameters()).device

    def batch_of(number: int, copies: int) -> Batch:
        rows = collate([encoded[number]], [pieces[number]] * copies, task.padding)
        return {name: tensor.to(device) for name, tensor in rows.items()}

    def evidence(network: nn.Module, number: int, copies: int) -> Tensor:
        batch = batch_of(number, copies)
        return task.see(network(batch), batch).evidence

    network = task.network.eval()
    tick("recording gates and states")
    passages, parts, said = [], [], ""
    for number, stretch in enumerate(stretches):
        batch = batch_of(number, 1)
        with torch.no_grad():
            seen = task.see(network(batch), batch)
        said = seen.said
        passages.append(_passage(task, stretch, [Said(*answer) for answer in seen.answers]))
    whole = collate(encoded, [Piece(k, each.start, each.stop) for k, each in enumerate(stretches)], task.padding)
    with torch.no_grad(), gg.record(network) as tape:
        network({name: tensor.to(device) for name, tensor in whole.items()})
    parts = directions(tape, LAYER)
    made = Study(title, task.name, passages, parts, evidence=said)
    tick("following gradients back from each answer")
    differentiate(made, network, _untrained(task), evidence, LAYER)
    tick("reading the training's log")
    made.monitor = task.monitor
    if run is not None:
        made.training = _log(run)
        made.metrics = Run.open(run).metrics()
    return made


def _passage(task: Task[Any, Any, Any], stretch: Stretch, said: list[Said]) -> Passage:
    steps = [visible(step) if step != "\n" else "\n" for step in task.steps(stretch.example)]
    series = task.series(stretch.example)
    source = getattr(stretch.example, "source", "")
    return Passage(
        steps[stretch.start : stretch.stop],
        said,
        None if series is None else np.asarray(series)[stretch.start : stretch.stop],
        source,
    )


def _untrained(task: Task[Any, Any, Any]) -> nn.Module:
    """The network as training began, from the run's seed; pretrained vectors are not in it."""
    with torch.random.fork_rng():
        torch.manual_seed(task.options.seed)
        network = task.build()
    return network.to(next(task.network.parameters()).device).eval()


def _log(run: Path) -> list[dict[str, float]]:
    path = run / FOLDER / FILE
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)]
