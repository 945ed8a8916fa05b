"""Greedy and beam search: the decoder step by step on streams, many sentences and many beams at a time."""

from dataclasses import dataclass
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

# A stream of whose rows no more than this fraction is in use is replaced by a smaller one.
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
        """Return the divisor of the log probability of a translation; its length in units includes the end."""
        return float(((5 + length) / 6) ** self.length_penalty)

    def log_probability(self, found: Found) -> float:
        """Return the logarithm of the probability of a translation, its end included."""
        return found.score * self.penalty(len(found.units) + 1)


@torch.inference_mode()
def search(decoder: Decoder, memory: Memory, state: State, limits: list[int], how: Search) -> list[list[Found]]:
    """Translate a batch of sentences.

    A sentence has `beam` places. At each step the best continuations of its beams are considered, one per free place.
    Those that end are translations, and keep their places; the best of the others fill the remaining places and
    continue (Sutskever, Vinyals & Le 2014, arXiv:1409.3215, section 3.2). All end at the sentence's limit.

    Args:
        decoder: in eval mode
        memory, state: the encoder's results for N sentences
        limits: units of the longest translation of each, its end counted
        how: the size of the beam and the length penalty

    Returns:
        for each sentence its translations, the best first: at least one, at most `beam`
    """
    device, steps = memory.values.device, _Steps(decoder, memory, state)
    found: list[list[Found]] = [[] for _ in limits]
    # Of the sentences that go on: which they are, where they must end, for how many translations there is room.
    numbers, ends = torch.arange(len(limits)), torch.tensor(limits)
    room = torch.full((len(limits),), how.beam)
    before = torch.full((len(limits), 1), PADDING, device=device)
    totals = torch.zeros(before.shape, device=device)  # log probabilities; of beams that are none, minus infinity
    history = before[..., None][..., :0]
    for length in range(1, max(limits) + 1):
        alive, last = totals.isfinite(), (ends == length).to(device)
        logs = steps(before, alive)
        logs[:, 0] = -torch.inf  # the unknown unit is never generated
        if last.any():
            must = (last[:, None] & alive)[alive]
            logs[must] = logs[must].where(torch.arange(logs.shape[1], device=device) == _SCORED_END, -torch.inf)
        best, beams, units = _best(totals, alive, logs, 2 * how.beam)
        place = torch.arange(best.shape[1])
        ended = ((units == END) & best.isfinite()).cpu() & (place < room[:, None])
        rows, places = ended.nonzero(as_tuple=True)
        written = history[rows, beams[rows, places]].tolist()
        scores = (best[rows, places] / how.penalty(length)).tolist()
        for number, its_units, score in zip(numbers[rows].tolist(), written, scores, strict=True):
            found[number].append(Found(tuple(its_units), score))
        room = room - ended.sum(1)
        going = ((room > 0) & (ends > length)).nonzero().squeeze(1)
        if not len(going):
            break
        numbers, ends, room = numbers[going], ends[going], room[going]
        # The best of those that do not end, in their order, as many as there is room for.
        order = (units[going] == END).to(torch.int8).sort(stable=True).indices[:, : int(room.max())]
        best = best.masked_fill(units == END, -torch.inf)
        totals, beams, before = (each[going].gather(1, order) for each in (best, beams, units))
        totals = totals.masked_fill((place[: order.shape[1]] >= room[:, None]).to(device), -torch.inf)
        history = torch.cat([history[going[:, None], beams], before[..., None]], -1)
        steps.go_on(going, beams, totals.isfinite())
    return [sorted(each, key=lambda one: -one.score) for each in found]


def _best(totals: Tensor, alive: Tensor, logs: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best continuations of each sentence, `(N, C)`: their log probabilities, their beams, and their units."""
    scores, units = logs.topk(min(most, logs.shape[1]))
    of_beams = totals.new_full((*alive.shape, scores.shape[1]), -torch.inf)
    units_of_beams = units.new_full(of_beams.shape, END)
    of_beams[alive], units_of_beams[alive] = scores + totals[alive][:, None], units + UNKNOWN
    best, places = of_beams.flatten(1).topk(min(most, of_beams[0].numel()))
    return best, places // scores.shape[1], units_of_beams.flatten(1).gather(1, places)


class _Steps:
    """The decoder one step at a time. Its rows are the beams that are alive, sentence by sentence, and no others."""

    def __init__(self, decoder: Decoder, memory: Memory, state: State):
        self.decoder, self.memory = decoder, memory
        self.alive = torch.ones(len(memory.values), 1, dtype=torch.bool)
        self.looks = state[0].new_zeros(len(memory.values), decoder.look_size)
        self.state = state
        self.stream: Any = None
        self.layer: Any = None

    def __call__(self, before: Tensor, alive: Tensor) -> Tensor:
        """From each beam's last unit, `(N, K)`, to the log probabilities of the next, `(R, units - 1)`, R alive."""
        decoder = self.decoder
        vectors = decoder.embedding(before[alive])
        output = self._advance(decoder.input(vectors, self.looks))
        queries = output.new_zeros(*before.shape, decoder.size)
        queries[alive] = output
        context, _ = decoder.attend(queries, self.memory)
        self.looks, self.alive = decoder.look(output, None if context is None else context[alive], vectors), alive
        return decoder.scores(self.looks).float().log_softmax(-1)

    def go_on(self, sentences: Tensor, beams: Tensor, alive: Tensor) -> None:
        """Let some sentences go on, `(N,)`: each beam that is alive where one of the last step left off, `(N, K)`."""
        rows = (self.alive.flatten().cumsum(0) - 1).unflatten(0, self.alive.shape)
        places = rows[sentences[:, None], beams][alive]
        if len(sentences) < len(self.memory.values):
            self.memory = self.memory.rows(sentences)
        self.looks = self.looks[places]
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
        """Keep only the rows at these places."""
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
        layer = self.decoder.layer
        if isinstance(layer, gg.Recurrent) and layer.is_observed:
            return  # streams ignore edits: an edited layer runs step by step
        if self.layer is None:  # packed once for all streams of the search
            on_cpu = isinstance(layer, gg.Recurrent) and places.device.type == "cpu"
            self.layer = gg.freeze(layer) if on_cpu else layer
        if hasattr(self.layer, "stream"):
            self.stream = self.layer.stream(len(places))
            for of_layer, first in zip(self.stream.states, zip(*self.state, strict=True), strict=True):
                for state, value in zip(of_layer, first, strict=True):
                    state.copy_(value)
