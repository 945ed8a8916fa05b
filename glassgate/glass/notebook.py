"""A recording by itself, without a task: one picture, a page, and what a notebook shows."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from glassgate.glass.cost import cost, described
from glassgate.glass.figures import by_likeness
from glassgate.glass.measures import ranges
from glassgate.glass.page import page
from glassgate.glass.png import heat_map
from glassgate.glass.recorded import Recorded
from glassgate.glass.step import diagrams
from glassgate.glass.study import Passage, Study, by_backward, directions

_WIDTH, _HEIGHT = 640, 160


class Picture:
    """A picture as SVG: a notebook shows it, `str` gives its text."""

    def __init__(self, svg: str) -> None:
        self._svg = svg

    def __str__(self) -> str:
        return self._svg

    def _repr_svg_(self) -> str:
        return self._svg

    def save(self, path: str | Path) -> None:
        """Write the picture to a file."""
        Path(path).write_text(self._svg, encoding="utf-8")


def plot(tape: Recorded, name: str, row: int = 0) -> Picture:
    """See `Tape.plot`."""
    values, kind = _values(tape, name, row), _kind(tape, name)
    label = f"{name}: {values.shape[1]} units, downward, over {values.shape[0]} steps"
    return Picture(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT + 20}" width="{_WIDTH}" '
        f'height="{_HEIGHT + 20}" role="img" aria-label="{escape(label)}">'
        f'<image width="{_WIDTH}" height="{_HEIGHT}" preserveAspectRatio="none" style="image-rendering:pixelated" '
        f'href="{_heat(values, kind)}"/><text y="{_HEIGHT + 15}" font-family="system-ui, sans-serif" font-size="12" '
        f'fill="#808890">{escape(label)}</text></svg>'
    )


def report(tape: Recorded, path: Path, steps: Sequence[str] | Sequence[Sequence[str]] = ()) -> None:
    """See `Tape.report`."""
    found = directions(tape)
    label, call, _ = next(tape.parts())
    lengths = tape.inside(label).sum(0).tolist()
    given = [steps] if steps and isinstance(steps[0], str) else list(steps)
    names = [list(map(str, each)) for each in given] or [[str(k + 1) for k in range(length)] for length in lengths]
    if list(map(len, names)) != lengths:
        raise ValueError(
            f"report: steps must be a list for each of the {len(lengths)} rows, of {lengths} steps, "
            f"got {list(map(len, names))}"
        )
    study = Study("A recording", "", [Passage(each) for each in names], found)
    study.subtitle = described(study)
    study.diagrams, study.cost = diagrams(call.layer), cost(call.layer, call.layer, lengths)
    by_backward(study, tape)
    path.write_text(page(study), encoding="utf-8")


def of_tape(tape: Recorded) -> str:
    """See `Tape._repr_html_`."""
    rows = []
    for name in tape:
        values = _values(tape, name, 0)
        rows.append(
            f"<tr><td><code>{escape(name)}</code></td><td>{tuple(tape[name].shape)}</td><td>{values.mean():.3f}</td>"
            f"<td>{values.min():.3f} to {values.max():.3f}</td>"
            f'<td><img alt="" width="280" height="48" style="image-rendering:pixelated" '
            f'src="{_heat(values, _kind(tape, name))}"></td></tr>'
        )
    head = "<tr><th>name</th><th>(L, N, H)</th><th>mean</th><th>range</th><th>first row, time to the right</th></tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def _values(tape: Recorded, name: str, row: int) -> np.ndarray:
    values = tape[name]
    return np.asarray(values[tape.inside(name.rsplit(".", 1)[0])[:, row], row].float().cpu())


def _kind(tape: Recorded, name: str) -> str:
    label, short = name.rsplit(".", 1)
    return ranges(next(call for known, call, _ in tape.parts() if known == label).layer.cell).get(short, "state")


def _heat(values: np.ndarray, kind: str) -> str:
    values = values[:, by_likeness(values)].T
    return heat_map(
        values if kind == "gate" else values / max(1.0, float(np.abs(values).max())),
        "gate" if kind == "gate" else "signed",
    )
