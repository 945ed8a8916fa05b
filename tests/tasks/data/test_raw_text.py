"""Raw text is split like the training data, and a note names unsegmented Chinese."""

from pathlib import Path

import pytest

from glassgate.tasks.classification import Classification, ClassificationOptions
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.data.pairs import Pair
from glassgate.tasks.data.raw_text import RawTokeniser, read_raw, starts_of
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.data.vocabulary import Vocabulary
from glassgate.tasks.progress import Progress
from glassgate.tasks.report.task_view import view_of
from glassgate.tasks.tagging import Tagging, TaggingOptions
from glassgate.tasks.task import Split
from glassgate.tasks.translation import Translation, TranslationOptions

TINY = {"hidden_size": 4, "embedding_size": 4, "epochs": 1, "threads": 1}
WORDS = [f"word{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
TOKENISED = RawTokeniser(Vocabulary([*WORDS, "the", "weather", "in", "Mr.", "do", "n't", "'s", "$", ".", "..."]))
JOINED = RawTokeniser(Vocabulary(["the", "weather", "in", "Rome.", "Paris,", "you?", "yes!"]))
SEGMENTED = RawTokeniser(Vocabulary(["我", "爱", "北京", "天气", "喜欢", "。"]))


class Notes(Progress):
    """Stores the notes of a reader."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("weather in Dodoma.", "weather in Dodoma ."),
        ('"the Dodoma" (weather)', '" the Dodoma " ( weather )'),
        ("Mr. Dodoma's", "Mr. Dodoma 's"),
        ("Don't", "Do n't"),
        ("$5.50, 7%", "$ 5.50 , 7%"),
        ("the U.S.A. Oh... no!?", "the U.S.A. Oh ... no ! ?"),
        ("http://a.org/b-c.", "http://a.org/b-c ."),
        (". ...", ". ..."),
    ],
)
def test_punctuation_is_split_off(text: str, tokens: str) -> None:
    assert TOKENISED.splits_punctuation
    assert " ".join(TOKENISED.split(text)) == tokens


def test_text_stays_whole_if_the_training_data_was_not_tokenised() -> None:
    assert not JOINED.splits_punctuation
    assert JOINED.split("the weather in Dodoma.") == ["the", "weather", "in", "Dodoma."]


def test_chinese_without_blanks() -> None:
    assert SEGMENTED.segments_cjk
    assert SEGMENTED.split("我爱上海GDP天气。") == [*"我爱上海", "GDP", *"天气", "。"]
    assert SEGMENTED.split("我 喜欢 加拿大 天气") == ["我", "喜欢", *"加拿大", "天气"]  # longer than any known word
    assert SEGMENTED.split("我 喜欢 上海 。") == ["我", "喜欢", "上海", "。"]
    assert not SEGMENTED.is_unsegmented("我 喜欢 上海 。")
    characters = RawTokeniser(Vocabulary(list("我爱北京")))
    assert not characters.segments_cjk
    assert characters.split("我爱 上海") == list("我爱上海")
    assert not RawTokeniser(Vocabulary(["the", "cat"])).segments_cjk


def test_a_note_lists_the_lines(tmp_path: Path) -> None:
    path, notes = tmp_path / "raw.txt", Notes()
    path.write_text("我 爱 北京 。\n我爱北京。\n\n北京天气。\n")
    read = read_raw(path, SEGMENTED, notes)
    assert [" ".join(each.tokens) for each in read] == ["我 爱 北京 。", "我 爱 北 京 。", "北 京 天 气 。"]
    assert [(each.lines, list(each.starts)) for each in read][::2] == [(1, [0, 2, 4, 7]), (4, [0, 1, 2, 3, 4])]
    assert len(notes.texts) == 1
    assert "2 lines, the first of them 2, have no blanks between Chinese or Japanese words" in notes.texts[0]
    with pytest.raises(ValueError, match="substring not found"):
        starts_of(["b", "a"], "a b")


def test_a_tagger_reads_raw_text_like_tokens(tmp_path: Path) -> None:
    """A period without a space before it changes neither the tokens nor the labels."""
    places = [f"Place{number}" for number in range(30)]
    train = [Tagged(["weather", "in", place, "."], ["O", "O", "B-CITY", "O"]) for place in places]
    options = TINY | {"epochs": 20, "learning_rate": 0.1, "character_size": 0, "dropout": 0.0, "batch_size": 4}
    tagging = Tagging(TaggingOptions.from_mapping(options))
    tagging.fit(Split(train))
    (tmp_path / "raw.txt").write_text("weather in Dodoma.\nweather in Dodoma .\n")
    joined, separate = tagging.read(tmp_path / "raw.txt", labelled=False)
    assert list(joined.tokens) == list(separate.tokens) == ["weather", "in", "Dodoma", "."]
    assert (list(joined.starts), list(separate.starts)) == ([0, 8, 11, 17], [0, 8, 11, 18])
    assert tagging.predict([joined, separate]) == [["O", "O", "B-CITY", "O"]] * 2
    assert view_of(tagging).example("weather in Dodoma.").tokens == ["weather", "in", "Dodoma", "."]


def test_classification_and_translation_read_unsegmented_chinese(tmp_path: Path) -> None:
    rows = [Labelled("我 爱 北京", "good"), Labelled("天气 不 好", "bad")] * 4
    classifier = Classification(ClassificationOptions.from_mapping(TINY | {"tokens": "word", "least_count": 1}))
    classifier.fit(Split(rows))
    (tmp_path / "raw.txt").write_text("我爱天气\n")
    notes = Notes()
    (read,) = classifier.read(tmp_path / "raw.txt", labelled=False, progress=notes)
    assert list(read.content) == ["我", "爱", "天", "气"]
    assert "line 1 has no blanks between Chinese" in notes.texts[0]
    numbers = classifier.vocabularies["units"].encode(["我", "爱", "天", "气"])
    assert classifier.encode(Labelled("我爱天气"))["units"].tolist() == numbers.tolist()

    options = TINY | {"source_tokens": "word", "target_tokens": "word"}
    translation = Translation(TranslationOptions.from_mapping(options))
    translation.fit(Split([Pair("我 爱 北京", "I love Beijing"), Pair("天气 好", "fine weather")] * 4))
    notes = Notes()
    (pair,) = translation.read(tmp_path / "raw.txt", labelled=False, progress=notes)
    assert pair.source == "我 爱 天 气"
    assert "line 1 has no blanks between Chinese" in notes.texts[0]
    assert translation.translate(["我爱天气"]) == translation.translate(["我 爱 天 气"])
