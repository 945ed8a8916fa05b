"""The study of a trained run on a text or on examples: it computes all numbers of the report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import glassgate as gg
from glassgate.glass.cell_section import diagrams
from glassgate.glass.controls import CONTROLS
from glassgate.glass.cost import cost, describe
from glassgate.glass.gradients import differentiate
from glassgate.glass.languages import listed, say
from glassgate.glass.recorded import Recorded
from glassgate.glass.study import Answer, Direction, Passage, Study, directions
from glassgate.glass.wording import percent
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.data.batching import Piece
from glassgate.tasks.errors import DataError, OptionError, UserError
from glassgate.tasks.progress import Progress
from glassgate.tasks.report.causes import add_causes
from glassgate.tasks.report.dynamics import add_dynamics
from glassgate.tasks.report.relevance import add_relevances
from glassgate.tasks.report.task_view import LAYER, BatchAnswers, TaskView, view_of, visible
from glassgate.tasks.runs import Run
from glassgate.tasks.task import Split, Task
from glassgate.tasks.training.logs import read_rows
from glassgate.tasks.training.processes.group import Group

MAX_STEPS = 2000
# Without a text, the page shows about this many steps of the run's examples, in whole examples if possible.
_DEFAULT_STEPS = 240
_MAX_EXAMPLES = 24
_MAX_LONG_EXAMPLES = 12  # the number of long examples among which an excerpt is selected
_MAX_RERUNS = 8  # the number of best candidate excerpts on which the network runs a second time


class Excerpt(NamedTuple):
    """The steps of an example from `start` to `stop`.

    Attributes:
        has_targets: whether the example contains the right answers; otherwise the run's own answers replace them
        note: a sentence that the page shows
    """

    example: Any
    start: int
    stop: int
    has_targets: bool = True
    note: str = ""


def excerpts_of_text(task: Task[Any, Any, Any], text: str) -> list[Excerpt]:
    """Return a list whose only excerpt is the given text."""
    if not text.strip():
        raise OptionError("text: expected some text, got an empty one; leave it out to see examples of the run's data")
    view = view_of(task)
    example = view.example(text)
    length = len(view.steps(example))
    vocabulary = task.vocabularies.get("units") or task.vocabularies.get("source")
    tokens = list(getattr(example, "tokens", None) or view.steps(example))
    if vocabulary is not None and not any(token in vocabulary for token in tokens):
        raise OptionError(
            f"text: none of its {len(tokens)} tokens ({', '.join(map(repr, tokens[:5]))}) was in the training data, so "
            "the run reads all of them as unknown; give a text in the language of the training data"
        )
    steps = view.excerpt(example, (0, min(length, MAX_STEPS)))
    return [Excerpt(example, *steps, not view.uses_own_prediction, _note_if_cut(say("page.the_text"), length))]


def excerpts_of_file(task: Task[Any, Any, Any], path: str, progress: Progress) -> list[Excerpt]:
    """The examples of a file, with labels if the file has them."""
    try:
        examples = task.read(path, progress=progress)
    except DataError:
        examples = task.read(path, labelled=False, progress=progress)
    if not len(examples):
        raise DataError(path, None, "expected examples to show, got an empty file")
    view = view_of(task)
    excerpts: list[Excerpt] = []
    left = MAX_STEPS
    for example in examples[:MAX_STEPS]:
        length = len(view.steps(example))
        if excerpts and length > left:
            shown, total, most = f"{len(excerpts):,}", f"{len(examples):,}", f"{MAX_STEPS:,}"
            note = say("page.first_examples", file=path, shown=shown, total=total, most=most)
            excerpts[0] = excerpts[0]._replace(note=note)
            break
        steps = view.excerpt(example, (0, min(length, left)))
        excerpts.append(Excerpt(example, *steps, note=_note_if_cut(path, length)))
        left -= excerpts[-1].stop - excerpts[-1].start
    return excerpts


def read_data(task: Task[Any, Any, Any], run: Run, progress: Progress) -> Split[Any]:
    """Read the data on which a run was trained.

    Raises:
        UserError: the data no longer exists, or was passed to `fit` in Python
    """
    if task.options.training_file is not None:
        return task.read_split(progress)
    split = task.read_split(progress) if task.builtin_data else None
    if split is None or not _is_data_of(task, run, split):
        raise OptionError(
            f"{run.path}: expected a run that was trained on a file or on the present built-in data, got one that was "
            "trained on data in memory, which it does not store; give `report` a text or --file, or train with --data"
        )
    return split


def _is_data_of(task: Task[Any, Any, Any], run: Run, split: Split[Any]) -> bool:
    """Whether the dev or test examples are those of a run, by their stored fingerprint; True if there is none."""
    name = next((name for name in ("dev", "test", "train") if len(getattr(split, name))), "train")
    stored = run.content.get("data", {}).get(name)
    try:
        encoded = {name: task.encoded(getattr(split, name))}
        return stored in (None, *Group.from_environment().fingerprints(encoded).values())
    except UserError:  # a label or an input that the training data lacks
        return False


def excerpts_of_run(
    task: Task[Any, Any, Any], progress: Progress, metrics: Mapping[str, Any] | None = None
) -> list[Excerpt]:
    """Examples of the run's own data, see `excerpts_of_split`. The Python code on interactive pages calls this."""
    return excerpts_of_split(task, task.read_split(progress), metrics)


