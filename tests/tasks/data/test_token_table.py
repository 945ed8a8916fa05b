"""In CSV files with one token per row, the columns and the sentences are detected."""

from pathlib import Path

import pandas as pd
import pytest

from glassgate.cli import main
from glassgate.cli.readings import rank
from glassgate.tasks.data.columns import Wanted, detect_table
from glassgate.tasks.data.tagged import read_columns
from glassgate.tasks.errors import DataError

KAGGLE = """Sentence #,Word,POS,Tag
Sentence: 1,Thousands,NNS,O
,of,IN,O
,London,NNP,B-geo
,",",",",O
,\"""\",``,O
Sentence: 2,Hyde,NNP,B-geo
,Park,NNP,I-geo
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.csv"


def tokens_and_labels(path: Path, column: str | None = None) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return the tokens and the labels of each sentence."""
    sentences = read_columns(path, detect_table(path, Wanted(column)))
    return [(tuple(each.tokens), tuple(each.labels or ())) for each in sentences]


WORDS = [("Thousands", "of", "London", ",", '"'), ("Hyde", "Park")]
TAGS = [("O", "O", "B-geo", "O", "O"), ("B-geo", "I-geo")]


def test_the_format_of_kaggle(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(KAGGLE)
    assert tokens_and_labels(file) == list(zip(WORDS, TAGS, strict=True))
    assert tokens_and_labels(file, "POS")[1] == (("Hyde", "Park"), ("NNP", "NNP"))
    assert main(["look", str(file), "--examples", "1"]) == 0
    out = capsys.readouterr().out
    assert "words in column 'Word', labels in 'Tag' (IOB2), sentences by 'Sentence #', separated by commas" in out
    assert "2 sentences, 2 entities, 3 labels" in out
    assert "train tagging" in out


def test_as_excel_writes_it_with_the_sentence_in_each_row_and_other_marks(file: Path) -> None:
    rows = ["sep=;", "token;sentence_id;ner", *("a;1;I-X", "b;1;I-X", "c;2;O", "d;2;I-X")]
    file.write_bytes("\r\n".join([*rows, ""]).encode("utf-8-sig"))
    assert tokens_and_labels(file) == [(("a", "b"), ("B-X", "I-X")), (("c", "d"), ("O", "B-X"))]
    assert "IOB1, converted to IOB2" in detect_table(file).description()


def test_empty_rows_between_sentences(file: Path) -> None:
    file.write_text("token,tag\nHe,A\nran,B\n\nShe,A\n,\n,\nIt,A\n")
    assert [tokens for tokens, _ in tokens_and_labels(file)] == [("He", "ran"), ("She",), ("It",)]


def test_a_table_of_texts_is_not_read_as_tokens(file: Path) -> None:
    for table in ("text,label\na b,x\nc d,y\n", "sentence_id,text,label\n1,a b,x\n2,c d,y\n", "sentence,label\na,x\n"):
        file.write_text(table)
        assert rank(str(file))[0].task == "classification"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "a,b\nHe,X\n",
            "tokens.csv:1: expected a column of words, such as 'word', in the first line, got 'a', 'b'; na",
        ),
        ("word,b\nHe,X\n", "tokens.csv:1: expected a column of labels, such as 'tag', in the first line, got 'word', "),
        ("word,tag\nHe,X\n,Y\n", "tokens.csv:3: the token is empty; remove the row, or fill it in"),
        ("word,tag\nHe,\n", "tokens.csv:2: the label is empty; remove the row"),
        (
            "word,tag\nHe,X,Y\n",
            "tokens.csv:2: expected 2 columns, as in the first line, got 3; correct the line, or put quotes",
        ),
        ('word,tag\n"He"x,X\n', "tokens.csv:2: expected CSV, but it does not parse: .*; check the quotes"),
    ],
)
def test_tables_that_cannot_be_read(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(DataError, match=said):
        tokens_and_labels(file)


@pytest.mark.parametrize("task", ["language-model", "fill-blanks"])
def test_texts_in_rows(task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON lines, Parquet and a data frame give the same examples as a text file of the same lines."""
    from glassgate.tasks import task_class

    texts = ["salt and pepper", "tick tock"]
    frame = pd.DataFrame({"id": [1, 2], "content": texts})
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    frame.to_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.txt").write_text("\n".join([*texts, ""]))
    kind = task_class(task)
    for sequence in ("file", "line"):
        options = {
            "sequence": sequence,
            "text_column": "content",
            "hidden_size": 4,
            "epochs": 1,
            "threads": 1,
            "held_out": 0.0,
        }
        read = kind(kind.options_type.from_mapping(options)).read
        expected = ["".join(each.tokens) for each in read(tmp_path / "a.txt")]
        for name in ("a.jsonl", "a.parquet"):
            assert ["".join(each.tokens) for each in read(tmp_path / name)] == expected
        trained = kind(kind.options_type.from_mapping(options))
        assert ["".join(each.tokens) for each in trained.split_of(frame).train] == expected
        trained.fit(frame)
    (tmp_path / "b.jsonl").write_text('{"content": 3}\n')
    with pytest.raises(DataError, match=r"b.jsonl:1: expected a string of text, got int; see --text-column"):
        read(tmp_path / "b.jsonl")
    assert main(["look", str(tmp_path / "a.parquet")]) == 0
    assert "rows of Parquet, texts under 'content'" in capsys.readouterr().out
