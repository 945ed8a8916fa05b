"""Reads sequences with a label per token, from rows of one token or one sequence, or from text with a label file."""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from glassgate.tasks.data import bio, records, roles
from glassgate.tasks.data.columns import Layout, is_comment, split_cells, with_breaks
from glassgate.tasks.data.corpus import NUMBERS, SEQUENCE, SYMBOL, Corpus
from glassgate.tasks.data.files import STDIN
from glassgate.tasks.data.formats import FOLDER
from glassgate.tasks.data.labelled_lines import LineStyle, detect_line_style
from glassgate.tasks.data.lines import nonempty, read_lines, read_parallel
from glassgate.tasks.data.sniff import Source, sniff
from glassgate.tasks.data.spans import as_spans, label_tokens
from glassgate.tasks.data.token_roles import TAG_LISTS, TOKEN_LISTS
from glassgate.tasks.errors import DataError
from glassgate.tasks.wording import plural

_BEGIN, _END = "BOS", "EOS"
_INTENT = re.compile(r"#\s*intent\s*[=:]\s*(\S.*?)\s*")


Row = list[str] | str | None
"""The content of a line: a list of cells, an intent, or None between sequences."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """A sequence of tokens with labels and an intent, if known.

    Attributes:
        tokens: words, or one string of characters
        labels: the label of each token; None if unknown
        words: for code whose characters are labelled, the number of each character's word, from 1; 0 outside of words
        source: the file that contains the sequence
        lines: the line of each token, or one line for all tokens
        intent: the intent of the sequence; None if unknown
        starts: the offset of each token in its line of raw text, in characters; empty for other formats
    """

    tokens: Sequence[str]
    labels: Sequence[str] | None
    words: Sequence[int] = ()
    source: str = "given examples"
    lines: Sequence[int] | int = 1
    intent: str | None = None
    starts: Sequence[int] = ()

    def line(self, index: int = 0) -> int:
        """Return the number of the line that contains a token."""
        return self.lines if isinstance(self.lines, int) else int(self.lines[index]) if len(self.lines) else 1


def corpus_of(examples: Sequence[Tagged]) -> Corpus[Tagged]:
    """Return a corpus in memory, with labels if the sequences have them.

    Raises:
        DataError: a sequence has no tokens, or more or fewer labels than tokens
    """
    fields = {"tokens": SEQUENCE, "labels": SEQUENCE, "words": NUMBERS, "starts": NUMBERS, "lines": NUMBERS}
    fields |= {"source": SYMBOL, "intent": SYMBOL}
    if any(each.labels is None for each in examples):
        del fields["labels"]
    for each in examples:
        if not len(each.tokens):
            raise DataError(each.source, each.line(), "the sequence has no tokens; remove it")
        _check_count(each.source, each, "token")
    with_lines = (
        replace(each, lines=[each.lines] * len(each.tokens) if isinstance(each.lines, int) else each.lines)
        for each in examples
    )
    return Corpus.of(with_lines, fields, partial(Tagged, labels=None) if "labels" not in fields else Tagged)


def read_columns(path: str | Path, layout: Layout, labelled: bool = True) -> Iterator[Tagged]:
    """Yield the sequences of a file with a token per row: CoNLL-U, CoNLL, IOB2, TSV, CSV or Excel.

    Except in a table, a line `# intent = NAME` before a sequence gives its intent. Multiword tokens and empty nodes of
    CoNLL-U are skipped.

    Args:
        layout: the layout that `detect_format` returns
        labelled: whether labels are required

    Raises:
        DataError: see `read_lines`; a line has more or fewer columns than expected; a cell of a table is empty
    """
    rows = _table_rows(path, layout) if layout.is_table else _column_rows(path, layout, labelled)
    return _nonempty(path, _sequences(path, with_breaks(rows, layout.sentence_column), layout, labelled))


def _sequences(path: str | Path, rows: Iterator[tuple[int, Row]], layout: Layout, labelled: bool) -> Iterator[Tagged]:
    """Yield a sequence for each group of consecutive rows with columns."""
    tokens: list[str] = []
    labels: list[str] = []
    lines: list[int] = []
    intent: str | None = None
    label_column = layout.label_column if labelled else None
    for number, row in chain(rows, [(0, None)]):
        if row is None:
            if tokens:
                tags = tuple(bio.to_iob2(labels, layout.scheme)) if labelled else None
                intent = intent if labelled else None
                yield Tagged(tuple(tokens), tags, source=str(path), lines=tuple(lines), intent=intent)
                tokens, labels, lines, intent = [], [], [], None
        elif isinstance(row, str):
            if tokens or intent is not None:
                message = (
                    f"the intent {row!r} comes after the first token of its sequence; move it before that token"
                    if tokens
                    else f"the sequence has a second intent, {row!r}; remove one of the two"
                )
                raise DataError(path, number, message)
            intent = row
        else:
            tokens.append(row[layout.token_column])
            lines.append(number)
            if label_column is not None:
                labels.append(row[label_column])


def _column_rows(path: str | Path, layout: Layout, labelled: bool) -> Iterator[tuple[int, Row]]:
    """Yield the rows and the intents of a file that is not a table, and None between sequences."""
    is_conllu = layout.kind == "conllu"
    separated = " separated by blanks" if layout.separator is None else " separated by tabs"
    width = layout.width if is_conllu else 0  # 0 until the first row
    is_first = True  # whether the next row begins a sequence
    for number, line in read_lines(path):
        if not line.strip() or line.startswith("-DOCSTART-"):
            yield number, None
            is_first = True
            continue
        if intent := _INTENT.fullmatch(line):
            yield number, intent[1]
            continue
        row = split_cells(line, layout.separator)
        if line.startswith("#") if is_conllu else is_comment(line, len(row), layout.width):
            continue
        if is_first and layout.has_leading_comments and row[0] == "#":
            is_first = False
            continue
        if is_first and layout.names and tuple(row) == layout.names:
            continue
        is_first = False
        if not width and labelled and len(row) < 2:
            raise DataError(
                path,
                number,
                f"expected at least 2 columns{separated}, a word and its label, got {len(row)}; correct the line, or "
                "name another --format",
            )
        lacks_columns = max(layout.token_column, layout.label_column or 0) >= len(row)
        if len(row) != (width or len(row)) or lacks_columns:
            expected = f"{width or layout.width} columns{separated} as in the lines {'before' if width else 'below'}"
            if is_conllu:
                expected = "the 10 columns of CoNLL-U, separated by tabs"
            raise DataError(
                path,
                number,
                f"expected {expected}, got {len(row)}: {_shorten(line)}; correct the line, or name another --format",
            )
        width = len(row)
        if not is_conllu or row[0].isdecimal():
            yield number, row


def _table_rows(path: str | Path, layout: Layout) -> Iterator[tuple[int, Row]]:
    """Yield the rows of a table below its header, and raise a DataError if a token or a label is empty."""
    source = sniff(path, layout.kind)
    for number, row in source.rows(int(bool(layout.names))):
        if source.is_keyed:
            cells = zip(layout.names, row, strict=True)
            row = [records.label_name(cell, source.label_names.get(name)) for name, cell in cells]
        for content, column in (("token", layout.token_column), ("label", layout.label_column)):
            if row and column is not None and not row[column].strip():
                raise DataError(path, number, f"the {content} is empty; remove the row, or fill it in")
        yield number, row or None


def read_rows(
    source: Source, column: str | None = None, text_column: str | None = None, labelled: bool = True
) -> Iterator[Tagged]:
    """Yield the sequences of JSON, JSON lines, Parquet or a table: a list of tokens and a list of labels in each row.

    Integer labels are replaced by the names that Parquet files of Hugging Face's `datasets` contain.

    Args:
        column, text_column: the keys of the labels and of the tokens; detected if None
        labelled: whether labels are required

    Raises:
        DataError: see `records.read_rows`; a key is missing, or the values are not two lists of equal length
    """
    found = roles.assign_source(source, {TOKEN_LISTS: text_column} | ({TAG_LISTS: column} if labelled else {}))
    names = {role: found.names[index] for role, index in found.indices.items()}
    return _nonempty(source.path, _sequences_of_rows(found, names))


def _sequences_of_rows(found: roles.Assignment, names: Mapping[roles.Role, str]) -> Iterator[Tagged]:
    path, label_names = found.source.path, found.source.label_names.get(names.get(TAG_LISTS, ""))
    for number, cells in found.source.rows(int(found.has_header)):
        if not cells:
            continue
        tokens, tags = cells[found.indices[TOKEN_LISTS]], None
        if TAG_LISTS in names:
            labels = cells[found.indices[TAG_LISTS]]
            if isinstance(tokens, str) and (spans := as_spans(labels)) is not None:
                tokens, labels = label_tokens(path, number, tokens, spans)
            elif isinstance(tokens, str) and isinstance(labels, str):
                tokens, labels = records.as_sequences(tokens, labels) or (tokens, labels)
            tags = [records.label_name(label, label_names) for label in _check_list(path, number, labels, TAG_LISTS)]
            if "" in tags:
                got = f"a label under {names[TAG_LISTS]!r} is missing"
                raise DataError(path, number, f"{got}; fill it in, or remove the row")
        words = [str(token) for token in _check_list(path, number, tokens, TOKEN_LISTS)]
        sequence = Tagged(words, tags, source=str(path), lines=number)
        _check_count(path, sequence, "token")
        if sequence.tokens:
            yield sequence


def _check_list(path: str | Path, number: int, value: Any, role: roles.Role) -> list[Any]:
    if not isinstance(value, list):
        got = type(value).__name__
        raise DataError(path, number, f"expected a list of {role.noun}, got {got}; see {role.option}")
    return value


def read_text(
    path: str | Path, token_kind: str = "word", label_suffix: str = ".labels", labelled: bool = True
) -> Iterator[Tagged]:
    """Yield a sequence per line; its labels, separated by blanks, are in the same line of the label file.

    Args:
        token_kind: "word" (separated by blanks) or "character"
        label_suffix: the suffix of the label file, which has the name of the text file otherwise: `a.txt`, `a.labels`

    Raises:
        DataError: see `read_lines`; the label file is missing or has a different number of lines; a line has
            more or fewer labels than tokens
    """
    label_file = Path(path).with_suffix(label_suffix) if labelled else None
    if label_file is not None and str(path) == STDIN:
        raise DataError(path, None, "expected labels, got plain text; name the format of the input with --format")
    if label_file is not None and not label_file.exists():
        deque(read_lines(path), maxlen=0)  # errors in the text itself are reported first
        raise DataError(
            path, None, f"expected its labels in {label_file}, which does not exist; make it, or see --label-suffix"
        )

    def sequences() -> Iterator[Tagged]:
        for number, (text, *labels) in read_parallel(path, *([label_file] if label_file else [])):
            tokens = text if token_kind == "character" else text.split()
            sequence = Tagged(tokens, labels[0].split() if labels else None, source=str(path), lines=number)
            _check_count(label_file or path, sequence, token_kind)
            if sequence.labels or text.strip():
                yield sequence

    return _nonempty(path, sequences()) if labelled else sequences()


def read_labelled_lines(path: str | Path) -> Iterator[Tagged]:
    """Yield the sequence of each line, without the words BOS and EOS at its ends.

    The label of EOS, or a label after those of all words, is the intent.

    Raises:
        DataError: a line has more or fewer labels than words
    """
    style = detect_line_style(path) or LineStyle("\t")
    for number, line in read_lines(path):
        words, labels = style.parse(line.strip("\ufeff \t"))
        if not words:
            continue
        intent = None
        if len(labels) == len(words) + 1:
            intent = labels.pop()
        if len(labels) != len(words):
            raise DataError(path, number, f"expected {len(words)} labels, as many as words, got {len(labels)}")
        if "" in labels:
            word = words[labels.index("")]
            raise DataError(path, number, f"expected a label after {style.mark!r} in each word, got {word!r}; add it")
        if words[0] == _BEGIN:
            words, labels = words[1:], labels[1:]
        if words and words[-1] == _END:
            intent = labels[-1] if intent is None else intent
            words, labels = words[:-1], labels[:-1]
        yield Tagged(words, labels, source=str(path), lines=number, intent=intent)


def read_folder(path: str | Path, labelled: bool = True) -> Iterator[Tagged]:
    """Yield the sentences of a folder: tokens in `seq.in`, labels in `seq.out` and, if it exists, intents in `label`.

    Raises:
        DataError: see `read_lines`; a file is missing or has a different number of lines; a line is empty, or has
            more or fewer labels than words
    """
    texts, tags, intents = (Path(path) / name for name in FOLDER)
    if not texts.exists():
        raise DataError(path, None, f"expected a file, or a folder that holds {', '.join(FOLDER)}; check the path")
    others = [tags, *([intents] if intents.exists() else [])] if labelled else []
    for number, (text, *lines) in read_parallel(texts, *others):
        words, intent = text.split(), lines[1].strip() if lines[1:] else None
        if not words or intent == "":
            raise DataError(
                intents if words else texts, number, f"the line is empty; remove line {number} of each file"
            )
        labels = lines[0].split() if lines else None
        sequence = Tagged(words, labels, source=str(texts), lines=number, intent=intent)
        _check_count(tags, sequence, "word")
        yield sequence


def _check_count(path: str | Path, sequence: Tagged, token_kind: str) -> None:
    tokens, labels, line = sequence.tokens, sequence.labels, sequence.line()
    if labels is not None and len(tokens) != len(labels):
        of = "" if path == sequence.source else f" of {sequence.source}:{line}"
        message = f"expected {len(tokens)} labels, one for each {token_kind}{of}, got {len(labels)}; correct the line"
        raise DataError(path, line, message)


def describe_counts(examples: Corpus[Tagged]) -> str:
    """Return as text the numbers of sentences, entities (if labels mark them) and distinct labels."""
    parts = [plural(len(examples), "sentence")]
    labels = examples.counts("labels")
    if bio.is_bio(labels):
        entities = sum(count for label, count in labels.items() if label[0] == "B")
        parts.append("1 entity" if entities == 1 else f"{entities:,} entities")
    return ", ".join([*parts, plural(len(labels), "label")])


def _nonempty(path: str | Path, sequences: Iterator[Tagged]) -> Iterator[Tagged]:
    message = "the file holds no sequence, only blank or comment lines; give one with tokens"
    return nonempty(sequences, DataError(path, None, message))


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
