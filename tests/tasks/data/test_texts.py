"""Texts are split into tokens and joined again; errors name the file and the line."""

from pathlib import Path

import pytest

from glassgate.tasks.data import texts as text
from glassgate.tasks.errors import DataError

PROSE = "I said: 'don't', twice (so).\nThen 我饿了。\n"


@pytest.mark.parametrize("token_kind", ["character", "byte"])
def test_nothing_is_lost(token_kind: str) -> None:
    assert text.join(text.split(PROSE, token_kind), token_kind) == PROSE


def test_words_and_tokens() -> None:
    assert text.split("Don't go (yet), <unk>!\nNo.", "word") == [
        *["Don't", "go", "(", "yet", ")", ",", "<unk>", "!", "\n", "No", "."]
    ]
    assert text.split("Don't go (yet), <unk>!\nNo.", "token") == ["Don't", "go", "(yet),", "<unk>!", "\n", "No."]
    for token_kind in ("word", "token"):
        assert text.join(text.split("Don't go (yet), you!\nNo.", token_kind), token_kind) == "Don't go (yet), you!\nNo."


def test_files_and_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\r\n\r\ntwo")
    assert [each.tokens for each in text.read_text(path, "character", "file")] == ["one\n\ntwo\n"]
    lines = text.read_text(path, "character", "line")
    assert [("".join(each.tokens), each.line) for each in lines] == [("one\n", 1), ("two\n", 3)]


def test_bytes_need_no_encoding(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"caf\xe9\n" + "café\n".encode() * 3)
    assert "".join(text.read_text(path, "byte", "line")[0].tokens) == "caf\xe9\n"
    with pytest.raises(DataError, match=r"a\.txt:1: expected UTF-8 or another known encoding, got byte 0xe9 in column"):
        text.read_text(path, "character", "file")


def test_blank_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n \n")
    with pytest.raises(DataError, match=r"a\.txt: the file has only white space; give one with text"):
        text.read_text(path, "word", "line")


def test_own_text() -> None:
    (whole,) = text.documentation("character", "file")
    assert len(whole.tokens) > 200_000
    assert "assert" in "".join(whole.tokens)
    assert all(line.tokens.endswith("\n") for line in text.documentation("character", "line"))
