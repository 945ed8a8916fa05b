"""The network that fills blanks. Its two directions read the text before a blank and the text after it."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassgate.tasks.data.batches import Batch, draw_for, move
from glassgate.tasks.data.vocabulary import PADDING, UNKNOWN
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
    """Embeddings of V tokens, recurrent layers with separate directions, and scores from the states next to a blank."""

    def __init__(self, options: Any, vocabulary_size: int):
        super().__init__()
        size = options.hidden_size
        self.longest = options.longest_blank
        self.embedding = nn.Embedding(vocabulary_size, options.embedding_size, padding_idx=PADDING)
        self.dropout = nn.Dropout(options.dropout)
        self.encoder = encoder(options, merge="none" if options.bidirectional else "concat")
        # Stored runs contain the names of these modules, so they cannot be renamed.
        self.beside = nn.Linear(size * (1 + options.bidirectional), size)  # combines the outputs next to a blank
        self.left = nn.Embedding(self.longest + 1, size)  # embeds the number of tokens left in the blank; 0 if unknown
        self.lengths = nn.Linear(size, self.longest)  # the output layer for the length
        self.units = nn.Linear(size, vocabulary_size - UNKNOWN)  # the output layer for the first token

    def forward(self, batch: Batch) -> BlankScores:
        """Score a blank that begins at each token. In training, the length of a blank is random; otherwise 1."""
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
        """Return the scores of the first token of a blank, `(..., V - 1)`, in which `length` tokens are left, `(...)`.

        `before` and `after` are the outputs of the two directions for the tokens next to the blank, `(..., H)`.
        """
        return self.units(self._combine(before, after, length))

    def length_scores(self, before: Tensor, after: Tensor | None) -> Tensor:
        """Return the score of each blank length from 1, `(..., longest)`. The arguments are as in `token_scores`."""
        unknown = torch.zeros(before.shape[:-1], dtype=torch.long, device=before.device)
        return self.lengths(self._combine(before, after, unknown))

    def _combine(self, before: Tensor, after: Tensor | None, length: Tensor) -> Tensor:
        """Combine the two outputs and the length of the blank (0 if unknown) in one vector, `(..., H)`."""
        outputs = before if after is None else torch.cat([before, after], -1)
        return self.dropout(torch.tanh(self.beside(outputs) + self.left(length)))

    def read_before(self, tokens: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Read tokens before a blank, `(N, L)`; return the output for the last one, `(N, H)`, and the state."""
        if not tokens.shape[1]:
            return self._zeros(len(tokens)), state
        forward, _, state = self.read(tokens, state=state)
        return forward[:, -1], state

    def read_after(self, tokens: Tensor) -> Tensor | None:
        """Read the text after a blank, `(N, L)`, in reverse; return the output for its first token, `(N, H)`.

        A network of one direction returns None.
        """
        if not self.encoder.bidirectional:
            return None
        if not tokens.shape[1]:
            return self._zeros(len(tokens))
        _, backward, _ = self.read(tokens)
        assert backward is not None
        return backward[:, 0]

    def read(
        self, tokens: Tensor, lengths: Tensor | None = None, state: State = None
    ) -> tuple[Tensor, Tensor | None, State]:
        """Read tokens, `(N, L)`; return the outputs of the two directions (or None), `(N, L, H)`, and the states."""
        vectors = self.dropout(self.embedding(tokens))
        output, state = self.encoder(vectors, state, lengths=lengths)
        if not self.encoder.bidirectional:
            return self.dropout(output), None, state
        forward, backward = output
        return self.dropout(forward), self.dropout(backward), state

    def _zeros(self, rows: int) -> Tensor:
        return self.beside.weight.new_zeros(rows, self.encoder.output_size)


def _outputs_after(backward: Tensor, blank_lengths: Tensor, longest: int) -> Tensor:
    """The output of the reverse direction for the token after each blank; zero after the end of the text.

    `backward` is `(N, L, H)`. `blank_lengths`, `(N, L)`, are the lengths of the blanks that begin at each position.
    """
    positions = torch.arange(blank_lengths.shape[1], device=blank_lengths.device) + blank_lengths
    padded = F.pad(backward, (0, 0, 0, longest))
    return padded.gather(1, positions[..., None].expand(-1, -1, backward.shape[-1]))
