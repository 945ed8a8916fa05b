"""Reads sequences with a label per token, from rows of one token or one sequence, or from text with a label file."""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from glassgate.tasks.data import bio, records, roles
from glassgate.tasks.data.columns import Layout, is_break, is_comment, split_cells, with_breaks
from glassgate.tasks.data.corpus import NUMBERS, SEQUENCE, SYMBOL, Corpus
from glassgate.tasks.data.files import STDIN
from glassgate.tasks.data.formats import FOLDER, LineStyle, detect_line_style
from glassgate.tasks.data.lines import nonempty, read_lines, read_parallel
from glassgate.tasks.data.sniff import Source, sniff
from glassgate.tasks.data.token_roles import TAG_LISTS, TOKEN_LISTS
from glassgate.tasks.errors import DataError
from glassgate.tasks.wording import plural

_BEGIN, _END = "BOS", "EOS"
_INTENT = re.compile(r"#\s*intent\s*[=:]\s*(\S.*?)\s*")
_MAX_SHOWN = 60  # characters of a line in messages
_TOKENS = re.compile("[\u3040-\u30ff\u3400-\u9fff]|[^\\W\u3040-\u30ff\u3400-\u9fff]+|[^\\w\\s]")
_SPAN_KEYS = (("start", "start_offset", "begin"), ("end", "end_offset"), ("label", "labels", "type", "entity", "tag"))

Row = list[str] | str | None
"""The content of a line: a list of cells, an intent, or None between sequences."""
Span = tuple[int, int, str]
"""The first character, the character after the last one, and the label."""


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
    """Return a corpus in memory, with labels if the sequences have them."""
    fields = {"tokens": SEQUENCE, "labels": SEQUENCE, "words": NUMBERS, "starts": NUMBERS, "lines": NUMBERS}
    fields |= {"source": SYMBOL, "intent": SYMBOL}
    if any(each.labels is None for each in examples):
        del fields["labels"]
    for each in examples:
        if not len(each.tokens):
            raise DataError(each.source, each.line(), "the sequence has no tokens; remove it")
        _checked(each, each.source, "token")
    with_lines = (
        replace(each, lines=[each.lines] * len(each.tokens) if isinstance(each.lines, int) else each.lines)
        for each in examples
    )
    return Corpus.of(with_lines, fields, partial(Tagged, labels=None) if "labels" not in fields else Tagged)


def read_columns(path: str | Path, layout: Layout, labelled: bool = True) -> Iterator[Tagged]:
    """Yield the sequences of a file with a token per row: CoNLL-U, CoNLL, IOB2, TSV, CSV or Excel.

    Except in a table, a line `# intent = NAME` before a sequence gives its intent. Multiword tokens and empty nodes of
    CoNLL-U are skipped.
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
        if isinstance(row, str):
            if tokens:
                message = f"the intent {row!r} comes after the first token of its sequence; move it before that token"
                raise DataError(path, number, message)
            if intent is not None:
                message = f"the sequence has a second intent, {row!r}; remove one of the two"
                raise DataError(path, number, message)
            intent = row
        elif row:
            tokens.append(row[layout.token_column])
            lines.append(number)
            if label_column is not None:
                labels.append(row[label_column])
        elif tokens:
            tags = tuple(bio.to_iob2(labels, layout.scheme)) if labelled else None
            named = intent if labelled else None
            yield Tagged(tuple(tokens), tags, source=str(path), lines=tuple(lines), intent=named)
            tokens, labels, lines, intent = [], [], [], None


def _column_rows(path: str | Path, layout: Layout, labelled: bool) -> Iterator[tuple[int, Row]]:
    """Yield the rows and the intents of a file that is not a table, and None between sequences."""
    is_conllu = layout.kind == "conllu"
    separated = "separated by blanks" if layout.separator is None else "separated by tabs"
    width = layout.width if is_conllu else 0  # 0 until the first row
    is_first = True  # whether the next row begins a sequence
    for number, line in read_lines(path):
        if is_break(line):
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
            got = f"{len(row)}; correct the line, or name another --format"
            raise DataError(path, number, f"expected at least 2 columns {separated}, a word and its label, got {got}")
        lacks_columns = max(layout.token_column, layout.label_column or 0) >= len(row)
        if len(row) != (width or len(row)) or lacks_columns:
            expected = f"{width or layout.width} columns {separated} as in the lines {'before' if width else 'below'}"
            expected = "the 10 columns of CoNLL-U, separated by tabs" if is_conllu else expected
            got = f"{len(row)}: {line if len(line) <= _MAX_SHOWN else line[: _MAX_SHOWN - 3] + '...'!r}"
            raise DataError(path, number, f"expected {expected}, got {got}; correct the line, or name another --format")
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
    """
    found = roles.assign_source(source, {TOKEN_LISTS: text_column} | ({TAG_LISTS: column} if labelled else {}))
    return _nonempty(source.path, _sequences_of_rows(found))


