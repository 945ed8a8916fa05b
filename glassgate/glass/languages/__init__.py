"""The sentences and number formats of pages: one catalogue of messages per language, for Python and JavaScript.

A message is text with named fields. `{name}` is replaced by the field, and `{n:step|steps}` by the first text if the
field n is 1, otherwise by the second. script/language.js fills the same messages. Text of the data, names of gates and
Python code are not translated.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

LANGUAGES = {"en": "English", "zh": "简体中文"}
"""The languages of pages, by the code of the option `--language`."""
_FIELD = re.compile(r"\{(\w+)(?::([^{}|]*)\|([^{}]*))?\}")
_KEY_IN_HTML = re.compile(r"\{([a-z]+\.[\w.-]+)\}")
_KEY_IN_SCRIPT = re.compile(r'\bsay\(\s*"([\w.-]+)"')


class Language(NamedTuple):
    """A language of pages.

    Attributes:
        code: the code of the language, as in the attribute `lang` of HTML
        messages: the messages by key, "page.footer" for example
    """

    code: str
    messages: Mapping[str, str]


@cache
def load(code: str) -> Language:
    """The language with this code, from its catalogue."""
    if code not in LANGUAGES:
        raise ValueError(f"language: expected one of {', '.join(LANGUAGES)}, got {code!r}")
    text = files(__package__).joinpath(f"{code}.toml").read_text(encoding="utf-8")
    return Language(code, dict(_flat(tomllib.loads(text))))


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, str):
            yield prefix + name, value
        else:
            yield from _flat(value, f"{prefix}{name}.")


_current: ContextVar[Language | None] = ContextVar("language", default=None)


def current() -> Language:
    """The language of the pages that are being made: English outside of `speaking`."""
    return _current.get() or load("en")


@contextmanager
def speaking(language: str | Language) -> Iterator[None]:
    """A context in which studies and pages are made in a language.

    Example:
        >>> with speaking("zh"):
        ...     say("words.steps", count=3)
        '3 步'
    """
    token = _current.set(load(language) if isinstance(language, str) else language)
    try:
        yield
    finally:
        _current.reset(token)


def say(key: str, /, **fields: object) -> str:
    """A message in the current language, with its fields filled in.

    Example:
        >>> say("words.steps", count=1), say("words.steps", count=3)
        ('1 step', '3 steps')
    """

    def fill(match: re.Match[str]) -> str:
        words = str(fields[match[1]])
        return words if match[2] is None else match[2] if words == "1" else match[3]

    return _FIELD.sub(fill, message(key))


def message(key: str) -> str:
    """A message in the current language, whose fields a script fills in."""
    return current().messages[key]


def say_html(key: str, /, **fields: object) -> str:
    """A message as HTML. Tags of the message are kept, and its fields are escaped."""
    return say(key, **{name: escape(str(value)) for name, value in fields.items()})


def clauses(*parts: str) -> str:
    """Clauses of a sentence, separated by commas. Empty ones are left out."""
    return say("words.comma").join(filter(None, parts))


def listed(words: Sequence[str]) -> str:
    """Words as a list: "a, b, c"."""
    return say("words.separator").join(words)


def listed_with_and(words: Sequence[str]) -> str:
    """Words as a list with a conjunction: "a, b and c"."""
    *first, last = words
    return say("words.and", first=listed(first), last=last) if first else last


def sentences(*parts: str) -> str:
    """Sentences one after the other. Empty ones are left out."""
    return say("words.between_sentences").join(filter(None, parts))


def with_texts(html: str) -> str:
    """A page or a part of it, with each `{key}` replaced by its message."""
    return _KEY_IN_HTML.sub(lambda match: say(match[1]), html)


def with_messages(script: str) -> str:
    """A script, preceded by the messages that it uses."""
    messages = current().messages
    used = {key: messages[key] for key in sorted(set(_KEY_IN_SCRIPT.findall(script)))}
    content = json.dumps(used, ensure_ascii=False).replace("</", "<\\/")
    return f"const MESSAGES = {content};\n{script}"
