"""The catalogues of messages: every language has the messages that pages use, and the same fields.

tests/browser/test_languages.py checks that pages contain only these sentences.
"""

import re
from pathlib import Path

import pytest
import torch

import glassgate as gg
from glassgate.glass.languages import LANGUAGES, clauses, listed_with_and, load, say, sentences, speaking

ROOT = Path(gg.__file__).parent
FIELD = re.compile(r"\{(\w+)(?::[^{}]*)?\}")
# Keys that are put together: the rules of findings, and names that may be missing.
COMPOSED = re.compile(r"(finding|task|score|simple_model|curve|bar)\.")
# A language may count in other units.
OTHER_UNITS = {"millions", "ten_thousands"}


def fields(message: str) -> set[str]:
    return set(FIELD.findall(message)) - OTHER_UNITS


def test_languages_have_the_same_messages() -> None:
    english = load("en").messages
    for code in LANGUAGES:
        messages = load(code).messages
        assert set(messages) == set(english)
        # A plural of English may be the only use of a field.
        assert {key for key in english if not fields(messages[key]) <= fields(english[key])} == set()


def test_pages_use_every_message_and_no_other() -> None:
    files = [path for folder in ("glass", "tasks") for path in (ROOT / folder).rglob("*")]
    text = "\n".join(path.read_text("utf-8") for path in files if path.suffix in (".py", ".js", ".html"))
    used = set(re.findall(r"""["'{]([a-z_]+\.[a-zA-Z_0-9-]+)["'}]""", text))
    called = set(re.findall(r"""\b(?:say|say_html|message)\(\s*["']([a-z_]+\.[\w-]+)["']""", text))
    english = set(load("en").messages)
    assert called - english == set()
    assert {key for key in english - used if not COMPOSED.match(key)} == set()


def test_no_line_breaks_between_a_number_and_its_percent_sign() -> None:
    messages = load("en").messages
    assert [key for key, message in messages.items() if re.search(r"[\d}] %", message)] == []


def test_messages_are_filled() -> None:
    assert say("words.steps", count=1) == "1 step"
    assert listed_with_and(["a", "b", "c"]) == "a, b and c"
    with speaking("zh"):
        assert say("words.steps", count=1) == "1 步"
        assert listed_with_and(["i", "f", "o"]) == "i、f 和 o"
        assert sentences("甲。", "", "乙。") == "甲。乙。"
        assert clauses("甲", "乙") == "甲，乙"
    with pytest.raises(ValueError, match="language: expected one of en, zh, got 'de'"):
        load("de")


def test_a_recording_is_reported_in_chinese(tmp_path: Path) -> None:
    layer = gg.LSTM(3, 4)
    with gg.engine("reference"), gg.record(layer) as tape:
        layer(torch.randn(12, 1, 3))
    tape.report(tmp_path / "page.html", language="zh")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert '<html lang="zh">' in text
    assert "输入：12 步。" in text
    assert "遗忘门" in text
    body = re.sub(r"<(script|style|pre|desc).*?</\1>", "", text, flags=re.DOTALL)
    assert not re.findall(r">[^<>]*\b(?:the|of|step|unit|is)\b[^<>]*<", body)
