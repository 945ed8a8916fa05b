"""In predictions as JSON, offsets select the text of a token, and probabilities are those of the network."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from glassgate.cli import main
from glassgate.tasks import TASKS, task_class
from glassgate.tasks.classification.task import Answer
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.tagging import Tagging, TaggingOptions
from glassgate.tasks.task import Split
from tests.tasks.test_every_task import SPLITS

TINY = {"hidden_size": 4, "embedding_size": 4, "epochs": 1, "threads": 1}


def located(record: Any) -> list[dict[str, Any]]:
    """Yield every object with offsets in a record."""
    if isinstance(record, list):
        return [each_located for each in record for each_located in located(each)]
    if not isinstance(record, dict):
        return []
    own = [record] if "start" in record else []
    return own + [each_located for each in record.values() for each_located in located(each)]


@pytest.mark.parametrize("name", TASKS)
def test_a_record_of_each_task(name: str) -> None:
    kind = task_class(name)
    task = kind(kind.options_type.from_mapping(TINY))
    task.fit(SPLITS[name])
    examples = list(SPLITS[name].train)[:2]
    for example, prediction in zip(examples, task.predict(examples), strict=True):
        record = json.loads(json.dumps(task.record(example, prediction)))
        for each in located(record):
            assert record["text"][each["start"] : each["end"]] == each["text"]
    keys = {
        "tagging": {"text", "tokens", "spans"},
        "classification": {"text", "label", "probability", "probabilities", "tokens"},
        "language-model": {"text", "tokens"},
        "fill-blanks": {"text", "tokens"},
        "translation": {"text", "translations"},
        "forecasting": {"series", "steps"},
        "regression": {"text", "prediction"},
    }
    assert record.keys() == keys[name]
    if name == "classification":
        assert sum(record["probabilities"].values()) == pytest.approx(1)
        assert record["probability"] == max(record["probabilities"].values())
    if name == "translation":
        assert all(0 < each["probability"] < 1 for each in record["translations"])
    if name == "fill-blanks":
        line = "salt ___ pepper"
        filled = task.record(line, task.predict([line])[0])
        (blank,) = filled["blanks"]
        assert filled["text"][blank["start"] : blank["end"]] == blank["candidates"][0]["text"]


@pytest.mark.parametrize("tokens", ["word", "token", "character", "byte"])
@pytest.mark.parametrize("name", ["classification", "regression"])
def test_records_have_the_text_and_the_offsets_of_the_user(
    name: str, tokens: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = task_class(name)
    task = kind(kind.options_type.from_mapping(TINY | {"tokens": tokens}))
    label = "good" if name == "classification" else "1.5"
    task.vocabularies = task.collect([Labelled("a caf\u00e9, fine", label), Labelled("foul", label + "0")] * 2)
    line = "  The\tcaf\u00e9,  was (fine)! \U0001f600 "
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{line}\n".encode())))
    (example,) = task.read("-", labelled=False)
    answer = Answer("good", {"good": 1.0}, None) if name == "classification" else [1.5]
    record = json.loads(json.dumps(task.record(example, answer)))
    assert record["text"] == line
    raw = line.encode().decode("latin-1") if tokens == "byte" else line
    assert all(raw[each["start"] : each["end"]] == each["text"] for each in located(record))
    assert len(located(record)) == (len(example.content) if name == "classification" else 0)


@pytest.mark.parametrize("head", ["softmax", "crf"])
def test_spans_and_probabilities_of_raw_text(
    head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train = [Tagged(["go", "to", "New", "York", "."], ["O", "O", "B-LOC", "I-LOC", "O"], intent="travel")]
    train += [Tagged(["stop", "."], ["O", "O"], intent="end")]
    options = TINY | {"hidden_size": 8, "epochs": 30, "learning_rate": 0.1, "head": head, "singleton_dropout": 0.0}
    tagging = Tagging(TaggingOptions.from_mapping(options | {"batch_size": 4, "character_size": 0}))
    tagging.fit(Split(train * 4), run=tmp_path / "run")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b" go  to New York.\n")))
    assert main(["predict", str(tmp_path / "run"), "-", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["text"] == " go  to New York."
    assert [(each["text"], each["label"]) for each in record["spans"]] == [("New York", "LOC")]
    (span,) = record["spans"]
    assert (span["start"], span["end"], record["intent"]) == (8, 16, "travel")
    inside = [each["probability"] for each in record["tokens"] if each["label"] != "O"]
    assert span["probability"] == pytest.approx(sum(inside) / 2)
    assert 0.5 < min(inside) <= max(inside) <= 1 + 1e-6
    assert 0.5 < record["intent_probability"] <= 1


def test_attention_weights_are_those_of_the_tokens() -> None:
    kind = task_class("classification")
    task = kind(kind.options_type.from_mapping(TINY | {"pooling": "attention"}))
    task.fit(SPLITS["classification"])
    example = Labelled("good day")
    (answer,) = task.predict([example])
    assert [each["weight"] for each in task.record(example, answer)["tokens"]] == answer.attention
