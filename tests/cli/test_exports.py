"""Exports of annotation tools, sensors, statistics offices and spreadsheets: read right, or questioned."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from glassgate.cli import main
from glassgate.tasks.data.annotations import reject_unread_format

STEPS = range(120)
VALUES = [20 + step % 7 + step % 5 / 4 for step in STEPS]
HOURS = [datetime(2024, 3, 1) + timedelta(hours=step) for step in STEPS]
DAYS = [datetime(2024, 1, 1) + timedelta(days=step) for step in STEPS]
EPOCH = 1709251200  # 2024-03-01 in seconds
SENTENCE, SPANS = "Anna Smith lives in New York", [(0, 10, "PER"), (20, 28, "LOC")]
WORDS = [f"the film {k} was {word}" for k, word in enumerate(["good", "bad"] * 20)]


def rows(form: str, *columns: object) -> str:
    return "".join(form.format(*row) + "\n" for row in zip(*columns, strict=True))  # type: ignore[call-overload]


def lines(objects: object) -> str:
    return "".join(f"{json.dumps(each)}\n" for each in objects)  # type: ignore[attr-defined]


REGIONS = [{"start": start, "end": end, "labels": [label]} for start, end, label in SPANS]
LABEL_STUDIO = [{"id": 1, "data": {"text": SENTENCE}, "annotations": [{"result": [{"value": r} for r in REGIONS]}]}] * 9
CHOICES = [
    {"id": k, "data": {"text": text}, "annotations": [{"result": [{"value": {"choices": [text.split()[-1]]}}]}]}
    for k, text in enumerate(WORDS)
]
PRODIGY = [
    {
        "text": SENTENCE,
        "_task_hash": k,
        "tokens": [{"text": "Anna", "start": 0, "end": 4, "id": 0}],
        "spans": [{"start": start, "end": end, "token_start": 0, "label": label} for start, end, label in SPANS],
        "answer": "reject" if k == 5 else "accept",
    }
    for k in range(9)
]
CHOSEN = [{"text": text, "accept": [text.split()[-1]], "_task_hash": 1, "answer": "accept"} for text in WORDS]
PENN = "======\n\n[ The/DT dog/NN ]\nran/VBD \n./. \n\n"
NOAA = '"STATION","NAME","DATE","TMAX","TMIN"\n'

READ: dict[str, tuple[str, str, str, str]] = {  # the name, the content, the task, and a part of the output
    "Label Studio": ("a.json", json.dumps(LABEL_STUDIO), "tagging", "9 sentences, 18 entities"),
    "Label Studio, short": (
        "a.json",
        json.dumps([{"id": 1, "text": SENTENCE, "label": REGIONS}] * 9),
        "tagging",
        "9 sentences, 18 entities",
    ),
    "choices of Label Studio": ("a.json", json.dumps(CHOICES), "classification", "40 texts, 2 labels"),
    "Prodigy": (
        "a.jsonl",
        lines(PRODIGY),
        "tagging",
        "8 sentences, 16 entities, 5 labels; 1 rejected or skipped row dropped",
    ),
    "choices of Prodigy": ("a.jsonl", lines(CHOSEN), "classification", "40 texts, 2 labels\n"),
    "rejected choices of Prodigy": (
        "a.jsonl",
        lines(CHOSEN + [{**each, "answer": "ignore"} for each in CHOSEN[:3]]),
        "classification",
        "40 texts, 2 labels; 3 rejected or skipped rows dropped",
    ),
    "spaCy": ("a.json", json.dumps([[SENTENCE, {"entities": SPANS}]] * 9), "tagging", "9 sentences, 18 entities"),
    "Grafana": (
        "a.csv",
        'sep=;\n"Time";"cpu"\n' + rows("{:%Y-%m-%dT%H:%M:%S.000Z};{}", HOURS, VALUES),
        "forecasting",
        "1 series, 120 steps of 1 hour",
    ),
    "Grafana with units": (
        "a.csv",
        '"Time","cpu","memory"\n' + rows("{:%Y-%m-%d %H:%M:%S},{} %,{} GiB", HOURS, VALUES, VALUES),
        "forecasting",
        "2 series, 240 steps of 1 hour",
    ),
    "NASDAQ": (
        "a.csv",
        "Date,Close/Last,Volume\n" + rows("{:%m/%d/%Y},${},{}", DAYS[::-1], VALUES, STEPS),
        "forecasting",
        "2 series, 240 steps of 1 day",
    ),
    "numbers like times of day": (
        "a.csv",
        "Date,Close\n" + "".join(f"{day:%Y-%m-%d},{10 + k % 7}.{k % 2 * 5}0\n" for k, day in enumerate(DAYS)),
        "forecasting",
        "1 series, 120 steps of 1 day",
    ),
    "two rows of names": (
        "a.csv",
        "Price,Close,Close\nTicker,AAPL,MSFT\nDate,,\n" + rows("{:%Y-%m-%d},{},{}", DAYS, VALUES, STEPS),
        "forecasting",
        "2 rows of names below the header",
    ),
    "Eurostat": (
        "a.tsv",
        "freq,geo\\TIME_PERIOD\t"
        + "\t".join(f"{2012 + k // 12}-{k % 12 + 1:02} " for k in range(48))
        + "".join(f"\nM,{place}\t" + "\t".join(f"{value} p" for value in VALUES[:48]) for place in ("DE", "FR")),
        "forecasting",
        "2 series, 96 steps of 1 month, a series in each row",
    ),
    "M5": (
        "a.csv",
        "id,item_id,cat_id,"
        + ",".join(f"d_{k + 1}" for k in STEPS)
        + "".join(f"\nFOODS_{n}_CA,FOODS_{n},FOODS," + ",".join(f"{k * n % 5}" for k in STEPS) for n in (2, 3, 4)),
        "forecasting",
        "3 series, 360 steps of 1 step, a series in each row",
    ),
    "Open-Meteo": (
        "a.json",
        json.dumps({"latitude": 52.5, "hourly": {"time": [f"{t:%Y-%m-%dT%H:%M}" for t in HOURS], "rain": VALUES}}),
        "forecasting",
        "1 series, 120 steps of 1 hour",
    ),
    "seconds without a name": (
        "a.txt",
        "".join(f"{k * 0.02:.2f}\t{VALUES[k]}\t{VALUES[-k]}\n" for k in STEPS),
        "forecasting",
        "2 series, 240 steps of 1 step, no header, columns named by number, without '1', which counts steps or times",
    ),
    "lakhs": (
        "a.csv",
        "Month,Sales\n" + "".join(f'{2000 + k // 12}-{k % 12 + 1:02},"{k % 9 + 1},{k % 80 + 10},500"\n' for k in STEPS),
        "forecasting",
        "110500 211500 312500",
    ),
    "codes of currencies": (
        "a.csv",
        "Datum;Umsatz\n" + "".join(f"{day:%d.%m.%Y};CHF 1'{100 + k % 50}.50\n" for k, day in enumerate(DAYS)),
        "forecasting",
        "1100.5 1101.5 1102.5",
    ),
    "yen": (
        "a.csv",
        "日付,売上高\n" + "".join(f'{day.year}年{day.month}月{day.day}日,"1,234,{100 + day.day}円"\n' for day in DAYS),
        "forecasting",
        "1 series, 120 steps of 1 day",
    ),
    "INCEpTION": ("a.conll", "Anna _ _ B-PER\nsings _ _ O\n\n" * 20, "tagging", "labels in 4 (IOB2)"),
    "tabs and blanks": (
        "a.txt",
        "Anna\t B-PER\nsings \tO\n\n" * 20,
        "tagging",
        "labels in 2 (IOB2); 20 sentences, 20 entities, 2 labels",
    ),
    "Brown": (
        "a.txt",
        "\n\tThe/at Fulton/np-tl Jury/nn-tl said/vbd ./.\n" * 20,
        "tagging",
        "format lines; 20 sentences",
    ),
    "DeepL": (
        "a.csv",
        "Source language,Target language,Source,Target\n" + "".join(f"EN,DE,{text},der {text}\n" for text in WORDS),
        "translation",
        f"{WORDS[0]}\tder {WORDS[0]}",
    ),
    "UTF-16 of a survey": (
        "a.csv",
        "Zeit;Zufrieden?;Kommentar\n" + rows("10:{:02};{};{}", range(40), ["ja", "nein"] * 20, WORDS),
        "classification",
        "texts in column 'Kommentar', labels in 'Zufrieden?', separated by semicolons, encoding UTF-16",
    ),
}

ASKED: dict[str, tuple[str, str, str]] = {  # the name, the content, and a part of the message
    "WebAnno": (
        "a.tsv",
        "#FORMAT=WebAnno TSV 3.3\n\n\n#Text=Anna\n1-1\t0-4\tAnna\tPER\t\n",
        "expected text or a table, got WebAnno TSV, which",
    ),
    "brat": ("a.ann", "T1\tPER 0 4\tAnna\nT2\tLOC 14 18;20 22\tRome\n", "got annotations of brat without their text"),
    "NEGRA": ("a.export", "#BOS 1 2 1 0\nDer\tART\tNom\tNK\t500\n#500\tNP\t--\tSB\t0\n#EOS 1\n" * 9, "NEGRA and TIGER"),
    "vertical text": (
        "a.vert",
        '<doc id="1">\n<s>\nThe\tDT\tthe\ndog\tNN\tdog\n</s>\n</doc>\n',
        "a corpus with XML tags",
    ),
    "chunks": ("a.pos", PENN * 20, "got chunks of the Penn Treebank"),
    "trees": ("a.mrg", "( (S (NP-SBJ (DT The) (NN dog)) (VP (VBD ran))) )\n" * 20, "got trees of the Penn Treebank"),
    "LabVIEW": ("a.lvm", "LabVIEW Measurement\t\nSeparator\tTab\n***End_of_Header***\nX\tVolt\n0\t1.5\n", "a LabVIEW"),
    "weather": (
        "a.csv",
        NOAA + rows('"USW1","NEW YORK, NY US","{:%Y-%m-%d}","{}","{}"', DAYS, VALUES, STEPS),
        "column 'STATION': expected a number, got 'USW1'; correct it, or name the columns of numbers",
    ),
    "weather with rain": (
        "a.csv",
        NOAA.replace("TMAX", "PRCP") + rows('"USW1","NEW YORK, NY US","{:%Y-%m-%d}","0.00","{}"', DAYS, STEPS),
        "column 'STATION': expected a number, got 'USW1'; correct it, or name the columns of numbers",
    ),
    "a table of Label Studio": (
        "a.csv",
        "id,label,text\n" + rows('{},"{}",Anna sings {}', STEPS, [json.dumps(REGIONS).replace('"', '""')] * 120, STEPS),
        "a.csv:1: expected labels, got spans in JSON in column 'label', as Label Studio writes them; export the data",
    ),
    "Prometheus": (
        "a.json",
        json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [{"values": [[EPOCH, "1.5"]]}]}}),
        "expected rows of JSON, got an answer of Prometheus, which is not read; write a CSV file with a header",
    ),
    "Binance": (
        "a.json",
        json.dumps([[EPOCH + 3600 * k, f"{value}", "1.5", k] for k, value in enumerate(VALUES)]),
        "expected rows of JSON with keys, got lists of a time and numbers as strings, as Binance writes them; write",
    ),
    "InfluxDB": (
        "a.csv",
        "#datatype,string,long,dateTime:RFC3339,double,string\n#default,_result,,,,\n,result,table,_time,_value,_field\n"
        + rows(",,0,{:%Y-%m-%dT%H:%M:%SZ},{},temp", HOURS, VALUES),
        "column '_field': expected a number, got 'temp'",
    ),
}


@pytest.mark.parametrize("name", READ)
def test_read(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, content, task, said = READ[name]
    (tmp_path / file).write_bytes(content.encode("utf-16" if "UTF-16" in name else "utf-8"))
    assert main(["look", f"{tmp_path}/{file}"]) == 0
    output = capsys.readouterr().out
    assert f"train on it: glassgate train {task} --data {tmp_path}/{file}" in output
    assert said in output


@pytest.mark.parametrize("name", ASKED)
def test_asked(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, content, said = ASKED[name]
    (tmp_path / file).write_text(content)
    assert main(["look", f"{tmp_path}/{file}"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "line", ["<s> the dog </s>", "<p>", "A12\tmodel 5\t3", "((a b) c)", "[ and/or ] a dog", "T1\tthe dog 4 ran\tx y z"]
)
def test_similar_lines_are_not_mistaken_for_a_format(line: str) -> None:
    reject_unread_format("a.txt", [line, "the dog ran home", line])


def test_a_question_about_a_likelier_task_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reviews = [
        {"user": f"u{k % 7}", "stars": k % 5 + 1.0, "useful": k % 3, "text": each} for k, each in enumerate(WORDS)
    ]
    (tmp_path / "a.json").write_text(lines(reviews))
    assert main(["look", f"{tmp_path}/a.json"]) == 0
    output = capsys.readouterr().out
    assert "not read as data for classification" in output
    assert "the labels can be in column 'user' or 'stars' or 'useful'; choose one with --label-column" in output
