"""The content of a report: recorded values, measures and gradients of a model on some sequences (passages)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from glassgate.glass.diagrams.values import recorded_wire_values
from glassgate.glass.dynamics import Dynamics
from glassgate.glass.measures import Memory, Saturation, half_life_of, memory_of, ranges, saturation_of
from glassgate.glass.places import Places
from glassgate.glass.recorded import Recorded
from glassgate.glass.retention import retentions

_LONGEST_LAG = 200


class Choice(NamedTuple):
    """A possible answer with its probability, or a number, whose probability is None."""

    name: str
    probability: float | None

    @property
    def text(self) -> str:
        """The name as a page shows it: a number has a minus sign instead of a hyphen.

        Example:
            >>> Choice("-5.1", None).text, Choice("-", 0.5).text
            ('−5.1', '-')
        """
        return self.name if self.probability is not None else self.name.replace("-", "\N{MINUS SIGN}")


class Answer(NamedTuple):
    """One answer of a model.

    Attributes:
        step: the step of the answer, from 0; None for an answer about the whole sequence
        best: the most likely choices in descending order; the first is the prediction
        target: the correct answer; None without a reference
        agreement: for sets, such as chords, the F1 score of the prediction against the target; None for single choices
    """

    step: int | None
    best: Sequence[Choice]
    target: Choice | None
    agreement: float | None = None

    @property
    def is_correct(self) -> bool | None:
        """Whether the prediction is the target; None without a reference, and for numbers."""
        return None if self.target is None or self.best[0][1] is None else self.best[0][0] == self.target[0]

    @property
    def is_wrong(self) -> bool:
        """Whether the page marks the answer as wrong. A set is wrong if its agreement is less than one half."""
        return self.is_correct is False and (self.agreement is None or self.agreement < 0.5)


class ForecastValue(NamedTuple):
    """A forecast of one number, and its position on the plot of a series.

    Attributes:
        position: the position in steps of the passage
        value: the forecast
        target: the true value; None if it is unknown
    """

    position: float
    value: float
    target: float | None


@dataclass
class Passage:
    """One sequence: the text or numbers that its steps read, and the model's answers.

    Attributes:
        steps: each step as text
        series: the numbers of a series, (L * rows_per_step, C)
        rows_per_step: the number of rows of the series per step
        names: the names of the C channels; the first channel is forecast
        times: the time stamp of each row of the series and of each forecast; empty if there are none
    """

    steps: Sequence[str]
    answers: Sequence[Answer] = ()
    series: np.ndarray | None = None
    title: str = ""
    rows_per_step: int = 1
    names: Sequence[str] = ()
    times: Sequence[str] = ()

    @property
    def forecasts(self) -> list[ForecastValue]:
        """The answers that are numbers. Each is drawn in the middle of the step or row that it predicts."""
        values = []
        for number, answer in enumerate(self.answers):
            (name, chance), target = answer.best[0], answer.target
            if self.series is not None and chance is None:
                at = len(self.steps) + (number + 0.5) / self.rows_per_step if answer.step is None else answer.step + 1.5
                values.append(ForecastValue(at, float(name), None if target is None else float(target[0])))
        return values


AnswerValues = Callable[[nn.Module, int, int], Tensor]
"""A function that runs a model on copies of a passage and returns the values to differentiate.

