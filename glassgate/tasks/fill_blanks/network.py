"""The network of the fill-blanks task: two separate directions, and scores from the states at both ends of a blank."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassgate.tasks.data.batches import Batch, draw_for, move
from glassgate.tasks.data.vocabulary import PADDING, UNKNOWN
from glassgate.tasks.fill_blanks.options import FillBlanksOptions
from glassgate.tasks.networks.encoder import encoder

State = Tensor | tuple[Tensor, ...] | None


class Blanks(NamedTuple):
    """Scores for a blank that begins at each token of a batch.

    Attributes:
        token_scores: `(N, L, U)`, scores for the blank's first token
        lengths: `(N, L, longest)`, scores for the blank's length, from 1
        blank_lengths: `(N, L)`, the length of the blank for which `units` is computed
    """

    token_scores: Tensor
    lengths: Tensor
    blank_lengths: Tensor


class BlankNetwork(nn.Module):
    """Embeddings of the tokens, recurrent layers with separate directions, and scores from the states next to a blank.

    Args:
        options: sizes, cell and the longest blank
        units: the size of the vocabulary, including padding and unknown
    """

    def __init__(self, options: FillBlanksOptions, units: int):
        super().__init__()
        size = options.hidden_size
        states_size = size * (1 + options.bidirectional)
        self.longest = options.longest_blank
        self.embedding = nn.Embedding(units, options.embedding_size, padding_idx=PADDING)
        self.dropout = nn.Dropout(options.dropout)
        self.encoder = encoder(options, merge="none" if options.bidirectional else "concat")
        # Stored runs contain the names of these modules.
        self.beside = nn.Linear(states_size, size)  # of the two states next to a blank
        self.left = nn.Embedding(self.longest + 1, size)  # of the length of the blank; 0: unknown
        self.lengths = nn.Linear(size, self.longest)
        self.units = nn.Linear(size, units - UNKNOWN)

    def forward(self, batch: Batch) -> Blanks:
        """Score a blank that begins at each token of a batch. Its length is random in training, otherwise one token.

        Args:
            batch: with `units`, `(N, L)`, and `lengths`, `(N,)`
        """
        numbers, lengths = batch["units"], batch["lengths"]
        forward, backward, _ = self.read(numbers, lengths)
        blank_lengths = torch.ones_like(numbers)
        if self.training:
            steps = torch.arange(numbers.shape[1], device=numbers.device)
            remaining = move(lengths, numbers.device)[:, None] - steps
            drawn = draw_for(batch, lambda shape: torch.randint(1, self.longest + 1, shape, device=numbers.device))
            blank_lengths = drawn.minimum(remaining.clamp(min=1))
        before = F.pad(forward, (0, 0, 1, 0))[:, :-1]
        after = None if backward is None else _outputs_after(backward, blank_lengths, self.longest)
        scores = self.unit_scores(before, after, blank_lengths)
        return Blanks(scores, self.length_scores(before, after), blank_lengths)

    def unit_scores(self, before: Tensor, after: Tensor | None, length: Tensor) -> Tensor:
        """Scores for the first token of a blank.

        Args:
            before, after: `(..., H)`, the states of the directions next to the blank
            length: `(...)`, the length of the blank
        """
        return self.units(self._joined(before, after, length))

    def length_scores(self, before: Tensor, after: Tensor | None) -> Tensor:
        """Scores for each length of a blank, from 1."""
        unknown = torch.zeros(before.shape[:-1], dtype=torch.long, device=before.device)
        return self.lengths(self._joined(before, after, unknown))

    def _joined(self, before: Tensor, after: Tensor | None, length: Tensor) -> Tensor:
        """Combine the two states and the blank's length (0 if unknown) in one vector."""
        states = before if after is None else torch.cat([before, after], -1)
        return self.dropout(torch.tanh(self.beside(states) + self.left(length)))

    def read_before(self, numbers: Tensor) -> tuple[Tensor, State]:
        """Read the text before a blank, `(1, L)`; return the output at its end, `(1, H)`, and the state to continue."""
        if not numbers.shape[1]:
            return self._zero_output(), None
        forward, _, state = self.read(numbers)
        return forward[:, -1], state

    def read_after(self, numbers: Tensor) -> Tensor | None:
        """Read the text after a blank, `(1, L)`, in reverse; return the output next to it (None with one direction)."""
        if not self.encoder.bidirectional:
            return None
        _, backward, _ = self.read(numbers) if numbers.shape[1] else (None, None, None)
        return self._zero_output() if backward is None else backward[:, 0]

    def advance(self, numbers: Tensor, state: State) -> tuple[Tensor, State]:
        """Read one more token in each row, `(N,)`; return the output and the state to continue from."""
        forward, _, state = self.read(numbers[:, None], state=state)
        return forward[:, -1], state

    def read(
        self, numbers: Tensor, lengths: Tensor | None = None, state: State = None
    ) -> tuple[Tensor, Tensor | None, State]:
        """Read tokens, `(N, L)`; return the outputs of both directions (the second may be None) and the states."""
        vectors = self.dropout(self.embedding(numbers))
        output, state = self.encoder(vectors, state, lengths=lengths)
        if not self.encoder.bidirectional:
            return self.dropout(output), None, state
        forward, backward = output
        return self.dropout(forward), self.dropout(backward), state

    def _zero_output(self) -> Tensor:
        return self.beside.weight.new_zeros(1, self.encoder.output_size)


def _outputs_after(backward: Tensor, blank_lengths: Tensor, longest: int) -> Tensor:
    """The output of the reverse direction after a blank that begins at each token; zero after the end of the text."""
    steps = torch.arange(blank_lengths.shape[1], device=blank_lengths.device) + blank_lengths
    padded = F.pad(backward, (0, 0, 0, longest))
    return padded.gather(1, steps[..., None].expand(-1, -1, backward.shape[-1]))
