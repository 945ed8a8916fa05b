"""The rules that hold out dev and test examples of data that comes without them. Every task declares one rule.

| rule | held-out part | examples | used by |
|---|---|---|---|
| `ByContent` | chosen by a hash of their content | independent | tagging, classification, regression, translation |
| `LastExamples` | the last examples | in a meaningful order | texts with one sequence per line |
| `LastSteps` | the last steps of each example | with steps in the order of time | texts read as a whole, forecasting |

A language model of music uses `ByContent`, because pieces are independent. No rule depends on the seed of a training
run, so scores of different seeds are comparable.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from glassgate.tasks.data.corpus import Corpus

Example = TypeVar("Example")

Parts = tuple[Sequence[Example], Sequence[Example], Sequence[Example]]
"""The train, dev and test examples."""


class Rule(ABC, Generic[Example]):
    """A rule that divides examples into a train, a dev and a test part."""

    @abstractmethod
    def split(self, examples: Sequence[Example], fraction: float) -> Parts[Example]:
        """Return the train, dev and test parts; each part keeps the order of the examples.

        Args:
            examples: at least one example
            fraction: the size of dev, and of test, as a fraction of all examples or of each example's steps
        """


@dataclass(frozen=True)
class ByContent(Rule[Example]):
    """Selects independent examples by a hash of their content.

    Examples with equal content are in the same part, unless so many are equal that dev and test would become much
    larger than requested. The parts do not depend on the order of the examples.

    Attributes:
        content_of: returns the content of an example: a text, a sequence of texts or an array

    Example:
        >>> train, dev, test = ByContent(str).split(list("abcdefghij"), 0.1)
        >>> len(train), len(dev), len(test)
        (8, 1, 1)
    """

    content_of: Callable[[Example], object]

    def split(self, examples: Sequence[Example], fraction: float) -> Parts[Example]:
        count = held_out_size(len(examples), fraction)
        if not count:
            return examples, [], []
        examples = Corpus.of(examples)
        hashes = [_hash(self.content_of(example)) for example in examples]
        order = np.array(sorted(range(len(hashes)), key=hashes.__getitem__), np.int64)
        bounds = [0]
        for bound in (count, 2 * count):
            while bound < len(order) and hashes[order[bound]] == hashes[order[bound - 1]]:
                bound += 1  # keep equal contents in one part
            bounds.append(bound)
        if bounds[-1] > 3 * count:  # too many equal contents: cut between them
            bounds = [0, count, 2 * count]
        ends = (*bounds[1:], None)
        dev, test, train = (examples[np.sort(order[start:stop])] for start, stop in zip(bounds, ends, strict=True))
        return train, dev, test

    def hashes(self, examples: Sequence[Example], most: int) -> list[str]:
        """Return the hashes of the content of examples as text; of `most` evenly spaced ones if there are more."""
        count = min(len(examples), most)
        return [_hash(self.content_of(examples[k * len(examples) // count])).hex() for k in range(count)]


class LastExamples(Rule[Example]):
    """Selects the last examples: the order of the parts is train, dev, test.

    Example:
        >>> LastExamples().split("abcdefghij", 0.1)
        ('abcdefgh', 'i', 'j')
    """

    def split(self, examples: Sequence[Example], fraction: float) -> Parts[Example]:
        count = held_out_size(len(examples), fraction)
        if not count:
            return examples, [], []
        dev_start, test_start = len(examples) - 2 * count, len(examples) - count
        return examples[:dev_start], examples[dev_start:test_start], examples[test_start:]


class LastSteps(Rule[Example]):
    """Selects the last steps of each example: the order of the parts is train, dev, test.

    An example has a length, and a method `part(start, stop)`, which returns these steps.
    """

    def split(self, examples: Sequence[Any], fraction: float) -> Parts[Example]:
        part_sizes = [self.sizes(example, fraction) for example in examples]
        overlap = self.overlap(examples, [train_size for train_size, *_ in part_sizes])
        parts: tuple[list[Example], ...] = ([], [], [])
        for example, sizes in zip(examples, part_sizes, strict=True):
            start = 0
            for part, size in zip(parts, sizes, strict=True):
                if size:
                    part.append(example.part(max(0, start - overlap), start + size))
                start += size
        train, dev, test = parts
        return train, dev, test

    def sizes(self, example: Any, fraction: float) -> tuple[int, int, int]:
        """Return the numbers of steps of the train, dev and test parts of an example."""
        count = held_out_size(len(example), fraction)
        return len(example) - 2 * count, count, count

    def overlap(self, examples: Sequence[Any], train_sizes: Sequence[int]) -> int:
        """Return the number of steps at the end of each part that the next part also contains."""
        return 0


def held_out_size(length: int, fraction: float) -> int:
    """Return the size of a held-out part, rounded down."""
    return int(length * fraction + 1e-6)  # the product may be slightly too small: 0.29 * 100 = 28.999999999999996


def _hash(content: Any) -> bytes:
    raw = content.tobytes() if isinstance(content, np.ndarray) else "\0".join(content).encode(errors="surrogatepass")
    return hashlib.blake2b(raw, digest_size=8).digest()
