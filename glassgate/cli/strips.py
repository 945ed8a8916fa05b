"""The report in a terminal: the text, with a strip of blocks for each selected unit below each line."""

from collections.abc import Sequence

import numpy as np
from rich.console import Console, Group
from rich.text import Text

from glassgate.glass.findings import findings
from glassgate.glass.followers import best_followers
from glassgate.glass.heat_map import GATE, HIGH, LOW
from glassgate.glass.languages import say
from glassgate.glass.study import Direction, Study

_BLOCKS = " ▁▂▃▄▅▆▇█"
_MAX_UNITS, _MAX_WIDTH = 3, 100  # maximum numbers of units to show, and of characters in a line


def strips(study: Study, console: Console) -> Group:
    """Return the findings, and the text with strips of units that follow a property of the text.

    The height of a block shows the magnitude of a value. Its colour shows the sign of a state, or marks a gate.
    """
    parts: list[Text] = [Text(f"{study.title}: {study.subtitle}", style="bold")]
    parts += [Text(f"{'!' if each.fault else '-'} {each.sentence}") for each in findings(study)]
    series = _selected_series(study)
    margin = max(len(name) for name, *_ in series) + 1
    width = max(20, min(_MAX_WIDTH, console.width - margin))
    separator = _separator([step for passage in study.passages for step in passage.steps])
    for start, passage in zip(study.starts, study.passages, strict=False):
        wrong = {each.step: each.is_wrong for each in passage.answers}
        parts.append(Text(f"\n{passage.title}" if passage.title else ""))
        for line in _lines(passage.steps, width, separator):
            text = Text(" " * margin)
            for step in line:
                token = _token_text(passage.steps[step], separator)
                text.append(token, style="underline red" if wrong.get(step) else "")
            parts.append(text)
            for name, values, kind in series:
                strip = Text(f"{name:<{margin}}", style="dim")
                for step in line:
                    token = _token_text(passage.steps[step], separator)
                    width_of_token = len(token.rstrip()) or 1
                    block, style = _block(float(values[start + step]), kind)
                    strip.append(block * width_of_token, style if console.color_system else "")
                    strip.append(" " * (len(token) - width_of_token))
                parts.append(strip)
        whole_answers = [each.best[0].text for each in passage.answers if each.step is None and not passage.forecasts]
        if whole_answers:
            parts.append(Text(f"says {_join(whole_answers)}", style="bold"))
    return Group(*parts)


def _selected_series(study: Study) -> list[tuple[str, np.ndarray, str]]:
    """The states and gates to show, as triples of name, values, and kind.

    The kind is "state", with values from about -1 to 1, or "gate", with values from 0 to 1.
    """
    series: list[tuple[str, np.ndarray, str]] = []
    by_label = {each.label: each for each in study.directions}
    shown_units: set[tuple[str, int]] = set()
    for each in best_followers(study):
        if (each.direction, each.unit) not in shown_units and len(shown_units) < _MAX_UNITS:
            shown_units.add((each.direction, each.unit))
            series += _series_of_unit(
                by_label[each.direction], each.unit, f"{each.mark[:14]} {_abbreviate(each.direction)}"
            )
    return series or _series_of_unit(study.directions[0], 0, _abbreviate(study.directions[0].label))


def _series_of_unit(direction: Direction, unit: int, name: str) -> list[tuple[str, np.ndarray, str]]:
    state = direction.states[-1]
    values = direction.values[state][:, unit]
    scale = max(1e-9, float(np.quantile(np.abs(values), 0.98)))
    series = [(f"{name} {state}{unit}", values / scale, "state")]
    gate = next(iter(direction.keeping_gates), None)
    if gate is not None:
        series.append((f"{'':>{len(name)}} {gate}{unit}", direction.values[gate][:, unit], "gate"))
    return series


def _join(tokens: Sequence[str]) -> str:
    """Join answers to a text: characters without blanks, words with blanks, and the end-of-sequence token in brackets.

    Example:
        >>> _join(["1", "4", "the end"]), _join(["well", "done", "the end"])
        ('14 [the end]', 'well done [the end]')
    """
    end = say("answers.end")
    words = [token for token in tokens if token != end]
    return _separator(words).join(words) + (f" [{end}]" if end in tokens else "")


def _separator(tokens: Sequence[str]) -> str:
    """A blank if at least a quarter of the tokens are longer than one character, otherwise nothing."""
    return " " if 4 * sum(len(token) > 1 for token in tokens) >= max(1, len(tokens)) else ""


def _abbreviate(label: str) -> str:
    layer, direction = label.rsplit(".", 2)[-2:]
    return f"{layer[5:]}{'>' if direction == 'forward' else '<'}"


def _lines(steps: Sequence[str], width: int, separator: str) -> list[range]:
    """The range of steps of each line."""
    lines, start, used = [], 0, 0
    for index, step in enumerate(steps):
        size = len(_token_text(step, separator))
        if used and used + size > width:
            lines.append(range(start, index))
            start, used = index, 0
        used += size
        if step == "\n":
            lines.append(range(start, index + 1))
            start, used = index + 1, 0
    return [*lines, range(start, len(steps))] if start < len(steps) else lines


def _token_text(step: str, separator: str) -> str:
    return "↵" if step == "\n" else f"{step}{separator}"


def _block(value: float, kind: str) -> tuple[str, str]:
    """The block of a value, and its style."""
    red, green, blue = GATE if kind == "gate" else HIGH if value > 0 else LOW
    return _BLOCKS[round(8 * min(1.0, abs(value)))], f"rgb({red},{green},{blue})"
