"""Greedy and beam search for batches of sentences."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

import glassgate as gg
from glassgate.tasks.data.batches import move
from glassgate.tasks.data.vocabulary import FIRST, PADDING, UNKNOWN
from glassgate.tasks.errors import OptionError
from glassgate.tasks.networks.encoder import States, as_hx, as_tuple
from glassgate.tasks.translation.attention import Memory
from glassgate.tasks.translation.network import Decoder

END = FIRST
"""The first token of every target vocabulary. It ends a sentence."""

_END_COLUMN = END - UNKNOWN  # the column of END in the scores, which begin with the unknown token


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
        length_penalty: the exponent a of `((5 + length) / 6) ** a`, by which log probabilities are divided (Wu et al.
            2016, arXiv:1609.08144, equation 14); 0 favours short translations

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
        """Return the log probability of a translation, including the end token."""
        return hypothesis.score * self.penalty(len(hypothesis.tokens) + 1)


@torch.inference_mode()
def search(
    decoder: Decoder, memory: Memory, state: States, limits: list[int], settings: Search
) -> list[list[Hypothesis]]:
    """Translate a batch of sentences.

    Each sentence starts with `beam` slots. At each step the search takes the best continuations of the sentence's
    unfinished translations, one per slot. A continuation that ends is a result, and its slot is closed. The other
    continuations go on (Sutskever, Vinyals & Le 2014, arXiv:1409.3215, section 3.2). All translations end at the limit
    of the sentence.

    Args:
        decoder: in eval mode
        memory, state: the encoder's results for N sentences
        limits: the maximum number of tokens of each translation, including the end
        settings: the size of the beam and the length penalty

    Returns:
        the translations of each sentence, the best first: at least one and at most `beam`
    """
    step = _Step(decoder, memory, state)
    finished: list[list[Hypothesis]] = [[] for _ in limits]
    # The unfinished sentences: their indices, limits and open slots. All of these tensors are on the CPU.
    sentences, sentence_limits = torch.arange(len(limits)), torch.tensor(limits)
    slots = torch.full((len(limits),), settings.beam)
    previous = torch.full((len(limits), 1), PADDING)
    totals = torch.zeros(previous.shape)  # log probabilities; minus infinity for unused beams
    history = previous[..., None][..., :0]
    for length in range(1, max(limits) + 1):
        best, beams, tokens = step(previous, totals, sentence_limits == length, 2 * settings.beam)
        rank = torch.arange(best.shape[1])
        ended = (tokens == END) & best.isfinite() & (rank < slots[:, None])
        rows, ranks = ended.nonzero(as_tuple=True)
        translations = history[rows, beams[rows, ranks]].tolist()
        scores = (best[rows, ranks] / settings.penalty(length)).tolist()
        for sentence, translation, score in zip(sentences[rows].tolist(), translations, scores, strict=True):
            finished[sentence].append(Hypothesis(tuple(translation), score))
        slots = slots - ended.sum(1)
        kept = ((slots > 0) & (sentence_limits > length)).nonzero().squeeze(1)
        if not len(kept):
            break
        sentences, sentence_limits, slots = sentences[kept], sentence_limits[kept], slots[kept]
        # The best continuations that do not end, in order, one per slot.
        order = (tokens[kept] == END).to(torch.int8).sort(stable=True).indices[:, : int(slots.max())]
        best = best.masked_fill(tokens == END, -torch.inf)
        totals, beams, previous = (tensor[kept].gather(1, order) for tensor in (best, beams, tokens))
        totals = totals.masked_fill(rank[: order.shape[1]] >= slots[:, None], -torch.inf)
        history = torch.cat([history[kept[:, None], beams], previous[..., None]], -1)
        step.keep(kept, beams, totals.isfinite())
    return [sorted(hypotheses, key=lambda hypothesis: -hypothesis.score) for hypotheses in finished]


class _Step:
    """Runs the decoder one step at a time. Its rows are the active beams, sentence by sentence.

    Arguments and results are on the CPU. On a GPU, a step synchronises once, to return its result.
    """

    def __init__(self, decoder: Decoder, memory: Memory, state: States):
        self.decoder, self.memory, self.state, layer = decoder, memory, state, decoder.layer
        self.device = memory.values.device
        self.active = torch.ones(len(memory.values), 1, dtype=torch.bool)
        self.readouts = state[0].new_zeros(len(memory.values), decoder.readout_size)
        self.layer: Any = layer
        if isinstance(layer, gg.Recurrent) and self.device.type == "cpu" and not layer.glassgate.is_observed:
            self.layer = gg.freeze(layer)  # packs the weights once

    def __call__(
        self, previous: Tensor, totals: Tensor, must_end: Tensor, max_continuations: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Run a step. Return log probabilities, beams and tokens of each sentence's best continuations, `(N, C)` each.

        `previous` and `totals` are the last token and the log probability of each beam, `(N, K)`. `must_end`, `(N,)`,
        says whether a sentence must end with this step. `max_continuations` is the upper limit of C.
        """
        self.active = active = totals.isfinite()
        rows = move(active.flatten().nonzero().squeeze(1), self.device)
        logs = self._log_probabilities(move(previous[active], self.device), rows)
        logs[:, 0] = -torch.inf  # the unknown token is never generated
        if must_end.any():
            is_other = torch.arange(logs.shape[1], device=self.device) != _END_COLUMN
            row_must_end = move((must_end[:, None] & active)[active], self.device)
            logs = logs.masked_fill(row_must_end[:, None] & is_other, -torch.inf)
        scores, tokens = logs.topk(min(max_continuations, logs.shape[1]))  # for each active beam
        scores = scores + move(totals[active], self.device)[:, None]
        by_beam = scores.new_full((active.numel(), scores.shape[1]), -torch.inf).index_copy_(0, rows, scores)
        tokens_by_beam = tokens.new_full(by_beam.shape, END).index_copy_(0, rows, tokens + UNKNOWN)
        by_sentence = by_beam.view(len(active), -1)
        best, columns = by_sentence.topk(min(max_continuations, by_sentence.shape[1]))
        best_tokens = tokens_by_beam.view(len(active), -1).gather(1, columns)
        return best.cpu(), (columns // scores.shape[1]).cpu(), best_tokens.cpu()

    def _log_probabilities(self, previous: Tensor, rows: Tensor) -> Tensor:
        """The log probabilities of the next token, `(R, V - 1)`, after the last token of each active beam, `(R,)`.

        `rows` are the positions of the active beams among all beams, `(R,)`.
        """
        decoder, active = self.decoder, self.active
        vectors = decoder.embedding(previous)
        output, state = self.layer(decoder.input(vectors, self.readouts)[:, None], as_hx(self.state))
        self.state = as_tuple(state)
        queries = output.new_zeros(active.numel(), decoder.size).index_copy_(0, rows, output[:, 0])
        context, _ = decoder.attend(queries.view(*active.shape, -1), self.memory)
        context = None if context is None else context.flatten(0, 1)[rows]
        self.readouts = decoder.readout(output[:, 0], context, vectors)
        return decoder.scores(self.readouts).float().log_softmax(-1)

    def keep(self, sentences: Tensor, beams: Tensor, active: Tensor) -> None:
        """Continue with some sentences of the last step, `(N,)`, and some of their beams, both `(N, K)`.

        `beams` has the beam that each new beam continues, and `active` whether the new beam is in use.
        """
        row_of_beam = (self.active.flatten().cumsum(0) - 1).unflatten(0, self.active.shape)
        rows = move(row_of_beam[sentences[:, None], beams][active], self.device)
        if len(sentences) < len(self.memory.values):
            self.memory = self.memory.select(sentences)
        self.readouts = self.readouts[rows]
        self.state = tuple(state[:, rows] for state in self.state)
