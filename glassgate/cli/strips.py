"""The report in a terminal: text, and below each line a strip for each selected unit, with or without colour."""

from collections.abc import Sequence

import numpy as np
from rich.console import Console, Group
from rich.text import Text

from glassgate.glass.findings import findings
from glassgate.glass.followers import best_followers
from glassgate.glass.study import Direction, Study
from glassgate.glass.text_section import END

_BLOCKS = " ▁▂▃▄▅▆▇█"
_HIGH, _LOW, _GATE = (230, 116, 24), (58, 134, 214), (14, 150, 136)
# The maximum numbers of units to show and of characters in a line.
_UNITS, _WIDEST = 3, 100


def strips(study: Study, console: Console) -> Group:
    """Return the findings, and the text line by line with strips of units that follow a property of the text.

    Without colours, the height of a block shows the magnitude of a value.
    """
    parts: list[Text] = [Text(f"{study.title}: {study.subtitle}", style="bold")]
    parts += [Text(f"{'!' if each.fault else '-'} {each.sentence}") for each in findings(study)]
    chosen = _chosen(study)
    margin = max(len(name) for name, *_ in chosen) + 1
    width = max(20, min(_WIDEST, console.width - margin))
    between = _between([step for passage in study.passages for step in passage.steps])
    for start, passage in zip(study.starts, study.passages, strict=False):
        wrong = {each.step: each.wrong for each in passage.answers}
        parts.append(Text(f"\n{passage.title}" if passage.title else ""))
        for line in _lines(passage.steps, width, between):
            words = Text(" " * margin)
            for step in line:
                shown = _shown(passage.steps[step], between)
                words.append(shown, style="underline red" if wrong.get(step) else "")
            parts.append(words)
            for name, values, kind in chosen:
                strip = Text(f"{name:<{margin}}", style="dim")
                for step in line:
                    block = _block(float(values[start + step]), kind, console.color_system is not None)
                    shown = _shown(passage.steps[step], between)
                    strip.append_text(_wide(block, len(shown.rstrip()) or 1))
                    strip.append(" " * (len(shown) - (len(shown.rstrip()) or 1)))
                parts.append(strip)
        whole = [each.best[0][0] for each in passage.answers if each.step is None and not passage.forecasts]
        if whole:
            parts.append(Text(f"says {_joined(whole)}", style="bold"))
    return Group(*parts)


def _chosen(study: Study) -> list[tuple[str, np.ndarray, str]]:
    """The units to show: a name, values from -1 to 1 or 0 to 1, and the kind."""
    rows: list[tuple[str, np.ndarray, str]] = []
    labels = {each.label: each for each in study.directions}
    shown_units: set[tuple[str, int]] = set()
    for each in best_followers(study):
        if (each.direction, each.unit) not in shown_units and len(shown_units) < _UNITS:
            shown_units.add((each.direction, each.unit))
            rows += _of_unit(labels[each.direction], each.unit, f"{each.label[:14]} {_short(each.direction)}")
    return rows or _of_unit(study.directions[0], 0, _short(study.directions[0].label))


def _of_unit(direction: Direction, unit: int, name: str) -> list[tuple[str, np.ndarray, str]]:
    state = direction.states[-1]
    values = direction.values[state][:, unit]
    rows = [(f"{name} {state}{unit}", values / max(1e-9, float(np.quantile(np.abs(values), 0.98))), "state")]
    gate = next((name for name, kind in direction.kinds.items() if kind == "gate" and name in "fz"), None)
    return (
        rows if gate is None else [*rows, (f"{'':>{len(name)}} {gate}{unit}", direction.values[gate][:, unit], "gate")]
    )


def _joined(tokens: Sequence[str]) -> str:
    """Join answers to a text: characters without blanks, words with blanks, and the end as a marker.

    Example:
        >>> _joined(["1", "4", "the end"]), _joined(["well", "done", "the end"])
        ('14 [the end]', 'well done [the end]')
    """
    words = [token for token in tokens if token != END]
    return _between(words).join(words) + (f" [{END}]" if END in tokens else "")


def _between(tokens: Sequence[str]) -> str:
    """A blank between words, nothing between characters, of which some, such as emoji, are longer than others."""
    return " " if 4 * sum(len(token) > 1 for token in tokens) >= max(1, len(tokens)) else ""


def _short(label: str) -> str:
    layer, direction = label.rsplit(".", 2)[-2:]
    return f"{layer[5:]}{'>' if direction == 'forward' else '<'}"


def _lines(steps: Sequence[str], width: int, between: str) -> list[range]:
    lines, first, used = [], 0, 0
    for place, step in enumerate(steps):
        size = len(_shown(step, between))
        if used and used + size > width:
            lines.append(range(first, place))
            first, used = place, 0
        used += size
        if step == "\n":
            lines.append(range(first, place + 1))
            first, used = place + 1, 0
    return [*lines, range(first, len(steps))] if first < len(steps) else lines


def _shown(step: str, between: str) -> str:
    return "↵" if step == "\n" else f"{step}{between}"


def _block(value: float, kind: str, coloured: bool) -> Text:
    size = min(1.0, abs(value))
    if not coloured:
        return Text(_BLOCKS[round(size * 8)])
    colour = _GATE if kind == "gate" else _HIGH if value > 0 else _LOW
    return Text(_BLOCKS[round(size * 8)], style=f"rgb({colour[0]},{colour[1]},{colour[2]})")


def _wide(block: Text, count: int) -> Text:
    return Text(block.plain * count, style=block.style)
