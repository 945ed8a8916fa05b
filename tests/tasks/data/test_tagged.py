"""Each format of tagged sequences is read; errors name the file, the line and the remedy."""

import io
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from glassgate.tasks.data import tagged
from glassgate.tasks.data.columns import Wanted, conllu_layout
from glassgate.tasks.data.detect import detect_kind
from glassgate.tasks.data.formats import detect_format
from glassgate.tasks.data.sniff import sniff
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.errors import DataError, OptionError
from tests.tasks.corpus import sentences, write_conllu

ROW = "\t{}\t{}\t_\t{}\t{}\tCase=Nom\t0\troot\t_\t_\n"


Reader = Callable[..., list[Tagged]]


def read_all(reader: Callable[..., Iterator[Tagged]]) -> Reader:
    return lambda *given, **named: list(reader(*given, **named))


read_folder, read_text = map(read_all, (tagged.read_folder, tagged.read_text))


def read_conllu(path: Path, column: str = "upos", labelled: bool = True) -> list[Tagged]:
    return list(tagged.read_columns(path, conllu_layout(column, labelled), labelled))


def read_columns(
    path: Path, column: str | None = None, separator: str | None = None, labelled: bool = True
) -> list[Tagged]:
    suffix = ".labels" if labelled else None
    _, layout = detect_format(path, "tsv" if separator else "columns", Wanted(column, label_suffix=suffix))
    assert layout is not None
    return list(tagged.read_columns(path, layout, labelled))


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def conllu_row(number: int, form: str, upos: str, xpos: str) -> str:
    return f"{number}\t{form}\t_\t{upos}\t{xpos}\tCase=Nom\t0\troot\t_\t_\n"


def pairs(sequences: list[Tagged]) -> list[list[tuple[str, str]]]:
    return [list(zip(each.tokens, each.labels or (), strict=True)) for each in sequences]


def test_conllu_skips_comments_multiword_tokens_and_empty_nodes(tmp_path: Path) -> None:
    examples = sentences(5)
    read = read_conllu(write_conllu(tmp_path / "a.conllu", examples))
    assert pairs(read) == pairs(examples)
    assert [read[0].line(place) for place in range(2)] == [3, 4]


@pytest.mark.parametrize(("column", "label"), [("upos", "NOUN"), ("xpos", "NN"), ("feats", "Case=Nom")])
def test_conllu_column(tmp_path: Path, column: str, label: str) -> None:
    path = write(tmp_path, "a.conllu", conllu_row(1, "cat", "NOUN", "NN"))
    assert pairs(read_conllu(path, column)) == [[("cat", label)]]


def test_conllu_unknown_column(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"--label-column: expected one of id, form, .* for CoNLL-U, got 'pos'"):
        read_conllu(write(tmp_path, "a.conllu", conllu_row(1, "cat", "NOUN", "NN")), "pos")


