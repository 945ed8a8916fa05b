"""The network of language models: embeddings of tokens, or notes; stateful recurrent layers; and scores."""

from typing import Any

from torch import Tensor, nn

from glassgate.tasks.data.batches import Batch, move
from glassgate.tasks.data.music import NUM_KEYS
from glassgate.tasks.data.vocabulary import PADDING, UNKNOWN
from glassgate.tasks.language_model.options import LanguageModelOptions
from glassgate.tasks.networks.encoder import encoder
from glassgate.tasks.networks.linear import Tied
from glassgate.tasks.networks.states import as_hx, as_tuple


class LanguageNetwork(nn.Module):
    """Embeddings, recurrent layers that carry their states from batch to batch, and scores of the next token.

    Args:
        options: sizes and cell
        units: the size of the vocabulary, including padding and unknown; None for notes

    Attributes:
        carried: the names of the buffers that contain the states, `(num_layers, N, H)`
    """

    def __init__(self, options: LanguageModelOptions, units: int | None):
        super().__init__()
        self.dropout = nn.Dropout(options.dropout)
        if units is None:
            self.embedding = None
            self.encoder = encoder(options, input_size=NUM_KEYS)
            self.head: nn.Module = nn.Linear(options.hidden_size, NUM_KEYS)
        else:
            self.embedding = nn.Embedding(units, options.embedding_size, padding_idx=PADDING)
            self.encoder = encoder(options)
            if options.tied:
                self.head = Tied(self.embedding, options.hidden_size)
            else:
                self.head = nn.Linear(options.hidden_size, units - UNKNOWN)
        self.carried = [f"state_{name}" for name in self.encoder.cell.state]

    def forward(self, batch: Batch) -> Tensor:
        """From `inputs`, `(N, L)` or `(N, L, 88)`, `lengths` and `continues`, `(N,)`, to `(N, L, units - 1)`."""
        logits, state = self.advance(batch["inputs"], batch["lengths"], self._carried(batch["continues"]))
        for name, part in zip(self.carried, as_tuple(state), strict=True):
            self.register_buffer(name, part.detach(), persistent=False)
        return logits

    def advance(self, inputs: Tensor, lengths: Tensor | None, state: object) -> tuple[Tensor, Any]:
        """Continue from a state (zero if None); return the scores and the new state."""
        vectors = inputs.float() if self.embedding is None else self.embedding(inputs)
        output, state = self.encoder(self.dropout(vectors), state, lengths=lengths)
        states = self.dropout(output)
        if isinstance(self.head, Tied) and self.embedding is not None:
            return self.head(states, self.embedding.weight), state
        return self.head(states), state

    def _carried(self, continues: Tensor) -> object:
        """The states of the previous batch, with zeros in rows that do not continue it."""
        if not continues.any():
            return None
        rows = move(continues, self.get_buffer(self.carried[0]).device)[:, None]
        return as_hx(tuple(self.get_buffer(name).where(rows, 0.0) for name in self.carried))
