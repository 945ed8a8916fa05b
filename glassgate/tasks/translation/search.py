"""Greedy and beam search for batches of sentences; the decoder runs step by step in streams."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

import glassgate as gg
from glassgate.tasks.data.batches import move
from glassgate.tasks.data.vocabulary import FIRST, PADDING, UNKNOWN
from glassgate.tasks.errors import OptionError
from glassgate.tasks.networks.states import States, as_hx, as_tuple
from glassgate.tasks.translation.attention import Memory
from glassgate.tasks.translation.network import Decoder

END = FIRST
"""The first token of every target vocabulary. It ends a sentence."""

_END_COLUMN = END - UNKNOWN  # the column of END in the scores, which begin with the unknown token

# A stream is replaced by a smaller one when at most this fraction of its rows is in use.
_MOST_USED = 0.75


class Hypothesis(NamedTuple):
    """One translation of a sentence.

    Attributes:
        tokens: the indices of its tokens, without the end
        score: the logarithm of its probability, divided by the length penalty, see `Search.penalty`
    """

    tokens: tuple[int, ...]
    score: float


@dataclass(frozen=True)
class Search:
    """The settings of a beam search.

    Args:
        beam: the number of unfinished translations per sentence; 1 takes the most probable token at each step
        length_penalty: the exponent a of `((5 + length) / 6) ** a`, the divisor of log probabilities (Wu et al. 2016,
            arXiv:1609.08144, equation 14); 0 favours short translations

    Raises:
        OptionError: the beam is below 1, or the penalty is below 0
    """

    beam: int = 5
    length_penalty: float = 1.0

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise OptionError(
                f"beam: expected 1 or more, got {self.beam}; 1 takes the most probable token at each step"
            )
        if not self.length_penalty >= 0:
            raise OptionError(f"length_penalty: expected 0 or more, got {self.length_penalty}")

    def penalty(self, length: int) -> float:
        """Return the divisor of the log probability of a translation with this many tokens, including the end."""
        return float(((5 + length) / 6) ** self.length_penalty)

    def log_probability(self, hypothesis: Hypothesis) -> float:
        """Return the log probability of a translation, including its end."""
        return hypothesis.score * self.penalty(len(hypothesis.tokens) + 1)


@torch.inference_mode()
def search(
    decoder: Decoder, memory: Memory, state: States, limits: list[int], settings: Search
) -> list[list[Hypothesis]]:
    """Translate a batch of sentences.

    A sentence starts with `beam` places. At each step the search takes the best continuations of its unfinished
    translations, one per place. A continuation that ends is a result and reduces the number of places by one. The best
    others continue (Sutskever, Vinyals & Le 2014, arXiv:1409.3215, section 3.2). All translations end at the limit of
    the sentence.

    Args:
        decoder: in eval mode
        memory, state: the encoder's results for N sentences
        limits: the maximum number of tokens of each translation, including the end
        settings: the size of the beam and the length penalty

    Returns:
        the translations of each sentence, the best first: at least one and at most `beam`
    """
    steps = _Steps(decoder, memory, state)
    finished: list[list[Hypothesis]] = [[] for _ in limits]
    # The unfinished sentences: their numbers, their limits, and their numbers of places. All of this is on the CPU.
    numbers, ends = torch.arange(len(limits)), torch.tensor(limits)
    places_left = torch.full((len(limits),), settings.beam)
    before = torch.full((len(limits), 1), PADDING)
    totals = torch.zeros(before.shape)  # log probabilities; minus infinity for unused beams
    history = before[..., None][..., :0]
    for length in range(1, max(limits) + 1):
        best, beams, units = steps(before, totals, ends == length, 2 * settings.beam)
        rank = torch.arange(best.shape[1])
        ended = (units == END) & best.isfinite() & (rank < places_left[:, None])
        rows, places = ended.nonzero(as_tuple=True)
        written = history[rows, beams[rows, places]].tolist()
        scores = (best[rows, places] / settings.penalty(length)).tolist()
        for number, tokens, score in zip(numbers[rows].tolist(), written, scores, strict=True):
            finished[number].append(Hypothesis(tuple(tokens), score))
        places_left = places_left - ended.sum(1)
        continued = ((places_left > 0) & (ends > length)).nonzero().squeeze(1)
        if not len(continued):
            break
        numbers, ends, places_left = numbers[continued], ends[continued], places_left[continued]
        # The best continuations that do not end, in order, one per place.
        order = (units[continued] == END).to(torch.int8).sort(stable=True).indices[:, : int(places_left.max())]
        best = best.masked_fill(units == END, -torch.inf)
        totals, beams, before = (each[continued].gather(1, order) for each in (best, beams, units))
        totals = totals.masked_fill(rank[: order.shape[1]] >= places_left[:, None], -torch.inf)
        history = torch.cat([history[continued[:, None], beams], before[..., None]], -1)
        steps.keep(continued, beams, totals.isfinite())
    return [sorted(each, key=lambda one: -one.score) for each in finished]


class _Steps:
    """Runs the decoder one step at a time. Its rows are the active beams, sentence by sentence.

    Arguments and results are on the CPU. On a GPU, a step waits once, for its result.
    """

    def __init__(self, decoder: Decoder, memory: Memory, state: States):
        self.decoder, self.memory = decoder, memory
        self.device = memory.values.device
        self.alive = torch.ones(len(memory.values), 1, dtype=torch.bool)
        self.readouts = state[0].new_zeros(len(memory.values), decoder.readout_size)
        self.state = state
        self.stream: Any = None
        self.layer: Any = None

    def __call__(self, before: Tensor, totals: Tensor, last: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
        """Run a step, and return the best continuations of each sentence: log probabilities, beams and tokens.

        Args:
            before, totals: the last token and the log probability of each beam, `(N, K)`
            last: whether a sentence must end, `(N,)`
            most: the maximum number of continuations of a sentence, C

        Returns:
            three tensors `(N, C)`
        """
        self.alive = alive = totals.isfinite()
        rows = move(alive.flatten().nonzero().squeeze(1), self.device)
        logs = self._log_probabilities(move(before[alive], self.device), rows)
        logs[:, 0] = -torch.inf  # the unknown token is never generated
        if last.any():
            others = torch.arange(logs.shape[1], device=self.device) != _END_COLUMN
            must_end = move((last[:, None] & alive)[alive], self.device)
            logs = logs.masked_fill(must_end[:, None] & others, -torch.inf)
        scores, units = logs.topk(min(most, logs.shape[1]))
        scores = scores + move(totals[alive], self.device)[:, None]
        of_beams = scores.new_full((alive.numel(), scores.shape[1]), -torch.inf).index_copy_(0, rows, scores)
        units_of_beams = units.new_full(of_beams.shape, END).index_copy_(0, rows, units + UNKNOWN)
        of_sentences = of_beams.view(len(alive), -1)
        best, places = of_sentences.topk(min(most, of_sentences.shape[1]))
        chosen = units_of_beams.view(len(alive), -1).gather(1, places)
        best, beams, chosen = (each.cpu() for each in (best, places // scores.shape[1], chosen))
        return best, beams, chosen

    def _log_probabilities(self, before: Tensor, rows: Tensor) -> Tensor:
        """The log probabilities, `(R, tokens - 1)`, after the last tokens of R active beams, at these places."""
        decoder, alive = self.decoder, self.alive
        vectors = decoder.embedding(before)
        output = self._advance(decoder.input(vectors, self.readouts))
        queries = output.new_zeros(alive.numel(), decoder.size).index_copy_(0, rows, output)
        context, _ = decoder.attend(queries.view(*alive.shape, -1), self.memory)
        self.readouts = decoder.readout(output, None if context is None else context.flatten(0, 1)[rows], vectors)
        return decoder.scores(self.readouts).float().log_softmax(-1)

    def keep(self, sentences: Tensor, beams: Tensor, alive: Tensor) -> None:
        """Keep these sentences, `(N,)`. Each active beam, `(N, K)`, continues from the given beam of the last step."""
        rows = (self.alive.flatten().cumsum(0) - 1).unflatten(0, self.alive.shape)
        places = move(rows[sentences[:, None], beams][alive], self.device)
        if len(sentences) < len(self.memory.values):
            self.memory = self.memory.rows(sentences)
        self.readouts = self.readouts[places]
        self._reorder(places)

    def _advance(self, inputs: Tensor) -> Tensor:
        """Run one step of the layers, from `(R, I)` to `(R, H)`."""
        if self.stream is None:
            output, state = self.decoder.layer(inputs[:, None], as_hx(self.state))
            self.state = as_tuple(state)
            return output[:, 0]
        spare = self.stream.batch_size - len(inputs)
        return self.stream.step(pad(inputs, (0, 0, 0, spare)))[: len(inputs)]

    def _reorder(self, places: Tensor) -> None:
        """Keep only the rows at these places."""
        if self.stream is not None and _MOST_USED * self.stream.batch_size < len(places) <= self.stream.batch_size:
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
        if isinstance(layer, gg.Recurrent) and layer.glassgate.is_observed:
            return  # streams ignore edits: an edited layer runs step by step
        if self.layer is None:  # packed once for all streams of the search
            on_cpu = isinstance(layer, gg.Recurrent) and places.device.type == "cpu"
            self.layer = gg.freeze(layer) if on_cpu else layer
        if hasattr(self.layer, "stream"):
            self.stream = self.layer.stream(len(places))
            for of_layer, first in zip(self.stream.states, zip(*self.state, strict=True), strict=True):
                for state, value in zip(of_layer, first, strict=True):
                    state.copy_(value)
