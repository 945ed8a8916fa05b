"""Displays progress in the terminal: a bar with throughput and remaining time, and a line for each epoch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from glassgate.tasks.progress import Progress as Callbacks


def display(console: Console) -> Progress:
    """Return a context manager that displays progress bars, one below the other."""
    return _Bars(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:>3.0f}%{task.fields[loss]}"),
        _Throughput(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(compact=True),
        console=console,
    )


@contextmanager
def stages(title: str) -> Iterator[tuple["Bar", Callable[[str], None]]]:
    """Display a bar for work in stages. Yields callbacks for reading data, and a function that shows the next stage."""
    with display(Console(stderr=True)) as bars:
        row = bars.add_task("reading the run", total=None, loss="")
        yield Bar(bars, title), lambda stage: bars.update(row, description=stage)
        bars.update(row, total=1, completed=1)


class _Bars(Progress):
    """Progress bars that print nothing while empty."""

    def stop(self) -> None:
        if self.tasks:
            super().stop()
        else:
            self.live.stop()


class Bar(Callbacks):
    """Callbacks of a training run, which print its messages and display its progress bar, after a title."""

    def __init__(self, display: Progress, title: str):
        self.display = display
        self.title = title
        self.loss = float("nan")

    def reading(self) -> None:
        self._print("reading the data")

    def converting(self, file: str, fraction: float) -> None:
        if not fraction:
            title = f"{self.title}  converting {file} for the cache, once"
            self.conversion = self.display.add_task(title, total=1.0, loss="")
        self.display.update(self.conversion, completed=fraction)
        if fraction == 1.0:
            self.display.stop_task(self.conversion)

    def note(self, text: str) -> None:
        self._print(text)

    def begin(self, units: int, done: int) -> None:
        self.row = self.display.add_task(self.title, total=units, completed=done, loss="")

    def change(self, units: int) -> None:
        total = self.display.tasks[self.row].total or 0
        self.display.update(self.row, total=total + units)

    def step(self, units: int, loss: float) -> None:
        self.loss = loss if self.loss != self.loss else 0.95 * self.loss + 0.05 * loss
        self.display.update(self.row, advance=units, loss=f"  loss {self.loss:.3f}")

    def epoch(self, number: int, scores: Mapping[str, float]) -> None:
        self._print(f"epoch {number}  {format_scores(scores)}")

    def stopping(self) -> None:
        self._print("stopping after this step; press Ctrl-C again to stop immediately")

    def end(self) -> None:
        self.display.stop_task(self.row)

    def _print(self, text: str) -> None:
        self.display.console.print(f"{self.title}  {text}", highlight=False, soft_wrap=True)


class _Throughput(ProgressColumn):
    """The number of tokens or time steps per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed or 0
        return Text(f"{speed:>8,.0f}/s" if task.fields["loss"] else "")


# The suffixes of scores from 0 to 1, and the names of scores from 0 to 100.
_FRACTION_SUFFIXES = (
    "accuracy", "f1", "precision", "recall", "whole_tokens", "exact_match", "error_rate", "coverage", "mape"
)  # fmt: skip
_PERCENTAGES = ("bleu", "chrf")


def format_scores(scores: Mapping[str, float]) -> str:
    """Return scores as text: fractions in percent, and other scores, such as a loss, as numbers.

    Example:
        >>> format_scores({"loss": 0.5, "macro_f1": 0.25, "bleu": 31.4159})
        'loss 0.5000  macro f1 25.00%  bleu 31.42'
    """
    return "  ".join(f"{name.replace('_', ' ')} {_format_score(name, value)}" for name, value in scores.items())


def score_table(rows: Mapping[str, Mapping[str, float]], columns: Sequence[str]) -> str:
    """Return scores as a table with a row for each model; a missing score is an empty cell.

    Example:
        >>> print(score_table({"this network": {"accuracy": 0.5}, "mean": {}}, ["accuracy"]))
                      accuracy
        this network    50.00%
        mean
    """
    width = max(map(len, rows))
    lines = [" " * width + "".join(f"  {name.replace('_', ' '):>8}" for name in columns)]
    for title, scores in rows.items():
        cells = ((name, _format_score(name, scores[name]) if name in scores else "") for name in columns)
        lines.append(f"{title:{width}}{''.join(f'  {cell:>{max(8, len(name))}}' for name, cell in cells)}".rstrip())
    return "\n".join(lines)


def _format_score(name: str, value: float) -> str:
    if name in _PERCENTAGES:
        return f"{value:.2f}"
    return f"{value:.2%}" if name.endswith(_FRACTION_SUFFIXES) else f"{value:.4f}"
