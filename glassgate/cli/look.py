"""`glassgate look`: print the detected format of a data file, and its first examples."""

from argparse import SUPPRESS, BooleanOptionalAction, Namespace
from collections.abc import Sequence
from dataclasses import fields
from itertools import islice
from shlex import quote
from typing import Any

import numpy as np

from glassgate.cli.parser import Parser, add_options, given_options, invocation, positive
from glassgate.cli.readings import Candidate, rank
from glassgate.tasks import installed_tasks, task_class
from glassgate.tasks.data import labelled
from glassgate.tasks.data.files import STDIN, limited_rows
from glassgate.tasks.data.lines import decoded_as
from glassgate.tasks.data.pairs import Pair
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.errors import UserError
from glassgate.tasks.forecasting import Forecasting
from glassgate.tasks.forecasting.series import Series, read_series
from glassgate.tasks.language_model.music import Roll
from glassgate.tasks.options import check_encoding, value_type
from glassgate.tasks.progress import Progress
from glassgate.tasks.wording import plural, printable

_MAX_TOKENS = 12  # the maximum number of printed tokens or values of an example
_MAX_SHEET_ROWS = 10_000
_MIN_HORIZONS = 8  # a series has at least this many horizons: look-back 4, training, dev and test 1 each
_MAX_CHARACTERS = 72  # the maximum length of a printed line


class _Notes(Progress):
    """Collects the notes of readers."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


def command(argv: list[str]) -> None:
    """Run `glassgate look` with the given arguments."""
    parser = Parser(
        prog="glassgate look",
        description="Print the recognised format of a data file and its first examples.",
        epilog="The options of `glassgate train TASK` are accepted as well.",
    )
    parser.add_argument("file", metavar="FILE", help=f"data for training, or {STDIN} for standard input")
    _add_own_options(parser)
    # The options of all tasks, because most of them take the next word, which is not the file.
    types = [task_class(task).options_type for task in installed_tasks()]
    kinds = {each.name: value_type(options, each.name) for options in types for each in fields(options)}
    for name, kind in kinds.items():
        settings: dict[str, Any] = {"action": BooleanOptionalAction} if kind is bool else {"default": ""}
        parser.add_argument(f"--{name.replace('_', '-')}", help=SUPPRESS, **settings)
    arguments = parser.parse_args(argv)
    own_parser = Parser(add_help=False)
    _add_own_options(own_parser)
    rest = own_parser.parse_known_args(argv)[1]
    rest.remove(arguments.file)
    check_encoding(arguments.encoding)
    with limited_rows(_MAX_SHEET_ROWS) as limit, decoded_as(arguments.encoding):
        _look(arguments, rest)
    if limit.is_exceeded:
        print(f"look reads the first {limit.max_rows:,} rows of a workbook, and training all of them")


def _add_own_options(parser: Parser) -> None:
    parser.add_argument("--task", choices=installed_tasks(), help="task of the file (default: detected)")
    parser.add_argument(
        "--examples", type=positive, default=3, metavar="N", help="number of examples to print (default: 3)"
    )


def _look(arguments: Namespace, rest: list[str]) -> None:
    """Print the format and the first examples of a file, and the commands that train on it with the options `rest`."""
    ranked = [Candidate(arguments.task, "")] if arguments.task else rank(arguments.file, arguments.format)
    accepted: list[tuple[Candidate, list[str]]] = []
    errors: list[tuple[str, UserError]] = []  # of tasks that are more likely than the accepted one
    for candidate in ranked:
        if accepted and not candidate.is_rival:
            break
        try:
            notes = _Notes()
            examples, words = _read(candidate.task, arguments.file, rest, notes)
        except UserError as error:
            errors += [] if accepted else [(candidate.task, error)]
            continue
        if not accepted:
            _print_examples(candidate, arguments, notes, examples)
        accepted.append((candidate, words))
        if len(accepted) == 2:
            break
    if not accepted:
        raise errors[0][1]
    for task, reason in errors:
        print(f"\nnot read as data for {task}: {reason}")
    for number, (candidate, words) in enumerate(accepted):
        options = "".join(f" {quote(word)}" for word in words)
        title = "train on it" if not number else f"it can also be data for {candidate.task} ({candidate.evidence})"
        print(f"\n{title}: {invocation()} train {candidate.task} --data {quote(arguments.file)}{options}")


def _read(task: str, file: str, rest: list[str], notes: "_Notes") -> tuple[Sequence[Any], list[str]]:
    """Read a file as training does, up to the vocabularies. Return the examples, and the options for training.

    A series that is too short for the default horizon gets a shorter one.
    """
    task_type = task_class(task)
    parser = Parser(prog="glassgate look", add_help=False)
    add_options(parser, task_type.options_type, task_type.builtin_options)
    values = {"data": file} | given_options(task_type.options_type, parser.parse_args(rest))
    reader = task_type(task_type.options_type.from_mapping(values))
    if isinstance(reader, Forecasting) and not {"horizon", "look_back"} & values.keys():
        steps = min(map(len, read_series(file, reader.options.schema)))
        if steps < _MIN_HORIZONS * reader.options.horizon:
            rest = [*rest, "--horizon", str(max(1, steps // _MIN_HORIZONS))]
            reader = task_type(task_type.options_type.from_mapping(values | {"horizon": int(rest[-1])}))
    reader.follow(reader.examine(file))
    examples: Sequence[Any] = reader.read(file, progress=notes)
    reader.vocabularies = reader.collect(reader.split(examples).train)
    return examples, rest


def _print_examples(candidate: Candidate, arguments: Namespace, notes: "_Notes", examples: Sequence[Any]) -> None:
    for text in notes.texts or [f"{arguments.file}: data for {candidate.task}, {plural(len(examples), 'example')}"]:
        print(text)
    for number, example in enumerate(islice(examples, arguments.examples), start=1):
        print(f"\n{number}.")
        for line in _lines(example):
            print(f"  {line}")


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
