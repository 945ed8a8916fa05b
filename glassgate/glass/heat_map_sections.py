"""The sections Connectivity and Gates by time, which contain heat maps."""

from html import escape

import numpy as np

from glassgate.glass.elements import Section, colour_scale, for_each_direction, row_ruler, step_ruler
from glassgate.glass.heat_map import Scale, heat_map, similarity_order
from glassgate.glass.study import Direction, Study
from glassgate.glass.wording import count, quoted, rounded, steps

# If there are several passages, only this many have a connectivity picture.
_MAX_PICTURES = 4


def connectivity_section(study: Study) -> Section:
    """The section Connectivity: the contribution of each step to each answer, and the attention."""
    blocks, has_attention = [], False
    for index, each in enumerate(study.connections[:_MAX_PICTURES] if len(study.passages) > 1 else study.connections):
        passage = study.passages[index]
        sentence = f"{count(len(passage.answers), 'answer', 'answers')}, {steps(len(passage.steps))}. "
        peak = np.maximum(np.abs(each.matrix).max(1, keepdims=True), 1e-12)
        legend = colour_scale("against", "for", "signed")
        blocks.append(
            _matrix(study, index, each.matrix / peak, "signed", legend, sentence + _distance_sentence(study, index))
        )
        if each.attention is not None:
            has_attention = True
            most = passage.steps[int(each.attention.sum(0).argmax())]
            sentence = f"The attention weights of the answers. {quoted(most)} has the largest total weight."
            legend = colour_scale("0", "1, attention", "gate")
            blocks.append(_matrix(study, index, each.attention, "gate", legend, sentence))
    intro = (
        "The contribution of each step to each answer. It is the gradient times the input, divided by the largest "
        "contribution to that answer. A narrow diagonal means that only neighbouring steps contribute. Source: Madsen "
        "2019 in Distill."
    )
    intro += " The second picture shows the attention of the network." if has_attention else ""
    body = f'<div class="row matrices">{"".join(blocks)}</div>' if blocks else ""
    return Section("connectivity", "Connectivity", intro, body)


def _matrix(study: Study, index: int, matrix: np.ndarray, scale: Scale, legend: str, sentence: str) -> str:
    """A picture of one passage: a row per answer and a column per step."""
    passage, targets = study.passages[index], study.connections[index].targets
    kind, row_legend = ("square", "rows: answers; ") if len(targets) > 1 else ("line", "")
    answer_steps = [passage.answers[answer].step for answer in targets]
    rows = [answer + 1 if step is None else step + 1 for answer, step in zip(targets, answer_steps, strict=True)]
    return (
        f'<figure class="heat matrix {kind}" data-passage="{index}" data-scale="{scale}"><p class="legend">{legend}</p>'
        f"{row_ruler(rows) if row_legend else ''}"
        f'<div class="pane"><img alt="{escape(sentence)}" src="{heat_map(matrix, scale)}"></div>'
        f'{step_ruler(len(passage.steps))}<p class="axes">{row_legend}columns: steps</p>'
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
        words = ", ".join(f"{step + 1} ({quoted(passage.steps[step])})" for step in first)
        return f"The steps that contribute most are {words}."
    within = steps(float(np.median(distances)))
    return f"For the median answer, 90 % of the contributions come from within {within}."


def gates_section(study: Study) -> Section:
    """The section Gates by time: a heat map of each gate and state, units by steps."""

    def plots(each: Direction) -> str:
        order = similarity_order(each.values[each.states[0]])
        parts = []
        for name, values in each.values.items():
            kind = each.kinds.get(name, "state")
            shown = values[:, order if values.shape[1] == len(order) else similarity_order(values)]
            gate, peak = kind == "gate", float(np.abs(values).max())
            low, high = ("0, closed", "1, open") if gate else ("\N{MINUS SIGN}1", "1")
            if peak > 1 and not gate:
                shown = shown / np.maximum(np.quantile(np.abs(shown), 0.99, axis=0), 1e-9)
                low, high = "\N{MINUS SIGN}99th percentile of the row", "99th percentile of the row"
            picture = heat_map(shown.T, "gate" if gate else "signed")
            numbers = f"mean {rounded(float(values.mean()))}, standard deviation {rounded(float(values.std()))}"
            parts.append(
                f'<figure class="heat time {_height(values.shape[1])}" data-name="{escape(name)}"><figcaption>'
                f"<b>{escape(name)}</b> <span>{_kind(kind)}: {numbers}, <output></output></span>"
                f"{colour_scale(low, high, 'gate' if gate else 'signed')}</figcaption>"
                f'<div class="pane"><img src="{picture}" '
                f'alt="{escape(name)}, {_kind(kind)}, {values.shape[1]} units over {len(values)} steps: {numbers}.">'
                "</div></figure>"
            )
        return "".join(parts) + step_ruler(study.starts[-1], study.starts)

    intro = (
        "Each row is a unit, and each column a step. Similar units are adjacent, in the same order in all panels. "
        "Click a row to select its unit."
    )
    if len(study.passages) > 1:
        intro += " The numbers below the columns are those of the sequences."
    return Section("gates", "Gates by time", intro, for_each_direction(study, plots, "stack"))


def _kind(kind: str) -> str:
    return {"gate": "a gate", "signed": "a candidate", "unbounded": "without bounds", "state": "a state"}[kind]


def _height(units: int) -> str:
    return "low" if units <= 24 else "middle" if units <= 128 else "high"
