"""The Python code of the standard library, with a label per character from `tokenize`, and with that of its package."""

import builtins
import hashlib
import io
import keyword
import sysconfig
import token
import tokenize
from array import array
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.data.lines import read_lines
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.errors import DataError

LABELS = ("other", "keyword", "builtin", "name", "number", "string", "docstring", "comment", "operator", "decorator")
"""The labels of characters. Blanks are "other"."""
PACKAGES = ("asyncio", "email", "importlib", "multiprocessing", "unittest", "xml")
"""The labels of lines of code."""

_BUILTINS = frozenset(dir(builtins))
_LAYOUT_TYPES = frozenset({token.NL, token.INDENT, token.DEDENT, token.ENDMARKER})
# From Python 3.12 on, `tokenize` splits f-strings into parts, and from 3.14 on also t-strings. Here each is one token.
_STRING_STARTS = frozenset(getattr(token, name) for name in ("FSTRING_START", "TSTRING_START") if hasattr(token, name))
_STRING_ENDS = frozenset(getattr(token, name) for name in ("FSTRING_END", "TSTRING_END") if hasattr(token, name))
# Packages that some distributions of Python omit, and packages whose code consists of data.
_OPTIONAL_PACKAGES = {"test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "distutils", "ensurepip"}
_SKIPPED_FOLDERS = _OPTIONAL_PACKAGES | {"site-packages", "encodings", "pydoc_data", "__phello__", "__pycache__"}
_HELD_OUT_EVERY = 20  # one file in this many is held out
_MAX_HELD_OUT_LENGTH = 40_000  # characters
_MIN_FILE_SIZE = 500  # bytes
_LINES_PER_EXAMPLE = 6
_HELD_OUT_PACKAGE_FILES = 6  # every sixth file of a package is held out


def label(source: str) -> Tagged:
    """Label each character of Python code, and number its tokens.

    A string that is a statement has the label "docstring". The name of a built-in object has the label "builtin" unless
    it is an attribute. All tokens from an "@" at the beginning of a line to the first parenthesis have the label
    "decorator". Other text than Python raises a SyntaxError or a TokenError.

    Example:
        >>> tagged = label("x = 1")
        >>> tagged.labels
        ['name', 'other', 'operator', 'other', 'number']
        >>> list(tagged.words)
        [1, 0, 2, 0, 3]
    """
    labels, words = ["other"] * len(source), array("I", [0]) * len(source)
    for number, (name, start, end) in enumerate(_labelled_spans(source), start=1):
        labels[start:end] = [name] * (end - start)
        words[start:end] = array("I", [number]) * (end - start)
    return Tagged(source, labels, words)


def read(path: str | Path, labelled: bool = True) -> list[Tagged]:
    """Read one Python file as one sequence."""
    source = "".join(f"{text}\n" for _, text in read_lines(path))
    if not labelled:
        return [Tagged(source, None, source=str(path))]
    try:
        return [replace(label(source), source=str(path))]
    except (SyntaxError, tokenize.TokenError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else error.args[1][0]
        raise DataError(
            path, line, f"expected a Python file, got one that does not parse: {error.args[0]}; correct it"
        ) from None


def standard_library(root: Path | None = None, every: int = 1) -> tuple[list[Tagged], list[Tagged]]:
    """Label the files of the standard library, and split them into training and held-out files.

    The split is by a hash of the file name, so the same files are held out on every machine.

    Args:
        root: the folder of the library; None for the library of the running Python
        every: use only one in this many training files; held-out files are not affected
    """
    root = root or Path(sysconfig.get_path("stdlib"))
    train, held_out = [], []
    num_train_files = 0
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if not _SKIPPED_FOLDERS.isdisjoint(name.split("/")) or path.stat().st_size < _MIN_FILE_SIZE:
            continue
        is_train = int(hashlib.sha256(name.encode()).hexdigest(), 16) % _HELD_OUT_EVERY != 0
        num_train_files += is_train
        if is_train and (num_train_files - 1) % every:
            continue
        try:
            sequence = replace(label(path.read_text(encoding="utf-8")), source=name)
        except (SyntaxError, UnicodeDecodeError, tokenize.TokenError):
            continue
        if is_train:
            train.append(sequence)
        elif len(sequence.tokens) <= _MAX_HELD_OUT_LENGTH:
            held_out.append(sequence)
    return train, held_out


def package_lines() -> tuple[list[Labelled], list[Labelled]]:
    """Return training and held-out examples for classification, from different files.

    An example consists of six lines of code that are not blank; its label is the package.
    """
    root = Path(sysconfig.get_path("stdlib"))
    parts: tuple[list[Labelled], list[Labelled]] = ([], [])
    for package in PACKAGES:
        files = [path for path in sorted((root / package).rglob("*.py")) if "test" not in path.relative_to(root).parts]
        for number, path in enumerate(files, start=1):
            name, is_held_out = path.relative_to(root).as_posix(), number % _HELD_OUT_PACKAGE_FILES == 0
            lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
            for start in range(0, len(lines) - _LINES_PER_EXAMPLE + 1, _LINES_PER_EXAMPLE):
                text = "\n".join(lines[start : start + _LINES_PER_EXAMPLE])
                parts[is_held_out].append(Labelled(text, package, name))
    return parts


def _labelled_spans(source: str) -> Iterator[tuple[str, int, int]]:
    """Yield the label, start and end of each token that is not empty."""
    line_starts = [0]
    for line in io.StringIO(source):
        line_starts.append(line_starts[-1] + len(line))
    begins_line = True  # whether the next token begins a logical line
    in_decorator = False
    previous = ""
    for info, following in pairwise(_merge_string_parts(source)):
        start, end = (line_starts[row - 1] + column for row, column in (info.start, info.end))
        if info.type == token.COMMENT:
            yield "comment", start, end
        if info.type == token.NEWLINE:
            begins_line, in_decorator = True, False
        if info.type in _LAYOUT_TYPES or info.type in (token.COMMENT, token.NEWLINE):
            continue
        is_statement = begins_line and following.type in (token.NEWLINE, token.COMMENT)
        if begins_line:
            begins_line, in_decorator, previous = False, info.string == "@", ""
        in_decorator = in_decorator and info.string != "("
        yield _label_of(info, previous, is_statement, in_decorator), start, end
        previous = info.string


def _label_of(info: tokenize.TokenInfo, previous: str, is_statement: bool, in_decorator: bool) -> str:
    if info.type == token.STRING:
        return "docstring" if is_statement else "string"
    if in_decorator:
        return "decorator"
    if info.type == token.NUMBER:
        return "number"
    if info.type == token.NAME:
        if keyword.iskeyword(info.string):
            return "keyword"
        return "builtin" if info.string in _BUILTINS and previous != "." else "name"
    return "operator" if info.type == token.OP else "other"


def _merge_string_parts(source: str) -> Iterator[tokenize.TokenInfo]:
    """Yield the tokens of `tokenize`, with the parts of each f-string or t-string merged into one string token."""
    depth = 0  # of nested strings
    outermost: tokenize.TokenInfo | None = None
    for info in tokenize.generate_tokens(io.StringIO(source).readline):
        if info.type in _STRING_STARTS:
            outermost = outermost if depth else info
            depth += 1
        elif info.type in _STRING_ENDS and outermost is not None:
            depth -= 1
            if not depth:
                yield info._replace(type=token.STRING, start=outermost.start)
        elif not depth:
            yield info
