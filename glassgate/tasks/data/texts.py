"""Plain text as tokens (characters, bytes, words, or text between spaces). Each file or each line is one sequence."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np

from glassgate.tasks.data import records, roles
from glassgate.tasks.data.corpus import NUMBER, SEQUENCE, Corpus, corpus_of_files
from glassgate.tasks.data.detect import detect_kind
from glassgate.tasks.data.lines import encoding_note, nonempty, open_text, read_lines
from glassgate.tasks.data.reading import NO_READING, Reading
from glassgate.tasks.data.sniff import BINARY_KINDS, sniff, source_of
from glassgate.tasks.data.store import LazyArray, is_large
from glassgate.tasks.data.vocabulary import Tokens, Vocabulary
from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.options import Options, option, override
from glassgate.tasks.progress import Progress

_BLOCK = 2**22  # characters of a large file that are converted at once, which then continue to the end of a line
_WORDS = re.compile(r"\n|<\w+>|\w+(?:['\u2019]\w+)*|[^\w\s]")
_BETWEEN_SPACES = re.compile(r"\n|\S+")
_NO_SPACE_BEFORE = frozenset(".,;:!?…)]}»”%")
_NO_SPACE_AFTER = frozenset("([{«“")

_SPLITTERS: dict[str, Callable[[str], Sequence[str]]] = {
    "character": str,
    "byte": lambda text: text.encode().decode("latin-1"),
    "word": _WORDS.findall,
    "token": _BETWEEN_SPACES.findall,
}
TOKEN_KINDS = tuple(_SPLITTERS)


@dataclass(frozen=True, kw_only=True)
class TextOptions(Options):
    """The options of tasks on plain text."""

    file_options: ClassVar = (*Options.file_options, "text_column")

    tokens: str = option(
        "character", "kind of tokens; 'token' means text between spaces", group="data", choices=TOKEN_KINDS
    )
    sequence: str = option(
        "file", "text of one sequence: the whole file, or a line", group="data", choices=("file", "line")
    )
    text_column: str | None = option(
        None, "key of the texts in JSON lines and Parquet", group="data", if_unset="detected"
    )
    held_out: float = override("held_out", 0.05)
    least_count: int = option(1, "minimum occurrences in training; rarer tokens are unknown", minimum=1)
    dropout: float = override("dropout", 0.2)
    learning_rate: float = override("learning_rate", 8e-3)


@dataclass(frozen=True, slots=True)
class Text:
    """A sequence of tokens. A byte is stored as the character whose code point is the byte's value.

    Attributes:
        tokens: the tokens, including the line ends
        source: the file that contains the sequence
        line: the line where the sequence begins
    """

    tokens: Sequence[str]
    source: str = ""
    line: int = 1

    def __len__(self) -> int:
        return len(self.tokens)

    def part(self, start: int, stop: int) -> "Text":
        """Return the tokens from `start` to `stop`."""
        return replace(self, tokens=self.tokens[start:stop])


def split(text: str, token_kind: str) -> Sequence[str]:
    """Split a text into tokens of one of the kinds `TOKEN_KINDS`.

    Example:
        >>> split("Don't panic!", "word")
        ["Don't", 'panic', '!']
    """
    return _SPLITTERS[token_kind](text)


def join(tokens: Sequence[str], token_kind: str) -> str:
    """Join tokens to a text.

    Example:
        >>> join(["Don't", "panic", "!"], "word")
        "Don't panic!"
    """
    if token_kind == "byte":
        return "".join(tokens).encode("latin-1").decode(errors="replace")
    return "".join(gap(before, token, token_kind) + token for before, token in pairwise(["\n", *tokens]))


def starts(tokens: Sequence[str], token_kind: str) -> list[int]:
    """Return the offset of each token in the text that `join` returns; for bytes, offsets count bytes.

    Example:
        >>> starts(["Don't", "panic", "!"], "word")
        [0, 6, 11]
    """
    sizes = (len(gap(before, token, token_kind)) + len(token) for before, token in pairwise(["\n", *tokens]))
    return [end - len(token) for end, token in zip(accumulate(sizes), tokens, strict=True)]


def gap(before: str, after: str, token_kind: str) -> str:
    """Return the separator between two adjacent tokens: a space or an empty string."""
    if token_kind not in ("word", "token") or "\n" in (before, after):
        return ""
    is_joined = token_kind == "word" and (after in _NO_SPACE_BEFORE or before in _NO_SPACE_AFTER)
    return "" if is_joined else " "


def read_text(
    path: str | Path, token_kind: str, sequence: str, progress: Progress | None = None, column: str | None = None
) -> Sequence[Text]:
    """Read a text file, or standard input, as one sequence or as one sequence per line.

    Rows of JSON lines or Parquet are read like lines. Large data stays on disk, except rows joined to one sequence.

    Args:
        token_kind: one of `TOKEN_KINDS`
        sequence: "file" or "line"
        progress: receives the progress of a large file, and the detected format of rows
        column: the key of the texts in rows; detected if None
    """
    kind, progress = detect_kind(path), progress or Progress()
    has_rows = kind in (*records.KEYED_KINDS, *records.TABLE_KINDS)
    is_raw = token_kind == "byte" and not has_rows
    if token_kind != "byte" and kind not in BINARY_KINDS and (encoding := encoding_note(path)):
        progress.note(f"{path}: text{encoding}")
    if kind in records.KEYED_KINDS and (found := _text_column(path, column)):
        format = "Parquet" if kind == "parquet" else "JSON"
        name, rejected = found.names[found.indices[roles.TEXT_ROLE]], records.note_on_rejected(path, kind)
        progress.note(f"{path}: rows of {format}, texts under {name!r}{rejected}")
    encoding, splitter = ("latin-1", str) if is_raw else ("", _SPLITTERS[token_kind])
    lines, fields = text_lines(path, column, encoding), {"tokens": SEQUENCE, "line": NUMBER}
    if sequence == "line":
        build = partial(Text, source=str(path))
        texts = (Text(splitter(f"{line}\n"), str(path), number) for number, line in lines if line.strip())
        settings = ["lines", token_kind, column, *fields]
        return corpus_of_files(nonempty(texts, _blank_file_error(path)), fields, build, [path], settings, progress)
    if not has_rows and is_large([path]):
        blocks = (Text(splitter(block), line=line) for line, block in _blocks(path, encoding))
        return [Text(corpus_of_files(blocks, fields, Text, [path], [token_kind], progress).whole("tokens"), str(path))]
    text = "".join(f"{line}\n" for _, line in lines)
    if not text.strip():
        raise _blank_file_error(path)
    return [Text(splitter(text), str(path))]


def text_lines(path: str | Path, column: str | None = None, encoding: str = "") -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line, or of each row of a table, JSON and Parquet.

    Args:
        column: the key of the texts in rows, or the column of a table, by name or by number from 1; detected if None
        encoding: the encoding of a text file; detected if empty
    """
    found = _text_column(path, column)
    yield from read_lines(path, encoding) if found is None else _row_texts(found)


