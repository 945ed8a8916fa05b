"""Pictures of results, by matplotlib where it is installed."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path


def has_pictures() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def confusion_picture(counts: Sequence[Sequence[int]], labels: Sequence[str], path: Path) -> None:
    """Draw a confusion matrix: a row a true label, a column a given one, shaded by the share of the row.

    Args:
        counts: rows of how often each label was given
        labels: their names
        path: of the picture, PNG or SVG
    """
    from matplotlib.figure import Figure

    side = max(3.0, 0.45 * len(labels) + 1.5)
    figure = Figure((side, side), layout="constrained")
    axes = figure.subplots()
    shares = [[count / max(1, sum(row)) for count in row] for row in counts]
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(labels)), labels, rotation=90)
    axes.set_yticks(range(len(labels)), labels)
    axes.set(xlabel="given", ylabel="true")
    for row, of_row in enumerate(counts):
        for column, count in enumerate(of_row):
            if count:
                colour = "white" if shares[row][column] > 0.5 else "black"
                axes.text(column, row, str(count), ha="center", va="center", color=colour, fontsize=8)
    figure.savefig(path, dpi=120)
