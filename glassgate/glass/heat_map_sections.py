"""The sections Connectivity and Gates by time, which contain heat maps."""

from html import escape

import numpy as np

from glassgate.glass.elements import Section, colour_scale, for_each_direction, row_ruler, step_ruler
from glassgate.glass.heat_map import Scale, heat_map, similarity_order
from glassgate.glass.languages import listed, say, sentences
from glassgate.glass.study import Direction, Study
from glassgate.glass.wording import quoted, rounded, steps

# If there are several passages, only this many have a connectivity picture.
_MAX_PICTURES = 4


def connectivity_section(study: Study) -> Section:
    """The section Connectivity: the contribution of each step to each answer, and the attention."""
    blocks, has_attention = [], False
    for index, each in enumerate(study.connections[:_MAX_PICTURES] if len(study.passages) > 1 else study.connections):
        passage = study.passages[index]
        sizes = say("connectivity.sizes", answers=len(passage.answers), steps=steps(len(passage.steps)))
        peak = np.maximum(np.abs(each.matrix).max(1, keepdims=True), 1e-12)
        legend = colour_scale(say("words.against"), say("words.for"), "signed")
        sentence = sentences(sizes, _distance_sentence(study, index))
        blocks.append(_matrix(study, index, each.matrix / peak, "signed", legend, sentence))
        if each.attention is not None:
            has_attention = True
            most = passage.steps[int(each.attention.sum(0).argmax())]
            sentence = say("connectivity.attention", step=quoted(most))
            legend = colour_scale("0", say("connectivity.full_attention"), "gate")
            blocks.append(_matrix(study, index, each.attention, "gate", legend, sentence))
    intro = sentences(say("connectivity.intro"), say("connectivity.second_picture") if has_attention else "")
    body = f'<div class="row matrices">{"".join(blocks)}</div>' if blocks else ""
    return Section("connectivity", say("connectivity.title"), intro, body)


def _matrix(study: Study, index: int, matrix: np.ndarray, scale: Scale, legend: str, sentence: str) -> str:
    """A picture of one passage: a row per answer and a column per step."""
    passage, targets = study.passages[index], study.connections[index].targets
    several = len(targets) > 1
    shape, axes = ("square", say("connectivity.axes")) if several else ("line", say("connectivity.columns"))
    answer_steps = [passage.answers[answer].step for answer in targets]
    rows = [answer + 1 if step is None else step + 1 for answer, step in zip(targets, answer_steps, strict=True)]
    return (
        f'<figure class="heat matrix {shape}" data-passage="{index}" data-scale="{scale}">'
        f'<p class="legend">{legend}</p>'
        f"{row_ruler(rows) if several else ''}"
        f'<div class="pane"><img alt="{escape(sentence)}" src="{heat_map(matrix, scale)}"></div>'
        f'{step_ruler(len(passage.steps))}<p class="axes">{axes}</p>'
        f"<figcaption>{escape(sentence)} <output></output></figcaption></figure>"
    )


def _distance_sentence(study: Study, index: int) -> str:
    """A sentence: the median distance that contains 90 % of an answer's contributions, or the most important steps."""
    each, passage = study.connections[index], study.passages[index]
    distances = []
    for answer, row in zip(each.targets, np.abs(each.matrix), strict=True):
        step = passage.answers[answer].step
        if step is None or not row.sum():
            continue
        nearest = np.argsort(np.abs(np.arange(len(row)) - step), kind="stable")
        enough = np.searchsorted(np.cumsum(row[nearest]), 0.9 * row.sum())
        distances.append(abs(int(nearest[min(enough, len(nearest) - 1)]) - step))
    if not distances:
        row = np.abs(each.matrix[-1])
        first = np.argsort(-row, kind="stable")[:3]
        words = [say("connectivity.step", step=step + 1, text=quoted(passage.steps[step])) for step in first]
        return say("connectivity.most", steps=listed(words))
    within = steps(float(np.median(distances)))
    return say("connectivity.distance", steps=within)


def gates_section(study: Study) -> Section:
    """The section Gates by time: a heat map of each gate and state, units by steps."""

    def plots(each: Direction) -> str:
        order = similarity_order(each.values[each.states[0]])
        parts = []
        for name, values in each.values.items():
            kind = each.kinds.get(name, "state")
            shown = values[:, order if values.shape[1] == len(order) else similarity_order(values)]
            gate, peak = kind == "gate", float(np.abs(values).max())
            low, high = (say("gates.closed"), say("gates.open")) if gate else ("\N{MINUS SIGN}1", "1")
            if peak > 1 and not gate:
                shown = shown / np.maximum(np.quantile(np.abs(shown), 0.99, axis=0), 1e-9)
                low, high = say("gates.low_percentile"), say("gates.high_percentile")
            picture = heat_map(shown.T, "gate" if gate else "signed")
            numbers = say("gates.numbers", mean=rounded(float(values.mean())), deviation=rounded(float(values.std())))
            described = say("gates.kind", kind=_kind(kind), numbers=numbers)
            units, length = say("words.units", count=values.shape[1]), steps(len(values))
            alt = say("gates.picture", name=name, units=units, steps=length, described=described)
            parts.append(
                f'<figure class="heat time {_height(values.shape[1])}" data-name="{escape(name)}"><figcaption>'
                f"<b>{escape(name)}</b> <span>{described}{say('words.comma')}<output></output></span>"
                f"{colour_scale(low, high, 'gate' if gate else 'signed')}</figcaption>"
                f'<div class="pane"><img src="{picture}" alt="{escape(alt)}"></div></figure>'
            )
        return "".join(parts) + step_ruler(study.starts[-1], study.starts)

    intro = sentences(say("gates.intro"), say("gates.sequences") if len(study.passages) > 1 else "")
    return Section("gates", say("gates.title"), intro, for_each_direction(study, plots, "stack"))


def _kind(kind: str) -> str:
    kinds = {
        "gate": say("gates.a_gate"),
        "signed": say("gates.a_candidate"),
        "unbounded": say("gates.unbounded"),
        "state": say("gates.a_state"),
    }
    return kinds[kind]


def _height(units: int) -> str:
    return "low" if units <= 24 else "middle" if units <= 128 else "high"
