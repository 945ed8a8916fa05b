"""Words that stop a reader stay out of what users read: pages, help, messages. The field's own terms stand instead."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

WORDS = {
    r"\bfore(tell|told)": "predict, predicted",
    r"\bparted by\b": "separated by",
    r"\bwanted\b(?=[^.]*\bgot\b)": "expected X, got Y",
    r"\banew\b": "again, from scratch",
    r"\bbusy machine\b": "CPU contention",
    r"\bbecame no number\b": "became NaN or infinite",
    r"\bknows? no\b": "does not support",
    r"\bcalm\b": "in eval mode",
    r"\b(one|two) a (row|direction)\b": "one per direction",
    r"\bwhat reached (it|them|the)\b": "its gradient",
    r"\btimes through\b": "epochs, passes over the data",
    r"\bgives? way\b": "yields",
    r"\b\d(\.\d+)?x (as )?(fast|slow)er\b": "1.3x the speed",
    r"\bgate functions\b": "activations",
}
"""What must not stand, and what to say instead."""

_CALLS = ("print", "note", "option", "add_argument", "ArgumentParser", "_print")


def said(path: Path) -> Iterator[tuple[int, str]]:
    """The text that a module raises, prints, notes or helps with."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        called = node.func if isinstance(node, ast.Call) else None
        name = getattr(called, "id", getattr(called, "attr", ""))
        if isinstance(node, ast.Raise) or name in _CALLS:
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def unwanted(text: str) -> list[str]:
    """Return each unwanted word of a text, and what to say instead."""
    text = re.sub(r"\s+", " ", text)
    return [
        f"{match[0]!r}; say: {instead}" for word, instead in WORDS.items() if (match := re.search(word, text, re.I))
    ]
