"""Greedy and beam search: the decoder step by step on streams, many sentences and many beams at a time."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

import glassgate as gg
from glassgate.tasks.data.vocabulary import FIRST, PADDING, UNKNOWN
from glassgate.tasks.errors import OptionError
from glassgate.tasks.translation.attention import Memory
from glassgate.tasks.translation.network import Decoder, State, given

END = FIRST
"""The first unit of every target vocabulary: it ends a sentence."""

_SCORED_END = END - UNKNOWN  # scores begin with the unknown unit

# A stream whose rows in use are no more than this share of it gives way to a smaller one.
_FULL = 0.75


class Found(NamedTuple):
    """One translation of a sentence.

    Attributes:
        units: their numbers, without the end
        score: the logarithm of its probability, divided by the length penalty
    """

    units: tuple[int, ...]
    score: float


@dataclass(frozen=True)
class Search:
    """How translations are looked for.

    Args:
        beam: how many unfinished translations of a sentence go on; 1 takes the likeliest unit at each step
        length_penalty: the power a of `((5 + length) / 6) ** a`, which a log probability is divided by (Wu et al. 2016,
            arXiv:1609.08144, equation 14); 0 favours short ones

    Raises:
        OptionError: a beam of none, a penalty below 0
    """

    beam: int = 5
    length_penalty: float = 1.0

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise OptionError(f"beam: expected 1 or more, got {self.beam}; 1 takes the likeliest unit at each step")
        if not self.length_penalty >= 0:
            raise OptionError(f"length_penalty: expected 0 or more, got {self.length_penalty}")

    def penalty(self, length: int) -> float:
        """What the log probability of a translation of so many units, its end counted, is divided by."""
        return float(((5 + length) / 6) ** self.length_penalty)


@dataclass
class _Sentence:
    """What was found for a sentence: all that ended, until there are as many as beams."""

    row: int
    limit: int
    found: list[Found] = field(default_factory=list)


@torch.inference_mode()
def search(decoder: Decoder, memory: Memory, state: State, limits: list[int], how: Search) -> list[list[Found]]:
    """Translate a batch of sentences.

    At each step the best `2 * beam` continuations of a sentence's beams are looked at. Those of the first `beam` that
    end are translations; the best `beam` of the others go on. A sentence is done when `beam` translations have ended,
    or at its limit, where all that go on must end.

    Args:
        decoder: in evaluation
        memory, state: what the encoder made of N sentences
        limits: units of the longest translation of each, its end counted
        how: the size of the beam and the length penalty

    Returns:
        for each sentence its translations, the best first: at least one, at most `beam`
    """
    sentences = [_Sentence(row, limit) for row, limit in enumerate(limits)]
    live, steps = sentences, _Steps(decoder, memory, state)
    before = torch.full((len(live), 1), PADDING, device=memory.values.device)
    totals = before.new_zeros(before.shape, dtype=torch.float32)
    history = before[..., None][..., :0]
    for length in range(1, max(limits) + 1):
        logs = steps(before).float().log_softmax(-1)
        logs[..., 0] = -torch.inf  # nobody asks for an unknown unit
        last = torch.tensor([each.limit == length for each in live])
        if last.any():
            ends = logs[last][..., _SCORED_END]
            logs[last] = -torch.inf
            logs[..., _SCORED_END][last] = ends
        best, beams, units = _best(totals[..., None] + logs, how.beam)
        ended = (units == END) & best.isfinite()
        ended[:, how.beam :] &= last[:, None]
        _keep(live, ended, best, beams, history, how, length)
        going = [k for k, each in enumerate(live) if len(each.found) < how.beam and each.limit > length]
        if not going:
            break
        live = [live[k] for k in going]
        rows = torch.tensor(going)
        # The best of those that do not end, in their order; where there are too few, an end that never goes on.
        best = best.masked_fill(units == END, -torch.inf)
        order = (units[rows] == END).to(torch.int8).sort(stable=True).indices[:, : how.beam]
        totals, beams, before = (each[rows].gather(1, order) for each in (best, beams, units))
        history = torch.cat([history[rows[:, None], beams], before[..., None]], -1)
        steps.go_on(rows, beams)
    return [sorted(each.found, key=lambda found: -found.score)[: how.beam] for each in sentences]


def _best(totals: Tensor, beam: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best continuations of each sentence, `(N, C)`: their log probabilities, their beams, and their units."""
    known = totals.shape[-1]
    best, places = totals.flatten(1).topk(min(2 * beam if beam > 1 else 2, totals[0].numel()))
    return best, places // known, places % known + UNKNOWN


def _keep(
    live: list[_Sentence], ended: Tensor, best: Tensor, beams: Tensor, history: Tensor, how: Search, length: int
) -> None:
    """Add the translations that end at this step."""
    rows, places = ended.nonzero(as_tuple=True)
    units = history[rows, beams[rows, places]].tolist()
    scores = (best[rows, places] / how.penalty(length)).tolist()
    for row, *found in zip(rows.tolist(), map(tuple, units), scores, strict=True):
        live[row].found.append(Found(*found))


class _Steps:
    """The decoder one step at a time, its rows those of a sentence's beams."""

    def __init__(self, decoder: Decoder, memory: Memory, state: State):
        self.decoder, self.memory = decoder, memory
        self.looks = state[0].new_zeros(len(memory.values), 1, decoder.size)
        self.state = state
        self.stream: Any = None

    def __call__(self, before: Tensor) -> Tensor:
        """From each beam's last unit, `(N, K)`, to the scores of the next, `(N, K, units - 1)`."""
        decoder = self.decoder
        inputs = decoder.input(decoder.embedding(before), self.looks).flatten(0, 1)
        output = self._advance(inputs).unflatten(0, before.shape)
        self.looks, _ = decoder.look(output, self.memory)
        return decoder.scores(self.looks)

    def go_on(self, rows: Tensor, beams: Tensor) -> None:
        """Let some sentences go on, `(R,)`, with some of their beams, `(R, K)`, and drop the others."""
        places = (rows[:, None] * self.looks.shape[1] + beams).flatten()
        if len(rows) < len(self.memory.values):
            self.memory = self.memory.rows(rows)
        self.looks = self.looks.flatten(0, 1)[places].unflatten(0, beams.shape)
        self._reorder(places)

    def _advance(self, inputs: Tensor) -> Tensor:
        """One step of the layers, from `(R, I)` to `(R, H)`."""
        if self.stream is None:
            output, state = self.decoder.layer(inputs[:, None], given(self.state))
            self.state = state if isinstance(state, tuple) else (state,)
            return output[:, 0]
        spare = self.stream.batch_size - len(inputs)
        return self.stream.step(pad(inputs, (0, 0, 0, spare)))[: len(inputs)]

    def _reorder(self, places: Tensor) -> None:
        """Let the rows at some places go on, and no other."""
        if self.stream is not None and _FULL * self.stream.batch_size < len(places) <= self.stream.batch_size:
            for of_layer in self.stream.states:
                for state in of_layer:
                    state[: len(places)] = state[places]
            return
        if self.stream is not None:
            states = zip(*self.stream.states, strict=True)
            self.state = tuple(torch.stack([state[places] for state in of_layers]) for of_layers in states)
        else:
            self.state = tuple(state[:, places] for state in self.state)
        if isinstance(self.decoder.layer, gg.Recurrent):
            self.stream = self.decoder.layer.stream(len(places))
            for of_layer, first in zip(self.stream.states, zip(*self.state, strict=True), strict=True):
                for state, value in zip(of_layer, first, strict=True):
                    state.copy_(value)
