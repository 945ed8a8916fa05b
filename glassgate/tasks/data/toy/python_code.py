"""A tagging corpus of Python code: the standard library, with a label per character from `tokenize`."""

import builtins
import hashlib
import io
import keyword
import sysconfig
import token
import tokenize
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from glassgate.tasks.data.lines import read_lines
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.errors import DataError

LABELS = ("other", "keyword", "builtin", "name", "number", "string", "docstring", "comment", "operator", "decorator")

_BUILTINS = frozenset(dir(builtins))
_LAYOUT = frozenset({token.NL, token.INDENT, token.DEDENT, token.ENDMARKER})
# From Python 3.12 (3.14), `tokenize` splits f-strings (t-strings) into parts. Here each is one token, as before.
_OPENING = frozenset(getattr(token, name) for name in ("FSTRING_START", "TSTRING_START") if hasattr(token, name))
_CLOSING = frozenset(getattr(token, name) for name in ("FSTRING_END", "TSTRING_END") if hasattr(token, name))
# Packages that some distributions of Python omit, and code that consists of data.
_OPTIONAL = {"test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "distutils", "ensurepip"}
_SKIPPED = _OPTIONAL | {"site-packages", "encodings", "pydoc_data", "__phello__", "__pycache__"}
_HELD_OUT = 20  # one file in this many is held out
_LONGEST_HELD_OUT = 40_000
_SHORTEST = 500


def label(source: str) -> Tagged:
    """Label each character of a Python file, and return the positions of its tokens.

    A string that is a statement is a docstring. A built-in name is a builtin unless it is an attribute. Everything from
    "@" to the first parenthesis is a decorator.

    Raises:
        SyntaxError, tokenize.TokenError: `source` is not Python

    Example:
        >>> tagged = label("x = 1")
        >>> tagged.labels
        ['name', 'other', 'operator', 'other', 'number']
        >>> tagged.word_spans
        [(0, 1), (2, 3), (4, 5)]
    """
    labels = ["other"] * len(source)
    tokens = []
    for name, start, end in _spans(source):
        labels[start:end] = [name] * (end - start)
        tokens.append((start, end))
    return Tagged(source, labels, tokens)


def read(path: str | Path, labelled: bool = True) -> list[Tagged]:
    """Read one Python file as one sequence.

    Raises:
        DataError: see `read_lines`; the file is not Python
    """
    source = "".join(f"{text}\n" for _, text in read_lines(path))
    if not labelled:
        return [Tagged(source, None, source=str(path))]
    try:
        tagged = label(source)
    except (SyntaxError, tokenize.TokenError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else error.args[1][0]
        raise DataError(
            path, line, f"expected a Python file, got one that does not parse: {error.args[0]}; correct it"
        ) from None
    return [Tagged(tagged.tokens, tagged.labels, tagged.word_spans, str(path))]


def standard_library(root: Path | None = None, every: int = 1) -> tuple[list[Tagged], list[Tagged]]:
    """Label the files of the standard library, and split them into training and held-out files.

    The split is by a hash of the file name, so the same files are held out on every machine.

    Args:
        root: the folder of the library; that of the running Python if None
        every: use only one in this many training files; held-out files are not affected
    """
    root = root or Path(sysconfig.get_path("stdlib"))
    train, held_out = [], []
    met = 0
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if not _SKIPPED.isdisjoint(name.split("/")) or path.stat().st_size < _SHORTEST:
            continue
        trains = int(hashlib.sha256(name.encode()).hexdigest(), 16) % _HELD_OUT
        met += bool(trains)
        if trains and (met - 1) % every:
            continue
        try:
            tagged = label(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError, tokenize.TokenError):
            continue
        sequence = Tagged(tagged.tokens, tagged.labels, tagged.word_spans, name)
        if trains:
            train.append(sequence)
        elif len(sequence.tokens) <= _LONGEST_HELD_OUT:
            held_out.append(sequence)
    return train, held_out


def _spans(source: str) -> Iterator[tuple[str, int, int]]:
    """Yield the label, start and end of each token that is not empty."""
    starts = [0]
    for line in io.StringIO(source):
        starts.append(starts[-1] + len(line))
    opens = True  # whether the next token begins a logical line
    decorates = False
    before = ""
    for part, following in pairwise(_whole_strings(source)):
        start, end = (starts[row - 1] + column for row, column in (part.start, part.end))
        if part.type == token.COMMENT:
            yield "comment", start, end
        if part.type == token.NEWLINE:
            opens, decorates = True, False
        if part.type in _LAYOUT or part.type in (token.COMMENT, token.NEWLINE):
            continue
        documents = opens and following.type in (token.NEWLINE, token.COMMENT)
        if opens:
            opens, decorates, before = False, part.string == "@", ""
        decorates = decorates and part.string != "("
        yield _kind(part, before, documents, decorates), start, end
        before = part.string


def _kind(part: tokenize.TokenInfo, before: str, documents: bool, decorates: bool) -> str:
    if part.type == token.STRING:
        return "docstring" if documents else "string"
    if decorates:
        return "decorator"
    if part.type == token.NUMBER:
        return "number"
    if part.type == token.NAME:
        if keyword.iskeyword(part.string):
            return "keyword"
        return "builtin" if part.string in _BUILTINS and before != "." else "name"
    return "operator" if part.type == token.OP else "other"


def _whole_strings(source: str) -> Iterator[tokenize.TokenInfo]:
    depth = 0
    opening: tokenize.TokenInfo | None = None
    for part in tokenize.generate_tokens(io.StringIO(source).readline):
        if part.type in _OPENING:
            opening = opening if depth else part
            depth += 1
        elif part.type in _CLOSING and opening is not None:
            depth -= 1
            if not depth:
                yield part._replace(type=token.STRING, start=opening.start)
        elif not depth:
            yield part
