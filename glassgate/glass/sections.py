"""The sections of a report: from a study to HTML, which reads without a script."""

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from glassgate.engines.symbolic.graph import NotTraceable
from glassgate.glass import figures
from glassgate.glass.diagrams.draw import draw
from glassgate.glass.figures import Figure, by_likeness, count, percent
from glassgate.glass.findings import Finding, findings
from glassgate.glass.followers import follows
from glassgate.glass.png import heat_map
from glassgate.glass.study import Direction, Passage, Said, Study
from glassgate.layers.stack import Recurrent

# So many of the passages have their own connectivity picture.
_MOST_PICTURES = 4
_MOST_CAUSES = 16
_SHADES = 10


class Section(NamedTuple):
    """A section: the name in the page's address, the heading, one sentence beneath it, and its content."""

    name: str
    title: str
    lede: str
    body: str


def sections(study: Study) -> list[Section]:
    """All sections that have something to show, in order."""
    made = [make(study) for make in _MAKERS]
    return [each for each in made if each.body]


def _findings(study: Study) -> Section:
    rows = "".join(map(_finding, findings(study)))
    body = f'<ol class="findings">{rows}</ol>' if rows else "<p>No rule found anything to say.</p>"
    return Section("findings", "Findings", "What stands out, found by fixed rules; each leads to its plot.", body)


def _finding(found: Finding) -> str:
    kind = "fault" if found.fault else "fact"
    unit = f' data-part="{escape(found.unit[0])}" data-unit="{found.unit[1]}"' if found.unit else ""
    return (
        f'<li class="{kind}"><a href="#{found.section}"{unit}>{escape(found.sentence)}</a> '
        f"<span>{escape(found.meaning)}</span></li>"
    )


def _text(study: Study) -> Section:
    ranked = follows(study)
    direction = study.directions[0]
    unit, name, what = 0, direction.states[-1], ""
    if ranked:
        best = ranked[0]
        direction = next(each for each in study.directions if each.label == best.direction)
        unit, name, what = best.unit, best.state, f", the one that follows “{best.label}” most closely"
    values = direction.values[name][:, unit]
    scale = float(np.quantile(np.abs(values), 0.98)) or 1.0
    blocks = []
    for number, (start, passage) in enumerate(zip(study.starts, study.passages, strict=False)):
        blocks.append(_passage(study, number, start, passage, values[start : start + len(passage.steps)] / scale))
    lede = (
        f"Shaded by {name} of unit {unit} of {direction.label}{what}: "
        '<i class="u p7">positive</i>, <i class="u n7">negative</i>; a wrong answer is '
        '<i class="u w">underlined</i>. Point at a step, or use the arrow keys.'
    )
    rows = "".join(
        f'<tr><td>{escape(each.label)}</td><td>{escape(each.direction)}</td><td class="num">'
        f'<button data-part="{escape(each.direction)}" data-unit="{each.unit}" data-name="{escape(each.state)}">'
        f'{each.unit}</button></td><td class="num">{each.correlation:.2f}</td>'
        f'<td class="wide"><svg class="bar" viewBox="0 0 100 8" aria-hidden="true">'
        f'<rect width="{100 * each.correlation:.0f}" height="8"/></svg></td></tr>'
        for each in ranked[:12]
    )
    table = (
        '<details class="ranking" open><summary>Units that follow something</summary><div class="scroll"><table><thead>'
        f'<tr><th>what</th><th>layer</th><th class="num">unit</th><th class="num">correlation of {escape(name)}</th>'
        f'<th class="wide"></th></tr></thead><tbody>{rows}</tbody></table></div></details>'
        if rows
        else ""
    )
    title = "The series" if study.passages[0].series is not None else "The text"
    body = f'<div class="reading"><div class="passages">{"".join(blocks)}</div>{table}</div>'
    return Section("text", title, lede, body)


