"""The logs of a training: a CSV file, TensorBoard events, and learning curves if matplotlib is installed."""

import csv
import io
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from glassgate.tasks.errors import RunError
from glassgate.tasks.pictures.charts import curves_picture, has_matplotlib
from glassgate.tasks.runs import Run, write, writing

FOLDER = "logs"
FILE = "metrics.csv"
PICTURE = "curves.png"

_DRAW_EVERY = 5.0  # seconds; drawing takes about 0.3 seconds


class Logs:
    """Writes logs to a run folder. Rows of an earlier process are kept up to the step from which training resumes.

    Args:
        run: the run folder
        monitor: the score that selects the best epoch
        step: the number of steps that are done; 0 in a new run
    """

    def __init__(self, run: Run, monitor: str, step: int):
        # TensorBoard takes half a second to load, and only trainings need it.
        from torch.utils.tensorboard.summary import hparams
        from torch.utils.tensorboard.writer import SummaryWriter

        self.path = run.path
        self.monitor = monitor
        self.rows = [row for row in read_rows(run.path) if row["step"] <= step]
        self.tensorboard = SummaryWriter(run.path / FOLDER, purge_step=step + 1 if step else None)
        if not step:
            options = {name: _hparam(value) for name, value in run.content["options"].items()}
            for summary in hparams(options, {f"dev_{monitor}": 0.0}):
                self.tensorboard._get_file_writer().add_summary(summary)
        self.save()
        self.last_drawing = time.monotonic()

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Add a row."""
        self.rows.append({**values, "step": step})
        with writing(self.path / FOLDER):
            for name, value in values.items():
                self.tensorboard.add_scalar(name, value, step)

    def save(self) -> None:
        """Write all rows to the disk."""
        table = io.StringIO(newline="")
        names = dict.fromkeys(name for row in self.rows for name in row)
        writer = csv.DictWriter(table, [*names], lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        with writing(self.path / FOLDER):
            write(self.path / FOLDER / FILE, table.getvalue().encode())
            self.tensorboard.flush()

    def close(self) -> None:
        """Close the files at the end of a training, even after an error."""
        with suppress(OSError, RunError):
            self.save()
        with suppress(OSError):
            self.tensorboard.close()

    def draw(self, ended: bool) -> None:
        """Replace the picture at the end of training, or if the last one is more than 5 seconds old."""
        if has_matplotlib() and (ended or time.monotonic() - self.last_drawing >= _DRAW_EVERY):
            picture = io.BytesIO()
            curves_picture(self.rows, self.monitor, picture)
            write(self.path / PICTURE, picture.getvalue())
            self.last_drawing = time.monotonic()


def _hparam(value: Any) -> bool | int | float | str:
    """Return an option in a type that TensorBoard accepts; characters that are not Unicode are escaped."""
    return value if isinstance(value, bool | int | float) else str(value).encode(errors="backslashreplace").decode()


def read_rows(run: Path) -> list[dict[str, float]]:
    """Return the rows of a run folder's CSV file, without an incomplete last row; an empty list if it is missing."""
    path = run / FOLDER / FILE
    if not path.exists():
        return []
    lines = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
    return [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(lines)]
