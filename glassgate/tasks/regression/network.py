"""The network of regression: recurrent layers over a text or a series, and a linear map of their last outputs."""

from torch import Tensor, nn

from glassgate.tasks.data.batches import Batch
from glassgate.tasks.data.labelled import LabelledOptions
from glassgate.tasks.networks.encoder import last_outputs
from glassgate.tasks.networks.labelled import SequenceEncoder
from glassgate.tasks.networks.maps import InputMap


class Regressor(SequenceEncoder):
    """Maps a text or a series to numbers.

    Args:
        options: sizes, cell and dropout
        vocabulary_size: the number of tokens, including padding and unknown; None for series
        input_size: the number of features of a step
        num_targets: how many numbers to predict, K
        linear: a map of the tokens or the series to the outputs; None for none
    """

    def __init__(
        self,
        options: LabelledOptions,
        vocabulary_size: int | None,
        input_size: int,
        num_targets: int,
        linear: InputMap | None = None,
    ):
        super().__init__(options, vocabulary_size, input_size, linear)
        self.head = nn.Linear(self.encoder.output_size, num_targets)

    def forward(self, batch: Batch) -> Tensor:
        """Predict the standardised numbers, `(N, K)`. `encode` describes the fields of the batch."""
        _, state, linear = self.encode(batch)
        return self.head(self.dropout(last_outputs(self.encoder, state))) + linear
