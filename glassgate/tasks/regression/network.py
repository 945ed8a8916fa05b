"""The network of regression: recurrent layers over a text or a series, and a linear map of their last states."""

from torch import Tensor, nn

from glassgate.tasks.data.batches import Batch
from glassgate.tasks.data.labelled import LabelledOptions
from glassgate.tasks.networks.encoder import last_outputs
from glassgate.tasks.networks.labelled import SequenceEncoder


class Regressor(SequenceEncoder):
    """Maps a text or a series to numbers.

    Args:
        options: sizes, cell and dropout
        tokens: the size of the vocabulary, including padding and unknown; None for series
        input_size: the number of features of a step
        numbers: the count of numbers to predict
    """

    def __init__(self, options: LabelledOptions, tokens: int | None, input_size: int, numbers: int):
        super().__init__(options, tokens, input_size)
        self.head = nn.Linear(self.encoder.output_size, numbers)

    def forward(self, batch: Batch) -> Tensor:
        """From a batch as in `encode` to `(N, numbers)`."""
        _, state = self.encode(batch)
        return self.head(self.dropout(last_outputs(self.encoder, state)))
