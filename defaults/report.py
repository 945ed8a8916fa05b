"""The page and its picture, made from the kept figures and the table of sets alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from defaults.search import Result, Settings, Store, defaults, fixed, is_better
from defaults.sets import SETS, Set
from glassgate.tasks.by_size import by_size

NEAR = 0.03
"""How much worse than the best setting found the defaults may be, as a fraction of its score."""

INTRODUCTION = """\
# How good the defaults are

Where no option says otherwise, batch size and epochs follow from the size of the data, by one rule for all tasks,
[by_size.py](../glassgate/tasks/by_size.py); each task has one learning rate. Little data makes many small steps, rather
than the few large ones of a fixed batch size. The first line of each training says what was chosen, and an option that
is given overrules it:

```text
100 examples: 4 a step, learning rate 0.006, 60 epochs (1,500 steps); batch size and epochs by the size of the data
```

| examples | a step | epochs | steps |
|---|---|---|---|
{rule}

An example is a sequence, a piece of a long one, a chunk of a text (50 units) or a window of a series: what a batch
counts. `--lr-find` looks for the learning rate instead, by Lightning's tuner: 100 steps in which it rises, the curve in
the run's folder as `learning_rate.svg`.

## Measured

Each task on three data sets: with the defaults, with 32 examples a step and 10 epochs for any data, and with what a
search finds around the defaults. The search changes one setting at a time (batch size, learning rate, dropout, hidden
size, epochs), keeps what is better on the dev data, and ends when no change is better or its time is over. Scores are
of test data; the best setting is the one that the dev data likes best.

```sh
GLASSGATE_DATA=FOLDER make defaults                            # all that is missing; stopped at any moment, it goes on
GLASSGATE_DATA=FOLDER make defaults DEFAULTS="--seconds 600"   # a longer search
make defaults DEFAULTS=--report                                # this page, from the kept figures alone
```

"""

ENDING = """
![How far the defaults, and 32 examples a step for 10 epochs, are behind the best setting found](defaults.svg)

{summary}

- One training of each setting, one seed, one thread of an AMD EPYC with two processors, shared with other work. No seed
  was repeated, so how far two seeds are apart is not known here, and the best of several is lucky, too.
- The sets called large are parts of their data, and their epochs are limited for all settings alike, so that a training
  takes seconds. That favours settings that learn fast.
- Sets, their sizes and the rule by which they are cut: [sets.py](../defaults/sets.py). Every training is a line of JSON
  in `defaults/figures`. The data is that of the [results](results.md).
"""


@dataclass(frozen=True)
class Row:
    """What was measured on a set: with the defaults, with fixed settings, and the best by the dev data."""

    data: Set
    defaults: Result
    fixed: Result
    best: Result
    trainings: int

    def behind(self, result: Result) -> float:
        """How much worse than the best a training's test score is, as a fraction of the best's; negative if better."""
        one, best = result["test"], self.best["test"]
        return (one - best) / best if self.data.score.lower_is_better else (best - one) / best


def write(store: Store, page: Path) -> None:
    """Write the page and, beside it, its picture."""
    found = [row for data in SETS if (row := _row(data, store.all(data)))]
    rule = "\n".join(_rule(examples) for examples in (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000))
    page.write_text(INTRODUCTION.format(rule=rule) + _table(found) + ENDING.format(summary=_summary(found)), "utf-8")
    picture(found, page.with_name("defaults.svg"))


def _row(data: Set, results: Sequence[Result]) -> Row | None:
    """What is shown of a set; None where a training is missing."""
    trained = {Settings(**each["settings"]): each for each in results}
    examples = results[0]["examples"] if results else 0
    own, other = (trained.get(settings(data, examples)) for settings in (defaults, fixed))
    if own is None or other is None:
        return None
    best = own
    for each in results:
        best = each if is_better(data, each, best) else best
    return Row(data, own, other, best, len(results))


def _rule(examples: int) -> str:
    size = by_size(examples)
    return f"| {examples:,} | {size.batch_size} | {size.epochs} | {size.epochs * -(-examples // size.batch_size):,} |"


def _table(rows: Sequence[Row]) -> str:
    lines = [
        "| task | data | score | 32 a step, 10 epochs | the defaults | best found | the defaults are behind by | "
        "defaults | best found: settings | trainings |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        score = row.data.score
        shown = [f"{score.factor * each['test']:.{score.digits}f}" for each in (row.fixed, row.defaults, row.best)]
        behind = row.behind(row.defaults)
        title = score.title + (", less is better" if score.lower_is_better else "")
        cells = [row.data.task, row.data.what, title, *shown, f"{100 * behind:.1f} %"]
        cells += [_said(row.defaults), _said(row.best), str(row.trainings)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _said(result: Result) -> str:
    settings = Settings(**result["settings"])
    return (
        f"{settings.batch_size} a step, rate {settings.learning_rate:g}, {settings.epochs} epochs, "
        f"H={settings.hidden_size}, dropout {settings.dropout:g}"
    )


def _summary(rows: Sequence[Row]) -> str:
    near = [row for row in rows if row.behind(row.defaults) <= NEAR]
    far = [f"{row.data.task}, {row.data.what}" for row in rows if row not in near]
    better = sum(row.behind(row.defaults) < row.behind(row.fixed) for row in rows)
    fewest, most = (choose(row.trainings for row in rows) for choose in (min, max))
    shown = [row.data for row in rows]
    missing = [f"{data.task}, {data.what}" for data in SETS if data not in shown]
    return (
        f"Of what has been tried so far, the defaults stand within {100 * NEAR:.0f} % of the best on {len(near)} of "
        f"{len(rows)} sets"
        + (f"; not on: {'; '.join(far)}" if far else "")
        + f". They are better than 32 examples a step and 10 epochs on {better}.\n\n"
        f"That is little evidence yet: there are {fewest} to {most} trainings a set, with the two of the first\n"
        "columns, so better settings may well exist. `make defaults` goes on looking for them."
        + (f"\nNot measured as they are now: {'; '.join(missing)}." if missing else "")
    )


def picture(rows: Sequence[Row], path: Path) -> None:
    """Draw for each set how far the defaults and fixed settings are behind the best found."""
    from matplotlib.figure import Figure

    figure = Figure((9, 0.8 + 0.34 * len(rows)), layout="constrained")
    axes = figure.subplots()
    places = range(len(rows), 0, -1)
    for name, colour, marker, size in (("fixed", "tab:gray", "o", 42), ("defaults", "tab:blue", "D", 42)):
        label = "the defaults" if name == "defaults" else "32 examples a step, 10 epochs"
        behind = [min(60.0, 100 * row.behind(getattr(row, name))) for row in rows]
        axes.scatter(behind, places, s=size, color=colour, marker=marker, label=label, zorder=3)
    axes.axvspan(-100, 100 * NEAR, color="tab:blue", alpha=0.08, zorder=0)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(places, [f"{row.data.task}: {row.data.what}" for row in rows], fontsize=9)
    axes.set_xlim(min(-8.0, *(100 * row.behind(row.defaults) for row in rows)) - 1, 62)
    axes.set_xlabel("behind the best setting found, % of its score (60 and more at the right edge)", fontsize=9)
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize=9, loc="lower right")
    figure.savefig(path, metadata={"Date": None})
