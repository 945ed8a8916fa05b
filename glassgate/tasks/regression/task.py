"""Regression and its options: predict one or several numbers for a text or a series."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from glassgate.tasks.baselines.baseline import Baseline
from glassgate.tasks.baselines.features import Constant, OnFeatures, ridge_regression
from glassgate.tasks.data.batches import Batch, Encoded, move
from glassgate.tasks.data.corpus import Corpus
from glassgate.tasks.data.labelled import Labelled, LabelledOptions
from glassgate.tasks.data.number_labels import check_units, mean_and_deviation, parse_numbers
from glassgate.tasks.labelled.network import Output
from glassgate.tasks.labelled.task import LabelledTask
from glassgate.tasks.loss import Loss, Mean, to_float
from glassgate.tasks.options import option
from glassgate.tasks.predictions import Record
from glassgate.tasks.task import Vocabularies

if TYPE_CHECKING:
    from torchmetrics import MetricCollection


@dataclass(frozen=True, kw_only=True)
class RegressionOptions(LabelledOptions):
    """The options of regression."""

    label_column: str = option("label", "column to predict: a name, or a number from 1", group="data")


class Regression(LabelledTask[RegressionOptions, list[float]]):
    """Predict numbers. The network computes standardised numbers; scores and predictions are in units of the data.

    Example:
        >>> from glassgate.tasks.task import Split
        >>> rows = [Labelled("good good", "2"), Labelled("bad good", "0"), Labelled("bad bad", "-2")]
        >>> task = Regression(RegressionOptions(hidden_size=8, epochs=60, learning_rate=0.03, least_count=1))
        >>> _ = task.fit(Split(rows))
        >>> round(task.predict([Labelled("good good")])[0][0])
        2
    """

    name = "regression"
    purpose = "predict numbers for a text or a series"
    options_type = RegressionOptions
    monitor = "mae"
    lower_is_better = True
    predicts_numbers = True

    def collect(self, examples: Sequence[Labelled]) -> Vocabularies:
        check_units(examples)
        count = len(parse_numbers(examples[0]))
        self.fitted = {"numbers": mean_and_deviation(np.array([parse_numbers(each, count) for each in examples]))}
        vocabularies = self.collect_inputs(self.corpus(examples))
        if not vocabularies:
            self.fit_map(self.corpus(examples), np.stack([self._encode_numbers(each)["numbers"] for each in examples]))
        return vocabularies

    def encoded(self, examples: Sequence[Labelled]) -> Corpus[Encoded]:
        """Encode examples; errors in their numbers are reported now."""
        encoded = super().encoded(examples)
        for each in encoded.examples:
            self._encode_numbers(each)
        return encoded

    def encode(self, example: Labelled) -> Encoded:
        return self.encode_input(example) | self._encode_numbers(example)

    def _encode_numbers(self, example: Labelled) -> dict[str, np.ndarray]:
        """The field with the standardised numbers of an example; no field if it has no label."""
        if example.label is None:
            return {}
        mean, deviation = np.array(self.fitted["numbers"])
        return {"numbers": ((parse_numbers(example, len(mean)) - mean) / deviation).astype(np.float32)}

    def loss(self, output: Output, batch: Batch) -> Loss:
        return [Mean.of(F.smooth_l1_loss(to_float(output.values), batch["numbers"], reduction="none"))]

    def metrics(self) -> "MetricCollection":
        from torchmetrics import MeanAbsoluteError, MeanSquaredError, MetricCollection

        return MetricCollection({"mae": MeanAbsoluteError(), "mse": MeanSquaredError()})

    def observe(self, output: Output, batch: Batch) -> dict[str, Tensor]:
        return {
            "preds": self._to_data_units(output.values).flatten(),
            "target": self._to_data_units(batch["numbers"]).flatten(),
        }

    def decode(self, output: Output, batch: Batch) -> list[list[float]]:
        return [row.tolist() for row in self._to_data_units(output.values)]

    def baselines(self) -> Sequence[Baseline]:
        count = len(self.fitted["numbers"][0])

        def output(numbers: np.ndarray) -> Output:
            return Output(torch.from_numpy(numbers.reshape(-1, count)).float())

        return [
            Constant(self, "mean", lambda numbers: np.zeros(count), "numbers", output),
            OnFeatures(self, "ridge regression on {}", ridge_regression, "numbers", output),
        ]

    def text(self, example: Labelled, prediction: list[float]) -> str:
        return "\t".join(f"{number:.6g}" for number in prediction)

    def record(self, example: Labelled, prediction: list[float]) -> Record:
        """Return the text and the numbers, named like the label column; several have the suffixes _1, _2 and so on."""
        column, has_several = self.options.label_column, len(prediction) > 1
        names = (f"{column}_{k}" if has_several else column for k in range(1, len(prediction) + 1))
        text = {} if isinstance(example.content, np.ndarray) else {"text": self.raw_text(example)}
        return text | {"prediction": dict(zip(names, prediction, strict=True))}

    def _to_data_units(self, numbers: Tensor) -> Tensor:
        """Undo the standardisation."""
        mean, deviation = move(torch.tensor(self.fitted["numbers"], dtype=to_float(numbers).dtype), numbers.device)
        return to_float(numbers) * deviation + mean