def excerpts_of_split(
    task: Task[Any, Any, Any], split: Split[Any], metrics: Mapping[str, Any] | None = None
) -> list[Excerpt]:
    """Examples of the dev data; if there are none, of the test data or else of the training data.

    If the examples are long, the result is a single excerpt, on which the accuracy of the run is close to its average:
    that of metrics.json or, if `metrics` is None, that on the examples.
    """
    view = view_of(task)
    examples = split.dev or split.test or split.train
    excerpts: list[Excerpt] = []
    left = _DEFAULT_STEPS
    if len(examples) and len(view.steps(examples[0])) > _DEFAULT_STEPS:
        long_examples = [examples[index] for index in range(min(len(examples), _MAX_LONG_EXAMPLES))]
        return [_average_excerpt(view, long_examples, metrics or {})]
    for example in (examples[index] for index in range(len(examples))):
        length = len(view.steps(example))
        if excerpts and (length > left or len(excerpts) == _MAX_EXAMPLES):
            break
        excerpts.append(Excerpt(example, *view.excerpt(example, (0, min(length, _DEFAULT_STEPS)))))
        left -= length
    if not excerpts:
        raise OptionError("the run's data contains no example; give a text, or a file with --file")
    return excerpts


def _average_excerpt(view: TaskView[Any], examples: Sequence[Any], metrics: Mapping[str, Any]) -> Excerpt:
    """The excerpt of long examples with an average number of right answers and the greatest variety of targets.

    Answers may depend on the context of an excerpt, so the network runs again on the best candidates without context.
    """
    accuracies = [(metrics.get(data) or {}).get("accuracy") for data in ("dev", "test")]
    average = next((each for each in accuracies if each is not None), None)
    answers_of_examples = [_answers(view, each, 0, min(len(view.steps(each)), MAX_STEPS)) for each in examples]
    if average is None:
        known = [each.is_correct for answers in answers_of_examples for each in answers if each.is_correct is not None]
        average = float(np.mean(known or [False]))

    def judge(answers: Sequence[Answer]) -> tuple[float, float]:
        """The number of right answers minus the number expected, and the entropy of the targets in nats."""
        known = [each for each in answers if each.is_correct is not None]
        counts = np.unique([each.target[0] for each in known if each.target], return_counts=True)[1]
        frequencies = counts / max(1, counts.sum())
        excess = sum(bool(each.is_correct) for each in known) - average * len(known)
        return excess, round(float(-(frequencies * np.log(frequencies)).sum()), 6)

    candidates = [
        (Excerpt(example, start, stop), *judge([each for each in answers if start <= (each.step or 0) < stop]))
        for example, answers in zip(examples, answers_of_examples, strict=True)
        for start, stop in _candidate_ranges(view, example)
    ]
    candidates.sort(key=lambda each: (abs(each[1]), -each[2]))
    finals = [
        Excerpt(excerpt.example, *view.excerpt(excerpt.example, (excerpt.start, excerpt.stop)))
        for excerpt, *_ in candidates[:_MAX_RERUNS]
    ]
    judged = [(each, *judge(_answers(view, *each[:3]))) for each in finals]
    # Excerpts whose number of right answers is more than 0.5 below the expected number come last.
    return min(judged, key=lambda each: (each[1] < -0.5, abs(each[1]), -each[2]))[0]


def _answers(view: TaskView[Any], example: Any, start: int, stop: int) -> list[Answer]:
    """The answers for the steps from `start` to `stop`; their `step` is counted from the start of the example."""
    answers = view.answers_for_example(example, start, stop).answers
    return [each if each.step is None else each._replace(step=each.step + start) for each in answers]


def _candidate_ranges(view: TaskView[Any], example: Any) -> list[tuple[int, int]]:
    """Ranges of steps of a long example. If the example has lines, each range consists of whole lines if possible."""
    steps = view.steps(example)[:MAX_STEPS]
    if len(steps) <= _DEFAULT_STEPS:
        return [(0, len(steps))]
    starts = [0, *(index + 1 for index, step in enumerate(steps) if step == "\n")]
    last = len(steps) - _DEFAULT_STEPS
    if len(starts) == 1:
        starts = list(range(0, len(steps), _DEFAULT_STEPS))
    return [
        (start, max((end for end in starts if start < end <= start + _DEFAULT_STEPS), default=start + _DEFAULT_STEPS))
        for start in starts
        if start <= last
    ]


def _note_if_cut(name: str, length: int) -> str:
    """A sentence about an input that is longer than `MAX_STEPS`; otherwise empty."""
    if length <= MAX_STEPS:
        return ""
    return say("page.first_steps", name=name, total=f"{length:,}", most=f"{MAX_STEPS:,}")


