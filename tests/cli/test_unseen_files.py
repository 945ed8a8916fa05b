"""Files in the forms of public data sets and of exports: each is read right, or one question names the option."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from glassgate.cli import main
from glassgate.cli.readings import rank
from glassgate.tasks import task_class
from glassgate.tasks.data.reading import Reading
from tests.cli.unseen_series import (
    DATES,
    DAYS,
    FORECASTING,
    NUMBERS,
    OTHERS,
    PAIRS,
    ROWS_OF_SERIES,
    SERIES,
    TEXTS,
    VALUES,
    Case,
    comma,
    table,
    timed,
)

LABELS: dict[str, Case] = {
    "an index without a name or a header": ("a.csv", table([[k, *row] for k, row in enumerate(TEXTS)]), TEXTS),
    "foreign names": ("a.csv", table(TEXTS, "Kommentar Bewertung"), TEXTS),
    "three foreign names": ("a.csv", table([[k, *row] for k, row in enumerate(TEXTS)], "Nr Kommentar Urteil"), TEXTS),
    "SMS": ("SMSSpam", "".join(f"{label}\t{text}\n" for text, label in TEXTS), TEXTS),
    "empty last columns": ("spam.csv", "v1,v2,,\n" + "".join(f"{label},{text},,\n" for text, label in TEXTS), TEXTS),
    "identifiers first": (
        "a.tsv",
        "id\treview\tstars\n" + "".join(f"{k}\t{t}\t{la}\n" for k, (t, la) in enumerate(TEXTS)),
        TEXTS,
    ),
    "identifiers first, no header": (
        "a.tsv",
        "".join(f"{10**9 + k}\t{la}\t{t}\n" for k, (t, la) in enumerate(TEXTS)),
        TEXTS,
    ),
    "a title above the header": ("a.csv", "Export of March\n\n" + table(TEXTS, "text label"), TEXTS),
    "blanks before quotes": (
        "a.csv",
        "text, label\n" + "".join(f'"{text}", "{label}"\n' for text, label in TEXTS),
        TEXTS,
    ),
    "lists of one label": ("a.csv", table([[text, f"['{label}']"] for text, label in TEXTS], "text labels"), TEXTS),
    "Markdown": (
        "a.txt",
        "| text | label |\n|---|---|\n" + "".join(f"| {text} | {label} |\n" for text, label in TEXTS),
        TEXTS,
    ),
    "usual texts, unusual labels": (
        "a.jsonl",
        "".join(
            f"{json.dumps({'link': f'http://x/{k}', 'headline': t, 'is_odd': la})}\n" for k, (t, la) in enumerate(TEXTS)
        ),
        TEXTS,
    ),
    "unusual keys": (
        "a.json",
        "".join(f"{json.dumps({'asin': 'B', 'reviewText': t, 'helpful': [0, 0], 'overall': la})}\n" for t, la in TEXTS),
        TEXTS,
    ),
}

CHINESE = [
    (f"\u8fd9\u90e8\u7535\u5f71\u7b2c{k}\u6b21\u770b\u8fd8\u662f\u5f88\u597d\u770b", "ab"[k % 3 == 0])
    for k in range(60)
]
LABELS |= {
    "the names of rows in R": ("a.csv", table([[k, *row] for k, row in enumerate(TEXTS)], '"" text label'), TEXTS),
    "no name for the names of rows": (
        "a.tsv",
        "text\tlabel\n" + "".join(f"{k}\t{text}\t{label}\n" for k, (text, label) in enumerate(TEXTS)),
        TEXTS,
    ),
    "quotes, and no name for the names of rows": (
        "a.tsv",
        '"text"\t"label"\n' + "".join(f'"{k}"\t"{text}"\t"{label}"\n' for k, (text, label) in enumerate(TEXTS)),
        TEXTS,
    ),
    "nested objects": (
        "a.jsonl",
        "".join(f"{json.dumps({'id': k, 'data': {'text': t, 'label': la}})}\n" for k, (t, la) in enumerate(TEXTS)),
        TEXTS,
    ),
    "nested objects, unusual keys": (
        "a.jsonl",
        "".join(f"{json.dumps({'id': k, 'a': {'b': t}, 'c': {'d': la}})}\n" for k, (t, la) in enumerate(TEXTS)),
        TEXTS,
    ),
    "labels of single words": (
        "a.json",
        json.dumps({"a": [f"x{k}" for k in range(5)], "b": ["y", "z"]}),
        [*((f"x{k}", "a") for k in range(5)), ("y", "b"), ("z", "b")],
    ),
    "single words with labels": (
        "a.json",
        json.dumps({f"x{k}": "ab"[k % 2] for k in range(8)}),
        [(f"x{k}", "ab"[k % 2]) for k in range(8)],
    ),
    "Chinese without a header": ("a.tsv", "".join(f"{label}\t{text}\n" for text, label in CHINESE), CHINESE),
    "Chinese with 0 and 1": (
        "a.csv",
        table([[text, int(label == "b")] for text, label in CHINESE], "\u6587\u672c \u6807\u7b7e"),
        [(text, str(int(label == "b"))) for text, label in CHINESE],
    ),
    "mixed line ends": (
        "a.csv",
        "text,label\r\n" + "".join(f"{t},{la}" + ["\r\n", "\n", "\n\n"][k % 3] for k, (t, la) in enumerate(TEXTS)),
        TEXTS,
    ),
}

SENTENCES = [(f"Anna{k} met Bob.", [(0, len(f"Anna{k}"), "PER"), (len(f"Anna{k} met "), -1, "PER")]) for k in range(30)]
SPANS: dict[str, Case] = {
    "spans of doccano": (
        "a.jsonl",
        "".join(
            json.dumps({"id": k, "text": t, "label": [[a, b % len(t), c] for a, b, c in spans]}) + "\n"
            for k, (t, spans) in enumerate(SENTENCES)
        ),
        [([*t.removesuffix(".").split(), "."], ["B-PER", "O", "B-PER", "O"]) for t, _ in SENTENCES],
    ),
    "spans with keys": (
        "a.json",
        json.dumps(
            [
                {"text": t, "entities": [{"start": a, "end": b % len(t), "label": c} for a, b, c in spans]}
                for t, spans in SENTENCES
            ]
        ),
        [([*t.removesuffix(".").split(), "."], ["B-PER", "O", "B-PER", "O"]) for t, _ in SENTENCES],
    ),
}

TARGETS: dict[str, Case] = {
    "scores": ("a.csv", table(NUMBERS, "text score"), NUMBERS),
    "unusual names": (
        "a.csv",
        table([[f"m{k}", *row[::-1]] for k, row in enumerate(NUMBERS)], "id solubility note"),
        NUMBERS,
    ),
    "numbers first, no header": ("a.tsv", "".join(f"{number}\t{text}\n" for text, number in NUMBERS), NUMBERS),
    "JSON lines": ("a.jsonl", "".join(f"{json.dumps({'text': t, 'score': float(n)})}\n" for t, n in NUMBERS), NUMBERS),
    "thousands": (
        "a.csv",
        table([[t, f"{float(n) + 1000:,.3f}"] for t, n in NUMBERS], "text price"),
        [(t, float(n) + 1000) for t, n in NUMBERS],
    ),
}

TARGETS["euros"] = (
    "a.csv",
    table(
        [[t, f"{float(n) + 1000:,.3f} \u20ac".translate(str.maketrans(",.", ".,"))] for t, n in NUMBERS],
        "b p",
        delimiter=";",
    ),
    [(t, float(n) + 1000) for t, n in NUMBERS],
)

TRANSLATION: dict[str, Case] = {
    "a header": ("a.tsv", "english\tgerman\n" + "".join(f"{a}\t{b}\n" for a, b in PAIRS), PAIRS),
    "a header of words": ("a.csv", "English sentences,German sentences\n" + table(PAIRS), PAIRS),
    "an index": ("a.csv", table([[k, *row] for k, row in enumerate(PAIRS)]).join([",en,de\n", ""]), PAIRS),
    "numbers first": ("a.tsv", "".join(f"{k}\t{a}\t{b}\n" for k, (a, b) in enumerate(PAIRS)), PAIRS),
    "addresses first": ("a.tsv", "".join(f"http://x{k}.de\t{a}\t{b}\n" for k, (a, b) in enumerate(PAIRS)), PAIRS),
    "quotes": ("a.tsv", "".join(f'"{a}"\t"{b}"\n' for a, b in PAIRS), PAIRS),
    "questions and answers": (
        "a.jsonl",
        "".join(f"{json.dumps({'question': a, 'answer': b})}\n" for a, b in PAIRS),
        PAIRS,
    ),
    "lists of pairs": ("a.json", json.dumps(PAIRS), PAIRS),
    "three bars": ("a.txt", "".join(f"{a} ||| {b}\n" for a, b in PAIRS), PAIRS),
    "a number and foreign names": (
        "a.csv",
        table([[k, *row] for k, row in enumerate(PAIRS)], "Nr Englisch Deutsch"),
        PAIRS,
    ),
}
PROSE = [f"it rained, and {text}." for text, _ in TEXTS]
WRITTEN: dict[str, Case] = {
    "a column of texts": ("a.csv", table([[text] for text in PROSE], "text"), "".join(f"{text}\n" for text in PROSE)),
    "a list of texts": ("a.json", json.dumps(PROSE), "".join(f"{text}\n" for text in PROSE)),
    "one text per row": ("a.csv", table([[text] for text in PROSE]), "".join(f"{text}\n" for text in PROSE)),
}


def seen(example: Any) -> Any:
    """The content of an example in the form of the expected values."""
    if hasattr(example, "frequency"):
        start = example.times(0, 1)[0]
        return (
            str(start)[:19] if example.frequency.has_dates else int(start),
            str(example.frequency),
            example.values[:].tolist(),
        )
    if hasattr(example, "labels"):
        return [*example.tokens], [*example.labels]
    if hasattr(example, "target"):
        return example.source, example.target
    if hasattr(example, "content"):
        content = example.content
        is_series = isinstance(content, np.ndarray)
        return np.round(content.astype(float), 3).ravel().tolist() if is_series else " ".join(content), example.label
    return "".join(example.tokens)


CASES = [
    pytest.param(task, *case, id=f"{task}: {name}")
    for task, cases in {
        "forecasting": FORECASTING,
        "classification": LABELS | ROWS_OF_SERIES,
        "tagging": SPANS,
        "regression": TARGETS,
        "translation": TRANSLATION,
        "language-model": WRITTEN,
    }.items()
    for name, case in cases.items()
]


@pytest.mark.parametrize(("task", "file", "content", "expected"), CASES)
def test_read_right(task: str, file: str, content: str, expected: Any, tmp_path: Path) -> None:
    path = tmp_path / file
    path.write_text(content, encoding="utf-8")
    assert rank(str(path))[0].task == task
    kind = task_class(task)
    reader = kind(kind.options_type.from_mapping({"data": str(path)}))
    reader.follow(reader.examine(path))
    found = [seen(example) for example in reader.read(path)]
    if task == "forecasting":
        for (start, unit, values), (first, length, numbers) in zip(
            sorted(found, key=repr), sorted(expected, key=repr), strict=True
        ):
            assert (start, unit) == (first, length)
            assert values == pytest.approx(numbers)
    elif task == "regression":
        assert [text for text, _ in found] == [text for text, _ in expected]
        assert [float(label.replace(",", "").removesuffix(" \u20ac")) for _, label in found] == pytest.approx(
            [float(n) for _, n in expected]
        )
    else:
        assert found == ([expected] if isinstance(expected, str) else [(content, label) for content, label in expected])


QUESTIONS: dict[str, tuple[str, str, str]] = {
    "a step per row, with the labels of the series": (
        "a.csv",
        table([[f"p{k}", t, v, label] for k, (vs, label) in enumerate(SERIES) for t, v in enumerate(vs)], "who t x y"),
        "numbers with a label in each row are neither forecasting nor a labelled series",
    ),
    "several texts": (
        "a.csv",
        table([["ab"[k % 2], t, f"more of {t}"] for k, (t, _) in enumerate(TEXTS)]),
        "the texts can be in column '2' or '3', such as ",
    ),
    "several labels": (
        "a.csv",
        table([[t, la, "cd"[k % 3 == 0]] for k, (t, la) in enumerate(TEXTS)], "note x y"),
        "the labels can be in column 'x' or 'y'; choose one with --label-column",
    ),
    "several labels in a list": (
        "a.jsonl",
        "".join(f"{json.dumps({'text': t, 'labels': [la, 'c']})}\n" for t, la in TEXTS),
        "expected one label under 'labels', got ['b', 'c']",
    ),
    "two nested texts": (
        "a.jsonl",
        "".join(f"{json.dumps({'one': {'text': a, 'n': 1}, 'two': {'text': b, 'n': 2}})}\n" for a, b in PAIRS),
        "the texts can be in column 'one.text' or 'two.text'; choose one with --text-column",
    ),
    "dashes": (
        "a.csv",
        timed(DAYS, "%F", ["-" if k == 5 else v for k, v in enumerate(VALUES)]),
        "a.csv:7: column 'v' lacks a value; fill it in, or repeat the previous value with --missing last",
    ),
    "commas in texts": (
        "a.csv",
        "label,text\n" + "".join(f"{la},{t}, and{',' * (k % 3)}\n" for k, (t, la) in enumerate(TEXTS)),
        "expected 2 columns, as in the first line, got 3",
    ),
    "decimal commas or two columns": (
        "a.txt",
        "".join(f"{v}\n" for v in comma(VALUES)),
        "100,0 can be one number or two; choose --decimal , for one number, --decimal . for two",
    ),
    "series without a name": (
        "a.csv",
        table([[d, town, v] for town in (1, 2) for d, v in zip(DATES, VALUES, strict=True)], "date town v"),
        "pass the column that identifies the series with --series",
    ),
    "months in another language": (
        "a.csv",
        table([[f"Januar {1900 + k}", v] for k, v in enumerate(VALUES)], "Monat v"),
        "name the columns of numbers to forecast with --target",
    ),
    "one name twice": (
        "a.csv",
        timed(DAYS, "%F", VALUES, OTHERS, header="date v v"),
        "expected columns with different names, got 'v' twice",
    ),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, content, question = QUESTIONS[name]
    (tmp_path / file).write_text(content)
    assert main(["look", f"{tmp_path}/{file}"]) == 2
    assert question in capsys.readouterr().err


def test_decimal_commas_without_a_header(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{value}\n" for value in comma(VALUES)))
    assert main(["look", f"{tmp_path}/a.txt", "--task=forecasting", "--decimal=,"]) == 0
    assert "1 series, 150 steps of 1 step, no header" in capsys.readouterr().out
    assert main(["look", f"{tmp_path}/a.txt", "--task=forecasting", "--decimal=."]) == 0
    assert "2 series, 300 steps of 1 step" in capsys.readouterr().out


WORKBOOKS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "texts below a title": (
        "classification",
        lambda path: pd.DataFrame([["Export", None], ["text", "label"], *TEXTS]).to_excel(
            path, header=False, index=False
        ),
    ),
    "pairs": ("translation", lambda path: pd.DataFrame(PAIRS, columns=["en", "de"]).to_excel(path, index=False)),
    "numbers": (
        "regression",
        lambda path: pd.DataFrame(NUMBERS, columns=["text", "score"]).to_excel(path, index=False),
    ),
}


@pytest.mark.parametrize("name", WORKBOOKS)
def test_workbooks(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task, write = WORKBOOKS[name]
    write(tmp_path / "a.xlsx")
    assert main(["look", f"{tmp_path}/a.xlsx"]) == 0
    output = capsys.readouterr().out
    assert f"train on it: glassgate train {task} --data {tmp_path}/a.xlsx" in output
    assert "60 " in output


def test_pairs_in_parquet(tmp_path: Path) -> None:
    pd.DataFrame(PAIRS, columns=["en", "de"]).to_parquet(tmp_path / "a.parquet")
    assert rank(f"{tmp_path}/a.parquet")[0].task == "translation"
    reader = task_class("translation")
    examples = reader(reader.options_type()).read(tmp_path / "a.parquet")
    assert [(each.source, each.target) for each in examples] == PAIRS


def test_a_translation_reads_later_files_with_its_columns(tmp_path: Path) -> None:
    """The run stores the names of the columns, which a later file may have in another order, or without targets."""
    (tmp_path / "train.csv").write_text(table([[k, *row] for k, row in enumerate(PAIRS)], "Nr Englisch Deutsch"))
    (tmp_path / "later.csv").write_text(table([[*row[::-1], "x y"] for row in PAIRS], "Deutsch Englisch Notiz"))
    translation = task_class("translation")
    reader = translation(translation.options_type.from_mapping({"data": f"{tmp_path}/train.csv"}))
    reader.follow(reader.examine(tmp_path / "train.csv"))
    assert reader.reading == Reading.of(source_column="Englisch", target_column="Deutsch")
    later = [reader.read(tmp_path / "later.csv", labelled) for labelled in (True, False)]
    assert [(each.source, each.target) for each in later[0]] == PAIRS
    assert [(each.source, each.target) for each in later[1]] == [(source, None) for source, _ in PAIRS]


def test_a_run_reads_later_files_with_its_columns(tmp_path: Path) -> None:
    kind = task_class("classification")
    (tmp_path / "train.csv").write_text(table([[k, *row] for k, row in enumerate(TEXTS)], "Nr Kommentar Urteil"))
    later = [[text, f"a longer remark on {text}"] for text, _ in TEXTS]
    (tmp_path / "later.csv").write_text(table(later, "Kommentar Bemerkung"))
    reader = kind(kind.options_type.from_mapping({"data": f"{tmp_path}/train.csv"}))
    reader.follow(reader.examine(tmp_path / "train.csv"))
    assert reader.reading == Reading.of(text_column="Kommentar", label_column="Urteil")
    assert reader.examine(tmp_path / "train.csv") == reader.reading  # also when a resumed run examines the file again
    assert [" ".join(each.content) for each in reader.read(tmp_path / "later.csv", labelled=False)] == [
        t for t, _ in TEXTS
    ]
