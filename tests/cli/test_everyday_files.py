"""Everyday files are read as they are meant, or the reading is questioned, and the advised task is theirs."""

import json
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from glassgate.cli import main
from glassgate.cli.readings import rank

RANDOM = random.Random(1)
VALUES = [round(10 + hour % 24 / 5 + RANDOM.random(), 2) for hour in range(200)]
HOURS = [datetime(2020, 1, 1) + timedelta(hours=hour) for hour in range(200)]
SERIES = [[round(RANDOM.random() + label * step / 10, 3) for step in range(20)] for label in (1, 2) * 20]
REVIEWS = [(f"the film number {n} was {word} to me", word) for n, word in enumerate(("good", "bad", "bad") * 20)]
PAIRS = [(f"the {a} is {b} and {n}", f"der {a} ist {b} und {n}") for n, (a, b) in enumerate([("dog", "old")] * 9)]


def lines(rows: object, form: str) -> str:
    return "".join(f"{form.format(*row)}\n" for row in rows)  # type: ignore[attr-defined]


def hours(form: Callable[[datetime], str], values: object = VALUES) -> str:
    return "".join(f"{form(hour)}{value}\n" for hour, value in zip(HOURS, values, strict=False))  # type: ignore[call-overload]


def series(form: str, separator: str = ",", number: str = "{}") -> str:
    rows = zip((1, 2) * 20, SERIES, strict=True)
    return "".join(
        form.format(label=label, values=separator.join(number.format(value) for value in row)) + "\n"
        for label, row in rows
    )


GERMEVAL = "".join(
    f"#\thttp://de.wikipedia.org/wiki/X{n} [2009-10-17]\n1\tAnna\tB-PER\tO\n2\tlebt\tO\tO\n3\tin\tO\tO\n"
    "4\tNew\tB-LOC\tO\n5\tYork\tI-LOC\tB-LOC\n6\tbei\tO\tO\n7\tBASF\tB-ORG\tO\n\n"
    for n in range(9)
)
ATIS = "BOS what is the fare EOS\tO O O O O atis_airfare\nBOS show boston EOS\tO O B-toloc atis_flight\n" * 9
ATTRIBUTES = "".join(f"@attribute a{n} numeric\n" for n in range(20))
ARFF = f"@relation G\n{ATTRIBUTES}@attribute target {{1,2}}\n@data\n"
TSF = (
    "# Monash\n@relation M\n@attribute series_name string\n@attribute start_timestamp date\n@frequency monthly\n"
    + "@horizon 6\n@data\n"
    + "".join(f"T{n}:1979-01-01 00-00-00:{','.join(map(str, VALUES[: 60 + n]))}\n" for n in range(3))
)
PARTS = {"train": REVIEWS[:40], "val": REVIEWS[40:50], "test": REVIEWS[50:]}
BOM = "\ufeff"

INTENTS = [(f"topic{k}", word) for k, word in enumerate(["what", "when", "where", "who", "how", "why"])]
DAYS = [datetime(2024, 1, 1) + timedelta(days=n) for n in range(90)]
PRICE = '{0:%Y-%m-%d},"$1,{1:03}.50",{1}.5K,-0.{1:02}%\n'
DAILY = "".join(f"{day:%Y-%m-%d},{n % 7}.5,{n % 5}.25\n" for n, day in enumerate(DAYS))

