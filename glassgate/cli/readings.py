"""Ranks the tasks for which a data file can be meant, each with the evidence in the file."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from glassgate.tasks.data import labelled, records
from glassgate.tasks.data.columns import detect_layout
from glassgate.tasks.data.detect import detect_kind
from glassgate.tasks.data.files import STDIN, readable_file
from glassgate.tasks.data.formats import FOLDER, LABEL_SUFFIX, detect_format
from glassgate.tasks.data.lines import read_lines
from glassgate.tasks.data.pair_rows import is_side_name, lengths_agree, looks_like_pairs
from glassgate.tasks.data.series_folder import find_targets
from glassgate.tasks.data.series_tables import has_labels, is_series_table
from glassgate.tasks.data.sniff import NUMBER, TEXT, TIME, WORD, Column, Source, sniff
from glassgate.tasks.data.token_table import is_token_table
from glassgate.tasks.errors import DataError, UserError
from glassgate.tasks.forecasting.series import Schema, Table, resolve_schema
from glassgate.tasks.language_model.music import is_music
from glassgate.tasks.wording import plural


class Reading(NamedTuple):
    """A task, and the evidence that a file is data for it.

    Attributes:
        is_rival: whether this reading is about as likely as the previous one
    """

    task: str
    evidence: str
    is_rival: bool = False


def rank(path: str, format: str = "") -> list[Reading]:
    """Return the tasks for which a file can be meant, the most likely first. Each task is listed once.

    Args:
        path: the file
        format: the format; detected if empty

    Raises:
        DataError: the file does not exist, cannot be read, or fits no task
    """
    if not Path(path).is_dir():
        readable_file(path)
    ranked: dict[str, Reading] = {}
    for reading in _readings(path, format):
        ranked.setdefault(reading.task, reading)
    if not ranked:
        names = ", ".join(repr(column.name) for column in sniff(path).columns[:8])
        raise DataError(
            path,
            None,
            f"expected data of a task, got the columns {names}, which fit none: numbers with a label in each row are "
            "neither forecasting nor a labelled series; name a task with --task to see what it lacks",
        )
    return list(ranked.values())


def _readings(path: str, format: str) -> Iterator[Reading]:
    kind = format or detect_kind(path)
    if kind == "folder":
        yield _task_of_folder(path)
    elif not format and is_music(path):
        yield Reading("language-model", "piano rolls")
    elif kind == "tsf":
        yield Reading("forecasting", "series of the Monash repository")
    elif kind in labelled.SERIES:
        yield _task_of_labelled_series(path, kind)
    elif kind == "parquet" and _has_time_stamps(path):
        yield Reading("forecasting", "time stamps")
    elif kind in records.KEYED_KINDS:
        yield _task_of_keys(path, kind)
    else:
        yield from _readings_of_text(path, format, kind)


def _task_of_folder(path: str) -> Reading:
    if (Path(path) / FOLDER[0]).exists():
        return Reading("tagging", f"a file {FOLDER[0]}")
    targets = find_targets(path)
    if targets is None:
        return Reading("classification", "a folder")
    has_numbers = targets.target.kind == NUMBER and not targets.target.may_be_labels
    return Reading("regression" if has_numbers else "classification", f"a table {targets.path.name} with targets")


def _task_of_labelled_series(path: str, kind: str) -> Reading:
    """Regression if the targets of the series are numbers, as the file declares; otherwise classification."""
    lines = [line.lower() for _, line in islice(read_lines(path), 1000)] if kind in ("ts", "arff") else []
    attributes = [line for line in lines if line.startswith("@attribute")]
    is_numeric = any(line.split()[:2] == ["@targetlabel", "true"] for line in lines)
    is_numeric |= bool(attributes) and not any("{" in line for line in attributes)
    return Reading("regression" if is_numeric else "classification", "labelled series")


def _task_of_keys(path: str, kind: str) -> Reading:
    _, row, _ = next(records.read_rows(path, kind), (0, {}, {}))
    if isinstance(row, list):
        return Reading("classification", "lists of a text and its label")
    if not isinstance(row, dict):
        return Reading("tagging", "rows")
    sides = row.get("translation")
    texts = [key for key, value in row.items() if isinstance(value, str)]
    if isinstance(sides, dict) or (len(texts) == 2 and all(map(is_side_name, texts))):
        return Reading("translation", f"the keys {', '.join(map(repr, sides or texts))}")
    if any(isinstance(value, list) for value in row.values()):
        return Reading("tagging", "lists of tokens and labels")
    has_label = any(name in row for name in records.LABEL_COLUMNS)
    return Reading("classification", "texts with labels") if has_label else Reading("language-model", "texts")


def _readings_of_text(path: str, format: str, kind: str) -> Iterator[Reading]:
    source = sniff(path) if not format else Source(kind)
    if kind in ("", "text", "csv", "xlsx") and is_token_table(path):
        yield Reading("tagging", "a column of words and one of labels")
    yield from _readings_of_table(path, source)
    if source.of_kind(NUMBER) and 3 * len(source.of_kind(NUMBER, TIME)) > 2 * len(source.columns):
        return  # numbers are never a text
    try:
        if labelled.Reader(path, format or "auto").format in ("fasttext", *records.TABLE_KINDS):
            yield Reading("classification", "texts with labels")
    except UserError:
        pass
    if (path == STDIN or kind == "xlsx") and _has_time_stamps(path):
        yield Reading("forecasting", "time stamps")
    if kind != "xlsx":
        yield from _readings_of_lines(path, format, source)


def _readings_of_table(path: str, source: Source) -> Iterator[Reading]:
    """The readings of a table by the kinds of its columns."""
    texts, numbers = source.of_kind(TEXT), source.of_kind(NUMBER)
    is_labelled_series = is_series_table(source) and has_labels(source)
    if is_labelled_series:
        yield Reading("classification", f"a series of {len(numbers)} numbers in each row, with a label")
    if numbers and not texts and (source.of_kind(TIME) or _has_time_stamps(path)):
        yield Reading("forecasting", "time stamps and columns of numbers")
    elif source.columns and len(numbers) == len(source.columns):
        evidence = f"{plural(len(numbers), 'column')} of numbers without time stamps"
        yield Reading("forecasting", evidence, is_labelled_series)
    labels = [column for column in source.columns if column.may_be_labels and column.kind in (WORD, NUMBER)]
    if len(texts) == 1 and len(source.columns) == 2 and labels:
        yield from _readings_of_labels(labels[0])
    elif looks_like_pairs(source):
        yield Reading("translation", "two columns of texts of similar lengths")
    elif len(texts) == 1 and len(source.columns) == 2 and numbers and not numbers[0].counts_rows:
        yield Reading("regression", f"a text and a number, {numbers[0].distinct} distinct ones")


def _readings_of_labels(labels: Column) -> Iterator[Reading]:
    yield Reading("classification", f"texts, and {plural(labels.distinct, 'distinct label')}")
    if labels.kind == NUMBER and labels.distinct > 2:
        yield Reading("regression", f"texts, and {labels.distinct} distinct numbers", True)


def _readings_of_lines(path: str, format: str, source: Source) -> Iterator[Reading]:
    try:
        format, _ = detect_format(path, format or "auto", label_suffix=LABEL_SUFFIX)
    except UserError:
        format = "text"
    if format != "text" or (path != STDIN and Path(path).with_suffix(LABEL_SUFFIX).exists()):
        yield Reading("tagging", "columns of words and labels" if format != "text" else "a file of labels")
    layout = detect_layout(path)
    has_tabs = layout is not None and layout.separator == "\t" and layout.width in (2, 3) and format == "text"
    if has_tabs and lengths_agree(source):
        yield Reading("translation", "a tab in each line, between texts of similar lengths")
    yield Reading("language-model", "lines of text")
    if has_tabs and len(source.of_kind(TEXT)) > 1:
        yield Reading("translation", "a tab in each line, between texts", True)


def _has_time_stamps(path: str) -> bool:
    """Whether a table has time stamps."""
    try:
        return resolve_schema(Table(path), Schema()).time is not None
    except UserError:
        return False