def _passage(study: Study, number: int, start: int, passage: Passage, values: np.ndarray) -> str:
    by_step: dict[int, Said] = {each.step: each for each in passage.said if each.step is not None}
    whole = [each for each in passage.said if each.step is None]
    letters = np.mean([len(step) for step in passage.steps]) < 1.5
    parts = []
    for step, (words, value) in enumerate(zip(passage.steps, values, strict=True)):
        said = by_step.get(step)
        wrong = " w" if said is not None and said.right is False else ""
        title = f"{words.strip() or 'blank'}: {spoken(said)}" if said else words
        shown = "" if passage.series is not None else "↵\n" if words == "\n" else words
        under = "" if letters or said is None else f"<small>{escape(said.best[0][0])}</small>"
        parts.append(
            f'<span class="u {shade(value)}{wrong}" data-s="{start + step}" title="{escape(title)}">'
            f"{escape(shown)}{under}</span>"
        )
    kind = "letters" if letters else "words"
    drawn = figures.series(study, number, start)
    if drawn is not None:
        content = f'{_figure(drawn)}<div class="strip">{"".join(parts)}</div>'
    else:
        content = f'<div class="{kind}" dir="auto">{("" if letters else " ").join(parts)}</div>'
    title = f'<p class="source">{escape(passage.title)}</p>' if passage.title else ""
    if len(whole) > 2:  # a translation, a forecast: one after another
        row = " ".join(
            f'<span class="u{_wrong(each)}" title="{escape(spoken(each))}">{escape(each.best[0][0])}</span>'
            for each in whole
        )
        answers = f'<p class="answer">says {row}</p>'
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


def _saturation(study: Study) -> Section:
    body = _by_part(study, lambda each: "".join(map(_figure, figures.saturation(each))), "row")
    lede = (
        "A dot is a unit: how often its gate is closed, and how often open. In the corner at the upper left are units "
        "that pass everything on, at the lower right those that pass nothing, at the lower left those that weigh. "
        "After Karpathy, Johnson and Fei-Fei 2015."
    )
    return Section("saturation", "Saturation", lede, body)


def _memory(study: Study) -> Section:
    def plots(each: Direction) -> str:
        return "".join(
            _figure(figures.half_lives(each, state)) + _figure(figures.memory(each, state)) for state in each.half_life
        )

    lede = "How long a unit keeps what it holds, along the state's own path from step to step."
    if any(not direct for each in study.directions for _, direct in each.left.values()):
        lede = (
            "How long a unit keeps what it holds: this cell has no path of its own for a state, so it is the diagonal."
        )
    return Section("memory", "Memory", lede, _by_part(study, plots, "row"))


def _flow(study: Study) -> Section:
    def plots(each: Direction) -> str:
        return "".join(_figure(figures.flow(each, state)) for state in each.flow)

    key = (
        '<p class="key"><i class="flow"></i>trained, median and 10 to 90 % over targets <i class="before"></i>at '
        'initialisation <i class="way"></i>the path of the state alone</p>'
    )
    body = _by_part(study, plots, "row")
    lede = (
        f"How much {escape(study.evidence)} at a step depends on the state k steps earlier: the norm of the gradient, "
        "on a logarithmic axis. Where the dashed line lies above, the gates and the recurrent weights take away; where "
        "it lies below, they bring back."
    )
    return Section("flow", "Gradient flow", lede, body and key + body)


def _connectivity(study: Study) -> Section:
    blocks = []
    for number, each in enumerate(study.connections[:_MOST_PICTURES] if len(study.passages) > 1 else study.connections):
        matrix, passage = each.matrix, study.passages[number]
        peak = np.maximum(np.abs(matrix).max(1, keepdims=True), 1e-12)
        share = _reach_back(study, number)
        sentence = f"{count(len(passage.said), 'answer', 'answers')} over {len(passage.steps)} steps. {share}"
        kind = "square" if len(each.targets) > 1 else "line"
        picture = heat_map(matrix / peak, "signed")
        blocks.append(
            f'<figure class="heat matrix {kind}" data-passage="{number}"><div class="pane">'
            f'<img alt="{escape(sentence)}" src="{picture}"></div>'
            '<p class="axes"><span>target step, downward</span><span>source step, to the right</span></p>'
            f"<figcaption>{escape(sentence)} <output></output></figcaption></figure>"
        )
    lede = (
        "Which step's input mattered to which answer: gradient times input, orange for it, blue against it, each row "
        "on its own scale. A narrow diagonal means that only neighbours count. After Madsen 2019 in Distill."
    )
    body = f'<div class="row matrices">{"".join(blocks)}</div>' if blocks else ""
    return Section("connectivity", "Connectivity", lede, body)