def examine(path: str | Path, column: str | None = None) -> Reading:
    """Return the reading of a file of texts: the column or the key of the texts, if it is found by its content."""
    found = _text_column(path, column)
    return Reading.of(**found.by_content) if found else NO_READING


def _text_column(path: str | Path, column: str | None) -> roles.Assignment | None:
    """The column of the texts in a table or in rows with keys; None if there is none."""
    kind = detect_kind(path)
    if kind not in (*records.KEYED_KINDS, *records.TABLE_KINDS):
        return None
    requested: dict[roles.Role, str | None] = {roles.TEXT_ROLE: column}
    return roles.assign_source(sniff(path, kind, roles.hints(requested)), requested)


def from_rows(rows: Iterator[tuple[int, Any, records.LabelNames]], options: TextOptions) -> list[Text]:
    """Convert rows to one text or, if the option `sequence` is "line", to one text per row."""
    source = source_of(rows)
    found = roles.assign_source(source, {roles.TEXT_ROLE: options.text_column}) if source.content else None
    lines = [f"{text}\n" for _, text in _row_texts(found)] if found else []
    if lines and options.sequence == "file":
        lines = ["".join(lines)]
    return [Text(split(text, options.tokens), "given rows") for text in lines]


def _row_texts(found: roles.Assignment) -> Iterator[tuple[int, str]]:
    index = found.indices[roles.TEXT_ROLE]
    for number, row in found.source.rows(int(found.has_header)):
        text = row[index] if row else ""
        if not isinstance(text, str):
            got = f"expected a string of text, got {type(text).__name__}; see --text-column"
            raise DataError(found.source.path, number, got)
        yield number, text


def documentation(token_kind: str, sequence: str) -> list[Text]:
    """Return the language reference that Python's `help` prints: half a million characters of English and some code."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise OptionError("this Python came without its documentation (pydoc_data); give a text with --data") from None
    text = "\n\n".join(topics[name].strip() for name in sorted(topics)) + "\n"
    lines = [text] if sequence == "file" else [f"{line}\n" for line in text.splitlines() if line.strip()]
    return [Text(split(line, token_kind), "pydoc_data.topics") for line in lines]


def vocabulary(texts: Sequence[Text], token_kind: str, least_count: int) -> Vocabulary:
    """Return the vocabulary of texts: tokens with at least `least_count` occurrences; for bytes, all 256 values."""
    if token_kind == "byte":
        return Vocabulary([chr(number) for number in range(256)])
    corpus = Corpus.of(texts)
    if corpus.has_tokens:
        return Vocabulary.of(corpus.counts("tokens"), least_count)
    return Vocabulary.of(sum((Tokens.of(each.tokens).counts() for each in corpus), Counter()), least_count)


def shift_right(indices: np.ndarray, first: int) -> np.ndarray:
    """Shift indices by one position: the result begins with `first` and lacks the last index."""

    def read(start: int, stop: int) -> np.ndarray:
        return np.concatenate([np.array([first])[start:stop], indices[max(0, start - 1) : max(0, stop - 1)]])

    if isinstance(indices, LazyArray):
        return cast(np.ndarray, LazyArray(read, len(indices), f"{first} ".encode() + indices.tobytes()))
    return read(0, len(indices))


def _blocks(path: str | Path, encoding: str) -> Iterator[tuple[int, str]]:
    """Yield blocks of whole lines, each with the number of its last line."""
    is_blank, count = True, 0
    with open_text(path, None, encoding) as lines:
        for block in iter(lambda: lines.readlines(_BLOCK), []):
            text = "".join(block)
            is_blank = is_blank and not text.strip()
            count += len(block)
            yield count, text if text.endswith("\n") else text + "\n"
    if is_blank:
        raise _blank_file_error(path)


def _blank_file_error(path: str | Path) -> DataError:
    return DataError(path, None, "the file has only white space; give one with text")
