"""Ranks the tasks for which a data file can be meant, each with the evidence in the file."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from glassgate.tasks.data import labelled, records, roles
from glassgate.tasks.data.columns import LABEL_SUFFIX, Layout
from glassgate.tasks.data.declared import read_declared
from glassgate.tasks.data.detect import detect_kind
from glassgate.tasks.data.files import STDIN, readable_file
from glassgate.tasks.data.formats import FOLDER, detect_format, find_token_table
from glassgate.tasks.data.kinds import NUMBER, TEXT, TIME, WORD
from glassgate.tasks.data.labelled_series import find_targets, has_labels, is_series_table
from glassgate.tasks.data.pairs import is_side_name, lengths_agree, looks_like_pairs
from glassgate.tasks.data.sniff import Source, sniff
from glassgate.tasks.data.spans import as_spans
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
    """Return the tasks for which a file can be meant, the most likely first. Each task is listed once.

    Args:
        path: the file
        format: the format; detected if empty

    Raises:
        DataError: the file does not exist, cannot be read, or fits no task
    """
    if not Path(path).is_dir():
        readable_file(path)
    ranked: dict[str, Candidate] = {}
    for candidate in _candidates(path, format):
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


def _candidates(path: str, format: str) -> Iterator[Candidate]:
    kind = format or detect_kind(path)
    if kind == "folder":
        yield _task_of_folder(path)
    elif not format and is_music(path):
        yield Candidate("language-model", "piano rolls")
    elif kind in ("tsf", "npy"):
        yield Candidate("forecasting", "series of the Monash repository" if kind == "tsf" else "an array of numbers")
    elif kind in labelled.SERIES:
        yield _task_of_labelled_series(path, kind)
    elif kind in records.KEYED_KINDS:
        yield from _candidates_of_rows(path, kind)
    else:
        yield from _candidates_of_text(path, format, kind)


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


def _candidates_of_rows(path: str, kind: str) -> Iterator[Candidate]:
    """The tasks of rows with keys, or of lists in JSON."""
    has_series, has_times = _series_in(path)
    try:
        source = sniff(path)
    except UserError:
        if not has_series:
            raise
        source = Source(path, kind)
    if is_series_table(source):
        yield _task_of_series_rows(source)
    if has_series:
        yield Candidate("forecasting", "numbers with time stamps" if has_times else "numbers")
    if source.columns and source.has_header:
        rows = islice(records.read_rows(path, kind), _EXAMINED_ROWS)
        yield from _candidates_of_mappings(source, [row for _, row, _ in rows])
    elif source.columns:
        are_texts = all(column.kind in (WORD, TEXT) and not column.may_be_labels for column in source.columns)
        if len(source.columns) == 2 and are_texts:
            yield Candidate("translation", "lists of two texts, most of which are distinct")
        yield from _candidates_of_labels(source)
        yield Candidate("classification", "lists of a text and its label")


def _candidates_of_mappings(source: Source, rows: Sequence[dict[str, Any]]) -> Iterator[Candidate]:
    row = rows[0]
    texts = [column for column in source.columns if column.kind == TEXT and not column.may_be_labels]
    named = [key for key in row if is_side_name(records.last_name(key)) and key != "id"]
    if len(named) == 2 and all(isinstance(row[key], str) for key in named):
        yield Candidate("translation", f"the keys {', '.join(map(repr, named))}")
    keys = [key.lower() for key in row]
    has_tags = any(key in records.TAG_COLUMNS for key in keys)
    lists = [key for key, value in row.items() if isinstance(value, list)]
    text = next((str(row[key]) for key in row if key.lower() in records.TOKEN_COLUMNS), "")
    sequences = [
        records.as_sequences(row[one], row[two])
        for one in row
        for two in row
        if one.lower() in (*records.TOKEN_COLUMNS, *records.TEXT_COLUMNS) and two.lower() in records.TAG_COLUMNS
    ]
    has_sequences = any(pair and len(pair[0]) > 1 for pair in sequences)
    if any(as_spans(each.get(key)) for each in rows for key in lists):
        yield Candidate("tagging", "texts with labelled spans")
    if len(lists) > 1 or has_sequences or (has_tags and len(text.split()) == 1 and len(source.columns) > 2):
        yield Candidate("tagging", "lists of tokens and labels" if lists else "tokens and labels")
    yield from _candidates_of_labels(source)
    if any(key in records.TEXT_COLUMNS for key in keys) and any(key in records.LABEL_COLUMNS for key in keys):
        yield Candidate("classification", "texts with labels")
    if len(texts) == 2 and len(source.columns) <= 3:
        yield Candidate("translation", f"texts under {texts[0].name!r} and {texts[1].name!r}", True)
    if not has_tags and not any(key in records.LABEL_COLUMNS for key in keys):
        yield Candidate("language-model", "texts")


def _candidates_of_text(path: str, format: str, kind: str) -> Iterator[Candidate]:
    source = sniff(path) if not format else Source(path, kind)
    if kind in ("", "text", "csv", "xlsx") and find_token_table(path) is not None:
        yield Candidate("tagging", "a column of words and one of labels")
    found, layout = _format_of_tokens(path, format)
    if found == "lines" or (kind in records.TABLE_KINDS and found == kind and layout is None):
        yield Candidate("tagging", "a sentence and its labels in each line")
    if layout is not None and layout.scheme and not _has_whole_texts(source, layout):
        yield Candidate("tagging", f"a column of words and one of {layout.scheme} labels")
    yield from _candidates_of_table(path, source)
    if source.of_kind(NUMBER) and 3 * len(source.of_kind(NUMBER, TIME)) > 2 * len(source.columns):
        return  # numbers are never a text
    try:
        reader = labelled.Reader(path, format or "auto")
        if reader.format in ("fasttext", *records.TABLE_KINDS) and (format or not source.columns or reader.found):
            yield Candidate("classification", "texts with labels")
        if reader.format == "fasttext":
            return
    except UserError:
        pass
    if (path == STDIN or kind == "xlsx") and _series_in(path)[1]:
        yield Candidate("forecasting", "time stamps")
    if kind != "xlsx":
        yield from _candidates_of_lines(path, found, layout, source)


def _format_of_tokens(path: str, format: str) -> tuple[str, Layout | None]:
    """The format of a file of labelled sequences, and the layout of its columns; "text" for other files."""
    try:
        return detect_format(path, format or "auto")
    except UserError:
        return "text", None


def _candidates_of_table(path: str, source: Source) -> Iterator[Candidate]:
    """The tasks of a table by the kinds of its columns."""
    texts, numbers = source.of_kind(TEXT), source.of_kind(NUMBER)
    is_labelled_series = is_series_table(source) and has_labels(source)
    if is_labelled_series:
        yield Candidate("classification", f"a series of {len(numbers)} numbers in each row, with a label")
    may_be_series = not source.columns or (numbers and (not texts or source.columns[0].kind == TIME))
    if may_be_series and (source.of_kind(TIME) or _series_in(path)[1]):
        yield Candidate("forecasting", "time stamps and columns of numbers")
    elif source.columns and len(numbers) == len(source.columns):
        evidence = f"{plural(len(numbers), 'column')} of numbers without time stamps"
        yield Candidate("forecasting", evidence, is_labelled_series)
    if looks_like_pairs(source):
        yield Candidate("translation", "two columns of texts of similar lengths")
    if texts or not numbers:
        yield from _candidates_of_labels(source)


def _candidates_of_labels(source: Source) -> Iterator[Candidate]:
    """Classification and regression, if columns can contain texts and their labels, also if it is unclear which."""
    if len(source.columns) < 2:
        return
    labels, numbers = (_columns_of(source, role) for role in (roles.LABEL_ROLE, roles.NUMBER_ROLE))
    if labels:
        distinct = source.columns[labels[0]].distinct
        is_decimal = source.columns[labels[0]].kind == NUMBER and not source.columns[labels[0]].may_be_labels
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


def _candidates_of_lines(path: str, found: str, layout: Layout | None, source: Source) -> Iterator[Candidate]:
    is_table = source.kind in records.TABLE_KINDS and len(source.columns) > 1
    has_labels = path != STDIN and Path(path).with_suffix(LABEL_SUFFIX).exists()
    if (found != "text" and not _has_whole_texts(source, layout)) or has_labels:
        yield Candidate("tagging", "columns of words and labels" if found != "text" else "a file of labels")
    has_tabs = source.separator == "\t" and len(source.columns) in (2, 3)
    if has_tabs and lengths_agree(source):
        yield Candidate("translation", "a tab in each line, between texts of similar lengths")
    if not is_table:
        yield Candidate("language-model", "lines of text")
    if has_tabs and len(source.of_kind(TEXT)) > 1:
        yield Candidate("translation", "a tab in each line, between texts", True)


def _has_whole_texts(source: Source, layout: Layout | None) -> bool:
    """Whether the columns of words and labels contain texts of several words."""
    if layout is None or len(source.columns) != layout.width:
        return False
    chosen: Sequence[int | None] = (layout.token_column, layout.label_column)
    columns = [source.columns[index] for index in chosen if index is not None]
    return any(column.kind == TEXT and column.mean_words >= 2 for column in columns)


def _series_in(path: str) -> tuple[bool, bool]:
    """Whether a file is a table whose series consist of numbers, and whether it has time stamps."""
    try:
        table = Table(path)
        schema = resolve_schema(table, Schema())
    except UserError:
        return False, False
    head = table.first_part
    has_numbers = len(head) > 0 and all(head[name].map(_is_number_or_missing).all() for name in schema.target)
    return has_numbers, schema.time is not None


def _is_number_or_missing(value: Any) -> bool:
    if isinstance(value, bool | list):
        return False
    try:
        float("nan" if value is None else value)
    except (TypeError, ValueError):
        return False
    return True
