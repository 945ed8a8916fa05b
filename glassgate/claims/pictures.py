"""Draws the pictures of a comparison as SVG. Text and lines have the text colour of the page."""

import io
import math
import re
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from glassgate.claims.problems import PROBLEMS

NAMES = frozenset({"gradients", "success", "learning", "forget-bias"})
"""The names of all pictures of the comparison on long-lag problems."""
_PALETTE = ("#d9620f", "#0a9e76", "#2f86cc", "#cc79a7", "#e0a010", "#7a6fd0", "#8c8c8c")
"""Colours after Okabe and Ito (2008), which colour-blind readers can distinguish on white and on black."""
_INK = "#123456"  # a placeholder, replaced by the text colour of the page
_TEXT_COLOUR = "<style>:root{color:#1d2530}@media(prefers-color-scheme:dark){:root{color:#e6e8eb}}</style>"
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "glassgate",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "legend.frameon": False,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK),
}


class Picture:
    """An SVG with its description.

    Attributes:
        name: the name of the file, without its suffix.
        sentence: the description, which screen readers read.
        svg: the SVG for a page.
    """

    def __init__(self, name: str, figure: Figure, sentence: str) -> None:
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        svg = file.getvalue().replace(_INK, "currentColor")
        svg = re.sub(r'((?:id="|href="#|url\(#))', rf"\g<1>{name}-", svg[svg.index("<svg") :])
        self.name, self.sentence = name, sentence
        self.svg = svg.replace("<svg ", '<svg role="img" aria-label="' + _escape(sentence) + '" ', 1)

    @property
    def standalone(self) -> str:
        """The SVG with a text colour, for use as a file."""
        start = self.svg.index(">") + 1
        return self.svg[:start] + _TEXT_COLOUR + self.svg[start:]


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


