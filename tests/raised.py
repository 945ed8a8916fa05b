"""Finds the error messages in the source of the package, and the strings in tests that check messages."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

_INSIDE = ("engines/symbolic", "engines/llvm_cpu", "engines/plan.py", "engines/torch_op", "engines/lowering")
"""Modules whose errors are reasons, shown by `gg.explain` and by the warning about the reference engine."""


SHORTEST = 15
"""The minimum number of fixed characters by which a message is recognised."""


class Site(NamedTuple):
    """A place that raises an error. Its message consists of fixed parts in this order, with values between them."""

    where: str
    parts: tuple[str, ...]

    def is_in(self, text: str) -> bool:
        """Return whether a text contains a message of this place."""
        return _contains(text, self.parts)

    def is_tested_in(self, text: str) -> bool:
        """Return whether a text contains the message, or the message without its operation or its remedy."""
        first, *others = self.parts
        stem = (re.sub(r"^\w*: ", "", first), *others)
        shorter = stem[:-1] if _length(stem[:-1]) >= SHORTEST else stem
        return _contains(text, shorter if _length(shorter) >= SHORTEST else self.parts)


def _contains(text: str, parts: tuple[str, ...]) -> bool:
    """Return whether a text has the parts in order, with at most 300 characters between two of them."""
    # The first condition is fast, and few texts fulfil it.
    return all(part in text for part in parts) and bool(re.search(".{0,300}?".join(map(re.escape, parts)), text))


def sites() -> Iterator[Site]:
    """Yield each place outside of `_INSIDE` that creates an error with a message."""
    for path in sorted((ROOT / "glassgate").rglob("*.py")):
        where = str(path.relative_to(ROOT / "glassgate"))
        if where.startswith(_INSIDE):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or _name(node) == "AssertionError":
                continue
            parts = max(map(_parts, node.args), key=_length, default=())
            if parts and re.search(r"(Error|^_refusal|(^|_)fault|_cannot_create|NoSuchName)$", _name(node)):
                yield Site(f"{where}:{node.lineno}", parts)


def _name(node: ast.Call) -> str:
    return getattr(node.func, "id", getattr(node.func, "attr", ""))


def _parts(node: ast.expr) -> tuple[str, ...]:
    """Return the fixed parts of a string, of an f-string, or of a sum of strings."""
    if isinstance(node, ast.Constant):
        return (node.value,) if isinstance(node.value, str) else ()
    if isinstance(node, ast.JoinedStr):
        return tuple(each.value for each in node.values if isinstance(each, ast.Constant))
    if isinstance(node, ast.BinOp):
        return _parts(node.left) + _parts(node.right)
    return ()


def _length(parts: tuple[str, ...]) -> int:
    return sum(map(len, parts))


class TestTexts(NamedTuple):
    """The strings in all tests: the `words()` of their parts, and all strings joined, without backslashes."""

    words: set[str]
    plain: str


def read_by_tests() -> TestTexts:
    """Return the strings in all tests."""
    patterns, plain = set(), []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path.name == "test_messages.py":  # it lists the messages that no test reads
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                plain.append(" ".join(re.sub(r"\\(.)", r"\1", node.value).split()))
                patterns |= {words(part) for part in re.split(r"\.\*|\\d\+?|[|()\[\]]", node.value)}
    return TestTexts({text for text in patterns if len(text) >= 15}, "\n".join(plain))


def words(text: str) -> str:
    """Return the words and numbers of a text in lower case."""
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def read_in(site: Site, texts: TestTexts) -> bool:
    """Whether a test contains this message, or a string of a test contains a part of it or is contained in one."""
    if site.is_tested_in(texts.plain):
        return True
    for part in map(words, site.parts):
        if len(part) >= 15 and any(text in part or part in text for text in texts.words):
            return True
    return False
