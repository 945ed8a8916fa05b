"""Generates the table and the plots from the JSON files of a folder."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments.common.page import machines, table
from experiments.common.store import Store
from experiments.speed.rows import ROWS
from glassgate.tasks.pictures.charts import save_figure

Content = dict[str, Any]

HEADINGS = ("row", "compared with", "geometric mean", "target", "worst point", "target", "spread", "error", "points")
LEGEND = """\
Each point is one size: L steps, N sequences, H units. Its figure is a speedup, or a cost if the target is a maximum
(<=). Missed targets are in bold. The spread of a point is half the distance between the quartiles of its rounds,
relative to its figure; the table has the median of all points. The error is the largest difference between
Glassgate and float64, relative to the largest value. The column "ours" is Glassgate. A first call is listed if it
takes over 5 s."""


def write(folder: Path) -> None:
    """Write table.md, plot.png, and by-size.png (only rows that are compared with torch.nn) to the folder."""
    contents = read(folder)
    (folder / "table.md").write_text(page(contents))
    plot(contents, folder / "plot.png")
    plot([content for content in contents if "nn." in content["against"]], folder / "by-size.png")


def read(folder: Path) -> list[Content]:
    """Return the head and the points of each row in a folder, in the order of `ROWS`."""
    order, store = [row.name for row in ROWS], Store(folder)
    names = sorted(store.names(), key=lambda name: order.index(name) if name in order else len(order))
    return [{**head, "points": points} for head, points in map(store.read, names) if "row" in head]


def page(contents: list[Content]) -> str:
    """Return the summary of all rows and the figures of each row as Markdown."""
    commits = sorted({p["commit"] for c in contents for p in c["points"]})
    about = [*machines(content["environment"] for content in contents), f"Commits: {', '.join(commits)}."]
    about += ["`--quick`: some points only, less time for each."] if any(c["quick"] for c in contents) else []
    parts = ["# Measured\n", "\n".join(about) + "\n", table(HEADINGS, map(_summary, contents)), LEGEND + "\n"]
    for content in contents:
        title = f"{content['what']}; compared with {content['against'] or 'a fixed limit'}."
        parts += [f"## {content['row']}\n", f"{title}\n", _figures(content)]
    return "\n".join(parts)


def measured(content: Content) -> list[dict[str, Any]]:
    """Return the points of a row that have a figure."""
    return [point for point in content["points"] if "figure" in point]


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean of positive numbers."""
    logs = [math.log(max(value, 1e-9)) for value in values]
    return math.exp(sum(logs) / len(logs))


def worst_point(content: Content) -> dict[str, Any]:
    """Return the point with the highest cost or the worst speedup."""
    return (max if content["wanted"]["cost"] else min)(measured(content), key=lambda point: point["figure"])


def _reaches(content: Content, value: float, target: float | None) -> bool:
    if target is None:
        return True
    return value <= target if content["wanted"]["cost"] else value >= target


def _format_figure(content: Content, value: float, target: float | None) -> str:
    """The figure as text, in bold if it misses the target."""
    text = f"{value:.3g}"
    return text if _reaches(content, value, target) else f"**{text}**"


def _format_target(content: Content, name: str) -> str:
    value, sign = content["wanted"][name], "<=" if content["wanted"]["cost"] else ">="
    return "" if value is None else f"{sign} {value:g}"