def _reach_back(study: Study, number: int) -> str:
    """The distance within which nine tenths of what mattered lie, on average over targets."""
    each, passage = study.connections[number], study.passages[number]
    distances = []
    for answer, row in zip(each.targets, np.abs(each.matrix), strict=True):
        step = passage.said[answer].step
        if step is None or not row.sum():
            continue
        near = np.argsort(np.abs(np.arange(len(row)) - step), kind="stable")
        inside = np.searchsorted(np.cumsum(row[near]), 0.9 * row.sum())
        distances.append(abs(int(near[min(inside, len(near) - 1)]) - step))
    if not distances:
        row = np.abs(each.matrix[-1])
        first = np.argsort(-row, kind="stable")[:3]
        words = ", ".join(f"{step + 1} ({passage.steps[step].strip() or 'blank'})" for step in first)
        return f"The steps that mattered most: {words}."
    within = figures.steps(float(np.median(distances)))
    return f"Nine tenths of what matters lie within {within} of the answer, at the median."


def _causes(study: Study) -> Section:
    most = max((abs(worth) for _, worth, _ in study.causes), default=1.0) or 1.0
    shown = study.causes[:_MOST_CAUSES]
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="num">{worth:+.4f}</td><td><svg class="bar" viewBox="0 0 100 8" '
        f'aria-hidden="true"><rect width="{max(0.0, 100 * worth / most):.0f}" height="8"/></svg></td></tr>'
        for name, worth, _ in shown
    )
    said = study.causes[0][2] if study.causes else ""
    more = (
        f"<p class='source'>and {len(study.causes) - len(shown)} with less</p>"
        if len(study.causes) > len(shown)
        else ""
    )
    body = (
        f'<div class="scroll"><table><thead><tr><th>held at its mean</th><th class="num">loss, {escape(said)}</th>'
        f"<th></th></tr></thead><tbody>{rows}</tbody></table></div>{more}"
    )
    lede = (
        "What the answers above lose when a gate, a state, a group of units, a direction or a layer is held at its "
        "mean: not what goes together with an answer, but what it rests on."
    )
    return Section("causes", "Causes", lede, body if rows else "")


def _gates(study: Study) -> Section:
    def plots(each: Direction) -> str:
        order = by_likeness(each.values[each.states[0]])
        parts = []
        for name, values in each.values.items():
            kind = each.kinds.get(name, "state")
            shown = values[:, order if values.shape[1] == len(order) else by_likeness(values)]
            gate, peak = kind == "gate", float(np.abs(values).max())
            if peak > 1:
                shown = shown / np.maximum(np.quantile(np.abs(shown), 0.99, axis=0), 1e-9)
            picture = heat_map(shown.T, "gate" if gate else "signed")
            reach = "0 to 1" if gate else "-1 to 1" if peak <= 1 else "each row on its own scale"
            sentence = (
                f"{name}, {_kind(kind)}, {values.shape[1]} units over {len(values)} steps, {reach}; "
                f"mean {values.mean():.3g}, standard deviation {values.std():.3g}."
            )
            parts.append(
                f'<figure class="heat time {_height(values.shape[1])}" data-name="{escape(name)}"><div class="pane">'
                f'<img alt="{escape(sentence)}" src="{picture}"></div><figcaption><b>{escape(name)}</b> '
                f"{escape(sentence.split(', ', 1)[1])} <output></output></figcaption></figure>"
            )
        return "".join(parts)

    lede = (
        "Time runs to the right; a row is a unit; units that move alike stand together, in one order in all panels. "
        'Gates: <i class="u g0">closed</i> to <i class="u g8">open</i>; others <i class="u n7">negative</i> to '
        '<i class="u p7">positive</i>.'
    )
    return Section("gates", "Gates by time", lede, _by_part(study, plots, "stack"))