def _sequences_of_rows(found: roles.Assignment) -> Iterator[Tagged]:
    path, label_column = found.source.path, found.indices.get(TAG_LISTS)
    label_key = "" if label_column is None else found.names[label_column]
    for number, cells in found.source.rows(int(found.has_header)):
        if not cells:
            continue
        tokens, tags = cells[found.indices[TOKEN_LISTS]], None
        if label_column is not None:
            labels = cells[label_column]
            if isinstance(tokens, str) and (spans := as_spans(labels)) is not None:
                tokens, labels = label_tokens(path, number, tokens, spans)
            elif isinstance(tokens, str) and isinstance(labels, str):
                tokens, labels = records.as_sequences(tokens, labels) or (tokens, labels)
            names = found.source.label_names.get(label_key)
            tags = [records.label_name(label, names) for label in _check_list(path, number, labels, TAG_LISTS)]
            if "" in tags:
                got = f"a label under {label_key!r} is missing"
                raise DataError(path, number, f"{got}; fill it in, or remove the row")
        words = [str(token) for token in _check_list(path, number, tokens, TOKEN_LISTS)]
        sequence = _checked(Tagged(words, tags, source=str(path), lines=number), path, "token")
        if sequence.tokens:
            yield sequence


def _check_list(path: str | Path, number: int, value: Any, role: roles.Role) -> list[Any]:
    if not isinstance(value, list):
        got = type(value).__name__
        raise DataError(path, number, f"expected a list of {role.noun}, got {got}; see {role.option}")
    return value


def as_spans(value: Any) -> list[Span] | None:
    """Return the spans of characters in a cell, as doccano and spaCy write them; None if it contains anything else.

    Example:
        >>> as_spans([[0, 4, "PER"], {"start_offset": 9, "end_offset": 12, "label": "PER"}]), as_spans(["O", "B-PER"])
        ([(0, 4, 'PER'), (9, 12, 'PER')], None)
    """
    spans = []
    for each in value if isinstance(value, list) else [None]:
        if isinstance(each, dict):
            each = [next((each[key] for key in keys if key in each), None) for keys in _SPAN_KEYS]
            if isinstance(each[2], list) and len(each[2]) == 1:  # Label Studio allows several labels of a span
                each = [*each[:2], each[2][0]]
        if not isinstance(each, list) or [*map(type, each)] != [int, int, str]:
            return None
        spans.append((each[0], each[1], each[2]))
    return spans


