"""Assigns the columns of a table to the roles that a task declares, as a pure function of the examined columns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from glassgate.tasks.data.dialect import Dialect
from glassgate.tasks.data.records import LABEL_COLUMNS, TEXT_COLUMNS, last_name, read_table, usual_key
from glassgate.tasks.data.sniff import NUMBER, TEXT, TIME, WORD, Column, sniff
from glassgate.tasks.errors import DataError

_MIN_WORDS = 3  # in the mean, of the texts that are preferred to shorter ones, such as titles


@dataclass(frozen=True)
class Role:
    """A role of a column.

    Attributes:
        noun: the content of the column, for messages
        option: the option that names the column
        usual_names: the usual names of the column, in lower case
        find: returns the columns that can have the role by their content
    """

    noun: str
    option: str
    usual_names: Sequence[str]
    find: Callable[[Sequence[Column]], list[Column]]

    @property
    def name(self) -> str:
        """The name of the option in Python."""
        return self.option.removeprefix("--").replace("-", "_")


def _texts(columns: Sequence[Column]) -> list[Column]:
    """The columns of distinct texts; if there are several, those of several words; if none, that of distinct words.

    The only column that is left contains the texts if it is not of numbers.
    """
    columns = [column for column in columns if column.kind in (WORD, TEXT)]
    texts = [column for column in columns if column.kind == TEXT and not column.may_be_labels]
    texts = texts or [column for column in columns if column.kind == TEXT]
    long = [column for column in texts if column.mean_words >= _MIN_WORDS]
    distinct = [column for column in columns if column.kind == WORD and not column.may_be_labels]
    return (long if len(long) == 1 else texts) or distinct or [*columns][: len(columns) == 1]


def _labels(columns: Sequence[Column]) -> list[Column]:
    """The columns whose values repeat, except times and numbers with decimals; those of words are preferred."""
    repeating = [column for column in columns if column.may_be_labels and column.kind != TIME]
    return [column for column in repeating if column.kind != NUMBER or column.are_whole_numbers]


def _numbers(columns: Sequence[Column]) -> list[Column]:
    """The columns of numbers that do not count the rows."""
    return [column for column in columns if column.kind == NUMBER and column.distinct > 1 and not column.counts_rows]


TEXT_ROLE = Role("texts", "--text-column", TEXT_COLUMNS, _texts)
LABEL_ROLE = Role("labels", "--label-column", LABEL_COLUMNS, _labels)
NUMBER_ROLE = Role("numbers", "--label-column", LABEL_COLUMNS, _numbers)


def assign(
    path: str | Path,
    columns: Sequence[Column],
    requested: Mapping[Role, str | None],
    has_header: bool = True,
    line: int = 1,
) -> dict[Role, int]:
    """Return the index of the column of each role: the requested one, one with a usual name, or one by its content.

    A role that no column can have is not in the result. A column with a usual name of one role cannot have another.

    Args:
        path: the file, for messages
        columns: the columns of the table
        requested: the roles, and the names of their columns or their numbers from 1; None to find a column
        has_header: whether the columns have names, for messages
        line: the line of the names, for messages

    Raises:
        DataError: several columns can have a role

    Example:
        >>> columns = [Column("body", ("it was good", "it was bad")), Column("stars", ("1", "1"))]
        >>> assign("a.csv", columns, {TEXT_ROLE: None})[TEXT_ROLE]
        0
    """
    names = [column.name for column in columns]
    found: dict[Role, int] = {}
    taken: set[int] = set()
    for role, name in requested.items():
        index = _index_of(name, names)
        usual = usual_key(path, line, names, role.usual_names, role.option) if name is None else None
        if usual is not None:
            index = names.index(usual)
            taken |= {k for k, each in enumerate(names) if last_name(each) in role.usual_names}
        if index is not None:
            found[role] = index
            taken.add(index)
    for role in [role for role, name in requested.items() if name is None and role not in found]:
        candidates = role.find([column for index, column in enumerate(columns) if index not in taken])
        if len(candidates) > 1:
            shown = " or ".join([repr(column.name) for column in candidates][:8])
            choose = f"the {role.noun} can be in column {shown}; choose one with {role.option}"
            without_header = "" if has_header else ", by number, as the first line is not a header"
            raise DataError(path, line, f"{choose}{without_header}")
        if candidates:
            found[role] = next(index for index, column in enumerate(columns) if column is candidates[0])
            taken.add(found[role])
    return found


@dataclass(frozen=True)
class Assignment:
    """The roles of the columns of a table.

    Attributes:
        dialect: the dialect of the table
        names: the names of the columns; without a header their numbers, from 1
        has_header: whether the first row names the columns
        indices: the index of the column of each role
        by_content: the roles whose column neither an option nor a usual name determines
    """

    dialect: Dialect
    names: tuple[str, ...]
    has_header: bool
    indices: Mapping[Role, int]
    by_content: tuple[Role, ...]


def assign_table(path: str | Path, kind: str, requested: Mapping[Role, str | None]) -> Assignment:
    """Find the columns of a table that have the roles.

    The first row is a header if it contains a requested or a usual name, or if the rows below show it.

    Args:
        kind: one of `records.TABLE_KINDS`
        requested: see `assign`

    Raises:
        DataError: several columns can have a role, or none can
    """
    names = [name or role.usual_names[0] for role, name in requested.items()]
    dialect = read_table(path, kind, names)[0]
    cells, source, line = [cell.strip() for cell in dialect.header], sniff(path), dialect.skipped_lines + 1
    has_usual = any(cell.lower() in (*TEXT_COLUMNS, *LABEL_COLUMNS) for cell in cells)
    has_all_columns = len(source.columns) == len(cells)
    is_named = any(name in cells and not is_number_of_column(name, len(cells)) for name in names)
    by_number = not is_named and any(map(str.isdecimal, names))
    is_unclear = len(cells) > 1 and not has_all_columns
    has_header = is_named or (not by_number and (source.has_header or has_usual or is_unclear))
    shown = cells if has_header else [str(number + 1) for number in range(len(cells))]
    columns = [Column(name) for name in shown]
    if has_all_columns and not (by_number if source.has_header else has_usual):
        columns = [replace(column, name=name) for column, name in zip(source.columns, shown, strict=True)]
    found = assign(path, columns, requested, has_header, line)
    if len(cells) == 1 and [*requested] == [TEXT_ROLE]:
        found = {TEXT_ROLE: 0}
    for role, name in requested.items():
        if role not in found:
            got = ", ".join(map(repr, cells[:8]))
            options = " and ".join(each.option for each in requested)
            raise DataError(
                path,
                line,
                f"expected a column {name or role.usual_names[0]!r}, got {got}; name yours with {options}, or their "
                "numbers from 1 if the first line is not a header",
            )
    by_content = tuple(role for role, index in found.items() if found_by_content(columns, requested, role, index))
    return Assignment(dialect, tuple(shown), has_header, found, by_content)


def found_by_content(columns: Sequence[Column], requested: Mapping[Role, str | None], role: Role, index: int) -> bool:
    """Whether neither a request nor a usual name determines the column that `assign` returned for a role."""
    return requested[role] is None and last_name(columns[index].name) not in role.usual_names


def is_number_of_column(name: str | None, width: int) -> bool:
    """Whether a name is the number of one of `width` columns, from 1."""
    return name is not None and name.isdecimal() and 0 < int(name) <= width


def _index_of(name: str | None, names: Sequence[str]) -> int | None:
    if is_number_of_column(name, len(names)):
        return int(name or "") - 1
    return names.index(name) if name in names else None
