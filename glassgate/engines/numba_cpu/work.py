"""What threads can share: machine code whose words are known by name, and its part in the last two."""

from array import array
from collections.abc import Sequence

from glassgate.engines.numba_cpu.compile import Function
from glassgate.engines.numba_cpu.threads import Job

Facts = dict[str, int]
"""What a call knows by name: addresses, sizes, distances."""
Word = str | int | tuple[str, int]
"""The name of a fact, a number, or a name and what to add."""


class Work:
    """Something that threads can share, by its last two words: from which on, and up to which.

    Args:
        function: the machine code.
        words: its words but for these two.
        size: how much there is to share.
        light: whether that takes less time than to wake a second thread.
    """

    def __init__(self, function: Function, words: Sequence[Word], size: Word, light: bool = False) -> None:
        self.function, self.light = function, light
        named = [_named(word) for word in (*words, 0, 0)]
        self._numbers = array("q", [number for _, number in named])
        self._names = [(slot, name) for slot, (name, _) in enumerate(named) if name]
        self._size, self._more = _named(size)

    def part(self, facts: Facts, k: int = 0, parts: int = 1) -> Job:
        """One of `parts` about equal parts."""
        size = facts[self._size] + self._more if self._size else self._more
        return self.between(facts, size * k // parts, size * (k + 1) // parts)

    def between(self, facts: Facts, first: int, last: int) -> Job:
        """A part of any size."""
        words = self._numbers[:]
        for slot, name in self._names:
            words[slot] += facts[name]
        words[-2], words[-1] = first, last
        return Job(self.function, words)


def _named(word: Word) -> tuple[str, int]:
    if isinstance(word, tuple):
        return word
    return ("", word) if isinstance(word, int) else (word, 0)
