"""The network of language models. It reads embedded tokens or notes, and scores the next token or notes."""

from typing import Any

from torch import Tensor, nn

from glassgate.tasks.data.batches import Batch, move
from glassgate.tasks.data.vocabulary import PADDING, UNKNOWN
from glassgate.tasks.language_model.music import NUM_KEYS
from glassgate.tasks.networks.encoder import as_hx, as_tuple, encoder
from glassgate.tasks.networks.linear import Tied


class LanguageNetwork(nn.Module):
    """Embeddings, recurrent layers that carry their states from batch to batch, and scores of the next token.

    `vocabulary_size`, V, includes padding and unknown. It is None for notes: then the network has no embedding, and
    scores each of the 88 keys of a piano.
    """

    def __init__(self, options: Any, vocabulary_size: int | None):
        super().__init__()
        self.dropout = nn.Dropout(options.dropout)
        if vocabulary_size is None:
            self.embedding = None
            self.encoder = encoder(options, input_size=NUM_KEYS)
            self.head: nn.Module = nn.Linear(options.hidden_size, NUM_KEYS)
        else:
            self.embedding = nn.Embedding(vocabulary_size, options.embedding_size, padding_idx=PADDING)
            self.encoder = encoder(options)
            if options.tied:
                self.head = Tied(self.embedding, options.hidden_size)
            else:
                self.head = nn.Linear(options.hidden_size, vocabulary_size - UNKNOWN)
        # The buffers of the states, `(num_layers, N, H)`.
        self.carried = [f"state_{name}" for name in self.encoder.cell.state]

    def forward(self, batch: Batch) -> Tensor:
        """Score all tokens except padding, `(N, L, V - 1)`, or the notes, `(N, L, 88)`, of the step after each input.

        The final states are carried to the next call, in which `continues`, `(N,)`, says which rows continue.
        """
        scores, state = self.advance(batch["inputs"], batch["lengths"], self._carried_state(batch["continues"]))
        for name, tensor in zip(self.carried, as_tuple(state), strict=True):
            self.register_buffer(name, tensor.detach(), persistent=False)
        return scores

    def advance(self, inputs: Tensor, lengths: Tensor | None, state: object) -> tuple[Tensor, Any]:
        """Read inputs, starting with `state` (None for zeros). Return the scores and the new state."""
        vectors = inputs.float() if self.embedding is None else self.embedding(inputs)
        output, state = self.encoder(self.dropout(vectors), state, lengths=lengths)
        output = self.dropout(output)
        if isinstance(self.head, Tied) and self.embedding is not None:
            return self.head(output, self.embedding.weight), state
        return self.head(output), state

    def _carried_state(self, continues: Tensor) -> object:
        """The final states of the previous batch, with zeros in rows that do not continue it."""
        if not continues.any():
            return None
        rows = move(continues, self.get_buffer(self.carried[0]).device)[:, None]
        return as_hx(tuple(self.get_buffer(name).where(rows, 0.0) for name in self.carried))
