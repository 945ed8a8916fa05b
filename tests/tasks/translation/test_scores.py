"""Error rates of translations equal those of torchmetrics, and BLEU's tokenizer follows the language."""

import random

import pytest
from torchmetrics.functional.text import char_error_rate, word_error_rate

from glassgate.tasks.translation.options import tokenizer_for
from glassgate.tasks.translation.scores import TranslationScores, edit_distances

pytest.importorskip("sacrebleu", reason="scores of translations need sacrebleu")


def sentences(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(["a", "cat", "sat", "on", "mats"], k=draw.randint(1, 6))) for _ in range(count)]


def test_error_rates_equal_those_of_torchmetrics() -> None:
    predicted, right = sentences(20, 1), sentences(20, 2)
    metric = TranslationScores("13a")
    metric.update(predicted, right)
    scores = metric.compute()
    assert scores["word_error_rate"] == pytest.approx(word_error_rate(predicted, right))
    assert scores["character_error_rate"] == pytest.approx(char_error_rate(predicted, right))
    assert scores["exact_match"] == sum(a == b for a, b in zip(predicted, right, strict=True)) / 20


def test_edits_of_empty_sequences() -> None:
    assert edit_distances(["", "abc", ""], ["", "", "ab"]).tolist() == [0, 3, 2]


@pytest.mark.parametrize(("text", "name"), [("a cat", "13a"), ("一隻貓在墊子上", "zh"), ("ネコはマットの上", "char")])
def test_tokenizer_follows_the_language(text: str, name: str) -> None:
    assert tokenizer_for([text]) == name
