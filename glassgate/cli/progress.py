"""A training's progress in the terminal: a bar with throughput and time left, and a line for each epoch."""

from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from glassgate.tasks.progress import Progress as Quiet


def display(console: Console) -> Progress:
    """Return a display for the progress bars of trainings, one below the other, inside its `with`."""
    return _Display(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:>3.0f}%{task.fields[said]}"),
        _Throughput(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(compact=True),
        console=console,
    )


class _Display(Progress):
    """Leaves nothing behind where it had nothing to show."""

    def stop(self) -> None:
        if self.tasks:
            super().stop()
        else:
            self.live.stop()


class Bar(Quiet):
    """Draws one training.

    Args:
        drawn_on: a `display`
        title: the text before the bar
    """

    def __init__(self, drawn_on: Progress, title: str):
        self.drawn_on = drawn_on
        self.title = title
        self.loss = float("nan")

    def reading(self) -> None:
        self._print("reading the data")

    def keeping(self, file: str, share: float) -> None:
        if not share:
            title = f"{self.title}  converting {file} for the cache, once"
            self.kept = self.drawn_on.add_task(title, total=1.0, said="")
        self.drawn_on.update(self.kept, completed=share)
        if share == 1.0:
            self.drawn_on.stop_task(self.kept)

    def note(self, text: str) -> None:
        self._print(text)

    def begin(self, units: int, done: int) -> None:
        self.row = self.drawn_on.add_task(self.title, total=units, completed=done, said="")

    def change(self, units: int) -> None:
        total = self.drawn_on.tasks[self.row].total or 0
        self.drawn_on.update(self.row, total=total + units)

    def step(self, units: int, loss: float) -> None:
        self.loss = loss if self.loss != self.loss else 0.95 * self.loss + 0.05 * loss
        self.drawn_on.update(self.row, advance=units, said=f"  loss {self.loss:.3f}")

    def epoch(self, number: int, scores: Mapping[str, float]) -> None:
        self._print(f"epoch {number}  {told(scores)}")

    def stopping(self) -> None:
        self._print("stops after this step; Ctrl-C again stops at once")

    def end(self) -> None:
        self.drawn_on.stop_task(self.row)

    def _print(self, text: str) -> None:
        self.drawn_on.console.print(f"{self.title}  {text}", highlight=False, soft_wrap=True)


class _Throughput(ProgressColumn):
    """Units a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed or 0
        return Text(f"{speed:>8,.0f}/s" if task.fields["said"] else "")


# Scores that are not fractions, and those from 0 to 100.
_PLAIN = frozenset(
    {"loss", "nats", "bits", "perplexity", "mse", "mae", "mase", "rmsse", "wql", "data_mae", "data_rmse"}
)
_OF_100 = frozenset({"bleu", "chrf"})


def told(scores: Mapping[str, float]) -> str:
    """Return scores as text: fractions in percent, a loss in nats."""
    return "  ".join(f"{name.replace('_', ' ')} {_value(name, value)}" for name, value in scores.items())


def _value(name: str, value: float) -> str:
    if name in _OF_100:
        return f"{value:.2f}"
    return f"{value:.4f}" if name in _PLAIN else f"{value:.2%}"