def _summary(content: Content) -> list[str]:
    points, wanted = measured(content), content["wanted"]
    all_points = f"{len(points)} of {content['of']}"
    targets = [_format_target(content, name) for name in ("mean", "worst")]
    about = [content["what"], content["against"]]
    if not points:
        return [*about, "**missing**", targets[0], "", targets[1], "", "", all_points]
    mean, worst = geometric_mean(p["figure"] for p in points), worst_point(content)
    shown = _format_figure(content, mean, wanted["mean"])
    if any("auto" in p["contenders"] for p in points):
        auto = [p["contenders"].get("auto", {}).get("figure", p["figure"]) for p in points]
        shown += f"; {geometric_mean(auto):.3g} as `auto` chooses"
    spread = sorted((p["high"] - p["low"]) / 2 / max(p["figure"], 1e-9) for p in points)[len(points) // 2]
    errors = [p["contenders"]["ours"]["error"] for p in points if p["contenders"]["ours"].get("error") is not None]
    at_worst = f"{_format_figure(content, worst['figure'], wanted['worst'])} at {_sizes(worst)}"
    largest_error = f"{max(errors):.0e}" if errors else ""
    return [*about, shown, targets[0], at_worst, targets[1], f"{spread:.0%}", largest_error, all_points]


def _sizes(point: dict[str, Any]) -> str:
    return " ".join(f"{k}={v:,}" if isinstance(v, int) else str(v) for k, v in point["at"].items())


def _figures(content: Content) -> str:
    names = list(dict.fromkeys(name for p in measured(content) for name in p["contenders"]))
    rows = []
    for point in content["points"]:
        if "figure" in point:
            cells = [_format_figure(content, point["figure"], content["wanted"]["worst"])]
            cells.append(f"{point['low']:.3g} to {point['high']:.3g}")
            cells += [_format_contender(point["contenders"].get(name)) for name in names]
        else:
            cells = ["**missing**", _without_bars(point["missing"]), *[""] * len(names)]
        rows.append([_sizes(point), *cells])
    return table(["point", f"figure ({content['wanted']['unit']})", "quartiles", *names], rows)


def _format_contender(about: dict[str, Any] | None) -> str:
    if about is None:
        return ""
    if "missing" in about:
        return f"missing: {_without_bars(about['missing'])}"
    parts = [_format_seconds(about["seconds"])] if "seconds" in about else []
    parts += [f"{about['bytes'] / 2**20:.1f} MiB"] if "bytes" in about else []
    parts += [f"error {about['error']:.0e}"] if about.get("error") is not None else []
    parts += [f"first call {about['first call']:.3g} s"] if about.get("first call", 0) > 5 else []
    return ", ".join(parts)


def _without_bars(text: str) -> str:
    return text.replace("|", "/")


def _format_seconds(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def plot(contents: list[Content], path: Path) -> None:
    """Plot speedups and costs, one line per row, with its points, their mean and the target.

    The right column shows the errors of Glassgate and of the other contender of each point.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    ratios = [content for content in contents if measured(content) and content["wanted"]["unit"] not in ("s", "MiB")]
    parts = [[c for c in ratios if c["wanted"]["cost"] is cost] for cost in (False, True)]
    titles = ("speedup", "cost: ratio of times or of memory")
    shown = [(title, part) for title, part in zip(titles, parts, strict=True) if part]
    if not shown:
        return
    figure = Figure((11, 2 + 0.42 * sum(len(part) for _, part in shown)), layout="constrained")
    axes = figure.subplots(
        len(shown),
        2,
        squeeze=False,
        sharey="row",
        width_ratios=(3, 1),
        height_ratios=[len(part) + 1.5 for _, part in shown],
    )
    for (title, part), (left, right) in zip(shown, axes, strict=True):
        for y, content in enumerate(part):
            _draw_figures(left, y, content)
            _draw_errors(right, y, content)
        left.set_yticks(range(len(part)), [_label(content) for content in part], fontsize=8)
        left.set_ylim(len(part) - 0.4, -0.6)
        left.axvline(1, color="black", linewidth=0.5)
        if not part[0]["wanted"]["cost"]:
            left.set_xscale("log")
            left.xaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
            left.xaxis.set_major_formatter("{x:g}")
            left.xaxis.set_minor_formatter(NullFormatter())
        left.set_title(title, loc="left", fontsize=10)
        if right.lines:
            right.set_xscale("log")
            right.xaxis.set_minor_formatter(NullFormatter())
            right.set_title("error against float64", loc="left", fontsize=10)
        else:
            right.set_axis_off()
    entries = axes[0, 0].get_legend_handles_labels(), axes[0, 1].get_legend_handles_labels()
    handles = {label: handle for pairs in entries for handle, label in zip(*pairs, strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), fontsize=8)
    save_figure(figure, path)


def _label(content: Content) -> str:
    return f"{content['what']}\n{content['against'] and 'vs. '}{content['against']}"


def _draw_figures(axes: Any, y: int, content: Content) -> None:
    values, wanted = [p["figure"] for p in measured(content)], content["wanted"]
    axes.plot(values, [y] * len(values), "o", color="tab:blue", alpha=0.35, markeredgewidth=0, label="one size")
    axes.plot(geometric_mean(values), y, "|", color="black", markersize=14, label="geometric mean")
    if (goal := wanted["mean"] or wanted["worst"]) is not None:
        axes.plot(goal, y, "<" if wanted["cost"] else ">", color="tab:red", markersize=5, label="target")


def _draw_errors(axes: Any, y: int, content: Content) -> None:
    for name, mark, colour, label in (
        ("ours", "o", "tab:blue", "error of Glassgate"),
        (None, "x", "tab:grey", "error of the other program"),
    ):
        chosen = [p["contenders"][name or p["against"]].get("error") for p in measured(content) if name or p["against"]]
        if errors := [error for error in chosen if error]:
            axes.plot(errors, [y] * len(errors), mark, color=colour, alpha=0.5, markersize=4, label=label)
