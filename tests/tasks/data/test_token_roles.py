"""Files of labelled tokens without a description: words, labels, sentences and comments are found by their content."""

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glassgate.tasks.data.formats import LineStyle, detect_line_style
from glassgate.tasks.errors import DataError
from glassgate.tasks.tagging import Tagging, TaggingOptions

Sentence = list[tuple[str, str]]
ENTITIES: list[Sentence] = [
    [(f"Peter{k}", "B-PER"), (f"Blackburn{k}", "I-PER"), ("went", "O"), (f"home{k}", "O")] for k in range(6)
] + [[("New", "B-LOC"), ("York", "I-LOC"), (f"{k},5", "O")] for k in range(6)]
PARTS: list[Sentence] = [
    [(f"dog{k}", "NN"), (f"ran{k}", "VBD"), ("to", "TO"), (f"home{k}", "NN")] for k in range(12)
]  # fmt: skip


def rows(form: Callable[[int, int, str, str], str], sentences: list[Sentence], end: str = "\n") -> str:
    """A row for each token, of the numbers of the sentence and of the token, the token and its label."""
    return "".join(
        "".join(f"{form(k, i, *pair)}\n" for i, pair in enumerate(sentence)) + end
        for k, sentence in enumerate(sentences)
    )


def lines(mark: str, sentences: list[Sentence]) -> str:
    return "".join(" ".join(f"{word}{mark}{label}" for word, label in sentence) + "\n" for sentence in sentences)


def flat(sentences: list[Sentence]) -> list[dict[str, object]]:
    return [{"sent_id": k, "word": word, "tag": label} for k, each in enumerate(sentences) for word, label in each]


def in_cells(sentences: list[Sentence], join: Callable[[list[str]], str]) -> str:
    cells = [[join(list(column)) for column in zip(*sentence, strict=True)] for sentence in sentences]
    return "id,text,tags\n" + "".join(f'{k},"{words}","{labels}"\n' for k, (words, labels) in enumerate(cells))


FILES: dict[str, tuple[str, str, list[Sentence]]] = {
    "labels first, entities": ("a.bio", rows(lambda k, i, word, label: f"{label}\t{word}", ENTITIES), ENTITIES),
    "labels first, parts of speech": ("a.tsv", rows(lambda k, i, word, label: f"{label}\t{word}", PARTS), PARTS),
    "labels, offsets, words": (
        "a.tsv",
        rows(lambda k, i, word, label: f"{label}\t{9 * k + i}\t{9 * k + i + 4}\t{word}", ENTITIES),
        ENTITIES,
    ),
    "numbers of rows in the file": (
        "a.tsv",
        (lambda numbers: rows(lambda k, i, word, label: f"{next(numbers)}\t{word}\t{label}", ENTITIES))(count(1)),
        ENTITIES,
    ),
    "numbers of sentences, no blank lines": (
        "a.tsv",
        rows(lambda k, i, word, label: f"{k + 1}\t{word}\t{label}", ENTITIES, end=""),
        ENTITIES,
    ),
    "a table in another language": (
        "a.csv",
        "Satz;Wort;Etikett\n" + rows(lambda k, i, word, label: f"{k};{word};{label}", ENTITIES, end=""),
        ENTITIES,
    ),
    "a table without names": (
        "a.csv",
        rows(lambda k, i, word, label: f'"{word}",{label}', ENTITIES),
        ENTITIES,
    ),
    "a table with documents and offsets": (
        "a.csv",
        "doc,start,end,token,tag\n"
        + rows(lambda k, i, word, label: f'{k},{9 * i},{9 * i + 4},"{word}",{label}', ENTITIES, end=""),
        ENTITIES,
    ),
    "lists of words with labels": ("a.json", json.dumps(ENTITIES), ENTITIES),
    "nested lists": (
        "a.jsonl",
        "".join(
            json.dumps({"id": k, "a": {"tokens": [w for w, _ in each], "tags": [t for _, t in each]}}) + "\n"
            for k, each in enumerate(ENTITIES)
        ),
        ENTITIES,
    ),
    "lemmas last": ("a.tsv", rows(lambda k, i, word, label: f"{word}\t{label}\t{word}e", PARTS), PARTS),
    "a header in another language": (
        "a.tsv",
        "Wort\tEtikett\n" + rows(lambda k, i, word, label: f"{word}\t{label}", ENTITIES),
        ENTITIES,
    ),
    "a header of parts of speech": (
        "a.tsv",
        "Wort\tWortart\n" + rows(lambda k, i, word, label: f"{word}\t{label}", PARTS),
        PARTS,
    ),
    "a header in each part": (
        "a.tsv",
        2 * ("token\tlabel\n" + rows(lambda k, i, word, label: f"{word}\t{label}", ENTITIES)),
        2 * ENTITIES,
    ),
    "a comment before each sentence": (
        "a.conll",
        rows(lambda k, i, word, label: ("" if i else f"# id d{k} train\n") + f"{word} _ _ {label}", ENTITIES),
        ENTITIES,
    ),
    "sentences that begin with #": (
        "a.conll",
        rows(lambda k, i, word, label: f"{word} {label}", [[("#", "O"), *each] for each in ENTITIES]),
        [[("#", "O"), *each] for each in ENTITIES],
    ),
    "no-break spaces": (
        "a.conll",
        rows(lambda k, i, word, label: f"{word}\u00a0{k} {label}", ENTITIES),
        [[(f"{word}\u00a0{k}", label) for word, label in each] for k, each in enumerate(ENTITIES)],
    ),
    "Brown": ("ca01", "\n\n\t" + lines("/", PARTS).replace("\n", "\n\n\t"), PARTS),
    "underscores": ("a.txt", lines("_", PARTS), PARTS),
    "bars": ("a.txt", lines("|", ENTITIES), ENTITIES),
    "marks in words": ("a.txt", lines("/", [*PARTS, [("1/2", "NN")]]), [*PARTS, [("1/2", "NN")]]),
    "hashes": (
        "a.txt",
        "".join(f"{' '.join(w for w, _ in each)} ### {' '.join(t for _, t in each)}\n" for each in ENTITIES),
        ENTITIES,
    ),
    "cells of words": ("a.csv", in_cells(ENTITIES, " ".join), ENTITIES),
    "cells of lists": ("a.csv", in_cells(ENTITIES, str), ENTITIES),
    "texts in JSON lines": (
        "a.jsonl",
        "".join(
            json.dumps({"sentence": " ".join(w for w, _ in each), "tags": " ".join(t for _, t in each)}) + "\n"
            for each in ENTITIES
        ),
        ENTITIES,
    ),
    "a token per row of JSON lines": ("a.jsonl", "".join(f"{json.dumps(row)}\n" for row in flat(ENTITIES)), ENTITIES),
}


