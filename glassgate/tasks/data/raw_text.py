"""Tokenises raw text like the training data of a run: splits off punctuation, and segments Chinese text."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path

from glassgate.tasks.data.lines import read_lines
from glassgate.tasks.data.store.examples import LINE, LINES, SEQUENCE, Stored, store
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.data.vocabulary import Vocabulary
from glassgate.tasks.progress import Progress

_CJK = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_HAS_CJK = re.compile(f"[{_CJK}]")
_CHARACTERS = re.compile(f"[{_CJK}]|[^{_CJK}]+")
_WITH_PUNCTUATION = re.compile(r"\w[\w.'-]*[.,;:!?]")
_CLITIC = re.compile(r"(\w+?)(n['\u2019]t|['\u2019]\w{1,2})", re.IGNORECASE)
_ABBREVIATION = re.compile(r"(\w\.){2,}")
_OPENING, _CLOSING = frozenset("([{<«“‘\"'「『（《"), frozenset(".,;:!?…)]}>»”’\"'。，、；：！？」』）》")  # noqa: RUF001
_FEW = 0.05


class RawText:
    """Splits raw text into tokens like those of a vocabulary, which may be shorter than the words between blanks.

    Args:
        known: the vocabulary of the training data

    Attributes:
        characters: whether every token is a single character
        tokenised: whether punctuation marks are separate tokens, because few known words end with one
        segmented: whether Chinese or Japanese text has blanks between words
        opening, closing: the characters that are split off at the start and at the end of an unknown word
        longest: the length of the longest Chinese or Japanese token

    Example:
        >>> trained = RawText(Vocabulary(["weather", "in", "the", "city", "."]))
        >>> trained.split("weather in Dodoma.")
        ['weather', 'in', 'Dodoma', '.']
    """

    def __init__(self, known: Vocabulary):
        words = [unit for unit in known.symbols if any(map(str.isalpha, unit))]
        joined = sum(1 for unit in words if _WITH_PUNCTUATION.fullmatch(unit))
        cjk = [len(unit) for unit in words if _HAS_CJK.match(unit)]
        self.known = known
        self.characters = all(len(unit) == 1 for unit in known.symbols)
        self.tokenised = bool(words) and joined <= _FEW * len(words)
        self.segmented = not self.characters and bool(cjk) and sum(cjk) < 4 * len(cjk)
        self.longest = max(cjk, default=0)
        marks = {unit for unit in known.symbols if len(unit) == 1 and unicodedata.category(unit)[0] in "PS"}
        self.opening, self.closing = _OPENING | marks, _CLOSING | marks

    def split(self, text: str) -> list[str]:
        """Return the tokens of a text, in order; each is a part of the text."""
        if self.characters:
            return [character for character in text if character in self.known or not character.isspace()]
        return self.refined(text.split())

    def refined(self, units: Sequence[str]) -> list[str]:
        """Return tokens, the unknown ones split further."""
        units = self._without_punctuation(units)
        if self._lacks_blanks(units):
            units = [part for unit in units for part in ([unit] if unit in self.known else _CHARACTERS.findall(unit))]
        return units

    def is_unsegmented(self, text: str) -> bool:
        """Whether a text is Chinese or Japanese without blanks, and the training data had blanks between words."""
        return self.segmented and self._lacks_blanks(self._without_punctuation(text.split()))

    def _lacks_blanks(self, units: Sequence[str]) -> bool:
        cjk = [unit for unit in units if _HAS_CJK.search(unit)] if self.segmented else []
        unknown = [unit for unit in cjk if len(unit) > 1 and unit not in self.known]
        return bool(unknown) and (len(cjk) == 1 or max(map(len, unknown)) > self.longest)

    def _without_punctuation(self, units: Sequence[str]) -> list[str]:
        return [part for unit in units for part in self._parts(unit)] if self.tokenised else list(units)

    def _parts(self, unit: str) -> list[str]:
        """Split an unknown token into its punctuation marks, its stem, and its clitic, such as 's."""
        before: list[str] = []
        after: list[str] = []
        while unit and unit not in self.known and not _ABBREVIATION.fullmatch(unit):
            if len(unit) > 1 and unit[0] in self.opening:
                before.append(unit[0])
                unit = unit[1:]
            elif len(unit) > 1 and unit[-1] in self.closing:
                mark = self._last_mark(unit)
                after.append(mark)
                unit = unit[: -len(mark)]
            elif (both := _CLITIC.fullmatch(unit)) and both[2] in self.known:
                after.append(both[2])
                unit = both[1]
            else:
                break
        return [*before, *([unit] if unit else []), *reversed(after)]

    def _last_mark(self, unit: str) -> str:
        """The last character, or all of several equal ones if they are an ellipsis or a known token."""
        run = unit[len(unit.rstrip(unit[-1])) :]
        return run if run != unit and (run in self.known or set(run) == {"."}) else unit[-1]


@lru_cache(4)
def raw_text_like(known: Vocabulary) -> RawText:
    """Return the splitter for a vocabulary, cached."""
    return RawText(known)


def starts_of(units: Sequence[str], text: str) -> list[int]:
    """Return the offsets of tokens in the text that contains them in this order.

    Example:
        >>> starts_of(["Oh", "!", "Oh"], "Oh! Oh")
        [0, 2, 4]
    """
    starts, end = [], 0
    for unit in units:
        starts.append(text.index(unit, end))
        end = starts[-1] + len(unit)
    return starts


def read_raw(path: str | Path, raw: RawText, progress: Progress | None = None) -> Stored[Tagged]:
    """Read a file of raw text, a sequence per line; a note reports lines of unsegmented Chinese or Japanese.

    Raises:
        DataError: see `read_lines`
    """
    unsegmented: list[int] = []

    def lines() -> Iterator[Tagged]:
        for number, text in read_lines(path):
            if units := raw.split(text):
                if raw.is_unsegmented(text):
                    unsegmented.append(number)
                yield Tagged(units, None, source=str(path), lines=number, starts=starts_of(units, text))

    fields = {"units": SEQUENCE, "lines": LINE, "starts": LINES}
    reading = ["raw", raw.tokenised, raw.segmented, raw.known.symbols]
    stored = store(lines(), fields, partial(Tagged, labels=None, source=str(path)), [path], reading, progress)
    if unsegmented and progress is not None:
        progress.note(note_on_unsegmented(path, unsegmented))
    return stored


def note_on_unsegmented(path: str | Path, lines: Sequence[int]) -> str:
    """Return a sentence about lines of Chinese or Japanese without blanks."""
    which = f"line {lines[0]} has" if len(lines) == 1 else f"{len(lines)} lines, the first of them {lines[0]}, have"
    return (
        f"{path}: {which} no blanks between Chinese or Japanese words, and the training data had; they are processed "
        "character by character; for better results put blanks between the words"
    )
