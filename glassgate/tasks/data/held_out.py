"""Splits independent examples into train, dev and test by a hash, independently of the seed of a training."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from glassgate.tasks.data.store.examples import Stored

Example = TypeVar("Example")


def hold_out(
    examples: Sequence[Example],
    fraction: float,
    key: Callable[[Example], object] = lambda each: each.content,  # type: ignore[attr-defined]
) -> tuple[Sequence[Example], Sequence[Example], Sequence[Example]]:
    """Split examples into train, dev and test by a hash of their content.

    Examples with equal content are in the same part, unless a few contents make up most of the examples. The split does
    not depend on the order of the examples.

    Args:
        examples: the examples; each part keeps their order
        fraction: the fraction of dev, and of test
        key: the content of an example: a text, a sequence of texts or an array

    Example:
        >>> train, dev, test = hold_out(list("abcdefghij"), 0.1, str)
        >>> len(train), len(dev), len(test)
        (8, 1, 1)
    """
    count = int(len(examples) * fraction)
    if not count:
        return examples, [], []
    hashes = [_hash(key(each)) for each in examples]
    order = sorted(range(len(hashes)), key=hashes.__getitem__)
    bounds = [0]
    for bound in (count, 2 * count):
        while bound < len(order) and hashes[order[bound]] == hashes[order[bound - 1]]:
            bound += 1
        bounds.append(bound)
    if bounds[-1] > 3 * count:  # a few contents make up most of the examples, and are in all parts
        bounds = [0, count, 2 * count]
    dev, test, train = (sorted(order[start:stop]) for start, stop in zip(bounds, (*bounds[1:], None), strict=True))
    return _select(examples, train), _select(examples, dev), _select(examples, test)


def _hash(content: Any) -> bytes:
    raw = content.tobytes() if isinstance(content, np.ndarray) else "\0".join(content).encode(errors="surrogatepass")
    return hashlib.blake2b(raw, digest_size=8).digest()


def _select(examples: Sequence[Example], places: list[int]) -> Sequence[Example]:
    return (
        examples[np.array(places, np.int64)] if isinstance(examples, Stored) else [examples[place] for place in places]
    )