FILES: dict[str, tuple[str, str, str, str]] = {  # the name, the content, the task, and a part of the description
    "GermEval": ("a.tsv", GERMEVAL, "tagging", "words in 2, labels in 3 (IOB2), possibly labels in 4"),
    "GermEval as text": ("a.txt", GERMEVAL, "tagging", "words in 2, labels in 3 (IOB2)"),
    "ATIS": ("a.iob", ATIS, "tagging", "18 sentences, 9 entities"),
    "text and label": ("a.txt", lines(REVIEWS, "{0}\t{1}"), "classification", "60 texts, 2 labels"),
    "text and label in a TSV": ("a.tsv", lines(REVIEWS, "{0}\t{1}"), "classification", "60 texts, 2 labels"),
    "label and text": ("a.txt", lines(REVIEWS, "{1}\t{0}"), "classification", "texts in column '2', labels in '1'"),
    "a mark at the end": ("a.csv", f"text,label\n{lines(REVIEWS, '{0},{1}')}{BOM}\n", "classification", "60 texts"),
    "pairs": ("a.csv", lines(PAIRS, "{0},{1}"), "translation", "9 examples"),
    "pairs with names": ("a.csv", f"en,de\n{lines(PAIRS, '{0},{1}')}", "translation", "9 examples"),
    "pairs as JSON": (
        "a.jsonl",
        "".join(f"{json.dumps({'translation': {'en': a, 'de': b}})}\n" for a, b in PAIRS),
        "translation",
        "9 examples",
    ),
    "pairs under two keys": (
        "a.jsonl",
        "".join(f"{json.dumps({'en': a, 'de': b})}\n" for a, b in PAIRS),
        "translation",
        "9 examples",
    ),
    "parts of lists": ("a.json", json.dumps(PARTS), "classification", "60 texts, 2 labels"),
    "lists": ("a.json", json.dumps(REVIEWS), "classification", "60 texts, 2 labels"),
    "date and time": ("a.csv", f"Date,Time,Load\n{hours('{:%d/%m/%Y,%H:%M:%S,}'.format)}", "forecasting", "1 hour"),
    "parts of a date": (
        "a.csv",
        f"No,year,month,day,hour,pm2.5\n{hours('{0:%j},{0.year},{0.month},{0.day},{0.hour},'.format)}",
        "forecasting",
        "200 steps of 1 hour",
    ),
    "quarters": (
        "a.csv",
        "quarter,gdp\n" + "".join(f"{1950 + n // 4}Q{n % 4 + 1},{VALUES[n]}\n" for n in range(80)),
        "forecasting",
        "80 steps of 3 months",
    ),
    "quarters with a hyphen": (
        "a.csv",
        "date,gdp\n" + "".join(f"{1950 + n // 4}-Q{n % 4 + 1},{VALUES[n]}\n" for n in range(80)),
        "forecasting",
        "80 steps of 3 months",
    ),
    "seconds": ("a.csv", f"ts,y\n{hours(lambda hour: f'{hour.timestamp():.0f},')}", "forecasting", "3,600 steps"),
    "an epoch": ("a.csv", f"epoch,loss\n{lines(enumerate(VALUES), '{0},{1}')}", "forecasting", "200 steps of 1 step"),
    "no header": ("a.csv", lines(zip(VALUES, VALUES, strict=True), "{0},{1}"), "forecasting", "no header"),
    "a number per line": ("a.txt", lines(zip(VALUES, strict=True), "{0}"), "forecasting", "1 series, 200 steps"),
    "UCR with tabs": ("G_TRAIN.tsv", series("{label}\t{values}", "\t"), "classification", "40 series, 2 labels"),
    "UCR with blanks": (
        "G_TRAIN.txt",
        series("  {label}.0000000e+00  {values}", "  ", "{:.7e}"),
        "classification",
        "40 series, 2 labels",
    ),
    "UCR with the label last": ("a.csv", series("{values},class{label}"), "classification", "40 series, 2 labels"),
    "ARFF": ("G_TRAIN.arff", ARFF + series("{values},{label}"), "classification", "40 series, 2 labels"),
    "TSF": ("a.tsf", TSF, "forecasting", "3 series, 183 steps of 1 month"),
    "targets of .ts": (
        "a.ts",
        "@problemName R\n@targetlabel true\n@data\n" + series("{values}:{label}.25"),
        "regression",
        "40 series",
    ),
    "texts by label": (
        "a.json",
        json.dumps({"good": [text for text, _ in REVIEWS[:40]], "bad": [text for text, _ in REVIEWS[40:]]}),
        "classification",
        "60 texts, 2 labels",
    ),
    "patterns of a chatbot": (
        "intents.json",
        json.dumps({"intents": [{"tag": k, "patterns": [f"{w} a {k}", w], "responses": ["Yes"]} for k, w in INTENTS]}),
        "classification",
        "12 texts, 6 labels",
    ),
    "prices": (
        "a.csv",
        "Date,Price,Volume,Change\n" + "".join(PRICE.format(day, n) for n, day in enumerate(DAYS)),
        "forecasting",
        "3 series, 270 steps of 1 day",
    ),
    "units": ("a.csv", f"date,flow,level\n,m3/s,m\n{DAILY}", "forecasting", "a row of units below the header"),
    "text below a table": (
        "a.csv",
        f"date,flow,level\n{DAILY}\n\nSource: the river\n",
        "forecasting",
        "2 series, 180 steps of 1 day",
    ),
    "semicolons": (
        "a.txt",
        f"Date;Time;Power;Volt\n{hours(lambda hour: f'{hour.day}/{hour.month}/{hour:%Y;%H:%M:%S};{hour.day}.5;')}",
        "forecasting",
        "2 series, 400 steps of 1 hour",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_read_as_meant(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, content, task, description = FILES[name]
    path = tmp_path / file
    path.write_text(content)
    assert rank(str(path))[0].task == task
    assert main(["look", str(path)]) == 0
    output = capsys.readouterr().out
    assert description in output
    assert f"train on it: glassgate train {task} --data {path}" in output


@pytest.mark.parametrize("first", ["{:03}", "Chapter {}"])
def test_a_tab_does_not_suggest_translation(first: str, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    texts = ["it rained", "nobody came to the old house by the sea that day", "they left", "the long summer was over"]
    path.write_text("".join(f"{first.format(k)}\t{texts[k % 4]} {'again ' * (k % 7)}{k}\n" for k in range(40)))
    assert rank(str(path))[0].task == "language-model"
    sides = [(" ".join(["word"] * (k % 9 + 1)) + f" {k}", "\u5b57" * (k % 9 + 1) + str(k)) for k in range(40)]
    path.write_text("".join(f"{one}\t{other}\n" for one, other in sides), encoding="utf-8")
    assert rank(str(path))[0].task == "translation"


@pytest.mark.parametrize(("targets", "task"), [(["a", "b"], "classification"), (["1.5", "2.5"], "regression")])
def test_a_folder_of_tables_with_a_file_of_targets(
    targets: list[str], task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "series").mkdir()
    for k in range(12):
        rows = "".join(f"{t},2024-01-01 {t:02}:00,{k + t},{0.5 * t}\n" for t in range(10 + k))
        (tmp_path / "series" / f"s{k}.csv").write_text(f"step,time,x,y\n{rows}")
    labels = [targets[k % 2] if task == "classification" else f"{k}.5" for k in range(12)]
    (tmp_path / "targets.csv").write_text("file,target\n" + "".join(f"s{k},{labels[k]}\n" for k in range(12)))
    assert rank(str(tmp_path))[0].task == task
    assert main(["look", str(tmp_path), "--examples", "12"]) == 0
    output = capsys.readouterr().out
    assert f"{labels[3]}\t13 steps of 2 channels" in output
    assert f"train {task} --data {tmp_path}" in output
    (tmp_path / "series" / "s5.csv").unlink()
    assert main(["look", str(tmp_path)]) == 2
    assert "targets.csv:7: the file 's5' is not in the folder; add it, or remove the row" in capsys.readouterr().err


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("content", ["columns", "labels by text"])
def test_objects_of_json(content: str, indent: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts, labels = zip(*REVIEWS, strict=True)
    path = tmp_path / "a.json"
    columns = {"text": texts, "label": labels}
    path.write_text(json.dumps(columns if content == "columns" else dict(REVIEWS), indent=indent))
    assert main(["look", str(path)]) == 0
    output = capsys.readouterr().out
    assert "60 texts, 2 labels" in output
    assert f"train classification --data {path}" in output


def test_comments_before_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "logger.txt"
    rows = "".join(f"{k}|{1 + k // 24:02}.01.2024 {k % 24:02}:00|{k % 5},5\n" for k in range(120))
    path.write_text(f"# exported by a logger, version 3.1\n# unit: kWh\n\nid|time|load\n{rows}")
    assert main(["look", str(path)]) == 0
    output = capsys.readouterr().out
    assert "1 series, 120 steps of 1 hour; decimal commas" in output
    assert "01.01.2024 00:00 to 05.01.2024 23:00" in output
    named = tmp_path / "named.csv"  # a header that begins with the sign of comments
    named.write_text("#text,label\n" + "".join(f"{text},{label}\n" for text, label in REVIEWS))
    assert main(["look", str(named), "--text-column", "#text"]) == 0
    assert "60 texts, 2 labels" in capsys.readouterr().out


def test_excel_unicode_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f'"{text}\n and more"\t{label}\r\n' for text, label in REVIEWS)
    (tmp_path / "a.txt").write_bytes(f"text\tlabel\r\n{rows}".encode("utf-16"))
    assert main(["look", f"{tmp_path}/a.txt"]) == 0
    output = capsys.readouterr().out
    assert "texts in column 'text', labels in 'label', separated by tabs, encoding UTF-16; 60 texts" in output


GAP = [*VALUES[:50], "?", "?", *VALUES[50:]]


@pytest.mark.parametrize(
    ("file", "content", "question"),
    [
        ("a.txt", f"Date;Time;Power\n{hours('{:%d/%m/%Y;%H:%M:%S;}'.format, GAP)}", "--missing last"),
        ("a.csv", f"id,x,y,activity\n{lines(zip(VALUES, VALUES, strict=True), '1,{0},{1},sit')}", "fit none"),
    ],
)
def test_questions(file: str, content: str, question: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / file).write_text(content)
    assert main(["look", f"{tmp_path}/{file}"]) == 2
    assert question in capsys.readouterr().err


def test_rivals_are_both_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_text(series("{label},{values}"))
    assert main(["look", f"{tmp_path}/a.csv"]) == 0
    output = capsys.readouterr().out
    assert f"train on it: glassgate train classification --data {tmp_path}/a.csv" in output
    assert f"(21 columns of numbers without time stamps): glassgate train forecasting --data {tmp_path}/a.csv" in output
    both = "".join(f"1,{','.join(map(str, row))},2\n2,{','.join(map(str, row))},1\n" for row in SERIES)
    (tmp_path / "both.csv").write_text(both)
    assert main(["look", f"{tmp_path}/both.csv", "--task=classification"]) == 2
    assert "either can hold labels; choose --label-column 1, or --label-column 22" in capsys.readouterr().err
    assert main(["look", f"{tmp_path}/both.csv", "--task=classification", "--label-column=22"]) == 0


def test_whole_texts_are_no_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_text(f"text,label\n{lines(REVIEWS, '{0},{1}')}")
    assert main(["look", f"{tmp_path}/a.csv", "--task=tagging"]) == 2
    assert "expected a word per row, got texts of several words in column 'text'" in capsys.readouterr().err


def test_the_horizon_fits_the_series(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{1949 + n // 12}-{n % 12 + 1:02d},{VALUES[n]}\n" for n in range(144))
    (tmp_path / "a.csv").write_text(f"Month,Passengers\n{rows}")
    assert main(["look", f"{tmp_path}/a.csv"]) == 0
    assert capsys.readouterr().out.endswith(f"glassgate train forecasting --data {tmp_path}/a.csv --horizon 18\n")
