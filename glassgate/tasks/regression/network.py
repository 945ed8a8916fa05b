"""The network of regression: embeddings or series, recurrent layers, and a linear map of the last states."""

from torch import Tensor, nn

from glassgate.tasks.data.batches import Batch
from glassgate.tasks.data.vocabulary import PADDING
from glassgate.tasks.networks.encoder import encoder, last_outputs
from glassgate.tasks.regression.options import RegressionOptions


class Regressor(nn.Module):
    """Maps a text or a series to numbers.

    Args:
        options: sizes, cell and dropout
        tokens: the size of the vocabulary; 0 for series
        input_size: the number of features of a step
        numbers: the count of numbers to predict
    """

    def __init__(self, options: RegressionOptions, tokens: int, input_size: int, numbers: int):
        super().__init__()
        self.embedding = nn.Embedding(tokens, input_size, padding_idx=PADDING) if tokens else None
        self.dropout = nn.Dropout(options.dropout)
        self.encoder = encoder(options, input_size)
        self.head = nn.Linear(self.encoder.output_size, numbers)

    def forward(self, batch: Batch) -> Tensor:
        """From `units`, `(N, L)`, or `series`, `(N, L, C)`, and `lengths`, `(N,)`, to `(N, numbers)`."""
        steps = batch["series"] if self.embedding is None else self.dropout(self.embedding(batch["units"]))
        _, state = self.encoder(steps, lengths=batch["lengths"])
        return self.head(self.dropout(last_outputs(self.encoder, state)))
