"""`glassgate look`: what a file is taken for, and its first examples, without training."""

from argparse import Namespace
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from glassgate.cli.arguments import positive
from glassgate.cli.parser import Parser
from glassgate.cli.started import started
from glassgate.tasks import TASKS, task_class
from glassgate.tasks.data import keyed, table
from glassgate.tasks.data.columns import look, look_at_table
from glassgate.tasks.data.files import suffix_of
from glassgate.tasks.data.formats import LABEL_SUFFIX, recognised
from glassgate.tasks.data.pairs import Pair
from glassgate.tasks.data.piano import Roll
from glassgate.tasks.data.series import Schema, Series, Table, resolved
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.data.token_table import is_token_table
from glassgate.tasks.errors import UserError
from glassgate.tasks.progress import Progress

_MUSIC = (".mat", ".npy")
_UNITS = 12  # of an example that are shown
_CHARACTERS = 72
_OPTIONS = ("format", "column", "text_column", "label_column", "unit", "label_suffix")


class _Notes(Progress):
    """Prints what readers say.

    Attributes:
        any: whether they have said something
    """

    any = False

    def note(self, text: str) -> None:
        self.any = True
        print(text)


def command(words: list[str]) -> None:
    """Show a file as the words after `glassgate look` say."""
    parser = Parser(prog="glassgate look", description="Show what a data file is taken for, and its first examples.")
    parser.add_argument("file", metavar="FILE", help="data for training")
    parser.add_argument("--task", choices=TASKS, help="what it is for (found out)")
    parser.add_argument("--examples", type=positive, default=3, metavar="N", help="examples to show (3)")
    for name in _OPTIONS:
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, metavar=name.upper(), help="as in `glassgate train TASK --help`")
    arguments = parser.parse_args(words)
    task = arguments.task or guessed(arguments.file)
    kind = task_class(task)
    chosen = {name: value for name in _OPTIONS if (value := getattr(arguments, name)) is not None}
    if task == "language-model" and suffix_of(arguments.file) in _MUSIC:
        arguments.unit = chosen["unit"] = "notes"
    notes = _Notes()
    examples = kind(kind.options_type.from_mapping(chosen)).read(arguments.file, progress=notes)
    if not notes.any:
        count = "1 example" if len(examples) == 1 else f"{len(examples):,} examples"
        print(f"{arguments.file}: data for {task}, {count}")
    for number, example in enumerate(islice(examples, arguments.examples), start=1):
        print(f"\n{number}.")
        for line in _shown(example):
            print(f"  {line}")
    print(f"\ntrain on it: {started()} train {task} --data {quote(arguments.file)}{_given(arguments)}")


def guessed(path: str) -> str:
    """Return the task that a file is most likely meant for.

    Raises:
        DataError: the file cannot be read
    """
    suffix = suffix_of(path)
    if Path(path).is_dir():
        return "tagging"
    if suffix in (".ts", ".npz"):
        return "classification"
    if suffix == ".csv" and is_token_table(path):
        return "tagging"
    if suffix in (".csv", ".tsv"):
        try:
            look_at_table(path, "\t" if suffix == ".tsv" else None, "text", "label")
        except UserError:
            if _holds_series(path):
                return "forecasting"
            return "tagging" if suffix == ".tsv" else "classification"
        return "classification"
    if suffix == ".parquet" and _holds_series(path):
        return "forecasting"
    if suffix in (".jsonl", ".ndjson", ".parquet"):
        _, first, _ = next(keyed.read(path), (0, {}, {}))
        lists = isinstance(first, dict) and any(isinstance(value, list) for value in first.values())
        if lists or not isinstance(first, dict):
            return "tagging"
        return "classification" if any(name in first for name in keyed.LABEL) else "language-model"
    if suffix in _MUSIC:
        return "language-model"
    try:
        format, _ = recognised(path, label_suffix=LABEL_SUFFIX)
    except UserError:
        return "language-model"
    if format != "text" or Path(path).with_suffix(LABEL_SUFFIX).exists():
        return "tagging"
    columns = look(path)
    pairs = columns is not None and columns.separator == "\t" and columns.width in (2, 3)
    return "translation" if pairs else "language-model"


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
        pairs = zip(islice(example.units, _UNITS), example.labels, strict=False)
        lines = [f"{_plain(unit)}\t{label}" for unit, label in pairs]
        return [*([f"# intent = {example.intent}"] if example.intent else []), *lines, *_more(example.units)]
    if isinstance(example, table.Labelled):
        content = example.content
        if isinstance(content, np.ndarray):
            return [f"{example.label}\t{len(content)} steps of {content.shape[1]} channels"]
        text = content if isinstance(content, str) else " ".join(islice(content, _CHARACTERS))
        return [f"{example.label}\t{_short(text)}"]
    if isinstance(example, Pair):
        return [f"{_short(example.source)}\t{_short(example.target or '')}"]
    if isinstance(example, Roll):
        return [f"{len(example.steps)} steps of {example.steps.shape[1]} keys"]
    units = getattr(example, "units", None)
    if units is not None:
        first = [*islice(units, 4 * _CHARACTERS)]
        glue = "" if all(len(unit) == 1 for unit in first) else " "
        return [*[_short(line) for line in glue.join(first).splitlines()[:4]], f"{len(units):,} units"]
    return [_short(str(example))]


def _more(units: Sequence[str]) -> list[str]:
    return [f"... {len(units) - _UNITS:,} more"] if len(units) > _UNITS else []


def _short(text: str) -> str:
    return text if len(text) <= _CHARACTERS else text[: _CHARACTERS - 4] + " ..."


def _plain(unit: str) -> str:
    return unit if unit.isprintable() else unit.encode("unicode_escape").decode()


def _given(arguments: Namespace) -> str:
    pairs = ((name, getattr(arguments, name)) for name in _OPTIONS)
    return "".join(f" --{name.replace('_', '-')} {quote(value)}" for name, value in pairs if value is not None)
