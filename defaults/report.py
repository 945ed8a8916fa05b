"""The page and its picture, made from the kept figures and the table of sets alone."""

import statistics
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from defaults.search import SEEDS, Result, Settings, Store, best, defaults, fixed
from defaults.sets import SETS, Set
from glassgate.tasks.training.by_size import by_size
from glassgate.tasks.wording import plural

NEAR = 0.03
"""How much worse than the best setting found the defaults may be, as a fraction of its score."""

INTRODUCTION = """\
# How good the defaults are

Unless options set them, batch size and epochs follow from the size of the data, by one rule for all tasks,
[by_size.py](../glassgate/tasks/training/by_size.py). Each task has one learning rate. Only the rate of translation
follows from the batch size: 0.0005 for each of its examples, from 0.002 to 0.004. Little data gives many small steps
instead of the few large ones of a fixed batch size. The first line of each training prints the chosen values, and an
option overrides them:

```text
100 examples: batch size 4, learning rate 0.008, 60 epochs (1,500 steps); chosen by data size: batch size, epochs
```

| examples | batch size | epochs | steps |
|---|---|---|---|
{rule}

An example is a sequence, a piece of a long one, a chunk of a text (50 units) or a window of a series: what a batch
counts. `--lr-find` looks for the learning rate instead, in 100 steps in which it rises, the curve in
the run's folder as `learning_rate.svg`.

With dev data and without `--epochs`, these epochs are the shortest training. Half way through them the learning rate
pauses while the dev score improves: as long as the last quarter of the planned epochs has added more than 5 % of all
improvement so far, another epoch follows at the same rate. The second half of the cosine comes after the pause, so the
rate decays towards the end of every training. The bound is four times the planned epochs, or `--max-epochs`; it is
printed with its time before training starts. With `--patience`, too, the rate decays before training ends. The figures
below are of trainings without a pause.

## Measured

Each task on three data sets: with the defaults, with a batch size of 32 and 10 epochs for any data, and with the best
settings of a search around the defaults. The search changes one setting at a time (learning rate, epochs, dropout,
batch size, hidden size), keeps a change that is better on the dev data, and ends when no change is better or its time
is over. It trains with one seed. The best setting by the dev data, and the defaults, are then trained with two more.
Scores are of test data, which no choice depends on: mean and standard deviation over the seeds.

```sh
GLASSGATE_DATA=FOLDER make defaults                            # all that is missing; stopped at any moment, it goes on
GLASSGATE_DATA=FOLDER make defaults DEFAULTS="--seconds 600"   # a longer search
make defaults DEFAULTS=--report                                # this page, from the kept figures alone
```

"""

ENDING = """
![The defaults, and a batch size of 32 for 10 epochs, against the best setting found](defaults.svg)

{summary}

- The rule by size and the first learning rates were chosen partly by hand, before there was a search, from trainings on
  these same sets and from their test scores, too; so the figures of sets where nothing has changed since flatter them.
  The search then changed three things, by dev scores alone. Tagging took dropout 0.2 and learning rate 0.008 instead of
  0.4 and 0.006, which were 4.9 % behind on 4,000 sentences. Language models took 256 units instead of 128, which were
  4.6 % behind on 500,000 characters, and dropout 0.2 instead of none. Blanks took dropout 0.2 instead of none, which
  was 6.0 % behind on 20,000 characters.
- The search did not come to its end on any set, and some trainings were asked for by hand, out of its order: those with
  dropout 0.2, with 256 units and all of translation, where only learning rates were compared. A larger learning rate
  looks better where epochs are limited.
- Translation's rate was chosen by the mean dev score of three seeds, from 0.002 and 0.004. On 3,000 pairs the dev data
  likes 0.004 (chrF 10.9, and 10.8 with 0.002; on test data 12.2 and 11.2), on 600 pairs 0.002 (5.6 and 5.4; on test
  data 6.2 and 5.7). So the default takes 0.002 with batches of 4 and 0.004 with those of 8 and more, of which larger
  ones were not measured. On 100 pairs all rates end at a chrF of about 4: too little data to learn from.
- Where there is one seed, and where seeds are far apart, a small difference says nothing. Below zero the defaults are
  better on test data than what dev data, little of it on the small sets, likes best.
- One thread of an AMD EPYC with two processors, shared with other programs.
- The sets called large are parts of their data, and their epochs are limited for all settings alike, translation's
  apart, so that a training takes seconds. That favours settings that learn fast.
- Sets, their sizes and the rule by which they are cut: [sets.py](../defaults/sets.py). Every training is a line of JSON
  in `defaults/figures`. The data is that of the [results](results.md).
"""


@dataclass(frozen=True)
class Row:
    """What was measured on a set.

    Attributes:
        data: the set
        defaults, fixed, best: the settings that are compared, the best by the dev data
        results: all trainings
    """

    data: Set
    defaults: Settings
    fixed: Settings
    best: Settings
    results: Sequence[Result]

    @property
    def seeds(self) -> list[int]:
        """Those with which both the defaults and the best were trained."""
        return [seed for seed in SEEDS if {self.defaults, self.best} <= self._tests(seed).keys()]

    def tests(self, settings: Settings) -> list[float]:
        """The test score at each seed; the fixed settings may have fewer."""
        return [tests[settings] for tests in map(self._tests, self.seeds) if settings in tests]

    def behind(self, settings: Settings) -> float:
        """How much worse than the best the mean test score is, as a fraction of the best's; negative if better."""
        one, best = (statistics.mean(self.tests(each)) for each in (settings, self.best))
        return (one - best) / best if self.data.score.lower_is_better else (best - one) / best

    def _tests(self, seed: int) -> dict[Settings, float]:
        return {Settings(**each["settings"]): each["test"] for each in self.results if each["seed"] == seed}


