"""`glassgate look`: print the detected format of a data file, and its first examples."""

from argparse import Namespace
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from glassgate.cli.arguments import add_options, given_options, positive
from glassgate.cli.invocation import invocation
from glassgate.cli.parser import Parser
from glassgate.tasks import TASKS, task_class
from glassgate.tasks.data import labelled, records
from glassgate.tasks.data.columns import detect_layout
from glassgate.tasks.data.detect import detect_kind
from glassgate.tasks.data.files import STDIN, limited_rows
from glassgate.tasks.data.formats import FOLDER, LABEL_SUFFIX, detect_format
from glassgate.tasks.data.music import Roll, is_music
from glassgate.tasks.data.pairs import Pair
from glassgate.tasks.data.series import Schema, Series, Table, resolve_schema
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.data.token_table import is_token_table
from glassgate.tasks.errors import UserError
from glassgate.tasks.progress import Progress
from glassgate.tasks.wording import plural, printable

_MAX_TOKENS = 12  # the maximum number of printed tokens or values of an example
_MAX_SHEET_ROWS = 10_000
_MAX_CHARACTERS = 72  # the maximum length of a printed line


class _Notes(Progress):
    """Prints the notes of readers.

    Attributes:
        has_printed: whether there was a note
    """

    has_printed = False

    def note(self, text: str) -> None:
        self.has_printed = True
        print(text)


def command(argv: list[str]) -> None:
    """Run `glassgate look` with the given arguments."""
    parser = Parser(
        prog="glassgate look",
        description="Print the recognised format of a data file and its first examples.",
        epilog="The options of `glassgate train TASK` are accepted as well.",
    )
    parser.add_argument("file", metavar="FILE", help=f"data for training, or {STDIN} for standard input")
    parser.add_argument("--task", choices=TASKS, help="task of the file (default: detected)")
    parser.add_argument(
        "--examples", type=positive, default=3, metavar="N", help="number of examples to print (default: 3)"
    )
    arguments, rest = parser.parse_known_args(argv)
    with limited_rows(_MAX_SHEET_ROWS) as limit:
        _look(arguments, rest)
    if limit.is_exceeded:
        print(f"look reads the first {limit.max_rows:,} rows of a workbook, and training all of them")


def _look(arguments: Namespace, rest: list[str]) -> None:
    """Print the format and the first examples of a file.

    Args:
        rest: the options of the task
    """
    format_parser = Parser(prog="glassgate look", add_help=False)
    format_parser.add_argument("--format", default="")
    task = arguments.task or detect_task(arguments.file, format_parser.parse_known_args(rest)[0].format)
    task_type = task_class(task)
    task_parser = Parser(prog="glassgate look", add_help=False)
    add_options(task_parser, task_type.options_type, task_type.builtin_options)
    values = given_options(task_type.options_type, task_parser.parse_args(rest))
    notes = _Notes()
    reader = task_type(task_type.options_type.from_mapping({"data": arguments.file} | values))
    examples = reader.read(arguments.file, progress=notes)
    if not notes.has_printed:
        print(f"{arguments.file}: data for {task}, {plural(len(examples), 'example')}")
    for number, example in enumerate(islice(examples, arguments.examples), start=1):
        print(f"\n{number}.")
        for line in _lines(example):
            print(f"  {line}")
    options = "".join(f" {quote(word)}" for word in rest)
    print(f"\ntrain on it: {invocation()} train {task} --data {quote(arguments.file)}{options}")


