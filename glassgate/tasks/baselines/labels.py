"""Baselines of tasks that predict a label or numbers for a text or a series."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassgate.tasks.baselines.baseline import MAX_UNITS, Baseline, quiet
from glassgate.tasks.baselines.features import SeriesFeatures, TextFeatures
from glassgate.tasks.data.batches import Batch, Encoded

_MAX_VALUES = 2**24  # values of all training series


class OnFeatures(Baseline):
    """A model on fixed features of a text or a series.

    Attributes:
        features: the features, from `learn` on
    """

    features: TextFeatures | SeriesFeatures

    @property
    def field(self) -> str:
        """The field of an encoded example with its text or series."""
        return "units" if "units" in self.task.vocabularies else "series"

    def learn(self, train: Sequence[Encoded], dev: Sequence[Encoded]) -> None:
        is_text = self.field == "units"
        kept = self.limited(train, MAX_UNITS if is_text else _MAX_VALUES // train[0]["series"].shape[1])
        inputs, targets = [each[self.field] for each in kept], np.array([self.target(each) for each in kept])
        if is_text:
            self.features = TextFeatures(inputs, self.task.vocabularies["units"], self.num_outputs(targets))
        else:
            self.features = SeriesFeatures(inputs)
        with quiet():
            self.learn_from(self.features.train, targets)

    def features_of(self, batch: Batch) -> Any:
        """Return the features of the rows of a batch, `(N, F)`."""
        rows = zip(batch[self.field].numpy(), batch["lengths"].tolist(), strict=True)
        return self.features.of([row[:length] for row, length in rows])

    @abstractmethod
    def target(self, fields: Encoded) -> Any:
        """Return the target of an encoded example."""

    @abstractmethod
    def num_outputs(self, targets: np.ndarray) -> int:
        """Return the number of outputs of the model."""

    @abstractmethod
    def learn_from(self, features: Any, targets: np.ndarray) -> None:
        """Learn from features, `(N, F)`, and the targets of the examples."""


class MostFrequentLabel(Baseline):
    """Predicts the most frequent label of the training data."""

    name = "most frequent label"

    def learn(self, train: Sequence[Encoded], dev: Sequence[Encoded]) -> None:
        labels = np.array([int(each["label"]) for each in self.limited(train, max_examples=MAX_UNITS)])
        self.label = int(np.bincount(labels).argmax())

    def compute(self, batch: Batch) -> Tensor:
        """Return the scores of the labels, `(N, K)`."""
        return one_hot(np.full(len(batch["lengths"]), self.label), len(self.task.vocabularies["labels"].symbols))


class LabelModel(OnFeatures):
    """A classifier of scikit-learn.

    Attributes:
        label_field: the field of an encoded example with its label
        vocabulary: the vocabulary of the labels
    """

    label_field, vocabulary = "label", "labels"
    model: Any

    def target(self, fields: Encoded) -> int:
        return int(fields[self.label_field])

    def num_outputs(self, targets: np.ndarray) -> int:
        return len(np.unique(targets))

    def compute(self, batch: Batch) -> Tensor:
        """Return the scores of the labels, `(N, K)`."""
        labels = self.model.predict(self.features_of(batch))
        return one_hot(labels, len(self.task.vocabularies[self.vocabulary].symbols))


class LogisticRegression(LabelModel):
    """Logistic regression on the TF-IDF of a text, or on the values of a series."""

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"logistic regression on {'tf-idf' if self.field == 'units' else 'values'}"

    def learn_from(self, features: Any, targets: np.ndarray) -> None:
        from sklearn.linear_model import LogisticRegression as Model

        if self.field == "units":  # on sparse features, SAGA takes a fortieth of the time of L-BFGS
            self.model = Model(C=10.0, solver="saga", tol=1e-3, random_state=0)
        else:
            self.model = Model(tol=1e-3, max_iter=200)
        self.model.fit(features, targets)


class NearestNeighbour(LabelModel):
    """Predicts the label of the training series with the smallest Euclidean distance."""

    name = "1-nearest neighbour"

    def learn_from(self, features: np.ndarray, targets: np.ndarray) -> None:
        from sklearn.neighbors import KNeighborsClassifier

        self.model = KNeighborsClassifier(1, algorithm="brute").fit(features, targets)


class MeanOfTargets(Baseline):
    """Predicts the mean of the training targets, which is 0 after standardisation."""

    name = "mean"

    def learn(self, train: Sequence[Encoded], dev: Sequence[Encoded]) -> None:
        self.count = len(train[0]["numbers"])

    def compute(self, batch: Batch) -> Tensor:
        """Return the standardised predictions, `(N, K)`."""
        return torch.zeros(len(batch["lengths"]), self.count)


class Ridge(OnFeatures):
    """Ridge regression on the TF-IDF of a text, or on the values of a series."""

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"ridge regression on {'tf-idf' if self.field == 'units' else 'values'}"

    def target(self, fields: Encoded) -> np.ndarray:
        numbers: np.ndarray = fields["numbers"]
        return numbers

    def num_outputs(self, targets: np.ndarray) -> int:
        return targets.shape[1]

    def learn_from(self, features: Any, targets: np.ndarray) -> None:
        from sklearn.linear_model import Ridge as Model

        self.model = Model().fit(features, targets)

    def compute(self, batch: Batch) -> Tensor:
        """Return the standardised predictions, `(N, K)`."""
        return torch.from_numpy(self.model.predict(self.features_of(batch)).reshape(len(batch["lengths"]), -1)).float()


def one_hot(labels: np.ndarray, num_labels: int) -> Tensor:
    """Return scores that are 1 for the given labels and 0 for the others, `(..., K)`."""
    return torch.nn.functional.one_hot(torch.as_tensor(labels, dtype=torch.long), num_labels).float()
