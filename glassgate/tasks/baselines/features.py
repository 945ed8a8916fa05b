"""Features of encoded texts and series for linear models and nearest neighbours."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from glassgate.tasks.data.vocabulary import FIRST, Vocabulary

MAX_FEATURES = 2**17
"""The maximum number of n-grams, and of values of a series."""
MAX_WEIGHTS = 2**23
"""The maximum number of weights of a linear model: features times outputs."""

_WORD_NGRAMS, _CHARACTER_NGRAMS = (1, 2), (1, 5)


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
    """The values of series as vectors. Shorter series are padded with the mean, 0; longer ones are cut.

    Args:
        series: the standardised training series, `(L, C)` each
    """

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
