"""Scores of baselines equal those that scikit-learn, seqeval, utilsforecast and sacrebleu compute for the models."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sacrebleu
import sklearn.metrics
from seqeval.metrics import f1_score, precision_score, recall_score
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.neighbors import KNeighborsClassifier
from utilsforecast import losses

from glassgate.tasks import task_class
from glassgate.tasks.baselines import baseline
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.data.pairs import Pair
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.data.texts import Text
from glassgate.tasks.forecasting.series import series_of
from glassgate.tasks.progress import Progress
from glassgate.tasks.task import Split
from glassgate.tasks.training.baselines import baseline_scores
from tests.tasks.classification.test_classification import series, texts
from tests.tasks.corpus import sentences

Scores = dict[str, dict[str, float]]


def scores_of(name: str, split: Split[Any], **options: Any) -> Scores:
    """Return the scores of all baselines of a task."""
    kind = task_class(name)
    task = kind(kind.options_type.from_mapping(options))
    task.vocabularies = task.collect(split.train)
    scores: Scores = baseline_scores(task, task.encode_split(split), Progress())["scores"]
    return scores


def test_labels_of_texts() -> None:
    train, test = texts(60), texts(40, seed=1)
    scores = scores_of("classification", Split(train, test=test), least_count=1)
    vectorizer = TfidfVectorizer(token_pattern=r"\S+", ngram_range=(1, 2), sublinear_tf=True)
    features = vectorizer.fit_transform([str(each.content) for each in train])
    labels, truth = [each.label for each in train], [each.label for each in test]
    model = LogisticRegression(C=10.0, solver="saga", tol=1e-3, random_state=0).fit(features, labels)
    predicted = model.predict(vectorizer.transform([str(each.content) for each in test]))
    most_frequent = [Counter(labels).most_common(1)[0][0]] * len(test)
    for title, answers in (("most frequent label", most_frequent), ("logistic regression on tf-idf", predicted)):
        assert scores[title]["accuracy"] == pytest.approx(sklearn.metrics.accuracy_score(truth, answers))
        assert scores[title]["macro_f1"] == pytest.approx(sklearn.metrics.f1_score(truth, answers, average="macro"))
    assert scores["logistic regression on tf-idf"]["accuracy"] > 0.9


def test_labels_of_series() -> None:
    train, test = series(30), series(20, seed=1)
    scores = scores_of("classification", Split(train, test=test))
    steps = max(len(each.content) for each in train)
    values = np.concatenate([each.content for each in train])
    mean, deviation = values.mean(0, dtype=float), values.std(0, dtype=float)

    def vectors(examples: list[Labelled]) -> np.ndarray:
        rows = [(each.content[:steps] - mean) / deviation for each in examples]
        return np.stack([np.pad(row, ((0, steps - len(row)), (0, 0))).ravel() for row in rows]).astype(np.float32)

    for title, model in (
        ("1-nearest neighbour", KNeighborsClassifier(1)),
        ("logistic regression on values", LogisticRegression(tol=1e-3, max_iter=200)),
    ):
        model.fit(vectors(train), [each.label for each in train])
        assert scores[title]["accuracy"] == pytest.approx(model.score(vectors(test), [each.label for each in test]))


def test_entities() -> None:
    train = [
        Tagged(("Ann", "saw", "New", "York"), ("B-PER", "O", "B-LOC", "I-LOC")),
        Tagged(("York", "saw", "Bob", "now"), ("B-LOC", "O", "B-PER", "O")),
        Tagged(("new", "York", "saw", "Ann"), ("O", "I-LOC", "O", "B-PER")),
    ]
    test = [Tagged(("Bob", "saw", "York", "here"), ("O", "O", "B-LOC", "O")), train[0]]
    scores = scores_of("tagging", Split(train, test=test), least_count=1)["most frequent label of each token"]
    most_frequent = {"Ann": "B-PER", "Bob": "B-PER", "New": "B-LOC", "York": "I-LOC"}
    answers = [[most_frequent.get(token, "O") for token in each.tokens] for each in test]
    truth = [list(each.labels or ()) for each in test]
    for title, metric in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
        assert scores[title] == pytest.approx(metric(truth, answers))
    assert 0 < scores["f1"] < 1


def test_labels_and_intents_of_tokens() -> None:
    examples = [replace(each, intent="long" if len(each.tokens) > 4 else "short") for each in sentences(60)]
    scores = scores_of("tagging", Split(examples[:40], test=examples[40:]))["most frequent label of each token"]
    assert scores["accuracy"] > 0.5
    assert scores["intent_accuracy"] > 0.5


def test_numbers() -> None:
    train, test = ([Labelled(each.content, f"{each.content.mean():.3f}") for each in series(n, n)] for n in (30, 20))
    scores = scores_of("regression", Split(train, test=test))
    truth, mean = (np.array([float(each.label or "") for each in part]) for part in (test, train))
    assert scores["mean"]["mae"] == pytest.approx(np.abs(truth - mean.mean()).mean(), rel=1e-5)
    assert scores["ridge regression on values"]["mse"] < scores["mean"]["mse"]
    rows = [Labelled(f"{'good ' * k}day", str(k)) for k in (1, 2, 3, 4, 5)]
    scores = scores_of("regression", Split(rows, test=rows), least_count=1)
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    features, numbers = vectorizer.fit_transform([str(each.content) for each in rows]), np.arange(1.0, 6.0)
    model = Ridge().fit(features, (numbers - 3) / 2**0.5)
    expected = sklearn.metrics.mean_absolute_error(numbers, model.predict(features) * 2**0.5 + 3)
    assert scores["ridge regression on tf-idf"]["mae"] == pytest.approx(expected, rel=1e-4)


def test_forecasts() -> None:
    random = np.random.default_rng(0)
    steps = np.arange(120)
    parts = {name: np.sin(steps / 3) * 5 + random.normal(size=120) + shift for name, shift in (("a", 9.0), ("b", 40.0))}
    options = {"horizon": 4, "look_back": 6, "head": "quantiles"}
    task: Any = task_class("forecasting")(task_class("forecasting").options_type.from_mapping(options))
    split = task.split([series_of(values, name) for name, values in parts.items()])
    scores = scores_of("forecasting", split, **options)["ridge regression on the look-back"]

    past, future = [], []  # standardised windows of the training part
    moments = {each.name: (each.values[:].mean(), each.values[:].std()) for each in split.train}
    for each in split.train:
        values = (each.values[:] - moments[each.name][0]) / moments[each.name][1]
        for start in range(len(values) - 9):
            past.append(values[start : start + 6] - values[start + 5])
            future.append(values[start + 6 : start + 10] - values[start + 5])
    rows, best = [], {}
    for penalty in (0.1, 1.0, 10.0, 100.0):
        model = Ridge(alpha=penalty).fit(past, future)
        errors = []
        for part in ("dev", "test"):
            for each in getattr(split, part):
                mean, deviation = moments[each.name]
                values = (each.values[:] - mean) / deviation
                for first in range(len(values) - 9):
                    last = values[first + 5]
                    forecast = model.predict([values[first : first + 6] - last])[0] + last
                    true = values[first + 6 : first + 10]
                    if part == "dev":
                        errors.append((forecast - true) ** 2)
                    else:
                        rows += [(penalty, f"{each.name}{first}", *pair) for pair in zip(true, forecast, strict=True)]
        best[penalty] = np.mean(errors)
    frame = pd.DataFrame(rows, columns=["penalty", "unique_id", "y", "model"])
    frame = frame[frame["penalty"] == min(best, key=lambda penalty: best[penalty])]
    for name in ("mse", "mae"):
        expected = getattr(losses, name)(frame, ["model"])["model"].mean()
        assert scores[name] == pytest.approx(expected, rel=1e-4)
    assert 0.5 < scores["coverage"] <= 1


def test_translations() -> None:
    train = [Pair("a red house", "ein rotes Haus"), Pair("a blue car", "ein blaues Auto"), Pair("the end", "Ende")]
    test = [Pair("a red car", "ein rotes Auto"), Pair("the very end", "das Ende")]
    options = {"source_tokens": "token", "target_tokens": "token", "least_count": 1, "lower": False}
    scores = scores_of("translation", Split(train, test=test), **options)
    vectorizer = TfidfVectorizer(token_pattern=r"\S+", ngram_range=(1, 2), sublinear_tf=True)
    known = vectorizer.fit_transform([each.source for each in train])
    nearest = cosine_similarity(vectorizer.transform([each.source for each in test]), known).argmax(1)
    references = [[str(each.target) for each in test]]
    for title, hypotheses in (
        ("copy of the source", ["a red car", "the end"]),
        ("translation of the most similar training source", [str(train[index].target) for index in nearest]),
    ):
        assert scores[title]["chrf"] == pytest.approx(sacrebleu.corpus_chrf(hypotheses, references).score)
        assert "bleu" in scores[title]
        assert "nats" not in scores[title]


def test_texts() -> None:
    text = Text("tick tock " * 40)
    scores = scores_of("language-model", Split([text], test=[text.part(0, 100)]))
    truth = [*"tick tock " * 10]
    frequencies = Counter("tick tock ")
    discount, num_symbols = 0.5, 7  # one symbol for unknown tokens
    unigrams = {
        token: (40 * count - discount + discount * len(frequencies) / num_symbols) / 400
        for token, count in frequencies.items()
    }
    assert scores["unigrams"]["nats"] == pytest.approx(np.mean([-np.log(unigrams[token]) for token in truth]))
    assert scores["5-grams"]["accuracy"] > 0.9 > 0.5 > scores["unigrams"]["accuracy"]
    blanks = scores_of("fill-blanks", Split([text], test=[text.part(0, 100)]))
    assert blanks["n-grams of the two tokens on each side"]["accuracy"] > 0.9


def test_large_data_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = task_class("classification")
    task = kind(kind.options_type.from_mapping({"least_count": 1}))
    examples = texts(60)
    task.vocabularies = task.collect(examples)
    monkeypatch.setattr(baseline.Baseline.limited, "__defaults__", (10**6, 20))
    compared = baseline_scores(task, task.encode_split(Split(examples, test=examples)), Progress())
    assert compared["notes"]["logistic regression on tf-idf"] == "trained on 20 of 60 examples"
