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
    r"\bbusy (machine|cores?|processors?)\b": "CPU contention",
    r"\bbecame no number\b": "became NaN or infinite",
    r"\bknows? (no|none)\b": "does not support",
    r"\bcalm\b": "in eval mode",
    r"\b(one|two) an? (row|direction|state|unit|sequence|layer|gate)\b": "one per direction",
    r"\b(is|are|was) told\b|\btells\b": "is passed, reports, notified",
    r"\brooms\b": "packages",
    r"\d times as fast\b": "1.3x the speed, speedup 1.3",
    r"\bwhat reached (it|them|the)\b": "its gradient",
    r"\btimes through\b": "epochs, passes over the data",
    r"\bgives? way\b": "yields",
    r"\b\d(\.\d+)?x (as )?(fast|slow)er\b": "1.3x the speed",
    r"\bgate functions\b": "activations",
    "别无他求": "写明需要什么",
    "值多少": "贡献",
    "(跟着|交给)[^。]{0,8}(走|torch)": "随……变化，由 torch 执行",
    "能胜任|为何不行": "支持，不支持",
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


def explained(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings of a module."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), text


def unwanted(text: str) -> list[str]:
    """Return each unwanted word of a text, and what to say instead."""
    text = re.sub(r"\s+", " ", text)
    return [
        f"{match[0]!r}; say: {instead}" for word, instead in WORDS.items() if (match := re.search(word, text, re.I))
    ]
