"""Pictures of results, drawn with matplotlib if it is installed."""

import io
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from glassgate.tasks.runs import write

_TAG, _COORDINATE = re.compile(rb"<[^>]*>"), re.compile(rb"-?\d+\.\d{4,}")


def has_matplotlib() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure of matplotlib as PNG or SVG, by the suffix of the path.

    In SVG, text is stored as text and coordinates have one decimal (0.1 pt). Equal figures give equal files.
    """
    from matplotlib import rc_context

    content = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "glassgate"}):
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(content, dpi=120, format=path.suffix[1:], metadata=metadata)
    raw = content.getvalue()
    if path.suffix == ".svg":
        raw = re.sub(rb"(?m)^ +| +$", b"", _TAG.sub(_rounded, raw))
    write(path, raw)


def _rounded(tag: "re.Match[bytes]") -> bytes:
    return _COORDINATE.sub(lambda match: b"%.1f" % float(match[0]), tag[0])


def confusion_picture(counts: Sequence[Sequence[int]], labels: Sequence[str], path: Path) -> None:
    """Draw a confusion matrix: a row per true label, a column per predicted one, shaded by the fraction of the row.

    Args:
        counts: a row of counts per true label
        labels: the names of the labels
        path: the path of the picture, PNG or SVG
    """
    from matplotlib.figure import Figure

    side = max(3.0, min(0.45, 20 / len(labels)) * len(labels) + 1.5)
    figure = Figure((side, side), layout="constrained")
    axes = figure.subplots()
    fractions = [[count / max(1, sum(row)) for count in row] for row in counts]
    axes.imshow(fractions, cmap="Blues", vmin=0, vmax=1)
    size = min(10.0, 900 / len(labels))
    axes.set_xticks(range(len(labels)), labels, rotation=90 if max(map(len, labels)) > 2 else 0, fontsize=size)
    axes.set_yticks(range(len(labels)), labels, fontsize=size)
    axes.set(xlabel="predicted", ylabel="true")
    for row, of_row in enumerate(counts):
        for column, count in enumerate(of_row):
            if count:
                colour = "white" if fractions[row][column] > 0.5 else "black"
                axes.text(column, row, str(count), ha="center", va="center", color=colour, fontsize=0.8 * size)
    save_figure(figure, path)


def curves_picture(rows: Sequence[Mapping[str, float]], monitor: str, file: IO[bytes]) -> None:
    """Draw the loss and the monitored score on training and dev data, and the learning rate below.

    Args:
        rows: the rows of the log, each with "step" and some of "train_loss", "dev_loss", "train_<monitor>",
            "dev_<monitor>" and "learning_rate"
        monitor: the name of the score
        file: receives the picture as PNG
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure((9, 4), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=(5, 1))
    for place, name in enumerate(("loss", monitor)):
        axes = figure.add_subplot(grid[0, place])
        for part, colour in (("train", "tab:blue"), ("dev", "tab:orange")):
            steps, values = _curve(rows, f"{part}_{name}")
            if steps:
                marker = "." if len(steps) < 60 else None
                label = f"{part}, {values[-1]:.4g} at the end"
                axes.plot(steps, values, color=colour, marker=marker, linewidth=1.2, label=label)
        axes.set_title(name.replace("_", " "), fontsize=10)
        axes.legend(fontsize=8)
    axes = figure.add_subplot(grid[1, :])
    axes.plot(*_curve(rows, "learning_rate"), color="tab:gray", linewidth=1.0)
    axes.set_ylabel("rate", fontsize=8)
    axes.set_xlabel("steps", fontsize=9)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    last = max((row["step"] for row in rows), default=1)
    for each in figure.axes:
        each.set_xlim(0, 1.02 * last)
        each.grid(alpha=0.3)
        each.tick_params(labelsize=8)
        each.yaxis.offsetText.set_fontsize(7)
        each.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.savefig(file, dpi=120, format="png")


def range_test_picture(rates: Sequence[float], losses: Sequence[float], rate: float, path: Path) -> None:
    """Draw the losses of a learning rate range test, and the selected rate.

    Args:
        rates, losses: the rate and the smoothed loss of each step
        rate: the selected rate
        path: the path of the picture, PNG or SVG
    """
    from matplotlib.figure import Figure

    figure = Figure((6, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.semilogx(rates, losses, linewidth=1.4)
    axes.axvline(rate, color="tab:orange", linewidth=1.2, label=f"{rate:g}, where the loss falls fastest")
    axes.set(xlabel="learning rate", ylabel="loss, smoothed")
    axes.legend(fontsize=9)
    axes.grid(alpha=0.3)
    save_figure(figure, path)


def _curve(rows: Sequence[Mapping[str, float]], name: str) -> tuple[list[float], list[float]]:
    """The steps at which a value was logged, and the values."""
    points = [(row["step"], row[name]) for row in rows if name in row]
    return [step for step, _ in points], [value for _, value in points]
