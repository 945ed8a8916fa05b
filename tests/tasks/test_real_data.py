"""Short runs on real data, in the folder that GLASSGATE_DATA names: each task reaches a minimum score."""

import os
from pathlib import Path

import pytest

from glassgate.tasks.classification import Classification, ClassificationOptions
from glassgate.tasks.data.batching import padding_fraction
from glassgate.tasks.data.formats import detect_format
from glassgate.tasks.data.tagged import read_columns, read_text
from glassgate.tasks.data.texts import Text
from glassgate.tasks.fill_blanks import FillBlanks, FillBlanksOptions
from glassgate.tasks.forecasting.task import Forecasting, ForecastingOptions
from glassgate.tasks.language_model import LanguageModel, LanguageModelOptions
from glassgate.tasks.tagging import Tagging, TaggingOptions
from glassgate.tasks.task import Split

_FOLDER = os.environ.get("GLASSGATE_DATA")
pytestmark = pytest.mark.skipif(not _FOLDER, reason="GLASSGATE_DATA names no folder of real data")

ROOT = Path(_FOLDER or ".")


@pytest.mark.parametrize("file", ["ud_english_ewt_pos/train.tsv", "snips_slu/train"])
def test_little_of_a_batch_is_padding(file: str) -> None:
    """With the default options, a batch contains sentences of similar length."""
    path = ROOT / file
    _, layout = detect_format(path)
    words = read_text(path / "seq.in", labelled=False) if layout is None else read_columns(path, layout)
    batches = Tagging(TaggingOptions(batch_size=32)).batching().training([len(each.tokens) for each in words], epoch=0)
    assert padding_fraction(batches) < 0.1


def test_japanese_vowels() -> None:
    files = {part: str(ROOT / f"japanese_vowels/JapaneseVowels_{part.upper()}.ts") for part in ("train", "test")}
    options = ClassificationOptions(data=files["train"], test=files["test"], hidden_size=64, epochs=30)
    assert Classification(options).fit()["test"]["accuracy"] > 0.9


def test_parts_of_speech() -> None:
    folder = ROOT / "ud_english_ewt_pos"
    tagging = Tagging(TaggingOptions(label_column="2", epochs=2))
    split = Split(tagging.read(folder / "train.tsv")[:4000], test=tagging.read(folder / "test.tsv"))
    assert tagging.fit(split)["test"]["accuracy"] > 0.8


def test_slots_and_intents() -> None:
    files = {part: str(ROOT / "snips_slu" / part) for part in ("train", "test")}
    scores = Tagging(TaggingOptions(data=files["train"], test=files["test"], head="crf", epochs=2)).fit()["test"]
    assert scores["f1"] > 0.8
    assert scores["intent_accuracy"] > 0.95
    assert scores["frame_accuracy"] > 0.55


def test_shakespeare() -> None:
    options = LanguageModelOptions(
        data=str(ROOT / "char_lm/tinyshakespeare.txt"), epochs=1, hidden_size=128, dropout=0.0, learning_rate=8e-3
    )
    assert LanguageModel(options).fit()["test"]["nats"] < 2.0


def test_chorales() -> None:
    options = LanguageModelOptions(
        data=str(ROOT / "jsb_chorales/JSB_Chorales.mat"),
        tokens="notes",
        hidden_size=150,
        dropout=0.0,
        batch_size=4,
        epochs=12,
        learning_rate=4e-3,
    )
    assert LanguageModel(options).fit()["test"]["nats"] < 10.3  # the frequencies of the notes alone give 11.1


def test_a_poem_in_both_directions() -> None:
    lines = (ROOT / "char_lm/tang_10k_poems.txt").read_text(encoding="utf-8").splitlines()[:1500]
    scores = {}
    for both in (True, False):
        options = FillBlanksOptions(
            hidden_size=64, dropout=0.0, sequence="line", bidirectional=both, epochs=2, learning_rate=8e-3, held_out=0.1
        )
        texts = [Text(line + "\n") for line in lines]
        task = FillBlanks(options)
        scores[both] = task.fit(task.split(texts))["test"]["nats"]
    assert scores[True] < scores[False]


def test_oil_temperature() -> None:
    """Forecasts of a day with Informer's split. The last value as the forecast has the published error of 0.0343."""
    steps = {"train_steps": 8640, "dev_steps": 2880, "test_steps": 2880}
    small = {"hidden_size": 32, "embedding_size": 0, "epochs": 2, "batch_size": 256, "learning_rate": 5e-3}
    options = {"data": str(ROOT / "ett/ETTh1.csv"), "target": "OT", "look_back": 96, "model": "segments", "cell": "gru"}
    scores = Forecasting(ForecastingOptions.from_mapping(options | steps | small)).fit()["test"]
    assert scores["naive_mse"] == pytest.approx(0.0343, abs=5e-5)
    assert scores["mse"] < 0.03