def _kind(kind: str) -> str:
    return {"gate": "a gate", "signed": "a candidate", "open": "without bounds", "state": "a state"}[kind]


def _height(units: int) -> str:
    return "low" if units <= 24 else "middle" if units <= 128 else "high"


def diagrams(layer: Recurrent) -> list[tuple[str, str]]:
    """The diagram of a layer's cell, and of the layer, without a style of their own: the page's holds for them."""
    made = []
    for caption, what in (
        (f"One step of {type(layer.cell).__name__}, drawn from its equations; point at a part for its equation.", None),
        ("The layer: its input below, its output above.", layer),
    ):
        try:
            drawn = str(draw(layer.cell, projected=layer.proj_size > 0) if what is None else draw(what))
        except NotTraceable as error:
            made.append((f"{type(layer.cell).__name__} cannot be drawn: {error}", ""))
            continue
        drawn = re.sub(r"<style>.*?</style>", "", drawn, flags=re.DOTALL)
        drawn = re.sub(r'(<svg[^>]*?) style="[^"]*"', r"\1", drawn)
        made.append(
            (caption, re.sub(r'<text style="text-anchor: (\w+)"([^>]*?) class="', r'<text\2 class="at-\1 ', drawn))
        )
    return made


def _cell(study: Study) -> Section:
    cells = {type(each.cell): each for each in study.directions}
    parts = [
        f'<figure class="diagram">{drawn}<figcaption>{escape(caption)}</figcaption></figure>'
        for caption, drawn in study.diagrams
    ]
    parts = [f'<div class="row diagrams">{"".join(parts)}</div>'] if parts else []
    for kind, each in cells.items():
        rows = "".join(f"<tr><th>{escape(name)}</th><td></td></tr>" for name in each.values)
        source = inspect.cleandoc("\n" + _source(kind))
        parts.append(
            f'<figure class="cell"><pre tabindex="0"><code>{escape(source)}</code></pre><table class="wires"><tbody>'
            f"{rows}</tbody></table><figcaption>{escape(kind.__name__)}: one step, as it is written; every engine and "
            "every measure on this page follows from these lines.</figcaption></figure>"
        )
    lede = "One step: its diagram and its equations, with the values of the chosen unit at the cursor."
    return Section("cell", "The cell", lede, "".join(parts))


def _source(kind: type) -> str:
    try:
        return inspect.getsource(kind.step)  # type: ignore[attr-defined]
    except (OSError, TypeError):
        return "The source of this cell's step is not there to be shown."


def _training(study: Study) -> Section:
    body = "".join(map(_figure, figures.training(study)))
    scores = study.metrics.get("dev") or study.metrics.get("test") or {}
    said = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in scores.items())
    where = "dev data" if study.metrics.get("dev") else "test data"
    lede = f"The run scored {escape(said)} on its {where}." if said else "The course of the training."
    return Section("training", "Training", lede, f'<div class="row">{body}</div>' if body else "")


def _cost(study: Study) -> Section:
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in study.cost)
    body = f'<div class="scroll"><table class="cost"><tbody>{rows}</tbody></table></div>'
    return Section("cost", "Cost", "What all this takes.", body if rows else "")


_MAKERS: Sequence[Callable[[Study], Section]] = (
    _findings,
    _text,
    _saturation,
    _memory,
    _flow,
    _connectivity,
    _causes,
    _gates,
    _cell,
    _training,
    _cost,
)


def _by_part(study: Study, make: Callable[[Direction], str], kind: str) -> str:
    """A block for each direction of each layer, of which the script shows the chosen one."""

    def blocks() -> Iterator[str]:
        for each in study.directions:
            inside = make(each)
            if inside:
                title = f"<h3>{escape(each.label)}</h3>" if len(study.directions) > 1 else ""
                name = escape(each.label)
                yield f'<div class="part" data-part="{name}">{title}<div class="{kind}">{inside}</div></div>'

    return "".join(blocks())


def _figure(figure: Figure) -> str:
    return f"<figure>{figure.svg}<figcaption>{escape(figure.caption)}</figcaption></figure>"
