"""N-gram models equal a direct implementation of interpolated Kneser-Ney smoothing with dictionaries."""

from collections import defaultdict

import numpy as np
import pytest

from glassgate.tasks.baselines.ngrams import NGrams

NUM_SYMBOLS = 5


def columns(tokens: np.ndarray, size: int) -> np.ndarray:
    """Return the `size` symbols before each token, with -1 before the first one."""
    padded = np.concatenate([np.full(size, -1), tokens])
    return np.stack([padded[k : k + len(tokens)] for k in range(size)], 1) if size else np.zeros((len(tokens), 0), int)


def probability(tokens: np.ndarray, size: int, context: tuple[int, ...], symbol: int) -> float:
    """Return the probability of a symbol after a context (Chen & Goodman 1999, equations 4.7 and 4.8)."""
    rows = [(*map(int, row), int(token)) for row, token in zip(columns(tokens, size), tokens, strict=True)]

    def level(length: int) -> float:
        if length < 0:
            return 1 / NUM_SYMBOLS
        counts: dict[tuple[int, ...], set[int]] = defaultdict(set)
        for number, row in enumerate(rows):
            counts[row[size - length :]].add(number if length == size else row[size - length - 1])
        sizes = {gram: len(members) for gram, members in counts.items()}
        once, twice = (sum(count == k for count in sizes.values()) for k in (1, 2))
        discount = once / (once + 2 * twice) if once and twice else 0.5
        short = context[size - length :]
        after = {gram[-1]: count for gram, count in sizes.items() if gram[:-1] == short}
        if not after:
            return level(length - 1)
        kept = after[symbol] - discount if symbol in after else 0.0
        return (kept + discount * len(after) * level(length - 1)) / sum(after.values())

    return level(size)


@pytest.mark.parametrize("size", [0, 1, 3])
def test_equals_the_definition(size: int) -> None:
    random = np.random.default_rng(size)
    tokens = random.choice(NUM_SYMBOLS - 1, 80, p=[0.5, 0.3, 0.15, 0.05])
    model = NGrams(columns(tokens, size), tokens, NUM_SYMBOLS)
    contexts = np.concatenate([columns(tokens, size)[:6], random.integers(-1, NUM_SYMBOLS, (12, size))])
    table = np.stack([model.probabilities(contexts, np.full(len(contexts), k)) for k in range(NUM_SYMBOLS)], 1)
    expected = [[probability(tokens, size, tuple(row), k) for k in range(NUM_SYMBOLS)] for row in contexts.tolist()]
    np.testing.assert_allclose(table, expected, rtol=1e-12)
    np.testing.assert_allclose(table.sum(1), 1, rtol=1e-12)
    assert (table[np.arange(len(table)), model.most_probable(contexts)] >= table.max(1) - 1e-9).mean() > 0.8
