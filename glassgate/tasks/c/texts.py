"""Tokenisation in C: the vocabulary, and functions that split a line into tokens as in training."""

from collections.abc import Mapping

from glassgate.tasks.c.source import constants, ranges, table, template
from glassgate.tasks.data.raw_text import RawTokeniser
from glassgate.tasks.data.vocabulary import FIRST, UNKNOWN, Vocabulary

TEXTS = "texts, one per line"
"""A description of the input."""

_ENTRY = """\
/* A text and its number. */
typedef struct {
    const char *text;
    int length, number;
} entry;
"""


def tokeniser_code(
    vocabulary: Vocabulary, token_kind: str, raw: RawTokeniser | None, other_tables: Mapping[str, Vocabulary]
) -> str:
    """Return the tables and the functions that split a line into tokens.

    Args:
        vocabulary: the tokens
        token_kind: "word", "token", "character" or "byte"
        raw: splits unknown words, and drops blanks that a vocabulary of characters lacks; None if the run does neither
        other_tables: other vocabularies, by the names of their tables
    """
    splits_words = raw is not None and token_kind != "character"
    flags = {
        "CHARACTERS": token_kind == "character",
        "BYTES": token_kind == "byte",
        "WORDS": token_kind == "word",
        "TOKENS": token_kind == "token",
        "KEEPS_SPACES": raw is None and token_kind in ("character", "byte"),
        "TOKENISED": splits_words and raw is not None and raw.splits_punctuation,
        "SEGMENTED": splits_words and raw is not None and raw.segments_cjk,
    }
    flags["KNOWN"] = flags["TOKENISED"] or (token_kind == "character" and raw is not None)
    encoding = "latin-1" if token_kind == "byte" else "utf-8"
    parts = [_ENTRY, table("unit_table", _indices(vocabulary, encoding))]
    parts += [table(name, _indices(each, "utf-8")) for name, each in other_tables.items()]
    parts.append(ranges("spaces", str.isspace))
    if flags["WORDS"] or flags["TOKENISED"]:
        parts.append(ranges("word_characters", _is_word_character))
    if flags["TOKENISED"] and raw is not None:
        parts += [ranges("opening_marks", raw.opening.__contains__), ranges("closing_marks", raw.closing.__contains__)]
    if flags["SEGMENTED"] and raw is not None:
        parts.append(constants(LONGEST_CJK_UNIT=raw.longest_cjk))
    return "\n".join([constants(UNKNOWN=UNKNOWN), *parts, template("words.c", flags)])


def _is_word_character(character: str) -> bool:
    """Whether the regular expression \\w matches a character."""
    return character.isalnum() or character == "_"


def _indices(vocabulary: Vocabulary, encoding: str) -> dict[bytes, int]:
    """The index of each symbol, by the encoded symbol."""
    return {symbol.encode(encoding): index for index, symbol in enumerate(vocabulary.symbols, start=FIRST)}
