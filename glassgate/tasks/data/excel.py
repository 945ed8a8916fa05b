"""Reads the first sheet of Excel workbooks."""

from functools import lru_cache
from pathlib import Path
from statistics import multimode
from typing import Any

from glassgate.extras import install_command
from glassgate.tasks.data.files import Identity, identify_file, loading, readable_file, row_limit
from glassgate.tasks.errors import DataError


def excel_rows(path: str | Path) -> list[tuple[int, list[str]]]:
    """The rows of the first sheet of a workbook, with their cells as text, and without titles above the header.

    Dates are in the ISO form. They have a time of day unless it is midnight.
    """
    sheet, _ = read_excel(path)
    strings = sheet.astype("string").fillna("")
    texts = strings.apply(lambda column: column.str.removesuffix(" 00:00:00")).to_numpy().tolist()
    filled = [sum(bool(cell.strip()) for cell in row) for row in texts]
    usual = max(multimode(filter(None, filled)), default=0)
    first = filled.index(usual) if usual else 0
    first = first if all(2 * count <= usual for count in filled[:first]) else 0
    rows = list(enumerate(texts, start=1))[first:]
    return [(number, row if any(map(str.strip, row)) else []) for number, row in rows]


def read_excel(path: str | Path) -> tuple[Any, str]:
    """Return the first sheet of a workbook as a pandas frame without names, and a note about the sheet.

    Raises:
        DataError: the file is missing or not a workbook, or openpyxl is not installed
    """
    limit = row_limit()
    sheet, note = _load_sheet(path, identify_file(readable_file(path)), limit and limit.max_rows)
    if limit is not None and len(sheet) > limit.max_rows:
        limit.is_exceeded = True
    return sheet[: limit and limit.max_rows], note


@lru_cache(2)  # detecting the columns and reading the rows need the same sheet
def _load_sheet(path: str | Path, version: Identity, max_rows: int | None) -> tuple[Any, str]:
    """The first sheet of a workbook, with one row more than `max_rows` if it has more."""
    import pandas as pd

    nrows = None if max_rows is None else max_rows + 1
    with loading(path, "an Excel workbook", "save it again, or as CSV"):
        try:
            with pd.ExcelFile(readable_file(path), engine="openpyxl") as book:
                names = book.sheet_names
                sheet = pd.read_excel(book, sheet_name=names[0], nrows=nrows, header=None, dtype=object)
        except ImportError:
            remedy = f"{install_command('openpyxl')}, or save the sheet as CSV"
            raise DataError(path, None, f"reading .xlsx needs openpyxl; {remedy}") from None
    return sheet, f", sheet {names[0]!r}" + (f", the first of {len(names)}" if len(names) > 1 else "")
