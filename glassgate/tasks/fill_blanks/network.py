"""The network that fills blanks. Its two directions read the text before a blank and the text after it."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassgate.tasks.data.batches import Batch, draw_for, move
from glassgate.tasks.data.vocabulary import PADDING, UNKNOWN
from glassgate.tasks.fill_blanks.options import FillBlanksOptions
from glassgate.tasks.networks.encoder import encoder

State = Tensor | tuple[Tensor, ...] | None


class BlankScores(NamedTuple):
    """For each position in a batch, the scores of a blank that begins there.

    Attributes:
        token_scores: the score of each token except padding as the first token of the blank, `(N, L, V - 1)`
        length_scores: the score of each length of the blank, from 1 to the longest, `(N, L, longest)`
        blank_lengths: the lengths of the blanks for which `token_scores` is computed, `(N, L)`
    """

    token_scores: Tensor
    length_scores: Tensor
    blank_lengths: Tensor


class BlankNetwork(nn.Module):
    """Embeddings of the tokens, recurrent layers with separate directions, and scores from the states next to a blank.

    Args:
        options: sizes, cell and the longest blank
        vocabulary_size: the number of tokens, V, including padding and unknown
    """

    def __init__(self, options: FillBlanksOptions, vocabulary_size: int):
        super().__init__()
        size = options.hidden_size
        states_size = size * (1 + options.bidirectional)
        self.longest = options.longest_blank
        self.embedding = nn.Embedding(vocabulary_size, options.embedding_size, padding_idx=PADDING)
        self.dropout = nn.Dropout(options.dropout)
        self.encoder = encoder(options, merge="none" if options.bidirectional else "concat")
        # Stored runs contain the names of these modules, so they cannot be renamed.
        self.beside = nn.Linear(states_size, size)  # combines the two states next to a blank
        self.left = nn.Embedding(self.longest + 1, size)  # embeds the number of tokens left in the blank; 0 if unknown
        self.lengths = nn.Linear(size, self.longest)  # the output layer for the length
        self.units = nn.Linear(size, vocabulary_size - UNKNOWN)  # the output layer for the first token

    def forward(self, batch: Batch) -> BlankScores:
        """Score a blank that begins at each token. In training, the length of a blank is random; otherwise 1.

        Args:
            batch: with the tokens as `units`, `(N, L)`, and `lengths`, `(N,)`
        """
        tokens, lengths = batch["units"], batch["lengths"]
        forward, backward, _ = self.read(tokens, lengths)
        blank_lengths = torch.ones_like(tokens)
        if self.training:
            steps = torch.arange(tokens.shape[1], device=tokens.device)
            remaining = move(lengths, tokens.device)[:, None] - steps
            drawn = draw_for(batch, lambda shape: torch.randint(1, self.longest + 1, shape, device=tokens.device))
            blank_lengths = drawn.minimum(remaining.clamp(min=1))
        before = F.pad(forward, (0, 0, 1, 0))[:, :-1]
        after = None if backward is None else _outputs_after(backward, blank_lengths, self.longest)
        token_scores = self.token_scores(before, after, blank_lengths)
        return BlankScores(token_scores, self.length_scores(before, after), blank_lengths)

    def token_scores(self, before: Tensor, after: Tensor | None, length: Tensor) -> Tensor:
        """Return the scores of the first token of a blank, `(..., V - 1)`.

        Args:
            before: the output of the forward direction for the token before the blank, `(..., H)`
            after: the output of the reverse direction for the token after the blank, `(..., H)`, or None
            length: the number of tokens left in the blank, `(...)`
        """
        return self.units(self._combine(before, after, length))

    def length_scores(self, before: Tensor, after: Tensor | None) -> Tensor:
        """Return the score of each blank length from 1, `(..., longest)`. The arguments are as in `token_scores`."""
        unknown = torch.zeros(before.shape[:-1], dtype=torch.long, device=before.device)
        return self.lengths(self._combine(before, after, unknown))

    def _combine(self, before: Tensor, after: Tensor | None, length: Tensor) -> Tensor:
        """Combine the two states and the length of the blank (0 if unknown) in one vector, `(..., H)`."""
        states = before if after is None else torch.cat([before, after], -1)
        return self.dropout(torch.tanh(self.beside(states) + self.left(length)))

    def read_before(self, tokens: Tensor) -> tuple[Tensor, State]:
        """Read the text before a blank, `(1, L)`; return the output for its last token, `(1, H)`, and the state."""
        if not tokens.shape[1]:
            return self._zero_output(), None
        forward, _, state = self.read(tokens)
        return forward[:, -1], state

    def read_after(self, tokens: Tensor) -> Tensor | None:
        """Read the text after a blank, `(1, L)`, in reverse; return the output for its first token, `(1, H)`.

        A network of one direction returns None.
        """
        if not self.encoder.bidirectional:
            return None
        _, backward, _ = self.read(tokens) if tokens.shape[1] else (None, None, None)
        return self._zero_output() if backward is None else backward[:, 0]

    def advance(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Read one more token in each row, `(N,)`; return the output, `(N, H)`, and the new state."""
        forward, _, state = self.read(tokens[:, None], state=state)
        return forward[:, -1], state

    def read(
        self, tokens: Tensor, lengths: Tensor | None = None, state: State = None
    ) -> tuple[Tensor, Tensor | None, State]:
        """Read tokens, `(N, L)`.

        Returns:
            the outputs of the forward and the reverse direction (or None), `(N, L, H)` each, and the states
        """
        vectors = self.dropout(self.embedding(tokens))
        output, state = self.encoder(vectors, state, lengths=lengths)
        if not self.encoder.bidirectional:
            return self.dropout(output), None, state
        forward, backward = output
        return self.dropout(forward), self.dropout(backward), state

    def _zero_output(self) -> Tensor:
        return self.beside.weight.new_zeros(1, self.encoder.output_size)


def _outputs_after(backward: Tensor, blank_lengths: Tensor, longest: int) -> Tensor:
    """The output of the reverse direction for the token after each blank; zero after the end of the text.

    Args:
        backward: the output of the reverse direction, `(N, L, H)`
        blank_lengths: the length of the blank that begins at each position, `(N, L)`
        longest: the length of the longest blank
    """
    positions = torch.arange(blank_lengths.shape[1], device=blank_lengths.device) + blank_lengths
    padded = F.pad(backward, (0, 0, 0, longest))
    return padded.gather(1, positions[..., None].expand(-1, -1, backward.shape[-1]))