def study(
    task: Task[Any, Any, Any],
    excerpts: Sequence[Excerpt],
    title: str,
    run: Path | None = None,
    tick: Callable[[str], None] = lambda _: None,
) -> Study:
    """Run a network on excerpts, and compute the numbers of the report.

    Without the folder of the run, the section on training is left out. `tick` is called at the start of each stage,
    with its name.
    """
    view, network = view_of(task), task.network.eval()
    encoded = [task.encode(each.example) for each in excerpts]
    pieces = [Piece(index, each.start, each.stop) for index, each in enumerate(excerpts)]
    batch = view.batch(encoded, pieces)

    def batch_of(index: int, copies: int) -> Batch:
        return view.batch(encoded, [pieces[index]] * copies)

    def evidence(network: nn.Module, index: int, copies: int) -> Tensor:
        return view.answers_for_batch(batch_of(index, copies), network).evidence

    def record(network: nn.Module, brief: bool = False) -> tuple[Recorded, list[Direction]]:
        with torch.no_grad(), gg.record(network, first=True) as recording:
            view.run(network, batch)
        return recording, directions(recording, LAYER, brief=brief)

    def control(index: int, with_dynamics: bool = False) -> list[Direction]:
        recording, untrained_directions = record(_untrained(task, task.options.seed + index), brief=True)
        if with_dynamics:
            add_dynamics(untrained_directions, recording)
        return untrained_directions

    tick("recording gates and states")
    with torch.no_grad():
        answers = [view.answers_for_batch(batch_of(index, 1)) for index in range(len(excerpts))]
    passages = [_passage(view, *each) for each in zip(excerpts, answers, strict=True)]
    recording, trained_directions = record(network)
    result = Study(title, "", passages, trained_directions, differentiated=answers[-1].evidence_name)
    tick("running untrained networks")
    untrained = _untrained(task, task.options.seed)
    no_dynamics_note = add_dynamics(trained_directions, recording)
    result.make_control = control
    result.controls = [control(index, not no_dynamics_note) for index in range(CONTROLS)]
    result.subtitle = describe(result, task.name)
    result.notes = [note for note in (*(each.note for each in excerpts), no_dynamics_note) if note]
    layer = getattr(network, LAYER)
    result.diagrams = diagrams(layer)
    result.cost = cost(layer, network, [len(each.steps) for each in passages])
    tick("following gradients back from each answer")
    differentiate(result, network, untrained, evidence, LAYER)
    attention = (view.attention(excerpt.example) for excerpt in excerpts)
    result.connections = [
        each if weights is None else each._replace(attention=weights[each.targets, excerpt.start : excerpt.stop])
        for each, weights, excerpt in zip(result.connections, attention, excerpts, strict=True)
    ]
    tick("dividing each answer among the steps")
    add_relevances(view, batch_of, result)
    tick("holding each part at its mean")
    add_causes(view, batch_of, result)
    if hasattr(network, "decoder"):
        # With a decoder, the labels of the encoder's directions begin with `LAYER`, like the names of the causes.
        for direction in (*result.directions, *chain(*result.controls)):
            direction.label = f"{LAYER}.{direction.label}"
    tick("reading the training's log")
    result.monitor = task.monitor
    if run is not None:
        result.training = read_rows(run)
        result.metrics = Run.open(run).metrics()
        result.cost += _cost_of_training(result.metrics)
    return result


def _passage(view: TaskView[Any], excerpt: Excerpt, batch_answers: BatchAnswers) -> Passage:
    answers = batch_answers.answers
    if not excerpt.has_targets:
        answers = [each._replace(target=None, agreement=None) for each in answers]
    input = view.layer_input(excerpt.example, excerpt.start, excerpt.stop)
    steps = [visible(step) if step != "\n" else "\n" for step in input.steps]
    return replace(input, steps=steps, answers=answers, title=_passage_title(excerpt, len(steps)))


def _passage_title(excerpt: Excerpt, length: int) -> str:
    """The file and the line of an example, or the step at which the excerpt of a long example begins."""
    example = excerpt.example
    name = Path(str(getattr(example, "file", None) or getattr(example, "source", "") or "")).name
    line = getattr(example, "line", None)
    line = line(excerpt.start) if callable(line) else line
    if name.startswith("given "):
        name = ""  # a text or a data frame of the user
    if excerpt.start or length < excerpt.stop:
        from_step = say("page.from_step", step=f"{excerpt.start + 1:,}")
        return listed([name, from_step]) if name else from_step
    return f"{name}:{line}" if name and isinstance(line, int) and line > 1 else name


def _cost_of_training(metrics: dict[str, Any]) -> list[tuple[str, str]]:
    if not metrics.get("units_per_second"):
        return []
    speed, threads = metrics["units_per_second"], metrics["threads"]
    return [
        (say("cost.training"), say("cost.speed", speed=f"{speed:,}", time=f"{1000 / speed:.3g}", threads=threads)),
        (say("cost.padding_in_training"), say("cost.padding_of_batches", percent=percent(metrics["padding"]))),
    ]


def _untrained(task: Task[Any, Any, Any], seed: int) -> nn.Module:
    """A network with random weights. The run's seed gives the run's initial weights, except pretrained vectors."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        network = task.build()
    return network.to(next(task.network.parameters()).device).eval()
