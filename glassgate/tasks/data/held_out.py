"""The rules that hold out dev and test examples of data that comes without them. Every task declares one of them.

| rule | examples | tasks |
|---|---|---|
| `ByContent` | independent; selected by a hash of the content | tagging, classification, regression, translation |
| `LastExamples` | in a meaningful order, such as the lines of a text; the last ones | texts whose sequences are lines |
| `LastSteps` | with steps in the order of time; the last steps of each | texts read as a whole, forecasting |

Pieces of music are independent, so a language model of notes declares `ByContent`. No rule depends on the seed of a
training, so scores of different seeds are comparable.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np

from glassgate.tasks.data.store.examples import Stored

Example = TypeVar("Example")

Parts = tuple[Sequence[Example], Sequence[Example], Sequence[Example]]
"""The train, dev and test examples."""


class Ordered(Protocol):
    """An example whose steps are in the order of time."""

    def __len__(self) -> int:
        """The number of steps."""
        ...

    def part(self, start: int, stop: int, /) -> Self:
        """Return the steps from `start` to `stop`."""
        ...


OrderedType = TypeVar("OrderedType", bound=Ordered)


class Rule(ABC, Generic[Example]):
    """A rule that selects the dev and the test part of examples."""

    @abstractmethod
    def split(self, examples: Sequence[Example], fraction: float) -> Parts[Example]:
        """Return the train, dev and test parts; each part keeps the order of the examples.

        Args:
            examples: at least one example
            fraction: the fraction of dev, and of test
        """


@dataclass(frozen=True)
class ByContent(Rule[Example]):
    """Selects independent examples by a hash of their content.

    Examples with equal content are in the same part, unless a few contents make up most of the examples. The parts do
    not depend on the order of the examples.

    Attributes:
        key: returns the content of an example: a text, a sequence of texts or an array

    Example:
        >>> train, dev, test = ByContent(str).split(list("abcdefghij"), 0.1)
        >>> len(train), len(dev), len(test)
        (8, 1, 1)
    """

    key: Callable[[Example], object]

    def split(self, examples: Sequence[Example], fraction: float) -> Parts[Example]:
        count = held_out_size(len(examples), fraction)
        if not count:
            return examples, [], []
        hashes = [_hash(self.key(each)) for each in examples]
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


class LastExamples(Rule[Example]):
    """Selects the last examples: first the training part, then dev, then test.

    Example:
        >>> LastExamples().split("abcdefghij", 0.1)
        ('abcdefgh', 'i', 'j')
    """

    def split(self, examples: Sequence[Example], fraction: float) -> Parts[Example]:
        count = held_out_size(len(examples), fraction)
        if not count:
            return examples, [], []
        first, second = len(examples) - 2 * count, len(examples) - count
        return examples[:first], examples[first:second], examples[second:]


class LastSteps(Rule[OrderedType]):
    """Selects the last steps of each example: first the training part, then dev, then test."""

    def split(self, examples: Sequence[OrderedType], fraction: float) -> Parts[OrderedType]:
        sizes = [self.sizes(each, fraction) for each in examples]
        overlap = self.overlap(examples, [train for train, *_ in sizes])
        parts: tuple[list[OrderedType], ...] = ([], [], [])
        for each, size in zip(examples, sizes, strict=True):
            start = 0
            for part, steps in zip(parts, size, strict=True):
                if steps:
                    part.append(each.part(max(0, start - overlap), start + steps))
                start += steps
        train, dev, test = parts
        return train, dev, test

    def sizes(self, example: OrderedType, fraction: float) -> tuple[int, int, int]:
        """Return the number of steps of the train, dev and test part of an example."""
        count = held_out_size(len(example), fraction)
        return len(example) - 2 * count, count, count

    def overlap(self, examples: Sequence[OrderedType], train: Sequence[int]) -> int:
        """Return how many steps at the end of a part also begin the next one.

        Args:
            examples: the examples
            train: the number of steps of each training part
        """
        return 0


def held_out_size(length: int, fraction: float) -> int:
    """Return the size of a held-out part; the fraction is rounded down, except for errors of floating-point numbers."""
    return int(length * fraction + 1e-6)


def _hash(content: Any) -> bytes:
    raw = content.tobytes() if isinstance(content, np.ndarray) else "\0".join(content).encode(errors="surrogatepass")
    return hashlib.blake2b(raw, digest_size=8).digest()


def _select(examples: Sequence[Example], places: list[int]) -> Sequence[Example]:
    return (
        examples[np.array(places, np.int64)] if isinstance(examples, Stored) else [examples[place] for place in places]
    )
