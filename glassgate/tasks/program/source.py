"""Generates C source: templates with conditional branches, and tables."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import resources

CODE_POINTS = 0x110000


def template(name: str, flags: Mapping[str, bool]) -> str:
    """Return a C file of this package, with each `#if FLAG` resolved.

    Example:
        >>> "is_cjk" in template("words.c", {"SEGMENTED": False})
        False
    """
    text = resources.files("glassgate.tasks.program").joinpath(name).read_text("utf-8")
    lines: list[str] = []
    branches: list[bool] = []
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
    """Return a string literal of C.

    Example:
        >>> print(quoted('say "é"?'))
        "say \\"\\303\\251\\"\\?"
    """
    data = text.encode() if isinstance(text, str) else text
    plain = (chr(c) if 32 <= c < 127 and chr(c) not in '"\\?' else f"\\{c:03o}" for c in data)
    return '"' + "".join({"\\042": '\\"', "\\134": "\\\\", "\\077": "\\?"}.get(each, each) for each in plain) + '"'


def strings(name: str, values: Iterable[str]) -> str:
    """Return an array of strings."""
    return f"static const char *const {name}[] = {{\n{_rows(map(quoted, values))}}};\n"


def numbers(name: str, values: Iterable[float], type: str = "double") -> str:
    """Return an array of numbers."""
    return f"static const {type} {name}[] = {{\n{_rows(map(_number, values))}}};\n"


def matrix(name: str, rows: Sequence[Sequence[float]]) -> str:
    """Return a square matrix of floats."""
    lines = (f"{{{', '.join(map(_number, row))}}}" for row in rows)
    return f"static const float {name}[{len(rows)}][{len(rows)}] = {{\n{_rows(lines, 1)}}};\n"


def table(name: str, entries: Mapping[bytes, int]) -> str:
    """Return a table of texts and their indices, sorted by text."""
    rows = (f"{{{quoted(text)}, {len(text)}, {index}}}" for text, index in sorted(entries.items()))
    return f"static const entry {name}[] = {{\n{_rows(rows, 4)}}};\n"


def ranges(name: str, belongs: Callable[[str], bool]) -> str:
    """Return an array of the ranges of code points for whose characters `belongs` is true."""
    rows = (f"{{{first}, {last}}}" for first, last in _ranges(belongs))
    return f"static const long {name}[][2] = {{\n{_rows(rows)}}};\n"


@cache
def _ranges(belongs: Callable[[str], bool]) -> list[list[int]]:
    ranges: list[list[int]] = []
    for point in range(CODE_POINTS):
        if belongs(chr(point)):
            if ranges and ranges[-1][1] == point - 1:
                ranges[-1][1] = point
            else:
                ranges.append([point, point])
    return ranges


def constants(**values: int) -> str:
    """Return an enum of whole numbers by name."""
    return "enum {\n" + "".join(f"    {name} = {int(value)},\n" for name, value in values.items()) + "};\n"


def definitions(**values: object) -> str:
    """Return macros."""
    return "".join(f"#define {name} {value}\n" for name, value in values.items())


def _number(value: float) -> str:
    if value == float("-inf"):
        return "-INFINITY"
    return repr(float(value))


def _rows(items: Iterable[str], width: int = 8) -> str:
    items = list(items)
    return "".join(f"    {', '.join(items[at : at + width])},\n" for at in range(0, len(items), width))
