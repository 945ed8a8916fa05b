"""The picture, the report page and the notebook display of a recording without a task."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np

from glassgate.glass.cell_section import diagrams
from glassgate.glass.controls import CONTROLS, with_random_weights
from glassgate.glass.cost import cost, describe
from glassgate.glass.diagrams.svg import Picture
from glassgate.glass.gradients import flow_from_backward
from glassgate.glass.heat_map import heat_map, similarity_order
from glassgate.glass.languages import say
from glassgate.glass.measures import ranges
from glassgate.glass.page import page
from glassgate.glass.recorded import Recorded
from glassgate.glass.study import Passage, Study, directions
from glassgate.glass.svg import number, round_numbers
from glassgate.glass.wording import fixed
from glassgate.storage import write_file

_WIDTH, _HEIGHT = 560, 160
_LEFT, _TOP = 52, 24
_MAX_LABELS = 16  # the maximum number of units whose numbers are next to a heat map
_GREY = "#808890"  # readable on white and on black


def plot(tape: Recorded, name: str, row: int = 0) -> Picture:
    """See `Tape.plot`."""
    values, kind = _values(tape, name, row), _kind(tape, name)
    order = similarity_order(values)
    largest = 1.0 if kind == "gate" else max(1.0, float(np.abs(values).max()))
    lowest = 0.0 if kind == "gate" else -1.0
    steps, units = values.shape
    row_centres = [round(_TOP + (k + 0.5) * _HEIGHT / units, 1) for k in range(units)]
    if units <= _MAX_LABELS:
        unit_labels = [(y, str(unit)) for y, unit in zip(row_centres, order, strict=True)]
        title = "unit"
    else:
        unit_labels, title = [], f"{units} units, similar ones adjacent"
    step_labels = [
        (_LEFT + (step + 0.5) * _WIDTH / steps, f"{step:g}")
        for step in round_numbers(0, max(1, steps - 1))
        if step == int(step) and step < steps
    ]
    bar = _LEFT + _WIDTH + 24
    bar_labels = [
        (_TOP + (1 - fraction) * _HEIGHT, number(float(f"{largest * (lowest + fraction * (1 - lowest)):.3g}")))
        for fraction in (0, 0.5, 1)
    ]
    shades = np.linspace(1, lowest, 64)[:, None]
    value_range = f"{bar_labels[0][1]} to {bar_labels[-1][1]}"
    label = f"{name} of row {row}: {units} units over {steps} steps, values from {value_range}"
    parts = [
        _image(_LEFT, _WIDTH, _heat(values, kind)),
        _image(bar, 14, heat_map(shades, "gate" if kind == "gate" else "signed")),
        *(_text(x, _TOP + _HEIGHT + 16, text, "middle") for x, text in step_labels),
        *(_text(_LEFT - 6, y + 4, text, "end") for y, text in unit_labels),
        *(_text(bar + 20, y + 4, text, "start") for y, text in bar_labels),
        _text(_LEFT + _WIDTH / 2, _TOP + _HEIGHT + 36, "step", "middle"),
        _text(_LEFT, _TOP - 8, name, "start"),
        f'<g transform="translate(14 {_TOP + _HEIGHT / 2}) rotate(-90)">{_text(0, 0, title, "middle")}</g>',
    ]
    width, height = bar + 70, _TOP + _HEIGHT + 46
    return Picture(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(label)}" font-family="system-ui, sans-serif" font-size="12" fill="{_GREY}">'
        f"{''.join(parts)}</svg>"
    )


def _image(x: float, width: float, href: str) -> str:
    area = f'x="{x}" y="{_TOP}" width="{width}" height="{_HEIGHT}"'
    return (
        f'<image {area} preserveAspectRatio="none" style="image-rendering:pixelated" href="{href}"/>'
        f'<rect {area} fill="none" stroke="{_GREY}" stroke-width="0.75"/>'
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def report(tape: Recorded, path: Path, steps: Sequence[str] | Sequence[Sequence[str]] = ()) -> None:
    """See `Tape.report`."""
    recorded = directions(tape)
    label, call, _ = next(tape.directions())
    lengths = tape.unpadded(label).sum(0).tolist()
    rows = [steps] if steps and isinstance(steps[0], str) else list(steps)
    names = [list(map(str, row)) for row in rows] or [[str(k + 1) for k in range(length)] for length in lengths]
    if list(map(len, names)) != lengths:
        raise ValueError(
            f"report: steps must have a list for each of {len(lengths)} rows, with {lengths} entries, "
            f"got {list(map(len, names))}"
        )
    study = Study(say("page.recording"), "", [Passage(each) for each in names], recorded)
    study.subtitle = describe(study)
    study.diagrams, study.cost = diagrams(call.layer), cost(call.layer, call.layer, lengths)
    study.make_control = lambda seed: directions(with_random_weights(tape, seed), brief=True)
    study.controls = [study.make_control(seed) for seed in range(CONTROLS)]
    flow_from_backward(study, tape)
    write_file(path, page(study).encode())


def html_table(tape: Recorded) -> str:
    """See `Tape._repr_html_`."""
    rows = []
    for name in tape:
        values = _values(tape, name, 0)
        rows.append(
            f"<tr><td><code>{escape(name)}</code></td><td>{tuple(tape[name].shape)}</td>"
            f"<td>{fixed(values.mean(), 3)}</td><td>{fixed(values.min(), 3)} to {fixed(values.max(), 3)}</td>"
            f'<td><img alt="" width="280" height="48" style="image-rendering:pixelated" '
            f'src="{_heat(values, _kind(tape, name))}"></td></tr>'
        )
    columns = "name", "(L, N, H)", "mean, first row", "range, first row", "first row, time to the right"
    head = f"<tr>{''.join(f'<th>{column}</th>' for column in columns)}</tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def _values(tape: Recorded, name: str, row: int) -> np.ndarray:
    """The values of one row of the batch, (steps, units). Axes that a cell declares are flattened."""
    values = tape[name][tape.unpadded(name.rsplit(".", 1)[0])[:, row], row]
    return np.asarray(values.reshape(len(values), -1).float().cpu())


def _kind(tape: Recorded, name: str) -> str:
    label, short = name.rsplit(".", 1)
    return ranges(next(call for known, call, _ in tape.directions() if known == label).layer.cell).get(short, "state")


def _heat(values: np.ndarray, kind: str) -> str:
    values = values[:, similarity_order(values)].T
    return heat_map(
        values if kind == "gate" else values / max(1.0, float(np.abs(values).max())),
        "gate" if kind == "gate" else "signed",
    )