It takes the model, the index of the passage and the number of copies, and returns one value per answer, (copies, A)."""


@dataclass
class Flow:
    """The norm of the gradient of the answers with respect to a state, by lag.

    The lag is the number of steps from the state to the step that the answer reads.

    Attributes:
        lags: the K lags
        norms: the norms of every answer, (A, K); NaN beyond the end of the sequence
        initial_norms: the norms with the weights before training, (A, K); None without these weights
        direct_path: (K,), the median of the norms along the direct path, which leads from each state to its next value
            without the recurrent weights; None without a direct path
        one_step: whether every answer reads states of one step only. Otherwise, lags count from the last step that an
            answer reads
    """

    lags: list[int]
    norms: np.ndarray
    initial_norms: np.ndarray | None = None
    direct_path: np.ndarray | None = None
    one_step: bool = True

    @cached_property
    def quantiles(self) -> np.ndarray:
        """Median, 10th and 90th percentile of the norms over answers, (3, K)."""
        return np.nanquantile(self.norms, (0.5, 0.1, 0.9), axis=0)

    @cached_property
    def initial_median(self) -> np.ndarray | None:
        """Median of the norms before training, (K,); None without these norms."""
        return None if self.initial_norms is None else np.asarray(np.nanmedian(self.initial_norms, axis=0))


@dataclass
class Direction:
    """One direction of one layer.

    Attributes:
        label: for example "layer0.forward"
        reverse: whether the direction reads from the last step to the first
        cell: an instance of the cell
        states: the names of the states, the output first
        kinds: the range of each gate: "gate", "signed" or "unbounded"; see `measures.ranges`
        sizes: the number of inputs, of units and of outputs
        values: (S, H) by gate and state, over the steps of all passages
        saturation, half_life, memory, flow: the measures of each gate or state, by name
        retained: by state, the fraction that a step keeps, (S, H), and whether it counts the direct path only
        wires: the values on the other wires of the cell's diagram, by the diagram's names: (S, H), or (S, 1) for one
            number per row, such as the norm of the input
        dynamics: the fixed points and Lyapunov exponents; None if they were not computed
    """

    label: str
    reverse: bool
    cell: Any
    states: tuple[str, ...]
    kinds: dict[str, str]
    sizes: tuple[int, int, int]
    values: dict[str, np.ndarray]
    saturation: dict[str, Saturation]
    half_life: dict[str, np.ndarray]
    memory: dict[str, Memory]
    retained: dict[str, tuple[np.ndarray, bool]]
    wires: dict[str, np.ndarray] = field(default_factory=dict)
    flow: dict[str, Flow] = field(default_factory=dict)
    dynamics: Dynamics | None = None

    @property
    def keeping_gates(self) -> dict[str, bool]:
        """The gates that equal the fraction of a state that a step keeps (True), or 1 minus this fraction (False)."""
        gates = {}
        for retained, direct in self.retained.values():
            for name, kind in self.kinds.items():
                values = self.values[name] if direct and kind == "gate" and name in self.saturation else None
                if values is not None and values.shape == retained.shape:  # a gate may have other axes than a state
                    for keeps, fraction in ((True, retained), (False, 1 - retained)):
                        if np.allclose(values, fraction, atol=1e-4):
                            gates[name] = keeps
        return gates


class Connections(NamedTuple):
    """The contribution of each step to the answers of one passage.

    Attributes:
        targets: the indices of the A answers that were differentiated
        matrix: gradient times input, (A, L)
        attention: the attention weights of these answers, (A, L); None for a network without attention
    """

    targets: list[int]
    matrix: np.ndarray
    attention: np.ndarray | None = None


class Relevances(NamedTuple):
    """The relevance of each step to the answers of one passage, by layer-wise relevance propagation.

    The relevance of all steps and biases adds up to the score, except for the relevance of inputs that do not pass
    through the shown layer, such as the previous tokens of a decoder.

    Attributes:
        targets: the indices of the A answers
        matrix: the relevance of each step, (A, L)
        biases: the relevance of all biases and learned initial states, (A,)
        scores: the values that are divided among steps and biases, (A,)
        name: the name of the score, with {first} and {second} for the two most likely choices
    """

    targets: list[int]
    matrix: np.ndarray
    biases: np.ndarray
    scores: np.ndarray
    name: str

    @property
    def rest(self) -> np.ndarray:
        """The scores minus the relevance of steps and biases, (A,)."""
        return np.asarray(self.scores - self.matrix.sum(1) - self.biases)


class Cause(NamedTuple):
    """The increase of the loss when a part of the network, such as a gate or a unit, is held at its mean.

    Attributes:
        name: the name of the part
        loss: the increase, a mean over the answers in the unit of the study
        points: the percentage of answers that become wrong; None if answers are numbers
        low, high: the interval of `loss` over passages
        control: the increase with shuffled targets
    """

    name: str
    loss: float
    points: float | None
    low: float = 0.0
    high: float = 0.0
    control: float = 0.0


class WindowCause(NamedTuple):
    """The increase of the loss when all states are held at their means in a window of steps of one passage.

    Attributes:
        start, stop: the first step of the window, and the first step after it
        low, high: the interval of `loss` over the answers of the passage
        control: the increase with shuffled targets
    """

    passage: int
    start: int
    stop: int
    loss: float
    points: float | None
    low: float = 0.0
    high: float = 0.0
    control: float = 0.0


@dataclass
class Study:
    """All numbers of a report.

    Attributes:
        differentiated: the value that is differentiated, in words, such as "the loss"
        training, monitor: the log of the training, and the name of the score that is plotted next to the loss
        metrics: the scores of the run, as in metrics.json
        cost: the names and values of the costs of the model, in words
        controls: the directions of untrained networks that read the same passages
        make_control: takes a seed and returns the directions of another such network
        shuffled_loss: the mean loss of the answers with shuffled targets, in `unit`; None without targets
        places: steps of the run's data, which readers of the page can search
        unit, points: the units of `loss` and `points` in causes and windows, in words
        thresholds: the value that each effect must exceed; computed once by `findings`
        nulls: the effects that each rule of `effects` measures in untrained networks, by rule
        diagrams: the caption and the SVG of each diagram
        notes: sentences that the page shows, such as the reason why a section is left out
        compared: the studies on the same page, whose plots have the same scales; empty for one study
    """

    title: str
    subtitle: str
    passages: list[Passage]
    directions: list[Direction]
    places: Places | None = None
    connections: list[Connections] = field(default_factory=list)
    relevances: list[Relevances] = field(default_factory=list)
    differentiated: str = ""
    training: list[dict[str, float]] = field(default_factory=list)
    monitor: str = ""
    metrics: dict[str, Any] = field(default_factory=dict)
    cost: list[tuple[str, str]] = field(default_factory=list)
    causes: list[Cause] = field(default_factory=list)
    windows: list[WindowCause] = field(default_factory=list)
    unit: str = ""
    points: str = ""
    shuffled_loss: float | None = None
    controls: list[list[Direction]] = field(default_factory=list)
    make_control: Callable[[int], list[Direction]] | None = None
    thresholds: dict[str, float] = field(default_factory=dict)
    nulls: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    diagrams: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    compared: Sequence["Study"] = ()

    @property
    def on_page(self) -> Sequence["Study"]:
        """The studies on the same page, this one included."""
        return self.compared or [self]

    @property
    def starts(self) -> list[int]:
        """The index of the first step of each passage among all steps, and the number of all steps."""
        return np.concatenate([[0], np.cumsum([len(each.steps) for each in self.passages])]).astype(int).tolist()


def directions(tape: Recorded, layer: str = "", brief: bool = False) -> list[Direction]:
    """The directions of a recorded layer. The values of all rows of the batch are concatenated.

    Args:
        layer: the name of the layer in the recorded module; all layers if empty
        brief: whether to omit the memory and the wires, for a network that is only compared with another
    """
    result = []
    for label, call, index in tape.directions():
        if layer and not label.startswith(f"{layer}."):
            continue
        part, cell = call.layer.glassgate.parts[index], call.layer.cell
        unpadded = tape.unpadded(label)
        short = label.removeprefix(f"{layer}.") if layer else label

        def concatenate(value: Tensor, unpadded: Tensor = unpadded) -> np.ndarray:
            rows = torch.cat([value[unpadded[:, n], n] for n in range(unpadded.shape[1])])
            return np.asarray(rows.reshape(len(rows), -1).detach().float().cpu())

        retained = retentions(call, index)
        direction = Direction(
            label=short,
            reverse=part.direction == 1,
            cell=cell,
            states=cell.state,
            kinds=ranges(cell),
            sizes=(part.shapes["weight_ih"][1], part.hidden_size, part.widths[cell.state[0]]),
            values={
                name.removeprefix(f"{label}."): concatenate(tape[name]) for name in tape if name.startswith(f"{label}.")
            },
            saturation=saturation_of(tape, label, call),
            half_life={name: np.asarray(half_life_of(each.by_step[unpadded])) for name, each in retained.items()},
            memory={},
            retained={name: (concatenate(each.by_step), each.direct) for name, each in retained.items()},
        )
        if not brief:
            for name, each in retained.items():
                direction.memory[name] = memory_of(each.by_step, unpadded, direction.reverse, _LONGEST_LAG)
            wire_values = recorded_wire_values(call, index)
            direction.wires = {name: concatenate(each) for name, each in wire_values.items()}
        result.append(direction)
    return result
