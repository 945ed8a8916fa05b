"""N-gram models with interpolated Kneser-Ney smoothing (Kneser & Ney 1995; Chen & Goodman 1999, equation 4.8)."""

from dataclasses import dataclass

import numpy as np


@dataclass
class _Level:
    """The n-grams with contexts of one length.

    Attributes:
        context_keys: the sorted keys of the contexts; a key is (farthest symbol) * (number of shorter contexts) + (the
            index of the shorter context)
        keys, counts: the sorted keys of the n-grams, (index of the context) * (number of symbols) + symbol, and their
            discounted counts
        totals, backoff: for each context, the sum of the counts, and the weight of the shorter context
        best: the most frequent symbol after each context
    """

    context_keys: np.ndarray
    keys: np.ndarray
    counts: np.ndarray
    totals: np.ndarray
    backoff: np.ndarray
    best: np.ndarray


class NGrams:
    """Predicts a symbol from C other symbols.

    Args:
        contexts: the context of each training symbol, `(P, C)`; the nearest symbol, which is dropped last, comes last
        symbols: the training symbols, `(P,)`
        num_symbols: the number of symbols, V; contexts may contain -1 for the beginning of a sequence

    Example:
        >>> model = NGrams(np.array([[0], [1], [0]]), np.array([1, 0, 1]), 2)
        >>> model.probabilities(np.array([[0], [0]]), np.array([0, 1])).round(3).tolist()
        [0.083, 0.917]
        >>> model.most_probable(np.array([[0]])).tolist()
        [1]
    """

    def __init__(self, contexts: np.ndarray, symbols: np.ndarray, num_symbols: int):
        self.num_symbols = num_symbols
        size = contexts.shape[1]
        context_keys = [np.zeros(1, np.int64)]  # of each length
        indices = np.zeros(len(symbols), np.int64)
        for length in range(1, size + 1):
            keys = (contexts[:, size - length].astype(np.int64) + 1) * len(context_keys[-1]) + indices
            distinct, indices = np.unique(keys, return_inverse=True)
            context_keys.append(distinct)
        distinct_grams, counts = np.unique(indices * num_symbols + symbols, return_counts=True)
        levels = [_level(context_keys[-1], distinct_grams, counts, num_symbols)]
        for length in range(size, 0, -1):
            # The count of a shorter n-gram is the number of different symbols that precede it.
            index, symbol = np.divmod(distinct_grams, num_symbols)
            shorter = context_keys[length][index] % len(context_keys[length - 1])
            distinct_grams, counts = np.unique(shorter * num_symbols + symbol, return_counts=True)
            levels.append(_level(context_keys[length - 1], distinct_grams, counts, num_symbols))
        self.levels = levels[::-1]

    def probabilities(self, contexts: np.ndarray, symbols: np.ndarray) -> np.ndarray:
        """Return the probability of each symbol after its context, `(Q,)`."""
        return self._interpolate(self._indices(contexts), symbols)

    def most_probable(self, contexts: np.ndarray) -> np.ndarray:
        """Return the most probable of the symbols that often follow the context or its last symbols, `(Q,)`."""
        indices = self._indices(contexts)
        candidates = [
            np.where(index < 0, self.levels[0].best[0], level.best[index])
            for level, index in zip(self.levels, indices, strict=True)
        ]
        scores = [self._interpolate(indices, each) for each in candidates]
        return np.choose(np.argmax(scores, 0), candidates)

    def _indices(self, contexts: np.ndarray) -> list[np.ndarray]:
        """The index of each context of each length; -1 for one that the training data lacks."""
        size = contexts.shape[1]
        indices = [np.zeros(len(contexts), np.int64)]
        for length in range(1, size + 1):
            shorter = indices[-1]
            keys = (contexts[:, size - length].astype(np.int64) + 1) * len(self.levels[length - 1].context_keys)
            found = _find(self.levels[length].context_keys, keys + np.maximum(shorter, 0))
            indices.append(np.where(shorter < 0, -1, found))
        return indices

    def _interpolate(self, indices: list[np.ndarray], symbols: np.ndarray) -> np.ndarray:
        probability = np.full(len(symbols), 1 / self.num_symbols)
        for level, index in zip(self.levels, indices, strict=True):
            found = _find(level.keys, np.maximum(index, 0) * self.num_symbols + symbols)
            count = np.where(found < 0, 0.0, level.counts[found])
            interpolated = (count + level.backoff[index] * probability) / level.totals[index]
            probability = np.where(index < 0, probability, interpolated)
        return probability


def _level(context_keys: np.ndarray, keys: np.ndarray, counts: np.ndarray, num_symbols: int) -> _Level:
    once, twice = (int((counts == k).sum()) for k in (1, 2))
    discount = once / (once + 2 * twice) if once and twice else 0.5
    contexts, symbols = np.divmod(keys, num_symbols)
    totals = np.bincount(contexts, counts, len(context_keys))
    kinds = np.bincount(contexts, minlength=len(context_keys))
    order = np.argsort(counts, kind="stable")  # the last assignment, of the largest count, remains
    best = np.zeros(len(context_keys), np.int64)
    best[contexts[order]] = symbols[order]
    return _Level(context_keys, keys, counts - discount, totals, discount * kinds, best)


def _find(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The positions of wanted keys among sorted keys; -1 for those that are missing."""
    positions = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[positions] == wanted, positions, -1)