def detect_task(path: str, format: str = "") -> str:
    """Return the task that fits the format of a file best.

    Args:
        path: the file
        format: the format; detected if empty

    Raises:
        DataError: the file cannot be read
    """
    kind = format or detect_kind(path)
    if kind == "folder":
        return "tagging" if (Path(path) / FOLDER[0]).exists() else "classification"
    if not format and is_music(path):
        return "language-model"
    if kind in labelled.SERIES:
        return "classification"
    if kind in ("", "csv", "xlsx") and is_token_table(path):
        return "tagging"
    if kind in records.TABLE_KINDS:
        return _task_of_table(path, kind)
    if kind == "parquet" and _has_time_stamps(path):
        return "forecasting"
    if kind in records.KEYED_KINDS:
        _, row, _ = next(records.read_rows(path, kind), (0, {}, {}))
        if not isinstance(row, dict) or any(isinstance(value, list) for value in row.values()):
            return "tagging"
        return "classification" if any(name in row for name in records.LABEL_COLUMNS) else "language-model"
    try:
        if labelled.Reader(path, format or "auto").format in ("fasttext", "csv"):
            return "classification"
    except UserError:
        pass
    if path == STDIN and _has_time_stamps(path):
        return "forecasting"
    try:
        format, _ = detect_format(path, format or "auto", label_suffix=LABEL_SUFFIX)
    except UserError:
        return "language-model"
    if format != "text" or (path != STDIN and Path(path).with_suffix(LABEL_SUFFIX).exists()):
        return "tagging"
    layout = detect_layout(path)
    is_pairs = layout is not None and layout.separator == "\t" and layout.width in (2, 3)
    return "translation" if is_pairs else "language-model"


def _task_of_table(path: str, kind: str) -> str:
    """Return the task of a table of texts, series, tokens or pairs."""
    if kind == "tsv":
        table, numbered_rows = records.read_table(path, kind)
        rows = [row for _, row in islice(numbered_rows, 1000)] if len(table.header) in (2, 3) else []
        has_blanks = any(" " in cell for row in rows for cell in row)
        if rows and not has_blanks and not {"text", "label"} & {*rows[0]}:
            return "tagging" if not _has_time_stamps(path) else "forecasting"
    try:
        labelled.Reader(path)
    except UserError:
        if _has_time_stamps(path):
            return "forecasting"
        return "translation" if kind == "tsv" else "classification"
    return "classification"


def _has_time_stamps(path: str) -> bool:
    """Whether a table has time stamps."""
    try:
        return resolve_schema(Table(path), Schema()).time is not None
    except UserError:
        return False


def _lines(example: Any) -> list[str]:
    if isinstance(example, Series):
        start, end = (example.frequency.text(example.times(step, step + 1)[0]) for step in (0, len(example) - 1))
        values = [f"{value:g}" for value in example.values[:_MAX_TOKENS]]
        description = f"{example.name}\t{len(example):,} steps of {example.frequency}, {start} to {end}"
        return [description, " ".join([*values, "..."])]
    if isinstance(example, Tagged) and example.labels is not None:
        pairs = zip(islice(example.tokens, _MAX_TOKENS), example.labels, strict=False)
        lines = [f"{printable(token)}\t{label}" for token, label in pairs]
        return [*([f"# intent = {example.intent}"] if example.intent else []), *lines, *_remainder(example.tokens)]
    if isinstance(example, labelled.Labelled):
        content = example.content
        if isinstance(content, np.ndarray):
            return [f"{example.label}\t{len(content)} steps of {content.shape[1]} channels"]
        text = content if isinstance(content, str) else " ".join(islice(content, _MAX_CHARACTERS))
        return [f"{example.label}\t{_shorten(text)}"]
    if isinstance(example, Pair):
        return [f"{_shorten(example.source)}\t{_shorten(example.target or '')}"]
    if isinstance(example, Roll):
        return [f"{len(example.steps)} steps of {example.steps.shape[1]} keys"]
    all_tokens = getattr(example, "tokens", None)
    if all_tokens is not None:
        tokens = [*islice(all_tokens, 4 * _MAX_CHARACTERS)]
        separator = "" if all(len(token) == 1 for token in tokens) else " "
        return [*[_shorten(line) for line in separator.join(tokens).splitlines()[:4]], f"{len(all_tokens):,} tokens"]
    return [_shorten(str(example))]


def _remainder(tokens: Sequence[str]) -> list[str]:
    """A line with the number of tokens that are not printed, if there are any."""
    return [f"... {len(tokens) - _MAX_TOKENS:,} more"] if len(tokens) > _MAX_TOKENS else []


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 4] + " ..."
