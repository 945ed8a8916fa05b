"""The section of the text, or of the series: each step shaded by a unit, and what the model says of it."""

from html import escape

import numpy as np

from glassgate.glass import figures
from glassgate.glass.blocks import Section, figure, ramp
from glassgate.glass.figures import percent
from glassgate.glass.followers import follows
from glassgate.glass.study import Passage, Said, Study
from glassgate.glass.svg import number

_SHADES = 10


def text(study: Study) -> Section:
    ranked = follows(study)
    direction = study.directions[0]
    unit, name, what = 0, direction.states[-1], ""
    if ranked:
        best = ranked[0]
        direction = next(each for each in study.directions if each.label == best.direction)
        unit, name, what = best.unit, best.state, f": the one that follows “{escape(best.label)}” most closely"
    values = direction.values[name][:, unit]
    scale = float(np.quantile(np.abs(values), 0.98)) or 1.0
    blocks = []
    for place, (start, passage) in enumerate(zip(study.starts, study.passages, strict=False)):
        blocks.append(_passage(study, place, start, passage, values[start : start + len(passage.steps)] / scale))
    wrong = any(each.right is False for passage in study.passages for each in passage.said)
    lede = f"What each step reads, shaded by one unit{what}." + (
        ' Wrong answers are <i class="u w">underlined</i>.' if wrong else ""
    )
    words = f'<b id="shading">{escape(name)} of unit {unit} of {escape(direction.label)}</b>'
    colours = ramp(number(float(f"{-scale:.2g}")), number(float(f"{scale:.2g}")), "signed", "scale")
    legend = f'<p class="legend">{words} {colours}</p>'
    rows = "".join(
        f'<tr><td>{escape(each.label)}</td><td>{escape(each.direction)}</td><td class="num">'
        f'<button data-part="{escape(each.direction)}" data-unit="{each.unit}" data-name="{escape(each.state)}">'
        f'{each.unit}</button></td><td class="num">{each.correlation:.2f}</td></tr>'
        for each in ranked[:12]
    )
    table = (
        '<details class="ranking" open><summary>Units that follow a label most closely</summary>'
        '<div class="scroll" tabindex="0"><table><thead><tr><th>label</th><th>direction</th><th class="num">unit</th>'
        f'<th class="num">correlation of {escape(name)}</th></tr></thead><tbody>{rows}</tbody></table></div></details>'
        if rows
        else ""
    )
    first = study.passages[0]
    numbered = all(step.isdigit() for step in first.steps)
    title = "The series" if first.series is not None else "The steps" if numbered else "The text"
    body = f'<div class="reading"><div class="passages">{legend}{"".join(blocks)}</div>{table}</div>'
    return Section("text", title, lede, body)


def _passage(study: Study, place: int, start: int, passage: Passage, values: np.ndarray) -> str:
    by_step: dict[int, Said] = {each.step: each for each in passage.said if each.step is not None}
    whole = [each for each in passage.said if each.step is None]
    letters = np.mean([len(step) for step in passage.steps]) < 1.5
    parts = []
    for step, (words, value) in enumerate(zip(passage.steps, values, strict=True)):
        said = by_step.get(step)
        wrong = " w" if said is not None and said.right is False else ""
        title = f"{words.strip() or 'blank'}: {spoken(said)}" if said else words
        shown = "" if passage.series is not None else "↵\n" if words == "\n" else words
        under = (
            "" if letters or said is None or passage.series is not None else f"<small>{escape(said.best[0][0])}</small>"
        )
        parts.append(
            f'<span class="u {shade(value)}{wrong}" data-s="{start + step}" title="{escape(title)}">'
            f"{escape(shown)}{under}</span>"
        )
    kind = "letters" if letters else "words"
    drawn = figures.series(study, place, start)
    if drawn is not None:
        ahead = max([0.0, *(at - len(passage.steps) for at, *_ in passage.ahead)])
        content = f'{figure(drawn)}<div class="strip">{"".join(parts)}{"<i></i>" * round(ahead)}</div>'
    else:
        content = f'<div class="{kind}" dir="auto">{("" if letters else " ").join(parts)}</div>'
    title = f'<p class="source">{escape(passage.title)}</p>' if passage.title else ""
    if passage.ahead:
        answers = ""
    elif len(whole) > 1:  # a translation: one unit after another
        row = (" " if any(len(each.best[0][0]) > 1 for each in whole[:-1]) else "").join(
            f'<span class="u{_wrong(each)}" data-p="{place}" data-a="{number}" title="{escape(spoken(each))}">'
            f"{escape(each.best[0][0])}</span>"
            for number, each in enumerate(passage.said)
            if each.step is None
        )
        answers = f'<p class="answer">says</p><div class="{kind}" dir="auto">{row}</div>'
    else:
        answers = "".join(f'<p class="answer{_wrong(each)}">{escape(spoken(each))}</p>' for each in whole)
    return f'<div class="passage">{title}{content}{answers}</div>'


def _wrong(said: Said) -> str:
    return " w" if said.right is False and said.best[0][1] is not None else ""


def spoken(said: Said) -> str:
    """An answer in words."""
    first, *others = said.best
    words = f"says {_choice(first)}"
    if said.target is not None:
        words += ", which is right" if said.right and first[1] is not None else f"; target {_choice(said.target)}"
    return words + (f"; next {_choice(others[0])}" if others else "")


def _choice(choice: tuple[str, float | None]) -> str:
    name, chance = choice
    name = f"“{name}”" if not name.strip() or len(name) == 1 else name
    return name if chance is None else f"{name} {percent(chance)}"


def shade(value: float) -> str:
    """The class of a shade, from n10 for -1 over p0 to p10 for 1."""
    level = round(min(1.0, abs(float(value))) * _SHADES)
    return f"{'p' if value >= 0 or not level else 'n'}{level}"