def test_conllu_ragged(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conllu", conllu_row(1, "the", "DET", "DT") + "2\tcat\tNOUN\n")
    with pytest.raises(
        DataError, match=r"a\.conllu:2: expected the 10 columns of CoNLL-U, .*, got 3: .*cat.*; correct the line, or"
    ):
        read_conllu(path)


@pytest.mark.parametrize("separator", [None, "\t"])
def test_columns(tmp_path: Path, separator: str | None) -> None:
    text = "-DOCSTART-\tO\tO\n\nEU\tNNP\tB-ORG\nrejects\tVBZ\tO\n\n\nBoth\tDT\tO"
    path = write(tmp_path, "a.conll", text if separator else text.replace("\t", " "))
    assert pairs(read_columns(path, separator=separator)) == [[("EU", "B-ORG"), ("rejects", "O")], [("Both", "O")]]
    assert pairs(read_columns(path, "2", separator))[1] == [("Both", "DT")]


def test_tsv_tokens_may_contain_spaces(tmp_path: Path) -> None:
    assert pairs(read_columns(write(tmp_path, "a.tsv", "New York\tB\r\n"), separator="\t")) == [[("New York", "B")]]


def test_columns_ragged(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conll", "EU NNP B-ORG\nrejects VBZ\n")
    with pytest.raises(
        DataError,
        match=r"a\.conll:2: expected 3 columns separated by blanks as in the lines before, got 2: .*; correct",
    ):
        read_columns(path)


def test_columns_without_labels(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", "word\n\nother\n")
    assert [list(each.tokens) for each in read_columns(path, separator="\t", labelled=False)] == [["word"], ["other"]]
    with pytest.raises(
        DataError,
        match=r"a\.tsv:1: expected at least 2 columns separated by tabs, a word .* got 1; correct the line, or name",
    ):
        read_columns(path, separator="\t")


@pytest.mark.parametrize("column", ["last", "0", "4"])
def test_columns_number(tmp_path: Path, column: str) -> None:
    message = rf"a\.tsv: expected a column '{column}', got '1', '2'; name yours with"
    with pytest.raises(DataError, match=message):
        read_columns(write(tmp_path, "a.tsv", "a\tB\n"), column, "\t")


def test_text_next_to_labels(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "the cat\n\nsits\n")
    write(tmp_path, "a.labels", "D N\n\nV\n")
    assert pairs(read_text(path)) == [[("the", "D"), ("cat", "N")], [("sits", "V")]]


def test_text_characters(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "a b\n")
    write(tmp_path, "a.tags", "X Y Z\n")
    assert pairs(read_text(path, "character", ".tags")) == [[("a", "X"), (" ", "Y"), ("b", "Z")]]


def test_text_faults(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "the cat\nsits\n")
    with pytest.raises(DataError, match=r"a\.txt: expected its labels in .*a\.labels, which does not exist; .*--label"):
        read_text(path)
    labels = write(tmp_path, "a.labels", "D N\n")
    with pytest.raises(
        DataError,
        match=r"a\.labels: expected 2 lines, as many as .*a\.txt has, got 1; the files must match line",
    ):
        read_text(path)
    labels.write_text("D N\nV V\n")
    with pytest.raises(
        DataError, match=r"a\.labels:2: expected 1 labels, one for each word of .*a\.txt:2, got 2; correct the line"
    ):
        read_text(path)


def test_conllu_without_labels(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conllu", "# intent = ask\n" + conllu_row(1, "cat", "_", "_"))
    (read,) = read_conllu(path, labelled=False)
    assert (list(read.tokens), read.labels, read.intent) == (["cat"], None, None)


@pytest.mark.parametrize("comment", ["# intent = GetWeather", "#intent: GetWeather "])
def test_intents_in_comments(tmp_path: Path, comment: str) -> None:
    path = write(tmp_path, "a.conllu", f"# sent_id = 1\n{comment}\n" + conllu_row(1, "rain", "NOUN", "NN"))
    assert read_conllu(path)[0].intent == "GetWeather"
    path = write(tmp_path, "a.conll", f"{comment}\nrain O\n\n# B-SIGN\nintent O\n")
    first, second = read_columns(path)
    assert (first.intent, pairs([first])) == ("GetWeather", [[("rain", "O")]])
    assert (second.intent, pairs([second])) == (None, [[("#", "B-SIGN"), ("intent", "O")]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a O\n# intent = b\nc O\n", "the intent 'b' comes after the first token of its sequence; move it before that"),
        ("# intent = a\n# intent = b\nc O\n", "the sequence has a second intent, 'b'; remove one of the two"),
    ],
)
def test_intents_in_the_wrong_place(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, "a.conll", text)
    with pytest.raises(DataError, match=rf"a\.conll:2: {message}"):
        read_columns(path)


def test_folder(tmp_path: Path) -> None:
    write(tmp_path, "seq.in", "play it  \nrain today\n")
    write(tmp_path, "seq.out", "O B-song \nO B-date\n")
    assert detect_format(tmp_path, wanted=Wanted(label_suffix=None)) == ("folder", None)
    assert [each.intent for each in read_folder(tmp_path)] == [None, None]
    write(tmp_path, "label", "PlayMusic\nGetWeather\n")
    read = read_folder(tmp_path)
    assert [each.intent for each in read] == ["PlayMusic", "GetWeather"]
    assert pairs(read)[0] == [("play", "O"), ("it", "B-song")]
    (tmp_path / "seq.out").unlink()
    assert [each.labels for each in read_folder(tmp_path, labelled=False)] == [None, None]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("seq.in", None, "expected a file, or a folder that holds seq.in, seq.out, label; check the path"),
        ("seq.out", None, "seq.out: no such file; check the path"),
        ("seq.out", "O O\n", "seq.out: expected 2 lines, as many as .*seq.in has, got 1"),
        ("label", "A\nB\nC\n", "label: expected 2 lines, as many as .*seq.in has, got 3"),
        ("seq.out", "O O\nO O O\n", "seq.out:2: expected 2 labels, one for each word of .*seq.in:2, got 3"),
        ("seq.in", "a b\n\n", "seq.in:2: the line is empty; remove line 2 of each file"),
        ("label", "A\n\n", "label:2: the line is empty; remove line 2 of each file"),
    ],
)
def test_folder_faults(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    for file, content in (("seq.in", "a b\nc d\n"), ("seq.out", "O O\nO O\n"), ("label", "A\nB\n")):
        write(tmp_path, file, content)
    if text is None:
        (tmp_path / name).unlink()
    else:
        write(tmp_path, name, text)
    with pytest.raises(DataError, match=message):
        read_folder(tmp_path)


def test_byte_order_mark_and_windows_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", b"\xef\xbb\xbfcaf\xc3\xa9\tN\r\n\r\nb\tV\r\n")
    assert pairs(read_columns(path, separator="\t")) == [[("café", "N")], [("b", "V")]]


@pytest.mark.parametrize("read", [read_conllu, read_columns, read_text])
def test_files_that_cannot_be_read(tmp_path: Path, read: Reader) -> None:
    for name, content, message in (
        ("empty.txt", b"", "empty.txt: the file is empty; give one with"),
        (
            "latin.txt",
            b"a b\ncaf\xe9 N\n" + "café N\n".encode() * 3,
            "latin.txt:2: expected UTF-8 .* got byte 0xe9 in column 4; correct .* iconv -f ENCODING",
        ),
        ("utf16.txt", "a b".encode("utf-16")[:-1], "utf16.txt: expected UTF-16, because of its byte order mark"),
    ):
        with pytest.raises(DataError, match=message):
            read(write(tmp_path, name, content if read is not read_conllu else content.replace(b"a b", b"#")))
    with pytest.raises(DataError, match=r"none\.txt: no such file; check the path"):
        read(tmp_path / "none.txt")
    with pytest.raises(DataError, match=re.escape(f"{tmp_path}: this is a folder; give a file")):
        read(tmp_path)


@pytest.mark.parametrize("read", [read_conllu, read_columns])
def test_blank_lines_alone(tmp_path: Path, read: Reader) -> None:
    with pytest.raises(
        DataError, match="the file holds no sequence, only blank or comment lines; give one with tokens"
    ):
        read(write(tmp_path, "a.txt", "\n\n"))


def test_formats_by_suffix(tmp_path: Path) -> None:
    assert [detect_kind(f"a.{end}") for end in ("conllu", "iob2", "TSV", "txt", "py")] == [
        "conllu",
        "columns",
        "tsv",
        "text",
        "python",
    ]
    for end in ("odd", "npz"):
        with pytest.raises(
            OptionError, match=rf"a\.{end}: .*cannot detect the format from the suffix '\.{end}'; .* --format conllu"
        ):
            detect_format(write(tmp_path, f"a.{end}", "some words\nand more here\n"), wanted=Wanted(label_suffix=None))


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the cat\n\nsits\n")))
    assert [list(each.tokens) for each in read_text("-", labelled=False)] == [["the", "cat"], ["sits"]]


def test_a_missing_label_of_rows(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"tokens": ["a", "b"], "tags": ["X", null]}\n')
    with pytest.raises(DataError, match=r"a\.jsonl:1: a label under 'tags' is missing; fill it in, or remove the row"):
        list(tagged.read_rows(sniff(tmp_path / "a.jsonl")))
