"""Splits raw text into tokens like those of the training data: separates punctuation and Chinese characters."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path

from glassgate.tasks.data.corpus import NUMBER, NUMBERS, SEQUENCE, Corpus, corpus_of_files
from glassgate.tasks.data.lines import encoding_note, read_lines
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
_MAX_WITH_PUNCTUATION = 0.05  # marks are separate tokens if at most this fraction of words ends with a mark
_MAX_MEAN_LENGTH = 4  # of Chinese or Japanese tokens, in characters; a larger mean indicates text without blanks


class RawTokeniser:
    """Splits raw text into tokens like those of a vocabulary. The tokens may be shorter than the words between blanks.

    Args:
        vocabulary: the tokens of the training data

    Attributes:
        is_character_level: whether every token is a single character
        splits_punctuation: whether punctuation marks are separate tokens; true if few known words end with a mark
        segments_cjk: whether the training data has blanks between Chinese or Japanese words
        opening, closing: the characters that are split off at the start and at the end of an unknown word
        longest_cjk: the length of the longest Chinese or Japanese token

    Example:
        >>> tokeniser = RawTokeniser(Vocabulary(["weather", "in", "the", "city", "."]))
        >>> tokeniser.split("weather in Dodoma.")
        ['weather', 'in', 'Dodoma', '.']
    """

    def __init__(self, vocabulary: Vocabulary):
        words = [token for token in vocabulary.symbols if any(map(str.isalpha, token))]
        with_punctuation = sum(1 for token in words if _WITH_PUNCTUATION.fullmatch(token))
        cjk_lengths = [len(token) for token in words if _HAS_CJK.match(token)]
        self.vocabulary = vocabulary
        self.is_character_level = all(len(token) == 1 for token in vocabulary.symbols)
        self.splits_punctuation = bool(words) and with_punctuation <= _MAX_WITH_PUNCTUATION * len(words)
        has_short_cjk = bool(cjk_lengths) and sum(cjk_lengths) < _MAX_MEAN_LENGTH * len(cjk_lengths)
        self.segments_cjk = not self.is_character_level and has_short_cjk
        self.longest_cjk = max(cjk_lengths, default=0)
        marks = {token for token in vocabulary.symbols if len(token) == 1 and unicodedata.category(token)[0] in "PS"}
        self.opening, self.closing = _OPENING | marks, _CLOSING | marks

    def split(self, text: str) -> list[str]:
        """Return the tokens of a text, in order. Each is a substring of the text."""
        if self.is_character_level:
            return [character for character in text if character in self.vocabulary or not character.isspace()]
        return self.refine(text.split())

    def refine(self, tokens: Sequence[str]) -> list[str]:
        """Split unknown tokens further."""
        tokens = self._separate_punctuation(tokens)
        if self._lacks_blanks(tokens):
            known = self.vocabulary
            tokens = [part for token in tokens for part in ([token] if token in known else _CHARACTERS.findall(token))]
        return tokens

    def is_unsegmented(self, text: str) -> bool:
        """Whether a text is Chinese or Japanese without blanks, and the training data had blanks between words."""
        return self.segments_cjk and self._lacks_blanks(self._separate_punctuation(text.split()))

    def _lacks_blanks(self, tokens: Sequence[str]) -> bool:
        cjk = [token for token in tokens if _HAS_CJK.search(token)] if self.segments_cjk else []
        unknown = [token for token in cjk if len(token) > 1 and token not in self.vocabulary]
        return bool(unknown) and (len(cjk) == 1 or max(map(len, unknown)) > self.longest_cjk)

    def _separate_punctuation(self, tokens: Sequence[str]) -> list[str]:
        if not self.splits_punctuation:
            return list(tokens)
        return [part for token in tokens for part in self._split_token(token)]

    def _split_token(self, token: str) -> list[str]:
        """Split an unknown token into its punctuation marks, its stem, and its clitic, such as 's."""
        before: list[str] = []
        after: list[str] = []
        while token and token not in self.vocabulary and not _ABBREVIATION.fullmatch(token):
            if len(token) > 1 and token[0] in self.opening:
                before.append(token[0])
                token = token[1:]
            elif len(token) > 1 and token[-1] in self.closing:
                mark = self._last_mark(token)
                after.append(mark)
                token = token[: -len(mark)]
            elif (match := _CLITIC.fullmatch(token)) and match[2] in self.vocabulary:
                after.append(match[2])
                token = match[1]
            else:
                break
        return [*before, *([token] if token else []), *reversed(after)]

    def _last_mark(self, token: str) -> str:
        """The run of equal characters at the end if it is an ellipsis or a known token; else the last character."""
        run = token[len(token.rstrip(token[-1])) :]
        return run if run != token and (run in self.vocabulary or set(run) == {"."}) else token[-1]


raw_tokeniser = lru_cache(4)(RawTokeniser)
"""Returns the tokeniser for a vocabulary, cached."""


def starts_of(tokens: Sequence[str], text: str) -> list[int]:
    """Return the offsets of tokens in the text that contains them in this order.

    Example:
        >>> starts_of(["Oh", "!", "Oh"], "Oh! Oh")
        [0, 2, 4]
    """
    starts, end = [], 0
    for token in tokens:
        starts.append(text.index(token, end))
        end = starts[-1] + len(token)
    return starts


def read_raw(path: str | Path, tokeniser: RawTokeniser, progress: Progress | None = None) -> Corpus[Tagged]:
    """Read a file of raw text, a sequence per line; a note reports lines of unsegmented Chinese or Japanese."""
    unsegmented, progress = list[int](), progress or Progress()

    def lines() -> Iterator[Tagged]:
        for number, text in read_lines(path):
            if tokens := tokeniser.split(text):
                if tokeniser.is_unsegmented(text):
                    unsegmented.append(number)
                yield Tagged(tokens, None, source=str(path), lines=number, starts=starts_of(tokens, text))

    fields = {"tokens": SEQUENCE, "lines": NUMBER, "starts": NUMBERS}
    settings = ["raw", tokeniser.splits_punctuation, tokeniser.segments_cjk, tokeniser.vocabulary.symbols, *fields]
    corpus = corpus_of_files(
        lines(), fields, partial(Tagged, labels=None, source=str(path)), [path], settings, progress
    )
    if encoding := encoding_note(path):
        progress.note(f"{path}: text{encoding}")
    if unsegmented:
        progress.note(note_on_unsegmented(path, unsegmented))
    return corpus


def note_on_unsegmented(path: str | Path, lines: Sequence[int]) -> str:
    """Return a note on lines of Chinese or Japanese without blanks, given the numbers of these lines."""
    which = f"line {lines[0]} has" if len(lines) == 1 else f"{len(lines)} lines, the first of them {lines[0]}, have"
    return (
        f"{path}: {which} no blanks between Chinese or Japanese words, unlike the training data; they are processed "
        "character by character; for better results put blanks between the words"
    )
