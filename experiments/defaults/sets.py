"""The table of data sets: parts of real data, three for each task, and sets on which only the defaults are trained."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from experiments.common.score import Score
from experiments.defaults import packages
from glassgate.tasks import task_class
from glassgate.tasks.data.labelled import Labelled
from glassgate.tasks.data.tagged import Tagged
from glassgate.tasks.progress import Progress
from glassgate.tasks.task import Split

Cut = Callable[[Split[Any]], Split[Any]]
"""A function that reduces the parts of a data set."""


F1 = Score("f1", "F1")
ACCURACY = Score("accuracy", "accuracy")
CHRF = Score("chrf", "chrF", percent=False, digits=1)
NATS = Score("nats", "nats", percent=False, lower_is_better=True)
MAE = Score("mae", "absolute error", percent=False, lower_is_better=True)
MSE = Score("mse", "squared error", percent=False, lower_is_better=True, digits=4)


@dataclass(frozen=True)
class Set:
    """A data set for a task.

    Attributes:
        name: the name on the command line
        task: a name of `glassgate.tasks`
        what: the name on the page
        paths: files below the data folder, by the names of the options
        options: options that the data requires
        score: the score by which settings are compared
        cut: a function that reduces the data; None for the whole data
        epochs: a fixed number of epochs, if the default number would take too long; 0 otherwise
        reader: the task that reads the files, if it is another task
        table: a function that returns a table of series, instead of files
        is_searched: whether better settings are searched, or the defaults are only compared with simple models
    """

    name: str
    task: str
    what: str
    paths: Mapping[str, str]
    options: Mapping[str, Any]
    score: Score
    cut: Cut | None = None
    epochs: int = 0
    reader: str = ""
    table: Callable[[], Any] | None = None
    is_searched: bool = True

    @property
    def is_series(self) -> bool:
        """Whether the examples are labelled series."""
        return any(path.endswith(".ts") for path in self.paths.values())

    def read(self, data: Path) -> Split[Any]:
        """Read the data as the task does, and reduce it.

        Raises:
            MissingPackage: the package that contains the data is not installed
        """
        kind = task_class(self.reader or self.task)
        paths = {name: str(packages.locate(path, data)) for name, path in self.paths.items()}
        task = kind(kind.options_type.from_mapping({**self.options, **paths}))
        split = task.split_of(self.table()) if self.table else task.read_split(Progress())
        return self.cut(split) if self.cut else split


def _evenly_spaced(examples: Sequence[Any], count: int) -> list[Any]:
    """Return `count` evenly spaced examples, starting with the first, or all if there are fewer."""
    count = min(count, len(examples))
    return [examples[k * len(examples) // count] for k in range(count)]


def _examples(train: int, held_out: int) -> Cut:
    """Keep `train` training examples, and at most `held_out` dev and 400 test examples without unseen labels."""

    def cut(split: Split[Any]) -> Split[Any]:
        kept = _evenly_spaced(split.train, train)
        seen_labels = {label for example in kept for label in _labels(example)}

        def with_seen_labels(part: Sequence[Any], count: int) -> list[Any]:
            return _evenly_spaced([example for example in part if seen_labels.issuperset(_labels(example))], count)

        return Split(kept, with_seen_labels(split.dev, held_out), with_seen_labels(split.test, 400))

    return cut


def _labels(example: Any) -> Sequence[str | None]:
    return [*(example.labels or ()), example.intent] if isinstance(example, Tagged) else []


def _intents(train: int, held_out: int) -> Cut:
    """Keep examples as `_examples` does, and replace each utterance by a text labelled with its intent."""

    def cut(split: Split[Any]) -> Split[Any]:
        parts = vars(_examples(train, held_out)(split)).values()
        return Split(*([Labelled(" ".join(example.tokens), example.intent) for example in part] for part in parts))

    return cut


def _halves(split: Split[Any]) -> Split[Any]:
    """Divide the test part alternately into dev and test, for data without a dev part."""
    return Split(split.train, split.test[::2], split.test[1::2])


def _tokens(train: int, held_out: int) -> Cut:
    """Keep the first `train`, `held_out` and 30,000 tokens of the training, dev and test text."""

    def first(part: Sequence[Any], count: int) -> list[Any]:
        return [replace(part[0], tokens=part[0].tokens[:count])]

    return lambda split: Split(first(split.train, train), first(split.dev, held_out), first(split.test, 30_000))


def _paths(path: str, train: str, dev: str, test: str) -> dict[str, str]:
    return {"data": path.format(train), "dev": path.format(dev), "test": path.format(test)}


EWT = _paths("ud_english_ewt_pos/{}.tsv", "train", "dev", "test")
SNIPS = _paths("snips_slu/{}", "train", "valid", "test")
VOWELS = {"data": "japanese_vowels/JapaneseVowels_TRAIN.ts", "test": "japanese_vowels/JapaneseVowels_TEST.ts"}
SHAKESPEARE = {"data": "char_lm/tinyshakespeare.txt"}
POEMS = {"data": "char_lm/tang_10k_poems.txt"}
CHORALES = {"data": "jsb_chorales/JSB_Chorales.mat"}
PAIRS = {"data": "tatoeba_cmn_eng/cmn.txt"}
ETT = {"data": "ett/ETTh1.csv"}

TAGS = {"label_column": "2"}
CHINESE = {"target_tokens": "character"}
HOURS = {"target": "OT", "look_back": 96, "dev_steps": 480, "test_steps": 1440, "every": 4}

SETS = (
    Set("tagging-tiny", "tagging", "parts of speech, 100 sentences", EWT, TAGS, ACCURACY, _examples(100, 100)),
    Set("tagging-medium", "tagging", "slots and intents, 600 utterances", SNIPS, {}, F1, _examples(600, 150)),
    Set("tagging-large", "tagging", "parts of speech, 4,000 sentences", EWT, TAGS, ACCURACY, _examples(4000, 150), 1),
    Set("classification-tiny", "classification", "intents of 100 utterances", SNIPS, {}, ACCURACY,
        _intents(100, 150), reader="tagging"),
    Set("classification-medium", "classification", "speakers of 270 series", VOWELS, {}, ACCURACY, _halves),
    Set("classification-large", "classification", "intents of 8,000 utterances", SNIPS, {}, ACCURACY,
        _intents(8000, 200), 1, reader="tagging"),
    Set("language-model-tiny", "language-model", "20,000 characters of Shakespeare", SHAKESPEARE, {}, NATS,
        _tokens(20_000, 5_000)),
    Set("language-model-medium", "language-model", "notes of 229 chorales", CHORALES, {"tokens": "notes"}, NATS),
    Set("language-model-large", "language-model", "500,000 characters of Shakespeare", SHAKESPEARE, {}, NATS,
        _tokens(500_000, 20_000), 1),
    Set("fill-blanks-tiny", "fill-blanks", "20,000 characters of Shakespeare", SHAKESPEARE, {}, NATS,
        _tokens(20_000, 5_000)),
    Set("fill-blanks-medium", "fill-blanks", "100,000 characters of Shakespeare", SHAKESPEARE, {}, NATS,
        _tokens(100_000, 10_000)),
    Set("fill-blanks-large", "fill-blanks", "2,000 poems of the Tang", POEMS, {"sequence": "line"}, NATS,
        _examples(2000, 60), 1),
    Set("translation-tiny", "translation", "100 pairs, English to Chinese", PAIRS, CHINESE, CHRF, _examples(100, 200)),
    Set("translation-medium", "translation", "600 pairs, English to Chinese", PAIRS, CHINESE, CHRF,
        _examples(600, 200)),
    Set("translation-large", "translation", "3,000 pairs, English to Chinese", PAIRS, CHINESE, CHRF,
        _examples(3000, 200)),
    Set("forecasting-tiny", "forecasting", "220 hours, 24 ahead", ETT, {**HOURS, "train_steps": 220}, MSE),
    Set("forecasting-medium", "forecasting", "1,500 hours, 24 ahead", ETT, {**HOURS, "train_steps": 1500}, MSE),
    Set("forecasting-large", "forecasting", "8,640 hours, 24 ahead", ETT, {**HOURS, "train_steps": 8640}, MSE,
        epochs=2),
)  # fmt: skip


def _compared(
    task: str,
    what: str,
    score: Score,
    paths: Mapping[str, str],
    table: Callable[[], Any] | None = None,
    cut: Cut | None = None,
    **options: Any,
) -> Set:
    """A set on which the defaults are compared with simple models. Its name is the beginning of `what`."""
    name = what.partition(",")[0].lower().replace(" ", "-")
    return Set(name, task, what, paths, options, score, cut, table=table, is_searched=False)


def _series(name: str) -> dict[str, str]:
    return {part: packages.SERIES.format(name, suffix) for part, suffix in (("data", "TRAIN"), ("test", "TEST"))}


def _texts(folder: str, ending: str, train: str = "train") -> dict[str, str]:
    return {"data": f"{folder}/{train}.{ending}", "test": f"{folder}/test.{ending}"}


_classes = partial(_compared, "classification")
_forecast = partial(_compared, "forecasting")
_column = partial(partial, packages.column)
_SKTIME, _STATSMODELS, _VEGA = "sktime/datasets/data", "statsmodels/datasets", "vega_datasets/_data"

COMPARED = (
    _classes("GunPoint, 50 series of 150 steps", ACCURACY, _series("GunPoint")),
    _classes("ArrowHead, 36 series of 251 steps", ACCURACY, _series("ArrowHead")),
    _classes("Power demand in Italy, 67 series of 24 steps", ACCURACY, _series("ItalyPowerDemand")),
    _classes("Basic motions, 40 series of 100 steps", ACCURACY, _series("BasicMotions")),
    _classes("SST-2, 2,000 sentences", ACCURACY, {**_texts("sst2", "tsv"), "dev": "sst2/dev.tsv"},
             cut=_examples(2000, 400), text_column="1", label_column="2"),
    _classes("Banking77, 2,500 questions", ACCURACY, _texts("banking77", "csv"), cut=_examples(2500, 0),
             label_column="category", missing="drop"),
    _compared("regression", "Tecator, fat from 172 spectra", MAE, _series("Tecator")),
    _compared("regression", "Covid, 140 series of 84 days", MAE, _series("Covid3Month")),
    _forecast("Airline passengers, 144 months", MSE, {}, _column(f"{_SKTIME}/Airline/Airline.csv", -1),
              horizon=12, look_back=24),
    _forecast("CO2, 900 weeks", MSE, {}, _column(f"{_STATSMODELS}/co2/co2.csv", 1, 900), horizon=26, look_back=104),
    _forecast("Sunspots, 309 years", MSE, {}, _column(f"{_STATSMODELS}/sunspots/sunspots.csv", 1),
              horizon=11, look_back=33),
    _forecast("Sea surface temperature, 732 months", MSE, {},
              partial(packages.rows, f"{_STATSMODELS}/elnino/elnino.csv", 1), horizon=12),
    _forecast("Electrical equipment, 257 months", MSE, {},
              _column(f"{_STATSMODELS}/elec_equip/elec_equip.csv", 1), horizon=12, look_back=24),
    _forecast("Prescriptions, 204 months", MSE, {}, _column(f"{_SKTIME}/PBS_dataset/PBS_dataset.csv", -1),
              horizon=12, look_back=36),
    _forecast("Lynx, 114 years", MSE, {}, _column(f"{_SKTIME}/Lynx/Lynx.csv", 1), horizon=5, look_back=20),
    _forecast("Employment, 7 series of 120 months", MSE, {},
              partial(packages.columns, f"{_VEGA}/us-employment.csv", 1, 8), horizon=3, look_back=12),
    _forecast("Solar power, 289 half-hours", MSE, {}, _column(f"{_SKTIME}/solar/solar.csv", 1),
              horizon=12, look_back=48),
    _forecast("Temperature in Seattle, 2,000 hours", MSE, {}, _column(f"{_VEGA}/seattle-temps.csv", 1, 2000),
              horizon=24, look_back=72),
    _forecast("Oil temperature, 2,000 hours of ETTh1", MSE, ETT, horizon=24, look_back=96, target="OT",
              train_steps=1600, dev_steps=200, test_steps=200),
)  # fmt: skip
