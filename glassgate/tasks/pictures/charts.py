"""Confusion matrices, training curves and learning rate range tests as pictures, drawn with matplotlib."""

import io
import re
import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from glassgate.tasks.runs import write

_SVG_TAG = re.compile(rb"<[^>]*>")
_CHINESE_FONTS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei",
    "PingFang SC", "Microsoft YaHei", "SimHei",
)  # fmt: skip
"""Fonts for the characters that matplotlib's own font lacks, the preferred ones first."""
_LONG_DECIMAL = re.compile(rb"-?\d+\.\d{4,}")


def has_matplotlib() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def save_figure(figure: Any, path: Path) -> None:
    """Write a matplotlib figure as PNG or SVG; the suffix of the path selects the format.

    In SVG, text is stored as text, and coordinates are rounded to 0.1 pt. Equal figures give equal files. A character
    that no installed font has causes a warning.
    """
    from matplotlib import rc_context
    from matplotlib.font_manager import fontManager
    from matplotlib.text import Text

    installed = {*fontManager.get_font_names()}
    families = ["sans-serif", *(name for name in _CHINESE_FONTS if name in installed)]
    for text in figure.findobj(Text):
        text.set_fontfamily(families)
    content = io.BytesIO()
    style = rc_context({"svg.fonttype": "none", "svg.hashsalt": "glassgate"})
    with style, warnings.catch_warnings(record=True) as missing:
        warnings.filterwarnings("always", "Glyph .* missing")
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(content, dpi=120, format=path.suffix[1:], metadata=metadata)
    if missing and (number := re.match(r"Glyph (\d+)", str(missing[0].message))):
        character = chr(int(number[1]))
        warnings.warn(
            f"{path.name}: no installed font has {character!r}; install one, such as Noto Sans CJK", stacklevel=2
        )
    raw = content.getvalue()
    if path.suffix == ".svg":
        rounded = _SVG_TAG.sub(lambda tag: _LONG_DECIMAL.sub(lambda match: b"%.1f" % float(match[0]), tag[0]), raw)
        raw = re.sub(rb"(?m)^ +| +$", b"", rounded)
    write(path, raw)


def confusion_picture(counts: Sequence[Sequence[int]], labels: Sequence[str], path: Path) -> None:
    """Draw a confusion matrix as PNG or SVG: a row of counts per true label and a column per predicted label.

    The shade of a square shows its count as a fraction of the sum of its row.
    """
    from matplotlib.figure import Figure

    side = max(3.0, min(0.45, 20 / len(labels)) * len(labels) + 1.5)
    figure = Figure((side, side), layout="constrained")
    axes = figure.subplots()
    fractions = [[count / max(1, sum(row)) for count in row] for row in counts]
    axes.imshow(fractions, cmap="Blues", vmin=0, vmax=1)
    font_size = min(10.0, 900 / len(labels))
    rotation = 90 if max(map(len, labels)) > 2 else 0
    axes.set_xticks(range(len(labels)), labels, rotation=rotation, fontsize=font_size)
    axes.set_yticks(range(len(labels)), labels, fontsize=font_size)
    axes.set(xlabel="predicted", ylabel="true")
    for i, row in enumerate(counts):
        for j, count in enumerate(row):
            if count:
                colour = "white" if fractions[i][j] > 0.5 else "black"
                axes.text(j, i, str(count), ha="center", va="center", color=colour, fontsize=0.8 * font_size)
    save_figure(figure, path)


def curves_picture(rows: Sequence[Mapping[str, float]], monitor: str, file: IO[bytes]) -> None:
    """Draw the loss and the monitored score on training and dev data, and the learning rate below them, as PNG.

    Each row of the log has "step" and some of "train_loss", "dev_loss", "train_<monitor>", "dev_<monitor>" and
    "learning_rate".
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure((9, 4), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=(5, 1))
    for column, name in enumerate(("loss", monitor)):
        axes = figure.add_subplot(grid[0, column])
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
    last_step = max((row["step"] for row in rows), default=1)
    for axes in figure.axes:
        axes.set_xlim(0, 1.02 * last_step)
        axes.grid(alpha=0.3)
        axes.tick_params(labelsize=8)
        axes.yaxis.offsetText.set_fontsize(7)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.savefig(file, dpi=120, format="png")


def range_test_picture(rates: Sequence[float], losses: Sequence[float], rate: float, path: Path) -> None:
    """Draw the smoothed loss of each step of a learning rate range test, and mark the selected rate; PNG or SVG."""
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
