"""The fraction of sentences that are hard to read, by three patterns, in pages, docstrings, comments and messages.

The patterns are a heuristic, and each has valid uses. Rewrite a matching sentence; do not just avoid the pattern.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CLAUSE_FOR_A_NOUN = re.compile(
    r"\b(what|how far|how much|which way) "
    r"(is|are|was|it|they|a|an|the|each|others?|one|no|nobody|else|comes?|goes|stands?|lies|belongs)\b"
)
EVERYDAY_WORD_FOR_A_TERM = re.compile(
    r"\b(foretell|foretold|anew|desk|crowd|tells?|told|lies?|stands? (in|on|at|for|before|behind)|gives? way|sits?"
    r"|by itself|beside|nobody|whoever|behind (the|it|them))\b"
)
NEGATION_OR_INVERSION = re.compile(r"\b(no other|nothing but|is no |that is no|are no )\b")
PATTERNS = (CLAUSE_FOR_A_NOUN, EVERYDAY_WORD_FOR_A_TERM, NEGATION_OR_INVERSION)

_SHORTEST = 25  # characters of a sentence; shorter texts are titles and names
_QUOTED = re.compile(r"`[^`\n]*`|\"[^\"\n]*\"|\]\([^)]*\)|!?\[[^\]]*\]\([^)]*\)")  # code, quotations, link targets
_CODE = re.compile(r"^```.*?^```$|^    \S[^\n]*$", re.MULTILINE | re.DOTALL)
_STRING_OR_COMMENT = re.compile(
    r'"""(?:\\.|[^\\])*?"""|' r"'''(?:\\.|[^\\])*?'''|" r'"(?:\\.|[^"\\\n])*"|' r"'(?:\\.|[^'\\\n])*'|#[^\n]*",
    re.DOTALL,
)
"""This pattern also matches strings, so that a # in a string does not begin a comment. `tokenize` takes much longer."""
_CALLS = ("print", "note", "option", "add_argument", "ArgumentParser", "Parser", "_print")


class Count(NamedTuple):
    """The number of sentences, and the sentences that are hard to read."""

    sentences: int
    hard: list[str]

    @property
    def fraction(self) -> float:
        """The fraction of sentences that are hard to read."""
        return len(self.hard) / max(1, self.sentences)


def count(texts: Iterator[tuple[str, str]]) -> Count:
    """Count the sentences of pairs (place, text)."""
    total, hard = 0, []
    for where, text in texts:
        for sentence in sentences(text):
            total += 1
            if is_hard(sentence):
                hard.append(f"{where}: {sentence}")
    return Count(total, hard)


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text, without quoted parts."""
    for sentence in re.split(r"(?<=[.:;])\s+|\n\s*\n", _QUOTED.sub("", text)):
        if len(sentence) >= _SHORTEST:
            yield " ".join(sentence.split())


def is_hard(sentence: str) -> bool:
    """Whether a pattern matches."""
    return any(pattern.search(sentence) for pattern in PATTERNS)


def of_page(path: Path) -> Iterator[tuple[str, str]]:
    """The text of a page, without code and tables."""
    text = _CODE.sub("", path.read_text("utf-8"))
    yield str(path), "\n".join(line for line in text.splitlines() if not line.startswith("|"))


def of_module(path: Path) -> Iterator[tuple[str, str]]:
    """The docstrings and comments of a module."""
    source = path.read_text("utf-8")
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield f"{path}:{node.lineno}", re.sub(r"^ *(>>>|\.\.\.).*$", "", node.value.value, flags=re.MULTILINE)
    for match in _STRING_OR_COMMENT.finditer(source):
        if match[0].startswith("#"):
            yield f"{path}: {match[0]}", match[0].lstrip("#")


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """All statements inside of a module or a statement."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, field, ()):
            if isinstance(child, ast.stmt):
                yield child
            yield from statements(child)


def messages(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the texts that a module raises, prints, notes or has as help, each with its parts joined."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Raise) or getattr(called, "id", getattr(called, "attr", "")) in _CALLS:
            parts = [each for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            yield f"{path}:{node.lineno}", " ".join(str(each.value) for each in parts)
