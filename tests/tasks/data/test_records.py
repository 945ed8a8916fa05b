"""Frames of pandas and datasets of Hugging Face are read like files."""

from types import SimpleNamespace

import pyarrow as pa
import pytest

from glassgate.tasks.classification import Classification, ClassificationOptions
from glassgate.tasks.data.records import iterate_rows, split_parts
from glassgate.tasks.errors import DataError, UserError
from glassgate.tasks.tagging import Tagging, TaggingOptions
from glassgate.tasks.translation import Translation
from glassgate.tasks.translation.options import TranslationOptions

pandas = pytest.importorskip("pandas")

TEXTS = {"sentence": ["a fine day", "a foul day", "so fine"], "label": [1, 0, 1]}
WORDS = {"tokens": [["EU", "runs"], ["no", "EU"]], "ner_tags": [[1, 0], [0, 1]]}


class Dataset:
    """The part of `datasets.Dataset` that is used: its rows and its features."""

    def __init__(self, columns: dict[str, list[object]], features: dict[str, object]):
        self.columns_ = columns
        self.features = features

    def __iter__(self):  # type: ignore[no-untyped-def]
        return (dict(zip(self.columns_, row, strict=True)) for row in zip(*self.columns_.values(), strict=True))


NAMED = SimpleNamespace(names=["bad", "good"])
LISTED = SimpleNamespace(feature=SimpleNamespace(names=["O", "B-ORG"]))


def test_a_frame_of_pandas_is_trained_on() -> None:
    task = Classification(ClassificationOptions(hidden_size=4, epochs=1, least_count=1))
    task.fit(pandas.DataFrame(TEXTS))
    assert sorted(task.vocabularies["labels"].symbols) == ["0", "1"]
    with pytest.raises(DataError, match="given rows:1: expected a key 'review', got 'sentence', 'label'; name yours"):
        Classification(ClassificationOptions(text_column="review")).fit(pandas.DataFrame(TEXTS))


def test_a_dataset_with_parts_and_names_of_labels() -> None:
    task = Tagging(TaggingOptions(hidden_size=4, embedding_size=4, epochs=1))
    data = Dataset(WORDS, {"tokens": SimpleNamespace(), "ner_tags": LISTED})
    result = task.fit({"train": data, "validation": data, "test": data})
    assert sorted(task.vocabularies["labels"].symbols) == ["B-ORG", "O"]
    assert result["dev"]
    assert result["test"]
    task = Classification(ClassificationOptions(hidden_size=4, epochs=1, least_count=1))
    task.fit(Dataset(TEXTS, {"label": NAMED}))
    assert sorted(task.vocabularies["labels"].symbols) == ["bad", "good"]


def test_rows_of_arrow_and_of_frames_are_pythons_own() -> None:
    for given in (pa.table(WORDS), pandas.DataFrame(WORDS), pa.table(WORDS).to_pandas()):
        assert next(row for _, row, _ in iterate_rows(given)) == {"tokens": ["EU", "runs"], "ner_tags": [1, 0]}
    assert split_parts({"train": 1, "test": 2}) == {"train": 1, "dev": (), "test": 2}


def test_a_task_that_takes_no_rows() -> None:
    with pytest.raises(UserError, match="translation: expected a Split of examples, got rows of a table"):
        Translation(TranslationOptions()).fit(pandas.DataFrame(TEXTS))
