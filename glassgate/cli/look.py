"""`glassgate look`: print the detected format of a data file, and its first examples."""

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
from glassgate.tasks.data.detect import kind_of
from glassgate.tasks.data.files import STDIN
from glassgate.tasks.data.formats import FOLDER, LABEL_SUFFIX, detect_format
from glassgate.tasks.data.music import Roll, is_music
from glassgate.tasks.data.pairs import Pair
from glassgate.tasks.data.series import Schema, Series, Table, resolved
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.data.token_table import is_token_table
from glassgate.tasks.errors import UserError
from glassgate.tasks.progress import Progress
from glassgate.tasks.wording import plural, printable

_UNITS = 12  # tokens of an example to print
_CHARACTERS = 72  # maximum length of a line


class _Notes(Progress):
    """Prints the notes of readers.

    Attributes:
        any: whether there was a note
    """

    any = False

    def note(self, text: str) -> None:
        self.any = True
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
    formats = Parser(prog="glassgate look", add_help=False)
    formats.add_argument("--format", default="")
    task = arguments.task or detect_task(arguments.file, formats.parse_known_args(rest)[0].format)
    kind = task_class(task)
    more = Parser(prog="glassgate look", add_help=False)
    add_options(more, kind.options_type, kind.builtin_options)
    chosen = given_options(kind.options_type, more.parse_args(rest))
    notes = _Notes()
    reader = kind(kind.options_type.from_mapping({"data": arguments.file} | chosen))
    examples = reader.read(arguments.file, progress=notes)
    if not notes.any:
        print(f"{arguments.file}: data for {task}, {plural(len(examples), 'example')}")
    for number, example in enumerate(islice(examples, arguments.examples), start=1):
        print(f"\n{number}.")
        for line in _shown(example):
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
    kind = format or kind_of(path)
    if kind == "folder":
        return "tagging" if (Path(path) / FOLDER[0]).exists() else "classification"
    if not format and is_music(path):
        return "language-model"
    if kind in labelled.SERIES:
        return "classification"
    if kind in ("", "csv", "xlsx") and is_token_table(path):
        return "tagging"
    if kind in records.SEPARATED:
        return _task_of_table(path, kind)
    if kind == "parquet" and _holds_series(path):
        return "forecasting"
    if kind in records.KEYED:
        _, first, _ = next(records.read(path, kind), (0, {}, {}))
        lists = isinstance(first, dict) and any(isinstance(value, list) for value in first.values())
        if lists or not isinstance(first, dict):
            return "tagging"
        return "classification" if any(name in first for name in records.LABELS) else "language-model"
    try:
        if labelled.Reader(path, format or "auto").format in ("fasttext", "csv"):
            return "classification"
    except UserError:
        pass
    if path == STDIN and _holds_series(path):
        return "forecasting"
    try:
        format, _ = detect_format(path, format or "auto", label_suffix=LABEL_SUFFIX)
    except UserError:
        return "language-model"
    if format != "text" or (path != STDIN and Path(path).with_suffix(LABEL_SUFFIX).exists()):
        return "tagging"
    columns = detect_layout(path)
    pairs = columns is not None and columns.separator == "\t" and columns.width in (2, 3)
    return "translation" if pairs else "language-model"


def _task_of_table(path: str, kind: str) -> str:
    """The task of a table of texts, series, tokens or pairs."""
    if kind == "tsv":
        header, cells = records.table_of(path, kind)
        rows = [row for _, row in islice(cells, 1000)] if len(header.header) in (2, 3) else []
        if rows and not any(" " in cell for row in rows for cell in row) and not {"text", "label"} & {*rows[0]}:
            return "tagging" if not _holds_series(path) else "forecasting"
    try:
        labelled.Reader(path)
    except UserError:
        if _holds_series(path):
            return "forecasting"
        return "translation" if kind == "tsv" else "classification"
    return "classification"


def _holds_series(path: str) -> bool:
    """Whether a table has time stamps."""
    try:
        return resolved(Table(path), Schema()).time is not None
    except UserError:
        return False


def _shown(example: Any) -> list[str]:
    if isinstance(example, Series):
        start, end = (example.frequency.text(example.times(place, place + 1)[0]) for place in (0, len(example) - 1))
        begin = [f"{value:g}" for value in example.values[:_UNITS]]
        about = f"{example.name}\t{len(example):,} steps of {example.frequency}, {start} to {end}"
        return [about, " ".join([*begin, "..."])]
    if isinstance(example, Tagged) and example.labels is not None:
        pairs = zip(islice(example.tokens, _UNITS), example.labels, strict=False)
        lines = [f"{printable(unit)}\t{label}" for unit, label in pairs]
        return [*([f"# intent = {example.intent}"] if example.intent else []), *lines, *_more(example.tokens)]
    if isinstance(example, labelled.Labelled):
        content = example.content
        if isinstance(content, np.ndarray):
            return [f"{example.label}\t{len(content)} steps of {content.shape[1]} channels"]
        text = content if isinstance(content, str) else " ".join(islice(content, _CHARACTERS))
        return [f"{example.label}\t{_short(text)}"]
    if isinstance(example, Pair):
        return [f"{_short(example.source)}\t{_short(example.target or '')}"]
    if isinstance(example, Roll):
        return [f"{len(example.steps)} steps of {example.steps.shape[1]} keys"]
    units = getattr(example, "tokens", None)
    if units is not None:
        first = [*islice(units, 4 * _CHARACTERS)]
        glue = "" if all(len(unit) == 1 for unit in first) else " "
        return [*[_short(line) for line in glue.join(first).splitlines()[:4]], f"{len(units):,} tokens"]
    return [_short(str(example))]


def _more(units: Sequence[str]) -> list[str]:
    return [f"... {len(units) - _UNITS:,} more"] if len(units) > _UNITS else []


def _short(text: str) -> str:
    return text if len(text) <= _CHARACTERS else text[: _CHARACTERS - 4] + " ..."
