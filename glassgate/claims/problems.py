"""Generates the long-lag problems of Hochreiter and Schmidhuber (1997) and the copy memory problem.

The lag is the number of steps between an input and the output that depends on it.

Sources: Hochreiter and Schmidhuber, Long Short-Term Memory, Neural Computation 9(8), 1997, section 5. Copy memory:
Arjovsky et al., 2016, arXiv:1511.06464.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

MAX_ERROR = 0.04
"""A number is correct if its error is below this (experiments 4 and 5)."""
MAX_CLASS_ERROR = 0.3
"""A class is correct if every output differs from its target, 0 or 1, by less than this (experiment 6)."""


class Batch(NamedTuple):
    """A batch of sequences and their correct answers."""

    inputs: Tensor
    """(L, N, features)"""
    lengths: Tensor
    """(N,)"""
    targets: Tensor
    """(N,): a number or class per sequence. Or (L, N): the class of each step, -100 for steps without a target."""
    legal: Tensor | None = None
    """(L, N, outputs) bool: the symbols that the grammar allows at the next step; only in the Reber problem."""


class Problem(NamedTuple):
    """A problem: generated sequences, their correct answers, and the loss.

    Attributes:
        title: the title on pages.
        experiment: the number of the experiment in the paper of 1997; "-" if there is none.
        features: the number of input features.
        outputs: the number of outputs.
        make: a function of (lag, N, generator) that returns N sequences.
        has_free_lag: whether the lag can be chosen.
        reported: the place in the paper and, by lag, the number of sequences until the problem is solved there.
        every_step: whether there are targets at several steps. Otherwise there is one at the end.
        misses: the problem counts as solved if at most this many of the last 2,000 answers are wrong.
    """

    title: str
    experiment: str
    features: int
    outputs: int
    make: Callable[[int, int, Generator], Batch]
    has_free_lag: bool = True
    reported: tuple[str, dict[int, int]] = ("", {})
    every_step: bool = False
    misses: int = 0

    def loss(self, answers: Tensor, batch: Batch) -> Tensor:
        """Compute the mean squared error of numbers, or the cross entropy of classes in nats."""
        if self.outputs == 1:
            return F.mse_loss(answers[..., 0], batch.targets)
        return F.cross_entropy(answers.flatten(0, -2), batch.targets.flatten())

    def is_correct(self, answers: Tensor, batch: Batch) -> Tensor:
        """Whether the answer to each sequence is correct, (N,) bool."""
        if self.outputs == 1:
            return (answers[..., 0] - batch.targets).abs() < MAX_ERROR
        if batch.legal is not None:
            worst_legal = answers.masked_fill(~batch.legal, torch.inf).amin(-1)
            best_illegal = answers.masked_fill(batch.legal, -torch.inf).amax(-1)
            return ((worst_legal > best_illegal) | (batch.targets < 0)).all(0)
        if self.every_step:
            return ((answers.argmax(-1) == batch.targets) | (batch.targets < 0)).all(0)
        expected = F.one_hot(batch.targets, self.outputs)
        return ((answers.softmax(-1) - expected).abs() < MAX_CLASS_ERROR).all(-1)


def _lengths(lag: int, N: int, generator: Generator) -> Tensor:
    """Random lengths from the lag to 1.1 times the lag."""
    return torch.randint(lag, lag + max(1, lag // 10) + 1, (N,), generator=generator)


def _random_integers(low: Tensor | int, high: Tensor | int, N: int, generator: Generator) -> Tensor:
    """N random integers from `low`, included, to `high`, excluded."""
    low, high = torch.as_tensor(low), torch.as_tensor(high)
    return (low + torch.rand(N, generator=generator) * (high - low)).long()


def _two_marked(lag: int, N: int, generator: Generator, low: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Generate sequences with a number and a marker per step: 1 at two random steps, else -1 at both ends, else 0.

    Returns:
        the inputs (L, N, 2), the lengths (N,), and the first and the second marked number, (N,) each
    """
    lengths, rows = _lengths(lag, N, generator), torch.arange(N)
    L = int(lengths.max())
    values = low + (1 - low) * torch.rand(L, N, generator=generator)
    markers = torch.zeros(L, N)
    first = _random_integers(0, min(10, lag // 2), N, generator)
    second = _random_integers(0, max(lag // 2 - 1, 2), N, generator)
    second = torch.where(second == first, (second + 1) % max(lag // 2 - 1, 2), second)
    markers[0] = markers[lengths - 1, rows] = -1
    a, b = values[first, rows].clone(), values[second, rows].clone()
    for step in (first, second):
        markers[step, rows] = 1
    return torch.stack([values, markers], -1), lengths, a, b


def _adding(lag: int, N: int, generator: Generator) -> Batch:
    inputs, lengths, a, b = _two_marked(lag, N, generator, -1.0)
    return Batch(inputs, lengths, 0.5 + (a + b) / 4)


def _multiplication(lag: int, N: int, generator: Generator) -> Batch:
    inputs, lengths, a, b = _two_marked(lag, N, generator, 0.0)
    return Batch(inputs, lengths, a * b)


def _temporal_order(windows: tuple[tuple[float, float], ...]) -> Callable[[int, int, Generator], Batch]:
    """Return a function that generates distractors with one X or Y per window. The order of X and Y is the class.

    Args:
        windows: the start and the end of each window, as fractions of the lag.
    """
    distractors, begin, end, X = 4, 4, 5, 6

    def make(lag: int, N: int, generator: Generator) -> Batch:
        lengths, rows = _lengths(lag, N, generator), torch.arange(N)
        symbols = torch.randint(0, distractors, (int(lengths.max()), N), generator=generator)
        symbols[0], symbols[lengths - 1, rows] = begin, end
        classes = torch.zeros(N, dtype=torch.int64)
        for low, high in windows:
            step = _random_integers(max(1, int(low * lag)), max(2, int(high * lag) + 1), N, generator)
            is_y = torch.randint(0, 2, (N,), generator=generator)
            symbols[step, rows] = X + is_y
            classes = 2 * classes + is_y
        return Batch(F.one_hot(symbols, 8).float(), lengths, classes)

    return make


_DISTRACTORS = 50
"""The number of distractor symbols in the problem without noise."""


def _noise_free(lag: int, N: int, generator: Generator) -> Batch:
    """Generate a begin symbol, x or y, random distractors, and an end symbol. The class is x or y.

    The length is random, with a mean of about lag + 12.
    """
    begin, end, X = _DISTRACTORS, _DISTRACTORS + 1, _DISTRACTORS + 2
    extra = torch.empty(N).geometric_(0.1, generator=generator).clamp(max=lag)
    lengths, rows = (lag + 2 + extra).long(), torch.arange(N)
    symbols = torch.randint(0, _DISTRACTORS, (int(lengths.max()), N), generator=generator)
    classes = torch.randint(0, 2, (N,), generator=generator)
    symbols[0], symbols[1], symbols[lengths - 1, rows] = begin, X + classes, end
    return Batch(F.one_hot(symbols, _DISTRACTORS + 4).float(), lengths, classes)


def _noisy(lag: int, N: int, generator: Generator) -> Batch:
    """Generate noise of variance 0.2, plus 1 in class 0 or minus 1 in class 1 at the first three steps."""
    lengths = _lengths(lag, N, generator)
    classes = torch.randint(0, 2, (N,), generator=generator)
    inputs = 0.2**0.5 * torch.randn(int(lengths.max()), N, 1, generator=generator)
    inputs[:3, :, 0] += 1.0 - 2.0 * classes
    return Batch(inputs, lengths, classes)


_REBER = {0: "T1 P2", 1: "S1 X3", 2: "T2 V4", 3: "X2 S5", 4: "P3 V5"}
"""The two transitions of each state of the grammar, as pairs of a symbol and the next state. State 5 is the end."""
_SYMBOLS = "BTPSXVE"


def _reber_string(flip_coin: Callable[[], bool]) -> tuple[list[int], list[set[int]]]:
    """Generate an embedded Reber string. Returns its symbols, and the set of symbols that may follow each symbol.

    Args:
        flip_coin: returns a random bool.
    """
    text, legal, state = "B", ["B"], 0
    while state < 5:
        transitions = _REBER[state].split()
        legal.append("".join(transition[0] for transition in transitions))
        transition = transitions[flip_coin()]
        text, state = text + transition[0], int(transition[1])
    outer = "TP"[flip_coin()]
    text, legal = f"B{outer}{text}E{outer}E", ["TP", *legal, "E", outer, "E"]
    return [_SYMBOLS.index(s) for s in text], [{_SYMBOLS.index(s) for s in symbols} for symbols in legal]


def _reber(lag: int, N: int, generator: Generator) -> Batch:
    strings = [_reber_string(lambda: bool(torch.randint(0, 2, (), generator=generator))) for _ in range(N)]
    lengths = torch.tensor([len(symbols) - 1 for symbols, _ in strings])
    inputs = torch.zeros(int(lengths.max()), N, len(_SYMBOLS))
    legal = torch.zeros(inputs.shape, dtype=torch.bool)
    targets = torch.full(inputs.shape[:2], -100)
    for n, (symbols, next_symbols) in enumerate(strings):
        steps = range(len(symbols) - 1)
        inputs[steps, n, symbols[:-1]] = 1.0
        targets[: len(steps), n] = torch.tensor(symbols[1:])
        for step in steps:
            legal[step, n, list(next_symbols[step])] = True
    return Batch(inputs, lengths, targets, legal)


_COPIED, _COPY_SYMBOLS = 10, 8
"""The number of symbols to copy in a sequence, and the number of different symbols."""


def _copy(lag: int, N: int, generator: Generator) -> Batch:
    """Generate ten symbols, `lag` steps (blanks, then a signal), and ten blanks, whose targets are the ten symbols."""
    blank, signal, L = _COPY_SYMBOLS, _COPY_SYMBOLS + 1, lag + 2 * _COPIED
    symbols = torch.full((L, N), blank)
    symbols[:_COPIED] = torch.randint(0, _COPY_SYMBOLS, (_COPIED, N), generator=generator)
    symbols[_COPIED + lag - 1] = signal
    targets = torch.full((L, N), -100)
    targets[-_COPIED:] = symbols[:_COPIED]
    return Batch(F.one_hot(symbols, _COPY_SYMBOLS + 2).float(), torch.full((N,), L), targets)


PROBLEMS = {
    "reber": Problem(
        "Embedded Reber grammar",
        "1",
        len(_SYMBOLS),
        len(_SYMBOLS),
        _reber,
        has_free_lag=False,
        every_step=True,
    ),
    "noise-free": Problem("Long lag without noise", "2c", _DISTRACTORS + 4, 2, _noise_free),
    "noisy": Problem("Long lag in noise", "3", 1, 2, _noisy),
    "adding": Problem("Adding", "4", 2, 1, _adding, reported=("table 7", {100: 74_000, 500: 209_000, 1000: 853_000})),
    "multiplication": Problem(
        "Multiplication", "5", 2, 1, _multiplication, reported=("experiment 5", {100: 482_000}), misses=12
    ),
    "order": Problem(
        "Temporal order, two symbols",
        "6a",
        8,
        4,
        _temporal_order(((0.1, 0.2), (0.5, 0.6))),
        reported=("table 9", {100: 31_390}),
    ),
    "order-3": Problem(
        "Temporal order, three symbols",
        "6b",
        8,
        8,
        _temporal_order(((0.1, 0.2), (0.33, 0.43), (0.66, 0.76))),
        reported=("table 9", {100: 571_100}),
    ),
    "copy": Problem("Copy memory", "-", _COPY_SYMBOLS + 2, _COPY_SYMBOLS, _copy, every_step=True),
}
"""The problems, by their names on the command line."""
