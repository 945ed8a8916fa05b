"""Regression: one or several numbers for a text or a series."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from glassgate.tasks.data import texts as text
from glassgate.tasks.data.batches import Batch, Encoded
from glassgate.tasks.data.labelled import Labelled, Reader, of_rows
from glassgate.tasks.data.number_labels import numbers_of, scale
from glassgate.tasks.data.records import Names
from glassgate.tasks.data.vocabulary import PADDING, Vocabulary
from glassgate.tasks.errors import DataError
from glassgate.tasks.loss import Loss, Mean, full
from glassgate.tasks.predictions import Record
from glassgate.tasks.progress import Progress
from glassgate.tasks.regression.network import Regressor
from glassgate.tasks.regression.options import RegressionOptions
from glassgate.tasks.task import Task, Vocabularies

if TYPE_CHECKING:
    from torchmetrics import MetricCollection


class Regression(Task[RegressionOptions, Labelled, list[float]]):
    """Predict numbers. The network sees them standardised; scores and predictions are in their own units.

    Example:
        >>> from glassgate.tasks.task import Split
        >>> rows = [Labelled("good good", "2"), Labelled("bad good", "0"), Labelled("bad bad", "-2")]
        >>> task = Regression(RegressionOptions(hidden_size=8, epochs=60, learning_rate=0.03, least_count=1))
        >>> _ = task.fit(Split(rows))
        >>> round(task.predict([Labelled("good good")])[0][0])
        2
    """

    name = "regression"
    options_type = RegressionOptions
    monitor = "mae"
    lower_is_better = True
    padding = {"units": PADDING, "series": 0, "numbers": 0}

    def read(self, path: str | Path, labelled: bool = True, progress: Progress | None = None) -> list[Labelled]:
        columns = self.options.text_column, self.options.label_column
        return list(Reader(path, self.options.format, *columns, self.options.missing, labelled))

    def from_rows(self, rows: Iterator[tuple[int, Any, Names]]) -> list[Labelled]:
        return of_rows(rows, self.options)

    def collect(self, examples: Sequence[Labelled]) -> Vocabularies:
        self.facts = {"numbers": scale(np.array([numbers_of(each) for each in examples]))}
        if isinstance(examples[0].content, np.ndarray):
            self.facts["series"] = scale(np.concatenate([np.asarray(each.content) for each in examples]))
            return {}
        tokens = (token for each in examples for token in self._tokens(each))
        return {"units": Vocabulary.of(tokens, self.options.least_count)}

    def build(self) -> Regressor:
        size = len(self.facts["series"][0]) if "series" in self.facts else self.options.embedding_size
        tokens = 0 if "series" in self.facts else len(self.vocabularies["units"])
        return Regressor(self.options, tokens, size, len(self.facts["numbers"][0]))

    def encode(self, example: Labelled) -> Encoded:
        is_series = isinstance(example.content, np.ndarray)
        if is_series != ("series" in self.facts):
            raise DataError(example.source, example.line, "expected texts or series, as in training, got the other one")
        fields: dict[str, np.ndarray] = {}
        if is_series:
            mean, deviation = np.array(self.facts["series"])
            fields["series"] = ((example.content - mean) / deviation).astype(np.float32)
        else:
            fields["units"] = self.vocabularies["units"].encode(self._tokens(example))
        if example.label is not None:
            mean, deviation = np.array(self.facts["numbers"])
            fields["numbers"] = ((numbers_of(example, len(mean)) - mean) / deviation).astype(np.float32)
        return fields

    def loss(self, output: Tensor, batch: Batch) -> Loss:
        return [Mean.of(F.smooth_l1_loss(full(output), batch["numbers"], reduction="none"))]

    def metrics(self) -> "MetricCollection":
        from torchmetrics import MeanAbsoluteError, MeanSquaredError, MetricCollection

        return MetricCollection({"mae": MeanAbsoluteError(), "mse": MeanSquaredError()})

    def observe(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        return {"preds": self._unscaled(output).flatten(), "target": self._unscaled(batch["numbers"]).flatten()}

    def decode(self, output: Tensor, batch: Batch) -> list[list[float]]:
        return [row.tolist() for row in self._unscaled(output)]

    def text(self, example: Labelled, prediction: list[float]) -> str:
        return "\t".join(f"{number:.6g}" for number in prediction)

    def record(self, example: Labelled, prediction: list[float]) -> Record:
        """Return the numbers by name: that of the label column, numbered from 1 if there are several."""
        column, several = self.options.label_column, len(prediction) > 1
        names = (f"{column}_{k}" if several else column for k in range(1, len(prediction) + 1))
        return {"prediction": dict(zip(names, prediction, strict=True))}

    def _tokens(self, example: Labelled) -> Sequence[str]:
        return text.split(str(example.content), self.options.unit)

    def _unscaled(self, numbers: Tensor) -> Tensor:
        mean, deviation = full(numbers).new_tensor(self.facts["numbers"])
        return full(numbers) * deviation + mean