def label_tokens(path: str | Path, line: int, text: str, spans: Sequence[Span]) -> tuple[list[str], list[str]]:
    """Split a text into words, punctuation marks and ideographs, and also at the ends of spans; label them in IOB2.

    Example:
        >>> label_tokens("a.jsonl", 1, "Anna met Bob.", [(0, 4, "PER"), (9, 12, "PER")])
        (['Anna', 'met', 'Bob', '.'], ['B-PER', 'O', 'B-PER', 'O'])
    """
    tokens: list[str] = []
    labels: list[str] = []
    end = 0
    for start, stop, label in [*sorted(spans), (len(text), len(text), "")]:
        if not end <= start <= stop <= len(text):
            got = f"{[start, stop, label]} in a text of {len(text)} characters"
            raise DataError(path, line, f"expected spans inside the text that do not overlap, got {got}; correct it")
        outside, inside = _TOKENS.findall(text[end:start]), _TOKENS.findall(text[start:stop])
        tokens += [*outside, *inside]
        labels += ["O"] * len(outside) + [f"{'I' if k else 'B'}-{label}" for k in range(len(inside))]
        end = stop
    return tokens, labels


def read_text(
    path: str | Path, token_kind: str = "word", label_suffix: str = ".labels", labelled: bool = True
) -> Iterator[Tagged]:
    """Yield a sequence per line; its labels, separated by blanks, are in the same line of the label file.

    Args:
        token_kind: "word" (separated by blanks) or "character"
        label_suffix: the suffix of the label file, which has the name of the text file otherwise: `a.txt`, `a.labels`
    """
    if not labelled:
        return _read_parallel([path], token_kind)
    if str(path) == STDIN:
        raise DataError(path, None, "expected labels, got plain text; name the format of the input with --format")
    label_file = Path(path).with_suffix(label_suffix)
    if not label_file.exists():
        deque(read_lines(path), maxlen=0)  # errors in the text itself are reported first
        remedy = "make it, or see --label-suffix"
        raise DataError(path, None, f"expected its labels in {label_file}, which does not exist; {remedy}")
    return _nonempty(path, _read_parallel([path, label_file], token_kind))


def read_folder(path: str | Path, labelled: bool = True) -> Iterator[Tagged]:
    """Yield the sentences of a folder: tokens in `seq.in`, labels in `seq.out` and, if present, intents in `label`."""
    texts, tags, intents = (Path(path) / name for name in FOLDER)
    if not texts.exists():
        raise DataError(path, None, f"expected a file, or a folder that holds {', '.join(FOLDER)}; check the path")
    others = [tags, *([intents] if intents.exists() else [])] if labelled else []
    return _read_parallel([texts, *others], "word", skips_blank=False)


def _read_parallel(files: Sequence[str | Path], token_kind: str, skips_blank: bool = True) -> Iterator[Tagged]:
    """Yield the sequence in each line of parallel files of texts, labels and intents."""
    for number, (text, *lines) in read_parallel(*files):
        tokens = text if token_kind == "character" else text.split()
        labels, intent = lines[0].split() if lines else None, lines[1].strip() if lines[1:] else None
        if not skips_blank and (not tokens or intent == ""):
            file = files[2] if tokens else files[0]
            raise DataError(file, number, f"the line is empty; remove line {number} of each file")
        sequence = Tagged(tokens, labels, source=str(files[0]), lines=number, intent=intent)
        _checked(sequence, files[-1] if len(files) < 2 else files[1], token_kind)
        if labels or text.strip():
            yield sequence


def read_labelled_lines(path: str | Path) -> Iterator[Tagged]:
    """Yield the sequence of each line, without the words BOS and EOS at its ends.

    The label of EOS, or a label after those of all words, is the intent.
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


def _checked(sequence: Tagged, path: str | Path, token_kind: str) -> Tagged:
    """Return a sequence with as many labels as tokens; other sequences are errors of the file of the labels."""
    tokens, labels, line = sequence.tokens, sequence.labels, sequence.line()
    if labels is not None and len(tokens) != len(labels):
        of = "" if path == sequence.source else f" of {sequence.source}:{line}"
        message = f"expected {len(tokens)} labels, one for each {token_kind}{of}, got {len(labels)}; correct the line"
        raise DataError(path, line, message)
    return sequence


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