@contextmanager
def drawing(
    width: float, height: float, rows: int = 1, columns: int = 1, **options: Any
) -> Iterator[tuple[Figure, Any]]:
    """Yield a figure in the style of the comparisons, and a grid of axes. `options` are passed to `Figure.subplots`."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure((width, height), layout="constrained")
        yield figure, figure.subplots(rows, columns, squeeze=False, **options)


def colours(cells: Sequence[str]) -> dict[str, str]:
    """Return a colour for each cell."""
    return {cell: _PALETTE[k % len(_PALETTE)] for k, cell in enumerate(cells)}


def gradient_flow(rows: Sequence[dict[str, Any]], cells: Sequence[str]) -> Picture:
    """Draw |dL/dh_{t-k}| of the output h against k, before and after training.

    Dashed: the part of the gradient of the kept states through the gates that keep them alone.
    """
    colour_of = colours(cells)
    with drawing(8.2, 3.4, 1, 2, sharey=True) as (figure, ((initial, trained),)):
        for row in rows:
            axes = trained if row["trained"] else initial
            bias = row["forget_bias"]
            if bias is not None and bias not in (1.0, 3.0, 5.0):
                continue
            colour = colour_of[row["cell"]]
            alpha = 1.0
            if bias is not None:
                alpha = 0.2 + 0.16 * bias
            elif row["cell"] == "lstm" and not row["trained"]:
                alpha = 0.25
            label = row["label"].replace(", trained", "")
            axes.plot(_relative(row["output"]), color=colour, alpha=alpha, label=label, lw=1.4)
            if row["own_path"] and (row["trained"] or bias == 3.0):
                label = "its forget gates alone" if row["trained"] else "forget gates alone, bias 3"
                axes.plot(_relative(row["own_path"]), color=colour, ls="--", lw=1, label=label)
        initial.set(title="at the start", ylabel="gradient left", ylim=(1e-12, 10))
        trained.set(title="trained")
        for axes in (initial, trained):
            axes.set(yscale="log", xlabel="steps back, k")
            axes.axhline(1e-2, color=_INK, lw=0.5, ls=":")
            axes.legend(fontsize=7, loc="lower left")
        return Picture("gradients", figure, _describe_flow(rows))


def _relative(norms: Sequence[float]) -> list[float]:
    """Norms relative to the first one, which is that of the last step."""
    return [norm / norms[0] if norms[0] else math.nan for norm in norms]


def _describe_flow(rows: Sequence[dict[str, Any]]) -> str:
    parts = [f"{row['label']} {_relative(row['output'])[-1]:.1e}" for row in rows]
    steps = len(rows[0]["output"]) - 1 if rows else 0
    return f"Fraction of the gradient of the output that is left {steps} steps back: {', '.join(parts)}."


@contextmanager
def _panel_per_problem(rows: Sequence[dict[str, Any]], x_label: str) -> Iterator[tuple[Figure, dict[str, Axes]]]:
    """Yield a figure, and its panel for each problem of the rows. The y axes are in per cent."""
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    columns = min(4, len(problems))
    panel_rows = math.ceil(len(problems) / columns)
    width, height = max(4.4, 2.1 * columns + 0.8), max(2.9, 1.9 * panel_rows + 0.5)
    with drawing(width, height, panel_rows, columns, sharey=True) as (figure, grid):
        for axes in grid.flat[len(problems) :]:
            axes.set_visible(False)
        for axes in grid[-1]:
            axes.set_xlabel(x_label)
        grid.flat[0].set_yticks([0, 50, 100], ["0 %", "50 %", "100 %"])
        yield figure, dict(zip(problems, grid.flat, strict=False))


def success(rows: Sequence[dict[str, Any]], cells: Sequence[str]) -> Picture:
    """Draw the percentage of seeds in which each cell solves each problem, by lag."""
    rows = [row for row in rows if row["forget_bias"] is None]
    colour_of = colours(cells)
    with _panel_per_problem(rows, "lag in steps") as (figure, panels):
        for problem, axes in panels.items():
            lags = sorted({row["lag"] for row in rows if row["problem"] == problem})
            for k, cell in enumerate(cells):
                row_at = {r["lag"]: r for r in rows if (r["problem"], r["cell"]) == (problem, cell)}
                percentages = [
                    100 * row_at[lag]["solved"] / row_at[lag]["seeds"] + 1.5 * (k - 1) for lag in lags if lag in row_at
                ]
                positions = [x for x, lag in enumerate(lags) if lag in row_at]
                axes.plot(positions, percentages, marker="o", ms=4, color=colour_of[cell], label=cell, lw=1.2)
            axes.set(title=PROBLEMS[problem].title, ylim=(-7, 107), xlim=(-0.4, len(lags) - 0.6))
            axes.set_xticks(range(len(lags)), [str(lag) if lag else "its own" for lag in lags])
        next(iter(panels.values())).legend(fontsize=7)
        counts = [f"{r['cell']} {r['problem']} at {r['lag']}: {r['solved']} of {r['seeds']}" for r in rows]
        return Picture("success", figure, f"Seeds in which a problem is solved: {'; '.join(counts)}.")


def learning(results: Sequence[dict[str, Any]], cells: Sequence[str]) -> Picture:
    """Draw the percentage of correct answers against sequences seen: thin lines for seeds, a thick line for medians."""
    results = [row for row in results if row["forget_bias"] is None]
    colour_of = colours(cells)
    with _panel_per_problem(results, "sequences seen") as (figure, panels):
        for problem, axes in panels.items():
            lags = {row["lag"] for row in results if row["problem"] == problem}
            lag = min(lags, key=lambda lag: abs(lag - 100))
            for cell in cells:
                curves = [r["curve"] for r in results if (r["problem"], r["cell"], r["lag"]) == (problem, cell, lag)]
                _plot_curves(axes, curves, colour_of[cell], cell)
            axes.set(title=PROBLEMS[problem].title + (f", lag {lag}" if lag else ""), ylim=(-5, 105))
            axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k")
        next(iter(panels.values())).legend(fontsize=7)
        sentence = "Fraction of correct answers against sequences seen, with a thin line for each seed."
        return Picture("learning", figure, sentence)


def _plot_curves(axes: Axes, curves: Sequence[Sequence[tuple[int, float, float]]], colour: str, label: str) -> None:
    for curve in curves:
        axes.plot([p[0] for p in curve], [100 * p[2] for p in curve], color=colour, alpha=0.3, lw=0.7)
    seen = sorted({point[0] for curve in curves for point in curve})
    fraction_at_points = [{p[0]: p[2] for p in curve} for curve in curves]
    # A curve ends when the problem is solved. Its last value is used for all later points.
    fractions = [
        [
            fraction_at.get(x, curve[-1][2] if x > curve[-1][0] else math.nan)
            for fraction_at, curve in zip(fraction_at_points, curves, strict=True)
        ]
        for x in seen
    ]
    medians = [
        statistics.median(v for v in row if v == v) if any(v == v for v in row) else math.nan for row in fractions
    ]
    axes.plot(seen, [100 * m for m in medians], color=colour, lw=1.8, label=label)


def forget_bias(rows: Sequence[dict[str, Any]], gradients: Sequence[dict[str, Any]], max_sequences: int) -> Picture:
    """Draw the effect of the initial forget bias on the LSTM.

    The upper panel has the number of sequences until the adding problem is solved. It is left out if no seed solves it.
    The lower panel has the fraction of the state that the forget gates keep.
    """
    rows = sorted((row for row in rows if row["forget_bias"] is not None), key=lambda row: row["forget_bias"])
    solved = any(row["solved"] for row in rows)
    height, ratios = (4.4, (2, 1)) if solved else (2.2, (1,))
    with drawing(6.4, height, len(ratios), 1, sharex=True, height_ratios=ratios) as (figure, panels):
        if solved:
            _plot_sequences_until_solved(panels[0, 0], rows, max_sequences)
        with_bias = [row for row in gradients if row["forget_bias"] is not None]
        fractions = [_relative(row["own_path"])[-1] for row in with_bias]
        lower = panels[-1, 0]
        lower.plot([row["forget_bias"] for row in with_bias], fractions, "o-", ms=4, color=_PALETTE[2])
        lower.set(yscale="log", ylim=(1e-12, 3), xlabel="forget bias", ylabel="kept over\n100 steps")
        counts = [
            f"{row['forget_bias']:g}{' with the input gate closed' * row['closed']}: {row['solved']} of {row['seeds']}"
            for row in rows
        ]
        sentence = f"Seeds in which the LSTM solves adding, by its forget bias: {'; '.join(counts)}."
        return Picture("forget-bias", figure, sentence)


def _plot_sequences_until_solved(axes: Axes, rows: Sequence[dict[str, Any]], max_sequences: int) -> None:
    """Draw a point for each seed that solves the problem, and a cross for each bias with which some seed does not."""
    input_biases = {
        False: ("input gate's bias 0", -0.08, _PALETTE[4]),
        True: ("input gate's bias minus forget bias", 0.08, _PALETTE[2]),
    }
    for closed, (label, offset, colour) in input_biases.items():
        same_input_bias = [row for row in rows if row["closed"] == closed]
        points = [(r["forget_bias"] + offset, count) for r in same_input_bias for count in r["sequences_until_solved"]]
        failed = [
            (r["forget_bias"] + offset, r["seeds"] - r["solved"]) for r in same_input_bias if r["solved"] < r["seeds"]
        ]
        axes.plot([x for x, _ in points], [y for _, y in points], "o", ms=4.5, color=colour, label=label)
        height = max_sequences * (1.12 + 0.12 * closed)
        axes.plot([x for x, _ in failed], [height] * len(failed), "x", ms=5, color=colour)
    axes.set(ylabel="sequences until solved", ylim=(0, 1.35 * max_sequences), title="cross: not solved by all seeds")
    axes.legend(fontsize=7, loc="lower left")
