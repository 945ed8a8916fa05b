"""Ranks the tasks for which a data file can be meant, each with the evidence in the file."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from glassgate.tasks.data import kinds, labelled, records, roles
from glassgate.tasks.data.columns import LABEL_SUFFIX, Layout
from glassgate.tasks.data.detect import detect_kind
from glassgate.tasks.data.files import STDIN, readable_file
from glassgate.tasks.data.formats import FOLDER, detect_format, find_token_table
from glassgate.tasks.data.kinds import NUMBER, TEXT, TIME, WORD
from glassgate.tasks.data.labelled_series import find_targets, has_labels, is_series_table
from glassgate.tasks.data.lines import read_declared
from glassgate.tasks.data.pairs import is_side_name, lengths_agree, looks_like_pairs
from glassgate.tasks.data.sniff import Source, sniff
from glassgate.tasks.data.tagged import as_spans
from glassgate.tasks.errors import DataError, UserError
from glassgate.tasks.forecasting.series import Schema, Table, resolve_schema
from glassgate.tasks.language_model.music import is_music
from glassgate.tasks.wording import plural

_EXAMINED_ROWS = 200


class Candidate(NamedTuple):
    """A task, and the evidence that a file is data for it.

    Attributes:
        is_rival: whether this task is about as likely as the previous one
    """

    task: str
    evidence: str
    is_rival: bool = False


def rank(path: str, format: str = "") -> list[Candidate]:
    """Return the tasks for which a file can be meant, the most likely first. An empty format is detected."""
    if not Path(path).is_dir():
        readable_file(path)
    ranked: dict[str, Candidate] = {}
    for candidate in _File(path, format).candidates():
        ranked.setdefault(candidate.task, candidate)
    if not ranked:
        names = ", ".join(repr(column.name) for column in sniff(path).columns[:8]) or "(none)"
        raise DataError(
            path,
            None,
            f"expected data of a task, got the columns {names}, which fit none: numbers with a label in each row are "
            "neither forecasting nor a labelled series; name a task with --task to see what it lacks",
        )
    return list(ranked.values())


class _File:
    """A file, whose evidence for each task is read at most once."""

    def __init__(self, path: str, format: str):
        self.path, self.format, self.kind = path, format, format or detect_kind(path)

    def candidates(self) -> Iterator[Candidate]:
        """Yield tasks with evidence, the most likely first. A task may be repeated."""
        if self.kind == "folder":
            yield _task_of_folder(self.path)
        elif not self.format and is_music(self.path):
            yield Candidate("language-model", "piano rolls")
        elif self.kind in ("tsf", "npy"):
            evidence = "series of the Monash repository" if self.kind == "tsf" else "an array of numbers"
            yield Candidate("forecasting", evidence)
        elif self.kind in labelled.SERIES:
            yield _task_of_labelled_series(self.path, self.kind)
        elif self.kind in records.KEYED_KINDS:
            yield from self._of_rows()
        else:
            yield from self._of_text()

    @cached_property
    def source(self) -> Source:
        """What the beginning of the file shows."""
        if self.kind in records.KEYED_KINDS:
            try:
                return sniff(self.path)
            except UserError:
                if not self.has_series:
                    raise
        elif not self.format:
            return sniff(self.path)
        return Source(self.path, self.kind)

    @cached_property
    def series(self) -> tuple[bool, bool]:
        """Whether the file is a table whose series consist of numbers, and whether it has time stamps."""
        try:
            table = Table(self.path)
            schema = resolve_schema(table, Schema())
        except UserError:
            return False, False
        head = table.first_part
        has_numbers = len(head) > 0 and all(head[name].map(_is_number_or_missing).all() for name in schema.target)
        return has_numbers, schema.time is not None

    @property
    def has_series(self) -> bool:
        """Whether rows with keys are a table of numbers, with time stamps or without."""
        return self.series[0]

    @property
    def has_times(self) -> bool:
        """Whether the file is a table with time stamps."""
        return self.series[1]

    @cached_property
    def tokens(self) -> tuple[str, Layout | None]:
        """The format of a file of labelled sequences, and the layout of its columns; "text" for other files."""
        try:
            return detect_format(self.path, self.format or "auto")
        except UserError:
            return "text", None

    @property
    def has_whole_texts(self) -> bool:
        """Whether the columns of words and labels contain texts of several words."""
        layout, columns = self.tokens[1], self.source.columns
        if layout is None or len(columns) != layout.width:
            return False
        chosen = [columns[index] for index in (layout.token_column, layout.label_column) if index is not None]
        return any(column.kind == TEXT and column.mean_words >= 2 for column in chosen)

    def _of_rows(self) -> Iterator[Candidate]:
        """The tasks of rows with keys, or of lists in JSON."""
        source = self.source
        if is_series_table(source):
            yield _task_of_series_rows(source)
        if self.has_series:
            yield Candidate("forecasting", "numbers with time stamps" if self.has_times else "numbers")
        if source.columns and source.has_header:
            rows = islice(records.read_rows(self.path, self.kind), _EXAMINED_ROWS)
            yield from _candidates_of_mappings(source, [row for _, row, _ in rows])
        elif source.columns:
            are_texts = all(column.kind in (WORD, TEXT) and not column.may_be_labels for column in source.columns)
            if len(source.columns) == 2 and are_texts:
                yield Candidate("translation", "lists of two texts, most of which are distinct")
            yield from _candidates_of_labels(source)
            yield Candidate("classification", "lists of a text and its label")

    def _of_text(self) -> Iterator[Candidate]:
        source, kind = self.source, self.kind
        if kind in ("", "text", "csv", "xlsx") and find_token_table(self.path) is not None:
            yield Candidate("tagging", "a column of words and one of labels")
        found, layout = self.tokens
        if found == "lines" or (kind in records.TABLE_KINDS and found == kind and layout is None):
            yield Candidate("tagging", "a sentence and its labels in each line")
        if layout is not None and layout.scheme and not self.has_whole_texts:
            yield Candidate("tagging", f"a column of words and one of {layout.scheme} labels")
        yield from self._of_table()
        if source.of_kind(NUMBER) and 3 * len(source.of_kind(NUMBER, TIME)) > 2 * len(source.columns):
            return  # numbers are never a text
        try:
            reader = labelled.Reader(self.path, self.format or "auto")
            if reader.format in ("fasttext", *records.TABLE_KINDS) and (
                self.format or not source.columns or reader.found
            ):
                yield Candidate("classification", "texts with labels")
            if reader.format == "fasttext":
                return
        except UserError:
            pass
        if (self.path == STDIN or kind == "xlsx") and self.has_times:
            yield Candidate("forecasting", "time stamps")
        if kind != "xlsx":
            yield from self._of_lines()

    def _of_table(self) -> Iterator[Candidate]:
        """The tasks of a table by the kinds of its columns."""
        source = self.source
        texts = [column for column in source.of_kind(TEXT) if column.distinct > 1]
        numbers = source.of_kind(NUMBER)
        is_labelled_series = is_series_table(source) and has_labels(source)
        if is_labelled_series:
            yield Candidate("classification", f"a series of {len(numbers)} numbers in each row, with a label")
        may_be_series = not source.columns or (numbers and (not texts or source.columns[0].kind == TIME))
        if may_be_series and (source.of_kind(TIME) or self.has_times):
            yield Candidate("forecasting", "time stamps and columns of numbers")
        elif source.columns and len(numbers) == len(source.columns):
            evidence = f"{plural(len(numbers), 'column')} of numbers without time stamps"
            yield Candidate("forecasting", evidence, is_labelled_series)
        if looks_like_pairs(source):
            yield Candidate("translation", "two columns of texts of similar lengths")
        if texts or not numbers:
            yield from _candidates_of_labels(source)

    def _of_lines(self) -> Iterator[Candidate]:
        found, source = self.tokens[0], self.source
        has_label_file = self.path != STDIN and Path(self.path).with_suffix(LABEL_SUFFIX).exists()
        if (found != "text" and not self.has_whole_texts) or has_label_file:
            yield Candidate("tagging", "columns of words and labels" if found != "text" else "a file of labels")
        has_tabs = source.separator == "\t" and len(source.columns) in (2, 3)
        if has_tabs and lengths_agree(source):
            yield Candidate("translation", "a tab in each line, between texts of similar lengths")
        if source.kind not in records.TABLE_KINDS or len(source.columns) < 2:
            yield Candidate("language-model", "lines of text")
        if has_tabs and len(source.of_kind(TEXT)) > 1:
            yield Candidate("translation", "a tab in each line, between texts", True)


def _task_of_folder(path: str) -> Candidate:
    if (Path(path) / FOLDER[0]).exists():
        return Candidate("tagging", f"a file {FOLDER[0]}")
    targets = find_targets(path)
    if targets is None:
        return Candidate("classification", "a folder")
    has_numbers = targets.target.kind == NUMBER and not targets.target.may_be_labels
    return Candidate("regression" if has_numbers else "classification", f"a table {targets.path.name} with targets")


def _task_of_labelled_series(path: str, kind: str) -> Candidate:
    """Regression if the targets of the series are numbers, as the file declares; otherwise classification."""
    try:
        declarations = read_declared(path)[0] if kind in ("ts", "arff") else []
    except UserError:  # reading the series reports it
        declarations = []
    attributes = [text for _, tag, text in declarations if tag == "@attribute"]
    is_numeric = any(tag == "@targetlabel" and text.startswith("true") for _, tag, text in declarations)
    is_numeric |= bool(attributes) and not any("{" in text for text in attributes)
    return Candidate("regression" if is_numeric else "classification", "labelled series")


def _task_of_series_rows(source: Source) -> Candidate:
    """Regression if decimal numbers are the labels of lists of numbers; otherwise classification."""
    names = [column for column in source.columns if column.kind == NUMBER and column.values]
    is_numeric = len(names) == 1 and not names[0].may_be_labels and not names[0].are_whole_numbers
    return Candidate("regression" if is_numeric else "classification", "a series of numbers and a label in each row")


def _candidates_of_mappings(source: Source, rows: Sequence[dict[str, Any]]) -> Iterator[Candidate]:
    row = rows[0]
    texts = [column for column in source.columns if column.kind == TEXT and not column.may_be_labels]
    named = [key for key in row if is_side_name(kinds.last_name(key)) and key != "id"]
    if len(named) == 2 and all(isinstance(row[key], str) for key in named):
        yield Candidate("translation", f"the keys {', '.join(map(repr, named))}")
    keys = [key.lower() for key in row]
    has_tags = any(key in kinds.TAG_COLUMNS for key in keys)
    lists = [key for key, value in row.items() if isinstance(value, list)]
    text = next((str(row[key]) for key in row if key.lower() in kinds.TOKEN_COLUMNS), "")
    sequences = [
        records.as_sequences(row[one], row[two])
        for one in row
        for two in row
        if one.lower() in (*kinds.TOKEN_COLUMNS, *kinds.TEXT_COLUMNS) and two.lower() in kinds.TAG_COLUMNS
    ]
    has_sequences = any(pair and len(pair[0]) > 1 for pair in sequences)
    if any(as_spans(each.get(key)) for each in rows for key in lists):
        yield Candidate("tagging", "texts with labelled spans")
    if len(lists) > 1 or has_sequences or (has_tags and len(text.split()) == 1 and len(source.columns) > 2):
        yield Candidate("tagging", "lists of tokens and labels" if lists else "tokens and labels")
    yield from _candidates_of_labels(source)
    if any(key in kinds.TEXT_COLUMNS for key in keys) and any(key in kinds.LABEL_COLUMNS for key in keys):
        yield Candidate("classification", "texts with labels")
    if len(texts) == 2 and len(source.columns) <= 3:
        yield Candidate("translation", f"texts under {texts[0].name!r} and {texts[1].name!r}", True)
    if not has_tags and not any(key in kinds.LABEL_COLUMNS for key in keys):
        yield Candidate("language-model", "texts")


def _candidates_of_labels(source: Source) -> Iterator[Candidate]:
    """Classification and regression, if columns can contain texts and their labels, also if it is unclear which."""
    if len(source.columns) < 2:
        return
    labels, numbers = (_columns_of(source, role) for role in (roles.LABEL_ROLE, roles.NUMBER_ROLE))
    if labels:
        distinct = source.columns[labels[0]].distinct
        is_decimal = (
            distinct > 0 and source.columns[labels[0]].kind == NUMBER and not source.columns[labels[0]].may_be_labels
        )
        if is_decimal:
            yield Candidate("regression", f"texts, and {distinct} distinct numbers")
        yield Candidate("classification", f"texts, and {plural(distinct, 'distinct label')}")
        if source.columns[labels[0]].kind == NUMBER and distinct > 2:
            yield Candidate("regression", f"texts, and {distinct} distinct numbers", True)
    elif numbers:
        yield Candidate("regression", f"texts, and {source.columns[numbers[0]].distinct} distinct numbers")


def _columns_of(source: Source, role: roles.Role) -> list[int]:
    """The columns that can have the role of labels or numbers next to a column of texts; empty if none can."""
    names = [column.name.lower() for column in source.columns]
    usual = [names.index(name) for name in role.usual_names if name in names] if source.has_header else []
    found = role.find([column for column in source.columns if column.kind != TEXT or column.may_be_labels], {})
    texts = roles.TEXT_ROLE.find([*source.columns], {})
    indices = usual or [index for index, column in enumerate(source.columns) if any(column is each for each in found)]
    has_texts = any(name in roles.TEXT_ROLE.usual_names for name in names) or bool(texts)
    return indices if has_texts else []


def _is_number_or_missing(value: Any) -> bool:
    if isinstance(value, bool | list):
        return False
    try:
        float("nan" if value is None else value)
    except (TypeError, ValueError):
        return False
    return True
