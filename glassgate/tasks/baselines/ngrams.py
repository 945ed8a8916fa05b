"""N-gram models with interpolated Kneser-Ney smoothing (Kneser & Ney 1995; Chen & Goodman 1999, equation 4.8)."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from glassgate.tasks.baselines.baseline import MAX_UNITS, Baseline
from glassgate.tasks.data.batches import Encoded, lengths
from glassgate.tasks.data.vocabulary import UNKNOWN

_CHUNK = 2**16  # tokens whose probabilities are computed at once


class TokenModel(Baseline):
    """Predicts each token from neighbouring tokens by an n-gram model.

    It reads whole texts instead of batches, as contexts extend over the bounds of batches.

    Args:
        task: the task; `target_field` names the field of the tokens
        name: the name of the model
        offsets: the positions of the context relative to the token, the farthest first; empty for unigrams
    """

    def __init__(self, task: Any, name: str, offsets: Sequence[int] = ()):
        super().__init__(task)
        self.name, self.offsets = name, tuple(offsets)

    def learn(self, train: Sequence[Encoded], dev: Sequence[Encoded]) -> None:
        parts: list[tuple[np.ndarray, np.ndarray]] = []
        left = MAX_UNITS
        for fields in reversed(train):
            tokens = fields[self.task.target_field]
            parts.append(self._columns(tokens, max(0, len(tokens) - left), len(tokens)))
            left -= len(tokens)
            if left <= 0:
                self.note = f"trained on the last {MAX_UNITS:,} of {int(np.sum(lengths(train))):,} tokens"
                break
        contexts, symbols = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        self.model = NGrams(contexts, symbols, len(self.task.vocabularies["units"]) - UNKNOWN)

    def observed(self, encoded: Sequence[Encoded]) -> Iterator[dict[str, Any]]:
        for fields in encoded:
            tokens = fields[self.task.target_field]
            for start in range(0, len(tokens), _CHUNK):
                contexts, symbols = self._columns(tokens, start, min(len(tokens), start + _CHUNK))
                nats = -np.log(self.model.probabilities(contexts, symbols))
                observed = {"nats": nats, "mask": nats >= 0, "target": symbols}
                observed["preds"] = self.model.most_probable(contexts)
                yield {name: torch.from_numpy(values)[None] for name, values in observed.items()}

    def _columns(self, tokens: np.ndarray, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """The contexts, `(L, C)`, and the symbols, `(L,)`, of the tokens from `start` to `stop`.

        Symbol 0 is the unknown token. Contexts are -1 before the beginning and after the end of the text.
        """
        low, high = min((0, *self.offsets)), max((0, *self.offsets))
        first, last = max(0, start + low), min(len(tokens), stop + high)
        read = np.asarray(tokens[first:last], np.int64) - UNKNOWN
        padded = np.pad(read, (first - start - low, stop + high - last), constant_values=-1)
        columns = [padded[offset - low :][: stop - start] for offset in self.offsets]
        contexts = np.stack(columns, 1) if columns else np.zeros((stop - start, 0), np.int64)
        return contexts, padded[-low:][: stop - start]


class _Level(NamedTuple):
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
    """

    def __init__(self, contexts: np.ndarray, symbols: np.ndarray, num_symbols: int):
        self.num_symbols = num_symbols
        context_keys = [np.zeros(1, np.int64)]  # of each length
        indices = np.zeros(len(symbols), np.int64)
        for column in contexts.T[::-1]:
            keys = (column.astype(np.int64) + 1) * len(context_keys[-1]) + indices
            distinct, indices = np.unique(keys, return_inverse=True)
            context_keys.append(distinct)
        distinct_grams, counts = np.unique(indices * num_symbols + symbols, return_counts=True)
        levels = [_level(context_keys[-1], distinct_grams, counts, num_symbols)]
        for shorter_keys, keys in zip(context_keys[-2::-1], context_keys[:0:-1], strict=True):
            # The count of a shorter n-gram is the number of different symbols that precede it.
            index, symbol = np.divmod(distinct_grams, num_symbols)
            shorter = keys[index] % len(shorter_keys)
            distinct_grams, counts = np.unique(shorter * num_symbols + symbol, return_counts=True)
            levels.append(_level(shorter_keys, distinct_grams, counts, num_symbols))
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
        indices = [np.zeros(len(contexts), np.int64)]
        for column, shorter, level in zip(contexts.T[::-1], self.levels, self.levels[1:], strict=False):
            previous = indices[-1]
            keys = (column.astype(np.int64) + 1) * len(shorter.context_keys) + np.maximum(previous, 0)
            indices.append(np.where(previous < 0, -1, _find(level.context_keys, keys)))
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
