"""Plain text as sequences of characters, bytes, words or tokens; each file one sequence, or each of its lines."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np

from glassgate.tasks.data import mapped
from glassgate.tasks.data.lines import raw_lines, read_lines
from glassgate.tasks.data.vocabulary import Vocabulary
from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.options import Options, option

_WORDS = re.compile(r"\n|<\w+>|\w+(?:['\u2019]\w+)*|[^\w\s]")
_TOKENS = re.compile(r"\n|\S+")
_CLOSING = frozenset(".,;:!?…)]}»”%")
_OPENING = frozenset("([{«“")

_SPLITTERS: dict[str, Callable[[str], Sequence[str]]] = {
    "character": str,
    "byte": lambda text: text.encode().decode("latin-1"),
    "word": _WORDS.findall,
    "token": _TOKENS.findall,
}
UNITS = tuple(_SPLITTERS)


@dataclass(frozen=True, kw_only=True)
class TextOptions(Options):
    """What every task on plain text can be told."""

    unit: str = option(
        "character",
        "what a text is made of; a word ends at punctuation, a token at blanks",
        group="data",
        choices=UNITS,
    )
    sequence: str = option(
        "file", "what is one sequence: the whole file, or each line", group="data", choices=("file", "line")
    )
    held_out: float = option(
        0.05,
        "share of --data kept as test, at its end, and as much before that as dev, where neither is given",
        group="data",
        least=0,
        most=0.4,
    )
    least_count: int = option(1, "times a unit must occur in training to be known", least=1)


@dataclass(frozen=True, slots=True)
class Text:
    """One sequence of units; a byte is the character of its number.

    Attributes:
        units: the units; those of a line end with the line end
        source: the file it came from
        line: the line where it begins
    """

    units: Sequence[str]
    source: str = ""
    line: int = 1


def split(text: str, unit: str) -> Sequence[str]:
    """Part a text into units.

    Args:
        unit: one of `UNITS`

    Example:
        >>> split("Don't panic!", "word")
        ["Don't", 'panic', '!']
    """
    return _SPLITTERS[unit](text)


def join(units: Sequence[str], unit: str) -> str:
    """Put units together to a text.

    Example:
        >>> join(["Don't", "panic", "!"], "word")
        "Don't panic!"
    """
    if unit == "byte":
        return "".join(units).encode("latin-1").decode(errors="replace")
    gaps = (gap(before, after, unit) for before, after in zip(["\n", *units], units, strict=False))
    return "".join(each for pair in zip(gaps, units, strict=True) for each in pair)


def gap(before: str, after: str, unit: str) -> str:
    """Return what stands between two units that follow each other: a blank or nothing."""
    if unit not in ("word", "token") or "\n" in (before, after):
        return ""
    return "" if unit == "word" and (after in _CLOSING or before in _OPENING) else " "


def read_text(path: str | Path, unit: str, sequence: str) -> list[Text]:
    """Read a text file, or standard input, as one sequence or a sequence a line; a large one sequence stays on disk.

    Raises:
        DataError: see `read_lines`; there is nothing but blank lines
    """
    cut = str if unit == "byte" else _SPLITTERS[unit]
    if sequence == "file" and mapped.is_large(path):
        return [Text(mapped.read_units(path, unit, cut), str(path))]
    lines: list[tuple[int, str]]
    if unit == "byte":
        lines = [(number, raw.rstrip(b"\r\n").decode("latin-1")) for number, raw in enumerate(raw_lines(path), start=1)]
    else:
        lines = list(read_lines(path))
    if not any(text.strip() for _, text in lines):
        raise DataError(path, None, "the file holds nothing but blanks; give one with text")
    if sequence == "file":
        return [Text(cut("".join(f"{text}\n" for _, text in lines)), str(path))]
    return [Text(cut(f"{text}\n"), str(path), number) for number, text in lines if text.strip()]


def documentation(unit: str, sequence: str) -> list[Text]:
    """Return the reference that Python's own `help` prints: English prose and some code, half a million characters.

    Raises:
        OptionError: this Python was installed without it
    """
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise OptionError("this Python came without its documentation (pydoc_data); give a text with --data") from None
    text = "\n\n".join(topics[name].strip() for name in sorted(topics)) + "\n"
    if sequence == "file":
        return [Text(split(text, unit), "pydoc_data.topics")]
    return [Text(split(f"{line}\n", unit), "pydoc_data.topics") for line in text.splitlines() if line.strip()]


def vocabulary(texts: Sequence[Text], unit: str, least_count: int) -> Vocabulary:
    """Return the units that texts are made of: those that occur often enough, or all bytes."""
    if unit == "byte":
        return Vocabulary([chr(number) for number in range(256)])
    counts: Counter[str] = Counter()
    for each in texts:
        counts.update(each.units.counts() if isinstance(each.units, mapped.Units) else each.units)
    return Vocabulary.of(counts, least_count)


def encode(units: Sequence[str], vocabulary: Vocabulary) -> np.ndarray:
    """Number each unit, `(L,)`; of units on disk, when they are cut out."""
    if isinstance(units, mapped.Units):
        return cast(np.ndarray, mapped.Numbers(units, vocabulary.encode(units.symbols)))
    return vocabulary.encode(units)


def shifted(numbers: np.ndarray, first: int) -> np.ndarray:
    """Return for each of what `encode` made the one before it, `first` for the first one."""
    if isinstance(numbers, mapped.Numbers):
        return cast(np.ndarray, mapped.Numbers(numbers.units, numbers.table, first))
    return np.concatenate([[first], numbers])[:-1]


def hold_out(texts: Sequence[Text], share: float) -> tuple[list[Text], list[Text], list[Text]]:
    """Part texts, or the units of a single one, in their order into train, dev and test.

    Args:
        texts: at least one
        share: of dev and of test, each

    Example:
        >>> train, dev, test = hold_out([Text("abcdefghij")], 0.1)
        >>> train[0].units, dev[0].units, test[0].units
        ('abcdefgh', 'i', 'j')
    """
    whole = texts[0].units if len(texts) == 1 else texts
    count = int(len(whole) * share)
    if not count:
        return list(texts), [], []
    first, second = len(whole) - 2 * count, len(whole) - count
    if len(texts) > 1:
        return list(texts[:first]), list(texts[first:second]), list(texts[second:])
    parts = (slice(first), slice(first, second), slice(second, None))
    train, dev, test = ([replace(texts[0], units=texts[0].units[part])] for part in parts)
    return train, dev, test
