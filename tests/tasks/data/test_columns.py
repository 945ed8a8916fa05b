"""The format of tables of tokens is detected and reported, and options override it."""

import bz2
import gzip
import json
import lzma
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from glassgate.tasks.classification import Classification, ClassificationOptions
from glassgate.tasks.data.texts import read_text
from glassgate.tasks.errors import DataError, OptionError
from glassgate.tasks.progress import Progress
from glassgate.tasks.tagging import Tagging, TaggingOptions

PUBLIC = """\
# sent_id = weblog-1
# text = EU rejects Mr Lamb
1\tEU\tB-ORG
2\trejects\tO
3\tMr\tB-PER
4\tLamb\tI-PER

# sent_id = weblog-2
1\tBoth\tO
2\tParis\tB-LOC
"""
NAMES = [
    [("EU", "B-ORG"), ("rejects", "O"), ("Mr", "B-PER"), ("Lamb", "I-PER")],
    [("Both", "O"), ("Paris", "B-LOC")],
]
SAID = "index in column 1, words in 2, labels in 3 (IOB2); 2 sentences, 3 entities, 5 labels"


class Notes(Progress):
    """Stores all notes."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def read(path: Path, content: str | bytes | None = None, **options: Any) -> tuple[list[list[tuple[str, str]]], str]:
    """Return the words and labels of a file, and the note about its format."""
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    notes = Notes()
    examples = Tagging(TaggingOptions(**options)).read(path, progress=notes)
    (said,) = (each.removeprefix(f"{path}: ") for each in notes.said if each.startswith(str(path)))
    return [list(zip(each.tokens, each.labels or (), strict=True)) for each in examples], said


@pytest.mark.parametrize("name", ["train.iob2", "train.tsv", "train.txt", "train", "train.data"])
def test_a_public_file_of_entities_by_any_name(name: str, tmp_path: Path) -> None:
    assert read(tmp_path / name, PUBLIC) == (NAMES, SAID)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\t", " "),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: text.encode("utf-16"),
        lambda text: gzip.compress(text.encode()),
        lambda text: lzma.compress(text.encode()),
        lambda text: bz2.compress(text.encode("utf-16-be").join([b"\xfe\xff", b""])),
        lambda text: pa.compress(text.encode(), "zstd", asbytes=True),
        lambda text: re.sub(r"^(\d.*)$", r"\1\t-\tann", text, flags=re.MULTILINE),
        lambda text: "# made with care by me and you\n" + text,
        lambda text: "-DOCSTART-\tX\tO\n\n" + text,
    ],
)
def test_the_same_content_in_other_formats(change: Callable[[str], str | bytes], tmp_path: Path) -> None:
    names, said = read(tmp_path / "train.conll", change(PUBLIC))
    assert (names, said.replace(", encoding UTF-16", "")) == (NAMES, SAID)


@pytest.mark.parametrize(
    ("labels", "scheme"),
    [
        ("I-A I-A O I-B I-A B-A", "IOB1, converted to IOB2"),
        ("B-A E-A O S-B B-A S-A", "BIOES, converted to IOB2"),
        ("B-A L-A O U-B U-A U-A", "BILUO, converted to IOB2"),
        ("B-A I-A O B-B B-A B-A", "IOB2"),
    ],
)
def test_schemes_of_entities_become_iob2(labels: str, scheme: str, tmp_path: Path) -> None:
    rows = "".join(f"w{number}\t{label}\n" for number, label in enumerate(labels.split()))
    sequences, said = read(tmp_path / "a.tsv", rows)
    assert f"labels in 2 ({scheme}); 1 sentence, 4 entities" in said
    assert [label for _, label in sequences[0]] == ["B-A", "I-A", "O", "B-B", "B-A", "B-A"]


def test_a_header_names_columns_that_options_may_take(tmp_path: Path) -> None:
    text = "word pos ner\nEU NNP B-ORG\nruns VB O\n\nno DT O\nParis NNP B-LOC\n" + "it PRP O\n" * 20
    sequences, said = read(tmp_path / "a.conll", text)
    assert sequences[0] == [("EU", "B-ORG"), ("runs", "O")]
    assert said.startswith(
        "words in column 1, labels in 3 (IOB2), a header in the first line, possibly labels in 2, too (choose with"
    )
    sequences, said = read(tmp_path / "a.conll", label_column="pos")
    assert sequences[0] == [("EU", "NNP"), ("runs", "VB")]
    sequences, _ = read(tmp_path / "a.conll", label_column="1", text_column="2")
    assert sequences[0] == [("NNP", "EU"), ("VB", "runs")]
    with pytest.raises(DataError, match="expected a column 'lemma', got 'word', 'pos', 'ner'; name yours with --text"):
        read(tmp_path / "a.conll", label_column="lemma")


def test_lines_of_text_are_not_read_as_columns(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("two words\nin lines\nno more\n")
    with pytest.raises(DataError, match=r"a\.txt: expected its labels in .*a\.labels"):
        read(tmp_path / "a.txt")
    with pytest.raises(
        OptionError, match=r"a\.odd: it has no columns; cannot detect the format from the suffix '\.odd'"
    ):
        read(tmp_path / "a.odd", "some words here\nand here\n")


def test_columns_have_the_same_meaning_as_in_training(tmp_path: Path) -> None:
    """From a file with only one label, the label column cannot be detected."""
    (tmp_path / "train.tsv").write_text("a\tx\tB-X\nb\ty\tO\n\nb\tx\tO\n")
    (tmp_path / "dev.tsv").write_text("b\tx\tO\na\ty\tO\n")
    options = {"hidden_size": 4, "embedding_size": 4, "epochs": 1, "data": str(tmp_path / "train.tsv")}
    task = Tagging(TaggingOptions(**options))
    task.fit()
    task.save(tmp_path / "run")
    (again,) = Tagging.load(tmp_path / "run").read(tmp_path / "dev.tsv")
    assert list(again.labels or ()) == ["O", "O"]


def test_rows_with_lists(tmp_path: Path) -> None:
    rows = [{"tokens": ["EU", "runs"], "ner_tags": [1, 0]}, {"tokens": ["no"], "ner_tags": [0]}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read(tmp_path / "a.jsonl")[0] == [[("EU", "1"), ("runs", "0")], [("no", "0")]]
    feature = {"feature": {"names": ["O", "B-ORG"], "_type": "ClassLabel"}, "_type": "Sequence"}
    metadata = {"huggingface": json.dumps({"info": {"features": {"ner_tags": feature}}})}
    pq.write_table(pa.Table.from_pylist(rows).replace_schema_metadata(metadata), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet")[0] == [[("EU", "B-ORG"), ("runs", "O")], [("no", "O")]]
    with pytest.raises(DataError, match=r"a\.jsonl:1: expected a key 'pos', got 'tokens', 'ner_tags'; name yours with"):
        read(tmp_path / "a.jsonl", label_column="pos")
    (tmp_path / "b.jsonl").write_text('{"tokens": "EU", "tags": ["O"]}\n')
    with pytest.raises(DataError, match=r"b\.jsonl:1: expected a list of words, got str; see --text-column"):
        read(tmp_path / "b.jsonl")
    (tmp_path / "b.parquet").write_text("none")
    with pytest.raises(DataError, match=r"b\.parquet: expected a Parquet file, but it does not load"):
        read(tmp_path / "b.parquet")


def texts(path: Path, content: str | bytes, **options: Any) -> tuple[list[tuple[str, str | None]], str]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    notes = Notes()
    examples = Classification(ClassificationOptions(**options)).read(path, progress=notes)
    return [(" ".join(each.content), each.label) for each in examples], notes.said[-1].removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("text,label\nfine day,good\n", "texts in column 'text', labels in 'label', separated by commas"),
        ("label;text\r\ngood;fine day\r\n", "texts in column 'text', labels in 'label', separated by semicolons"),
        ('sep=;\nReview;Class\n"fine day";good\n', "texts in column 'Review', labels in 'Class', separated by semic"),
        (
            "sentence\tid\tcategory\nfine day\t1\tgood\n",
            "texts in column 'sentence', labels in 'category', separated by t",
        ),
        (
            "text\tlabel\r\nfine day\tgood\r\n".encode("utf-16"),
            "texts in column 'text', labels in 'label', separated by tabs",
        ),
    ],
)
def test_tables_as_excel_and_others_write_them(content: str | bytes, said: str, tmp_path: Path) -> None:
    rows, told = texts(tmp_path / "a.csv", content)
    assert rows == [("fine day", "good")]
    assert told.startswith(said)
    assert told.endswith("; 1 text, 1 label")


def test_ambiguous_tables_raise_errors(tmp_path: Path) -> None:
    message = "the texts can be in column 'review' or 'comment'; choose one with --text-column"
    with pytest.raises(DataError, match=message):
        texts(tmp_path / "a.csv", "review,comment,label\na,b,c\n")
    assert texts(tmp_path / "a.csv", "review,comment,label\na,b,c\n", text_column="comment")[0] == [("b", "c")]


def test_rows_with_a_text(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([{"sentence": "fine day", "label": 1}])
    names = {"label": {"names": ["bad", "good"], "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": names}})}
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "a.parquet")
    assert texts(tmp_path / "a.parquet", (tmp_path / "a.parquet").read_bytes())[0] == [("fine day", "good")]


def test_a_compressed_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress("salt\npepper\n".encode("utf-16")))
    assert "".join(read_text(tmp_path / "a.txt.gz", "character", "file")[0].tokens) == "salt\npepper\n"
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"salt\n")[:-4])
    with pytest.raises(
        DataError, match=r"a\.txt\.gz: expected compressed content, but it does not load .*; download or create"
    ):
        read_text(tmp_path / "a.txt.gz", "character", "file")
