"""The study of a trained run on a text or on examples: it computes all numbers of the report."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import glassgate as gg
from glassgate.glass.cell_section import diagrams
from glassgate.glass.controls import CONTROLS
from glassgate.glass.cost import cost, described
from glassgate.glass.gradients import differentiate
from glassgate.glass.recorded import Recorded
from glassgate.glass.study import Direction, Passage, PassageAnswer, Study, directions
from glassgate.glass.wording import count
from glassgate.tasks.data.batches import Batch
from glassgate.tasks.data.pieces import Piece
from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.progress import Progress
from glassgate.tasks.report.answers import BatchAnswers, visible
from glassgate.tasks.report.causes import causes
from glassgate.tasks.report.dynamics import add_dynamics
from glassgate.tasks.report.questions import LAYER, Questions, questions_of
from glassgate.tasks.report.relevance import relevances
from glassgate.tasks.runs import Run
from glassgate.tasks.task import Split, Task
from glassgate.tasks.training.logs import read_rows

MOST_STEPS = 2000
_LIMIT = f"a page shows at most {MOST_STEPS:,} steps"
# Without a text, the page shows about this many steps of the run's examples, in whole examples if possible.
_OWN_STEPS = 240
_LONG_EXAMPLES = 12
_OWN_EXAMPLES = 24
# The number of best candidates for an excerpt on which the network runs again alone.
_RUN_AGAIN = 8


class Excerpt(NamedTuple):
    """Some steps of an example.

    Attributes:
        reference: whether the targets are labels, and not the answers of the run itself
        note: a sentence that the page shows
    """

    example: Any
    start: int
    stop: int
    reference: bool = True
    note: str = ""


def given(task: Task[Any, Any, Any], text: str) -> list[Excerpt]:
    """Return the excerpts for a text of the user.

    Raises:
        UserError: it is empty, contains only symbols that the run does not know, or the task reads no text
    """
    if not text.strip():
        raise OptionError("text: expected some text, got an empty one; leave it out to see examples of the run's data")
    questions = questions_of(task)
    example = questions.example(text)
    length = len(questions.steps(example))
    known = task.vocabularies.get("units") or task.vocabularies.get("source")
    units = list(getattr(example, "tokens", None) or questions.steps(example))
    if known is not None and not any(unit in known for unit in units):
        raise OptionError(
            f"text: none of its {len(units)} tokens ({', '.join(map(repr, units[:5]))}) was in the training data, so "
            "every one is the same unknown token to the run; give a text in its language"
        )
    known_answers, whole = not questions.uses_own_prediction, questions.excerpt(example, (0, min(length, MOST_STEPS)))
    return [Excerpt(example, *whole, known_answers, _cut("the text", length))]


def read(task: Task[Any, Any, Any], path: str, progress: Progress) -> list[Excerpt]:
    """The examples of a file, with its labels if it has any.

    Raises:
        UserError: it cannot be read, or is empty
    """
    try:
        examples = task.read(path, progress=progress)
    except DataError:
        examples = task.read(path, labelled=False, progress=progress)
    if not len(examples):
        raise DataError(path, None, "expected something to show, got an empty file")
    questions = questions_of(task)
    excerpts: list[Excerpt] = []
    left = MOST_STEPS
    for example in examples[:MOST_STEPS]:
        length = len(questions.steps(example))
        if excerpts and length > left:
            shown = f"{len(excerpts):,} of {len(examples):,}"
            excerpts[0] = excerpts[0]._replace(note=f"{path}: the first {shown} examples are shown; {_LIMIT}")
            break
        excerpts.append(Excerpt(example, *questions.excerpt(example, (0, min(length, left))), note=_cut(path, length)))
        left -= excerpts[-1].stop - excerpts[-1].start
    return excerpts


def own(task: Task[Any, Any, Any], progress: Progress, metrics: Mapping[str, Any] | None = None) -> list[Excerpt]:
    """Examples of the run's own data, see `chosen`. The Python code that an interactive page shows calls it.

    Raises:
        UserError: the data no longer exists
    """
    return chosen(task, task.read_split(progress), metrics)


def chosen(task: Task[Any, Any, Any], split: Split[Any], metrics: Mapping[str, Any] | None = None) -> list[Excerpt]:
    """Examples of the run's dev data, or of its test or training data if it has none.

    If the examples are long, it is one excerpt on which the accuracy of the run is closest to its average.

    Raises:
        UserError: there is no example
    """
    questions = questions_of(task)
    examples = split.dev or split.test or split.train
    excerpts: list[Excerpt] = []
    left = _OWN_STEPS
    if len(examples) and len(questions.steps(examples[0])) > _OWN_STEPS:
        some = [examples[place] for place in range(min(len(examples), _LONG_EXAMPLES))]
        return [_average(questions, some, metrics or {})]
    for example in (examples[place] for place in range(len(examples))):
        length = len(questions.steps(example))
        if excerpts and (length > left or len(excerpts) == _OWN_EXAMPLES):
            break
        excerpts.append(Excerpt(example, *questions.excerpt(example, (0, min(length, _OWN_STEPS)))))
        left -= length
    if not excerpts:
        raise OptionError("the run's data holds no example; give a text, or a file with --file")
    return excerpts


class _Candidate(NamedTuple):
    """An excerpt that a page may show.

    Attributes:
        right: the number of right answers minus the average number
        variety: the entropy of its right answers
    """

    excerpt: Excerpt
    right: float
    variety: float


def _average(questions: Questions[Any], examples: Sequence[Any], metrics: Mapping[str, Any]) -> Excerpt:
    """The excerpt of long examples with an average number of right answers and the greatest variety of targets.

    Its answers may depend on the steps around it, so the network runs again on each of the best candidates alone.
    """
    scores = [(metrics.get(data) or {}).get("accuracy") for data in ("dev", "test")]
    score = next((each for each in scores if each is not None), None)
    every = [_answers(questions, each, 0, min(len(questions.steps(each)), MOST_STEPS)) for each in examples]
    known = [float(each.right) for answers in every for each in answers if each.right is not None]
    average = float(np.mean(known or [0.0])) if score is None else score
    candidates = [
        _candidate(
            Excerpt(example, start, stop), [each for each in answers if start <= (each.step or 0) < stop], average
        )
        for example, answers in zip(examples, every, strict=True)
        for start, stop in _stretches(questions, example)
    ]
    candidates.sort(key=lambda each: (abs(each.right), -each.variety))
    alone = []
    for excerpt, *_ in candidates[:_RUN_AGAIN]:
        shown = Excerpt(excerpt.example, *questions.excerpt(excerpt.example, (excerpt.start, excerpt.stop)))
        alone.append(_candidate(shown, _answers(questions, *shown[:3]), average))
    # Half an answer less than the average is as good as the average.
    return min(alone, key=lambda each: (each.right < -0.5, abs(each.right), -each.variety)).excerpt


def _candidate(excerpt: Excerpt, answers: Sequence[PassageAnswer], average: float) -> _Candidate:
    known = [each for each in answers if each.right is not None]
    counts = np.unique([each.target[0] for each in known if each.target], return_counts=True)[1]
    parts = counts / max(1, counts.sum())
    right = sum(bool(each.right) for each in known) - average * len(known)
    return _Candidate(excerpt, right, round(float(-(parts * np.log(parts)).sum()), 6))


def _answers(questions: Questions[Any], example: Any, start: int, stop: int) -> list[PassageAnswer]:
    """The answers for an excerpt. Their steps are counted from the start of the example."""
    answers = [PassageAnswer(*answer) for answer in questions.answers_to(example, start, stop).answers]
    return [each if each.step is None else each._replace(step=each.step + start) for each in answers]


def _stretches(questions: Questions[Any], example: Any) -> list[tuple[int, int]]:
    """Excerpts of a long example that begin and end with a line, or anywhere if it has no lines."""
    steps = questions.steps(example)[:MOST_STEPS]
    if len(steps) <= _OWN_STEPS:
        return [(0, len(steps))]
    starts = [0, *(place + 1 for place, step in enumerate(steps) if step == "\n")]
    last = len(steps) - _OWN_STEPS
    if len(starts) == 1:
        starts = list(range(0, len(steps), _OWN_STEPS))
    return [
        (start, max((end for end in starts if start < end <= start + _OWN_STEPS), default=start + _OWN_STEPS))
        for start in starts
        if start <= last
    ]


def _cut(name: str, length: int) -> str:
    """A sentence about an input that is too long; empty if it is not."""
    return f"{name}: the first {MOST_STEPS:,} of {length:,} steps are shown; {_LIMIT}" if length > MOST_STEPS else ""


def study(
    task: Task[Any, Any, Any],
    excerpts: Sequence[Excerpt],
    title: str,
    run: Path | None = None,
    tick: Callable[[str], None] = lambda _: None,
) -> Study:
    """Run a network on excerpts, and compute the numbers of the report.

    Args:
        task: the trained task
        excerpts: the steps that its network reads
        title: the title of the page
        run: the folder of the run; None leaves out the section on training
        tick: called with the name of each stage of the work
    """
    questions, network = questions_of(task), task.network.eval()
    encoded = [task.encode(each.example) for each in excerpts]
    pieces = [Piece(number, each.start, each.stop) for number, each in enumerate(excerpts)]
    together = questions.batch(encoded, pieces)

    def batch_of(number: int, copies: int) -> Batch:
        return questions.batch(encoded, [pieces[number]] * copies)

    def evidence(network: nn.Module, number: int, copies: int) -> Tensor:
        return questions.answered(batch_of(number, copies), network).evidence

    def recorded(network: nn.Module, brief: bool = False) -> tuple[Recorded, list[Direction]]:
        with torch.no_grad(), gg.record(network, first=True) as tape:
            questions.run(network, together)
        return tape, directions(tape, LAYER, brief=brief)

    def control(number: int, with_dynamics: bool = False) -> list[Direction]:
        tape, found = recorded(_untrained(task, task.options.seed + number), brief=True)
        if with_dynamics:
            add_dynamics(found, tape)
        return found

    tick("recording gates and states")
    with torch.no_grad():
        answered = [questions.answered(batch_of(number, 1)) for number in range(len(excerpts))]
    passages = [_passage(questions, *each) for each in zip(excerpts, answered, strict=True)]
    tape, parts = recorded(network)
    made = Study(title, "", passages, parts, evidence=answered[-1].evidence_name)
    tick("reading with fresh weights")
    untrained = _untrained(task, task.options.seed)
    no_dynamics = add_dynamics(parts, tape)
    made.control = control
    made.controls = [control(number, not no_dynamics) for number in range(CONTROLS)]
    made.subtitle = described(made, task.name)
    made.notes = [note for note in (*(each.note for each in excerpts), no_dynamics) if note]
    layer = getattr(network, LAYER)
    made.diagrams = diagrams(layer)
    made.cost = cost(layer, network, [len(each.steps) for each in passages])
    tick("following gradients back from each answer")
    differentiate(made, network, untrained, evidence, LAYER)
    attended = (questions.attention(excerpt.example) for excerpt in excerpts)
    made.connections = [
        each if weights is None else each._replace(attention=weights[each.targets, excerpt.start : excerpt.stop])
        for each, weights, excerpt in zip(made.connections, attended, excerpts, strict=True)
    ]
    tick("dividing each answer among the steps")
    relevances(questions, batch_of, made)
    tick("holding each part at its mean")
    causes(questions, batch_of, made)
    if hasattr(network, "decoder"):
        # The names of the parts begin with "decoder" or "encoder".
        for direction in (*made.directions, *chain(*made.controls)):
            direction.label = f"{LAYER}.{direction.label}"
    tick("reading the training's log")
    made.monitor = task.monitor
    if run is not None:
        made.training = read_rows(run)
        made.metrics = Run.open(run).metrics()
        made.cost += _cost_of_training(made.metrics)
    return made


def _passage(questions: Questions[Any], excerpt: Excerpt, answered: BatchAnswers) -> Passage:
    answers = [PassageAnswer(*answer) for answer in answered.answers]
    if not excerpt.reference:
        answers = [each._replace(target=None, agreement=None) for each in answers]
    shown = questions.shown(excerpt.example, excerpt.start, excerpt.stop)
    steps = [visible(step) if step != "\n" else "\n" for step in shown.steps]
    title = _source(excerpt, len(steps))
    return Passage(steps, answers, shown.series, title, shown.rows_per_step, shown.names, shown.times)


def _source(excerpt: Excerpt, length: int) -> str:
    """The file and line of an example, for the page."""
    example = excerpt.example
    name = Path(str(getattr(example, "file", None) or getattr(example, "source", "") or "")).name
    line = getattr(example, "line", None)
    if callable(line):
        line = line(excerpt.start) if not isinstance(getattr(example, "lines", 1), int) else line()
    if name.startswith("given "):
        name = ""  # a text of the user's own
    if excerpt.start or length < excerpt.stop:
        return f"{name}, from step {excerpt.start + 1:,}".removeprefix(", ")
    return f"{name}:{line}" if name and isinstance(line, int) and line > 1 else name


def _cost_of_training(metrics: dict[str, Any]) -> list[tuple[str, str]]:
    if not metrics.get("units_per_second"):
        return []
    speed, threads = metrics["units_per_second"], count(metrics["threads"], "thread", "threads")
    return [
        ("training", f"{speed:,} steps per second, {1000 / speed:.3g} ms per step, on {threads}"),
        ("padding in training", f"{metrics['padding']:.1%} of the batches' steps"),
    ]


def _untrained(task: Task[Any, Any, Any], seed: int) -> nn.Module:
    """The network with fresh weights; with the run's seed those before training, pretrained vectors excepted."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        network = task.build()
    return network.to(next(task.network.parameters()).device).eval()