def read(path: Path) -> list[Sentence]:
    examples = Tagging(TaggingOptions()).read(path)
    return [list(zip(each.tokens, each.labels or (), strict=True)) for each in examples]


@pytest.mark.parametrize("name", FILES)
def test_columns_are_found_by_their_content(name: str, tmp_path: Path) -> None:
    file, content, sentences = FILES[name]
    (tmp_path / file).write_text(content)
    assert read(tmp_path / file) == sentences


def test_a_token_per_row_of_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(flat(ENTITIES)), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == ENTITIES
    (tmp_path / "a.jsonl").write_text('{"word": "New", "tag": "B"}\n{"word": "York", "tag": "I"}\n')
    with pytest.raises(DataError, match=r"a\.jsonl:1: expected a list of words, or the sentence of each word under a"):
        read(tmp_path / "a.jsonl")


def test_words_that_can_be_in_either_column_are_questioned(tmp_path: Path) -> None:
    sentences = [[(f"word{(k + i) % 3}", f"LABEL{(k + i) % 7}") for i in range(4)] for k in range(12)]
    (tmp_path / "a.tsv").write_text(rows(lambda k, i, word, label: f"{word}\t{label}", sentences))
    with pytest.raises(
        DataError, match="in column '1' or '2', such as 'word0' or 'LABEL0'; choose one with --text-column, by number"
    ):
        read(tmp_path / "a.tsv")
    first = Tagging(TaggingOptions(text_column="1")).read(tmp_path / "a.tsv")[0]
    assert (first.tokens[0], (first.labels or ())[0]) == ("word0", "LABEL0")


@pytest.mark.parametrize("line", ["/usr/lib/a{0}.so /usr/bin/b{0}", "1/2/20{0} 3/4/20{0}", "my_name_{0} x_{0}"])
def test_marks_of_other_texts_are_not_those_of_labels(line: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{line.format(k)}\n" for k in range(20)))
    assert detect_line_style(tmp_path / "a.txt") is None
    assert LineStyle(mark="/").parse("a/b/X c") == (["a/b", "c"], ["X", ""])