def write(store: Store, page: Path) -> None:
    """Write the page, and its picture to the same folder."""
    found = rows(store)
    page.write_text(text(found), "utf-8")
    picture(found, page.with_name("defaults.svg"))


def text(rows: Sequence[Row]) -> str:
    """The page."""
    rule = "\n".join(_rule(examples) for examples in (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000))
    return INTRODUCTION.format(rule=rule) + _table(rows) + ENDING.format(summary=_summary(rows))


def rows(store: Store) -> list[Row]:
    """What is shown: the sets on which the defaults and the fixed settings were trained."""
    found = []
    for data in SETS:
        if results := store.searched(data):
            own, other = (settings(data, results[0]["examples"]) for settings in (defaults, fixed))
            row = Row(data, own, other, best(data, results), store.all(data))
            found += [row] if row.tests(other) else []
    return found


def _rule(examples: int) -> str:
    size = by_size(examples)
    return f"| {examples:,} | {size.batch_size} | {size.epochs} | {size.epochs * -(-examples // size.batch_size):,} |"


def _table(rows: Sequence[Row]) -> str:
    lines = [
        "| task | data | score | batch size 32, 10 epochs | the defaults | best found | the defaults are behind by | "
        "defaults | best found: settings | trainings | seeds |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [row.data.task, row.data.what, row.data.score.heading]
        cells += [_spread(row, settings) for settings in (row.fixed, row.defaults, row.best)]
        cells += [f"{100 * row.behind(row.defaults) + 0:.1f} %", _said(row.defaults), _said(row.best)]
        cells += [str(len(row.results)), str(len(row.seeds))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _spread(row: Row, settings: Settings) -> str:
    """Mean and standard deviation of a test score."""
    score = row.data.score
    tests = [score.factor * test for test in row.tests(settings)]
    return " ± ".join(
        f"{each:.{score.places}f}"
        for each in [statistics.mean(tests), *([statistics.stdev(tests)] if tests[1:] else [])]
    )


def _said(settings: Settings) -> str:
    return (
        f"batch size {settings.batch_size}, rate {settings.learning_rate:g}, {plural(settings.epochs, 'epoch')}, "
        f"H={settings.hidden_size}, dropout {settings.dropout:g}"
    )


def _summary(rows: Sequence[Row]) -> str:
    near = [row for row in rows if row.behind(row.defaults) <= NEAR]
    far = [f"{row.data.task}, {row.data.what}" for row in rows if row not in near]
    better = sum(row.behind(row.defaults) < row.behind(row.fixed) for row in rows)
    trainings = sum(len(row.results) for row in rows)
    fewest, most = (choose(len(row.results) for row in rows) for choose in (min, max))
    shown = [row.data for row in rows]
    missing = [f"{data.task}, {data.what}" for data in SETS if data not in shown]
    return textwrap.fill(
        f"Of what has been tried, {trainings} trainings in all and {fewest} to {most} a set, the defaults are within "
        f"{100 * NEAR:.0f} % of the best on {len(near)} of {len(rows)} sets"
        + (f"; not on: {'; '.join(far)}" if far else "")
        + f". They are better than a batch size of 32 and 10 epochs on {better}. Where the best found is the defaults "
        "themselves, no change of one setting that was tried is better on the dev data. `make defaults` goes on "
        "looking." + (f" Not measured as they are now: {'; '.join(missing)}." if missing else ""),
        120,
    )


def picture(rows: Sequence[Row], path: Path) -> None:
    """Draw for each set the distance of the defaults and of fixed settings from the best settings found."""
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure((9, 0.8 + 0.34 * len(rows)), layout="constrained")
    axes = figure.subplots()
    places = range(len(rows), 0, -1)
    for name, colour, marker, size in (("fixed", "tab:gray", "o", 42), ("defaults", "tab:blue", "D", 42)):
        label = "the defaults" if name == "defaults" else "batch size 32, 10 epochs"
        behind = [min(60.0, 100 * row.behind(getattr(row, name))) for row in rows]
        axes.scatter(behind, places, s=size, color=colour, marker=marker, label=label, zorder=3)
    axes.axvspan(-100, 100 * NEAR, color="tab:blue", alpha=0.08, zorder=0)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(places, [f"{row.data.task}: {row.data.what}" for row in rows], fontsize=9)
    axes.set_xlim(min(-8.0, *(100 * row.behind(row.defaults) for row in rows)) - 1, 62)
    axes.set_xlabel("behind the best setting found, % of its score (60 and more at the right edge)", fontsize=9)
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize=9, loc="lower right")
    with matplotlib.rc_context({"svg.hashsalt": "glassgate"}):
        figure.savefig(path, metadata={"Date": None})
