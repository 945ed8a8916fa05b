"""Generates C source: constants and tables."""

from collections.abc import Iterable, Sequence


def quoted(text: str) -> str:
    """Return a text as a string literal of C.

    Example:
        >>> print(quoted('say "é"?'))
        "say \\"\\303\\251\\"\\?"
    """
    escapes = {ord('"'): '\\"', ord("\\"): "\\\\", ord("?"): "\\?"}  # "??" would begin a trigraph
    characters = (escapes.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in text.encode())
    return '"' + "".join(characters) + '"'


def constants(**values: int) -> str:
    """Return the definitions of macros by name."""
    return "".join(f"#define {name} {int(value)}\n" for name, value in values.items())


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


def _number(value: float) -> str:
    if value == float("-inf"):
        return "-INFINITY"
    return repr(float(value))


def _rows(items: Iterable[str], items_per_row: int = 8) -> str:
    items = list(items)
    starts = range(0, len(items), items_per_row)
    return "".join(f"    {', '.join(items[start : start + items_per_row])},\n" for start in starts)
