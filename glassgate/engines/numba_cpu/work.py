"""What threads can share: machine code whose words are known by name, and its part in the last two."""

from array import array
from collections.abc import Sequence

from glassgate.engines.numba_cpu.compile import Function
from glassgate.engines.numba_cpu.jobs import Job, in_turn

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
        named = [_named(word) for word in (*words, 0, 0)]
        self._blank = Job(function, array("q", [number for _, number in named]))
        self._names = [(slot, name) for slot, (name, _) in enumerate(named) if name]
        self._shares = [(len(words), *_named(size))]
        self.light = light

    def part(self, facts: Facts, k: int = 0, parts: int = 1) -> Job:
        """One of `parts` about equal parts."""
        job = self._filled(facts)
        for slot, name, more in self._shares:
            size = facts[name] + more if name else more
            job.words[slot], job.words[slot + 1] = size * k // parts, size * (k + 1) // parts
        return job

    def between(self, facts: Facts, first: int, last: int) -> Job:
        """A part of any size."""
        job = self._filled(facts)
        job.words[-2], job.words[-1] = first, last
        return job

    def _filled(self, facts: Facts) -> Job:
        words = self._blank.words[:]
        for slot, name in self._names:
            words[slot] += facts[name]
        return Job(self._blank.function, words)


class Series(Work):
    """Works one after the other, as one: its parts are parts of each."""

    def __init__(self, works: Sequence[Work]) -> None:
        self._blank = in_turn([work._blank for work in works])
        self._names, self._shares = [], []
        at = len(self._blank.words) - sum(len(work._blank.words) for work in works)
        for work in works:
            self._names += [(at + slot, name) for slot, name in work._names]
            self._shares += [(at + slot, name, more) for slot, name, more in work._shares]
            at += len(work._blank.words)
        self.light = all(work.light for work in works)


def _named(word: Word) -> tuple[str, int]:
    if isinstance(word, tuple):
        return word
    return ("", word) if isinstance(word, int) else (word, 0)
