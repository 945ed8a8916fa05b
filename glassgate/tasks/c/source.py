"""Generates C source: code from templates with conditional branches, and tables of constants."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources

NUM_CODE_POINTS = 0x110000
"""The number of code points of Unicode."""


def template(name: str, flags: Mapping[str, bool]) -> str:
    """Return the text of a C file of this package, with each `#if FLAG` resolved.

    Args:
        name: the name of the file
        flags: the values of the flags; a flag that is missing is false

    Example:
        >>> "is_cjk" in template("words.c", {"SEGMENTED": False})
        False
    """
    text = resources.files("glassgate.tasks.c").joinpath(name).read_text("utf-8")
    lines: list[str] = []
    branches: list[bool] = []  # whether each enclosing branch is included
    for line in text.splitlines():
        if flag := re.fullmatch(r"#if (\w+)", line):
            branches.append(flags.get(flag[1], False))
        elif line == "#else":
            branches[-1] = not branches[-1]
        elif line == "#endif":
            branches.pop()
        elif all(branches):
            lines.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def quoted(text: str | bytes) -> str:
    """Return a text as a string literal of C.

    Example:
        >>> print(quoted('say "é"?'))
        "say \\"\\303\\251\\"\\?"
    """
    data = text.encode() if isinstance(text, str) else text
    escapes = {ord('"'): '\\"', ord("\\"): "\\\\", ord("?"): "\\?"}  # "??" would begin a trigraph
    characters = (escapes.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in data)
    return '"' + "".join(characters) + '"'


def strings(name: str, values: Iterable[str]) -> str:
    """Return the definition of an array of strings."""
    return f"static const char *const {name}[] = {{\n{_rows(map(quoted, values))}}};\n"


def numbers(name: str, values: Iterable[float], type: str = "double") -> str:
    """Return the definition of an array of numbers."""
    return f"static const {type} {name}[] = {{\n{_rows(map(_number, values))}}};\n"


def matrix(name: str, rows: Sequence[Sequence[float]]) -> str:
    """Return the definition of a square matrix of floats."""
    lines = (f"{{{', '.join(map(_number, row))}}}" for row in rows)
    return f"static const float {name}[{len(rows)}][{len(rows)}] = {{\n{_rows(lines, 1)}}};\n"


def table(name: str, entries: Mapping[bytes, int]) -> str:
    """Return the definition of a table of texts and their indices, sorted by text for binary search."""
    rows = (f"{{{quoted(text)}, {len(text)}, {index}}}" for text, index in sorted(entries.items()))
    return f"static const entry {name}[] = {{\n{_rows(rows, 4)}}};\n"


def ranges(name: str, predicate: Callable[[str], bool]) -> str:
    """Return the definition of an array with the ranges of code points whose characters satisfy a predicate."""
    rows = (f"{{{first}, {last}}}" for first, last in _ranges(predicate))
    return f"static const long {name}[][2] = {{\n{_rows(rows)}}};\n"


@cache
def _ranges(predicate: Callable[[str], bool]) -> list[list[int]]:
    """The ranges as pairs of the first and the last code point."""
    ranges: list[list[int]] = []
    for point in range(NUM_CODE_POINTS):
        if predicate(chr(point)):
            if ranges and ranges[-1][1] == point - 1:
                ranges[-1][1] = point
            else:
                ranges.append([point, point])
    return ranges


def constants(**values: int) -> str:
    """Return the definition of an enum of integers by name."""
    return "enum {\n" + "".join(f"    {name} = {int(value)},\n" for name, value in values.items()) + "};\n"


def definitions(**values: object) -> str:
    """Return the definitions of macros by name."""
    return "".join(f"#define {name} {value}\n" for name, value in values.items())


def _number(value: float) -> str:
    if value == float("-inf"):
        return "-INFINITY"
    return repr(float(value))


def _rows(items: Iterable[str], items_per_row: int = 8) -> str:
    items = list(items)
    starts = range(0, len(items), items_per_row)
    return "".join(f"    {', '.join(items[start : start + items_per_row])},\n" for start in starts)
