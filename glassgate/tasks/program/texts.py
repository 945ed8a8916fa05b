"""Tokenisation in C: the vocabulary, and functions that split a line as in training."""

from collections.abc import Mapping

from glassgate.tasks.data.raw_text import RawTokeniser
from glassgate.tasks.data.vocabulary import FIRST, UNKNOWN, Vocabulary
from glassgate.tasks.program.source import constants, ranges, table, template

_ENTRY = """\
/* A text and its number. */
typedef struct {
    const char *text;
    int length, number;
} entry;
"""


def splitting(units: Vocabulary, unit: str, raw: RawTokeniser | None, tables: Mapping[str, Vocabulary]) -> str:
    """Return the tables and the functions that split a line into tokens.

    Args:
        units: the vocabulary
        unit: "word", "token", "character" or "byte"
        raw: splits unknown words, and drops unknown blanks between characters; None for a run that does neither
        tables: other vocabularies, by the names of their tables
    """
    further = raw is not None and unit != "character"
    flags = {
        "CHARACTERS": unit == "character",
        "BYTES": unit == "byte",
        "WORDS": unit == "word",
        "TOKENS": unit == "token",
        "KEEPS_SPACES": raw is None and unit in ("character", "byte"),
        "TOKENISED": further and raw is not None and raw.splits_punctuation,
        "SEGMENTED": further and raw is not None and raw.segments_cjk,
    }
    flags["KNOWN"] = flags["TOKENISED"] or (unit == "character" and raw is not None)
    encoding = "latin-1" if unit == "byte" else "utf-8"
    parts = [_ENTRY, table("unit_table", _numbered(units, encoding))]
    parts += [table(name, _numbered(each, "utf-8")) for name, each in tables.items()]
    parts.append(ranges("spaces", str.isspace))
    if flags["WORDS"] or flags["TOKENISED"]:
        parts.append(ranges("word_characters", _is_in_words))
    if flags["TOKENISED"] and raw is not None:
        parts += [ranges("opening_marks", raw.opening.__contains__), ranges("closing_marks", raw.closing.__contains__)]
    if flags["SEGMENTED"] and raw is not None:
        parts.append(constants(LONGEST_CJK_UNIT=raw.longest_cjk))
    return "\n".join([constants(UNKNOWN=UNKNOWN), *parts, template("words.c", flags)])


def _is_in_words(character: str) -> bool:
    """Whether the pattern \\w of a regular expression matches a character."""
    return character.isalnum() or character == "_"


def _numbered(vocabulary: Vocabulary, encoding: str) -> dict[bytes, int]:
    return {symbol.encode(encoding): number for number, symbol in enumerate(vocabulary.symbols, start=FIRST)}
