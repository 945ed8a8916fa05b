"""Assigns the columns of a table to the roles that a task declares, as a pure function of the examined columns."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from glassgate.tasks.data.annotations import reject_spans
from glassgate.tasks.data.dialect import EXAMINED_LINES
from glassgate.tasks.data.kinds import LABEL_COLUMNS, NUMBER, TEXT, TEXT_COLUMNS, TIME, WORD, Column, last_name
from glassgate.tasks.data.sniff import Source
from glassgate.tasks.errors import DataError

_MAX_EXAMPLE = 40  # characters of a cell in messages
_MIN_WORDS = 3  # in the mean, of the texts that are preferred to shorter ones, such as titles


@dataclass(frozen=True)
class Role:
    """A role of a column.

    Attributes:
        noun: the content of the column, for messages
        option: the option that names the column
        usual_names: the usual names of the column, in lower case
        find: returns the columns that can have the role by their content, given the columns of other roles
        is_asked: whether several usual names, without the first of them, are ambiguous; otherwise the first one counts
    """

    noun: str
    option: str
    usual_names: Sequence[str]
    find: "Callable[[list[Column], Found], list[Column]]"
    is_asked: bool = False

    @property
    def name(self) -> str:
        """The name of the option in Python."""
        return self.option.removeprefix("--").replace("-", "_")


Found = Mapping[Role, Column]
"""The columns that have been found."""


def _texts(columns: Sequence[Column], _: Found) -> list[Column]:
    """The columns of distinct texts; if there are several, those of several words; if none, that of distinct words.

    The only column that is left contains the texts if it is not of numbers. Beside columns of numbers, words that
    repeat are rather identifiers, as of the series in a table with a step per row.
    """
    measured = any([column.kind == NUMBER and not column.counts_rows for column in columns])
    columns = [column for column in columns if column.kind in (WORD, TEXT)]
    texts = [column for column in columns if column.kind == TEXT and not column.may_be_labels]
    texts = texts or [column for column in columns if column.kind == TEXT]
    long = [column for column in texts if column.mean_words >= _MIN_WORDS]
    distinct = [column for column in columns if column.kind == WORD and not column.may_be_labels]
    return (long if len(long) == 1 else texts) or distinct or [*columns][: len(columns) == 1 and not measured]


def _labels(columns: Sequence[Column], _: Found) -> list[Column]:
    """The columns whose values repeat, except times and numbers with decimals; those of words are preferred."""
    repeating = [column for column in columns if column.may_be_labels and column.kind != TIME]
    return [column for column in repeating if column.kind != NUMBER or column.are_whole_numbers]


def _numbers(columns: Sequence[Column], _: Found) -> list[Column]:
    """The columns of numbers that do not count the rows."""
    return [column for column in columns if column.kind == NUMBER and column.distinct > 1 and not column.counts_rows]


TEXT_ROLE = Role("texts", "--text-column", TEXT_COLUMNS, _texts, is_asked=True)
LABEL_ROLE = Role("labels", "--label-column", LABEL_COLUMNS, _labels, is_asked=True)
NUMBER_ROLE = Role("numbers", "--label-column", LABEL_COLUMNS, _numbers, is_asked=True)


def assign(
    path: str | Path,
    columns: Sequence[Column],
    requested: Mapping[Role, str | None],
    has_header: bool = True,
    line: int = 1,
    spare: int = 0,
) -> dict[Role, int]:
    """Return the index of the column of each role: the requested one, one with a usual name, or one by its content.

    A role that no column can have is not in the result. A column with a usual name of one role cannot have another.

    Args:
        path: the file, for messages
        columns: the columns of the table
        requested: the roles, and the names of their columns or their numbers from 1; None to find a column
        has_header: whether the columns have names, for messages
        line: the line of the names, for messages
        spare: the number of columns that are left for other roles

    Raises:
        DataError: several columns can have a role, or the labels are spans of characters

    Example:
        >>> columns = [Column("body", ("it was good", "it was bad")), Column("stars", ("1", "1"))]
        >>> assign("a.csv", columns, {TEXT_ROLE: None})[TEXT_ROLE]
        0
    """
    names = [column.name for column in columns]
    found: dict[Role, int] = {}
    taken: set[int] = set()

    def choose(role: Role, candidates: Sequence[int], is_asked: bool) -> None:
        if len(candidates) > 1 and is_asked:
            raise _ambiguity(path, line, role, [columns[index] for index in candidates], has_header)
        if candidates:
            found[role] = candidates[0]
            taken.add(candidates[0])

    for role, name in requested.items():
        if name is not None:
            choose(role, _named_columns(names, name), False)
        elif usual := usual_columns(names, role.usual_names):
            choose(role, usual, role.is_asked)
            taken |= {index for index, each in enumerate(names) if last_name(each) in role.usual_names}
    for role, name in requested.items():
        free = [column for index, column in enumerate(columns) if index not in taken]
        if name is None and role not in found and len(free) > spare:
            known = {other: columns[index] for other, index in found.items()}
            fitting = role.find(free, known)
            choose(role, [next(k for k, column in enumerate(columns) if column is each) for each in fitting], True)
    for role, index in found.items():
        if role.option == LABEL_ROLE.option:
            reject_spans(path, line, names[index], columns[index].values)
    return found


def _named_columns(names: Sequence[str], name: str) -> list[int]:
    if _is_number(name, len(names)):
        return [int(name) - 1]
    return [names.index(name)] if name in names else []


def usual_columns(names: Sequence[str], usual_names: Sequence[str]) -> list[int]:
    """Return the columns with a usual name, the most usual first; only this one if its name is the first usual one."""
    if {*usual_names[:1]} & {*names}:
        return [names.index(usual_names[0])]
    ranks = {k: usual_names.index(name) for k, name in enumerate(map(last_name, names)) if name in usual_names}
    found = sorted(ranks, key=ranks.__getitem__)
    return found[:1] if len(found) > 1 and ranks[found[0]] == 0 < ranks[found[1]] else found


def _ambiguity(path: str | Path, line: int, role: Role, columns: Sequence[Column], has_header: bool) -> DataError:
    columns = columns[:8]
    shown = " or ".join([repr(column.name) for column in columns])
    values = " or ".join(repr(column.values[0][:_MAX_EXAMPLE]) for column in columns if column.values)
    examples = f", such as {values}" if values and not has_header else ""
    by_number = "" if has_header else ", by number, as the first line is not a header"
    got = f"the {role.noun} can be in column {shown}{examples}"
    return DataError(path, line, f"{got}; choose one with {role.option}{by_number}")


@dataclass(frozen=True)
class Assignment:
    """The roles of the columns of a table.

    Attributes:
        source: the table
        names: the names of the columns; without a header their numbers, from 1
        has_header: whether the first row names the columns
        indices: the index of the column of each role
        by_content: the names of the columns that neither an option nor a usual name determines, by the option
    """

    source: Source
    names: tuple[str, ...]
    has_header: bool
    indices: Mapping[Role, int]
    by_content: dict[str, str]


def assign_source(source: Source, requested: Mapping[Role, str | None]) -> Assignment:
    """Find the columns of a table, or the keys of rows, that have the roles, see `assign`.

    The first row of a table is a header if it contains a requested or a usual name, or if the rows below show it.

    Raises:
        DataError: several columns can have a role, or none can
    """
    line = source.dialect.skipped_lines + 1
    if source.is_keyed and not source.columns:
        got = "rows without keys, or of different kinds"
        raise DataError(source.path, line, f"expected objects, or lists of a text and its label, got {got}")
    columns, has_header = _columns_of(source, requested)
    names = [column.name for column in columns]
    missing = lacking_roles(names, requested)
    found = {} if missing else assign(source.path, columns, requested, has_header, line)
    if len(columns) == 1 and [*requested] == [TEXT_ROLE]:
        found = {TEXT_ROLE: 0}
    if missing := [role for role in missing or requested if role not in found]:
        if len(source.columns) != len(source.header) > 1:
            deque(islice(source.rows(), EXAMINED_LINES), maxlen=0)  # a row of another width is reported first
        raise missing_column(source.path, line, missing[0], requested, source.header, source.is_keyed)
    by_content = {
        role.name: columns[index].name or str(index + 1)
        for role, index in found.items()
        if requested[role] is None and last_name(columns[index].name) not in role.usual_names
    }
    return Assignment(source, tuple(column.name for column in columns), has_header, found, by_content)


def lacking_roles(names: Sequence[str], requested: Mapping[Role, str | None]) -> list[Role]:
    """Return the roles whose requested column does not exist."""
    return [role for role, name in requested.items() if name is not None and not _named_columns(names, name)]


def missing_column(
    path: str | Path,
    line: int | None,
    role: Role,
    requested: Mapping[Role, str | None],
    header: Sequence[str],
    is_keyed: bool = False,
) -> DataError:
    """Return the error for a role without a column; it lists the cells of the first row."""
    name, noun = requested[role], "key" if is_keyed else "column"
    wanted = repr(name or role.usual_names[0]) if name or role.usual_names else f"of {role.noun}"
    got = ", ".join(map(repr, header[:8])) or f"no {noun}"
    remedy = f"name yours with {' and '.join(each.option for each in requested)}"
    numbers = "" if is_keyed else ", or their numbers from 1 if the first line is not a header"
    return DataError(path, line, f"expected a {noun} {wanted}, got {got}; {remedy}{numbers}")


def hints(requested: Mapping[Role, str | None]) -> list[str]:
    """Return the names that the header of a table should contain."""
    return [name or role.usual_names[0] for role, name in requested.items() if name or role.usual_names]


def _columns_of(source: Source, requested: Mapping[Role, str | None]) -> tuple[Sequence[Column], bool]:
    """The columns of a table, named by the first row or, if it is not a header, by their numbers; or the keys."""
    if source.is_keyed:
        return source.columns, source.has_header
    cells, names = source.header, hints(requested)
    is_named = any(name in cells and not _is_number(name, len(cells)) for name in names)
    by_number = not is_named and any(map(str.isdecimal, names))
    has_usual = any(cell.lower() in (*TEXT_COLUMNS, *LABEL_COLUMNS) for cell in cells)
    is_unclear = len(cells) > 1 and len(source.columns) != len(cells)
    has_header = is_named or source.has_header or (not by_number and (has_usual or is_unclear))
    shown = cells if has_header else [str(number + 1) for number in range(len(cells))]
    columns = source.columns if len(source.columns) == len(cells) else [Column(cell) for cell in cells]
    return [replace(column, name=name) for column, name in zip(columns, shown, strict=True)], has_header


def _is_number(name: str, width: int) -> bool:
    """Whether a name is the number of one of `width` columns, from 1."""
    return name.isdecimal() and 0 < int(name) <= width
