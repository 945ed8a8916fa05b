"""The encoder of networks that map a text or a series to a label or numbers."""

from typing import Any

from torch import Tensor, nn

from glassgate.tasks.data.batches import Batch
from glassgate.tasks.data.vocabulary import PADDING
from glassgate.tasks.networks.encoder import encoder
from glassgate.tasks.options import Options


class SequenceEncoder(nn.Module):
    """Recurrent layers over embeddings of tokens or over the steps of a series. Subclasses add the output `head`.

    Args:
        options: sizes, cell and dropout
        vocabulary_size: the number of tokens, including padding and unknown; None for series
        input_size: the number of features of a step
    """

    def __init__(self, options: Options, vocabulary_size: int | None, input_size: int):
        super().__init__()
        self.embedding = (
            None if vocabulary_size is None else nn.Embedding(vocabulary_size, input_size, padding_idx=PADDING)
        )
        self.dropout = nn.Dropout(options.dropout)
        self.encoder = encoder(options, input_size)

    def encode(self, batch: Batch) -> tuple[Tensor, Any]:
        """Return the layers' output `(N, L, H)` and final states.

        Args:
            batch: `units` (tokens, `(N, L)`) or `series` (`(N, L, C)`), and `lengths` (`(N,)`)
        """
        steps = batch["series"] if self.embedding is None else self.dropout(self.embedding(batch["units"]))
        output, state = self.encoder(steps, lengths=batch["lengths"])
        return output, state
