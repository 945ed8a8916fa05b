"""Baselines on features of encoded texts and series. They predict a label or numbers."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassgate.tasks.baselines.baseline import MAX_UNITS, Baseline, quiet
from glassgate.tasks.data.batches import Batch, Encoded
from glassgate.tasks.data.vocabulary import FIRST, Vocabulary

MAX_FEATURES = 2**17
"""The maximum number of n-grams, and of values of a series."""
MAX_WEIGHTS = 2**23
"""The maximum number of weights of a linear model: features times outputs."""
_MAX_VALUES = 2**24  # values of all training series
_WORD_NGRAMS, _CHARACTER_NGRAMS = (1, 2), (1, 5)


ToOutput = Callable[[np.ndarray], Any]


class TextFeatures:
    """TF-IDF of the n-grams of texts: 1 to 2 words, or 1 to 5 characters or bytes. Case is ignored.

    Args:
        texts: the token indices of the training texts, `(L,)` each
        vocabulary: the vocabulary of the tokens; tokens that it lacks are left out
        num_outputs: the number of outputs of the linear model that reads the features
    """

    def __init__(self, texts: Sequence[np.ndarray], vocabulary: Vocabulary, num_outputs: int):
        from sklearn.feature_extraction.text import TfidfVectorizer

        lower = [symbol.lower() for symbol in vocabulary.symbols]
        numbers = {symbol: number for number, symbol in enumerate(dict.fromkeys(lower), start=FIRST)}
        self.numbers = np.array([0] * FIRST + [numbers[symbol] for symbol in lower])
        are_characters = all(len(symbol) == 1 for symbol in vocabulary.symbols)
        self.sizes = _CHARACTER_NGRAMS if are_characters else _WORD_NGRAMS
        self.vectorizer = TfidfVectorizer(
            analyzer=self._ngrams, sublinear_tf=True, max_features=min(MAX_FEATURES, MAX_WEIGHTS // num_outputs)
        )
        self.train = self.vectorizer.fit_transform(texts)

    def of(self, texts: Sequence[np.ndarray]) -> Any:
        """Return the features of texts as a sparse matrix, `(N, F)`."""
        return self.vectorizer.transform(texts)

    def _ngrams(self, indices: np.ndarray) -> list[tuple[int, ...]]:
        numbers = self.numbers[indices]
        tokens = numbers[numbers > 0].tolist()
        low, high = self.sizes
        ngrams = [tuple(tokens[k : k + n]) for n in range(low, high + 1) for k in range(len(tokens) - n + 1)]
        return ngrams or [()]  # a text without known tokens has a feature of its own


class SeriesFeatures:
    """The values of standardised series, `(L, C)`. Shorter ones are padded with the mean, 0; longer ones are cut."""

    def __init__(self, series: Sequence[np.ndarray]):
        steps, channels = max(map(len, series)), series[0].shape[1]
        self.stride = max(1, -(-steps * channels // MAX_FEATURES))
        self.steps = -(-steps // self.stride)
        self.train = self.of(series)

    def of(self, series: Sequence[np.ndarray]) -> np.ndarray:
        """Return the values of series, `(N, F)`, float32."""
        vectors = np.zeros((len(series), self.steps, series[0].shape[1]), np.float32)
        for vector, each in zip(vectors, series, strict=True):
            kept = each[:: self.stride][: self.steps]
            vector[: len(kept)] = kept
        return vectors.reshape(len(series), -1)


class Constant(Baseline):
    """Predicts the same for every example: a summary of the training targets.

    Args:
        task: the task
        name: the name
        summary: a function of the targets, `(N,)` or `(N, K)`, such as their mean
        target: the field of an encoded example with its label or numbers
        to_output: converts predictions, `(N,)` or `(N, K)`, to the output of the task's network
    """

    def __init__(self, task: Any, name: str, summary: Callable[[np.ndarray], Any], target: str, to_output: ToOutput):
        super().__init__(task)
        self.name, self.summary, self.target, self.to_output = name, summary, target, to_output

    def learn(self, train: Sequence[Encoded], dev: Sequence[Encoded]) -> None:
        kept = self.limited(train, max_examples=MAX_UNITS)
        self.prediction = self.summary(np.array([each[self.target] for each in kept]))

    def forward(self, batch: Batch) -> Any:
        return self.to_output(np.stack([self.prediction] * len(batch["lengths"])))


class OnFeatures(Baseline):
    """An estimator of scikit-learn on the features of a text or a series.

    Args:
        task, target, to_output: see `Constant`
        name: the name, with {} in place of the features
        estimator: a function that returns the estimator for texts (True) or series (False)
    """

    def __init__(self, task: Any, name: str, estimator: Callable[[bool], Any], target: str, to_output: ToOutput):
        super().__init__(task)
        self.is_text = "units" in task.vocabularies
        self.field = "units" if self.is_text else "series"
        self.name = name.format("tf-idf" if self.is_text else "values")
        self.estimator, self.target, self.to_output = estimator, target, to_output

    def learn(self, train: Sequence[Encoded], dev: Sequence[Encoded]) -> None:
        kept = self.limited(train, MAX_UNITS if self.is_text else _MAX_VALUES // train[0]["series"].shape[1])
        inputs, targets = [each[self.field] for each in kept], np.array([each[self.target] for each in kept])
        self.features: TextFeatures | SeriesFeatures
        if self.is_text:
            num_outputs = targets.shape[1] if targets.ndim == 2 else len(np.unique(targets))
            self.features = TextFeatures(inputs, self.task.vocabularies["units"], num_outputs)
        else:
            self.features = SeriesFeatures(inputs)
        with quiet():
            self.model = self.estimator(self.is_text).fit(self.features.train, targets)

    def forward(self, batch: Batch) -> Any:
        rows = zip(batch[self.field].numpy(), batch["lengths"].tolist(), strict=True)
        return self.to_output(self.model.predict(self.features.of([row[:length] for row, length in rows])))


def logistic_regression(is_text: bool) -> Any:
    """Return the classifier of texts or series."""
    from sklearn.linear_model import LogisticRegression

    if is_text:  # on sparse features, SAGA takes a fortieth of the time of L-BFGS
        return LogisticRegression(C=10.0, solver="saga", tol=1e-3, random_state=0)
    return LogisticRegression(tol=1e-3, max_iter=200)


def nearest_neighbour(is_text: bool) -> Any:
    """Return the classifier by the training series with the smallest Euclidean distance."""
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier(1, algorithm="brute")


def ridge_regression(is_text: bool) -> Any:
    """Return the regression of numbers."""
    from sklearn.linear_model import Ridge

    return Ridge()


def one_hot(labels: np.ndarray, num_labels: int) -> Tensor:
    """Return scores that are 1 for the given labels and 0 for the others, `(..., K)`."""
    return torch.nn.functional.one_hot(torch.as_tensor(labels, dtype=torch.long), num_labels).float()
