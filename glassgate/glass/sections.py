"""The sections of a report as HTML, from a study. They can be read without the script."""

import re
from collections.abc import Callable, Sequence
from html import escape

from glassgate.glass import figures
from glassgate.glass.cell_section import cell_section
from glassgate.glass.dynamics_section import dynamics_section
from glassgate.glass.effects.answers import answers
from glassgate.glass.elements import Section, figure_element, for_each_direction
from glassgate.glass.findings import RULES, Finding, findings
from glassgate.glass.heat_map_sections import connectivity_section, gates_section
from glassgate.glass.study import Direction, Study
from glassgate.glass.text_section import text_section
from glassgate.glass.wording import rounded, signed

_MAX_CAUSES = 16
_NONE = "\N{EN DASH}"


def sections(study: Study) -> list[Section]:
    """All sections with content, in the order of the page."""
    return [section for make in _MAKERS if (section := make(study)).body]


def side_by_side(studies: Sequence[Study]) -> list[Section]:
    """A table of the scores of two studies, and their sections, with one column per study."""
    by_study = [{each.name: each for each in sections(study)} for study in studies]
    result = [_scores_section(studies)]
    for name in dict.fromkeys(name for each in by_study for name in each):
        bodies = [each[name].body if name in each else "" for each in by_study]
        columns = "".join(
            f'<div data-run="{run}"><h3 class="run">{escape(study.title)}</h3>{body}</div>'
            for run, (study, body) in enumerate(zip(studies, bodies, strict=True))
        )
        first = next(each[name] for each in by_study if name in each)
        result.append(first._replace(body=f'<div class="pair">{columns}</div>'))
    return result


def _scores_section(studies: Sequence[Study]) -> Section:
    """A table of the scores of the runs on their data and on this page."""
    rows: dict[str, list[str]] = {}
    for column, study in enumerate(studies):
        for data in ("dev", "test"):
            for name, value in (study.metrics.get(data) or {}).items():
                rows.setdefault(f"{name.replace('_', ' ')}, {data} data", [_NONE] * len(studies))[column] = rounded(
                    value, 4
                )
        for each in answers(study):
            rows.setdefault("on this page", [_NONE] * len(studies))[column] = each.words["right"]
    head = "".join(f'<th class="num">{escape(each.title)}</th>' for each in studies)
    lines = "".join(
        f"<tr><th>{escape(name)}</th>{''.join(f'<td class=num>{escape(value)}</td>' for value in values)}</tr>"
        for name, values in rows.items()
    )
    table = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{lines}</tbody></table>"
    body = f'<div class="scroll" tabindex="0">{table}</div>' if rows else ""
    return Section("scores", "Side by side", "Two runs on the same steps. They share one cursor.", body)


def _findings_section(study: Study) -> Section:
    all_findings = findings(study)
    rows = "".join(map(_finding, all_findings))
    columns = "four" if len(all_findings) > 6 or len(all_findings) == 4 else "three"
    body = f'<ol class="findings {columns}">{rows}</ol>'
    if not rows:
        checked = f"{len(RULES)} rules were checked, and no effect exceeds its threshold."
        body = f"<p>Nothing stands out. {checked}</p>"
    intro = (
        "Each finding is an effect that is larger than expected by chance, for example larger than in the same "
        "network without training. Click a finding to see its plot. An answer is a prediction of the network."
    )
    return Section("findings", "Findings", intro, body)


def _finding(finding: Finding) -> str:
    kind = "fault" if finding.fault else "fact"
    unit = f' data-part="{escape(finding.unit[0])}" data-unit="{finding.unit[1]}"' if finding.unit else ""
    return (
        f'<li class="{kind}"><a href="#{finding.section}"{unit}>{escape(finding.sentence)}</a> '
        f"<span>{escape(finding.meaning)}</span> <small>{escape(finding.evidence)}</small></li>"
    )


def _saturation_section(study: Study) -> Section:
    body = for_each_direction(study, lambda each: "".join(map(figure_element, figures.saturation(each))), "row")
    intro = (
        "Each dot is one unit. A gate is closed below 0.1 and open above 0.9. The horizontal axis shows how often the "
        "gate of the unit is closed, and the vertical axis how often it is open. The selected unit is orange. Gates at "
        "the upper left pass everything, and gates at the lower right pass nothing. Source: Karpathy, Johnson and "
        "Fei-Fei 2015."
    )
    return Section("saturation", "Saturation", intro, body)


def _memory_section(study: Study) -> Section:
    life_range, memory_range = figures.half_life_range(study), figures.memory_range(study)

    def plots(each: Direction) -> str:
        return "".join(
            figure_element(figures.half_lives(each, state, life_range))
            + figure_element(figures.memory(each, state, memory_range))
            for state in each.half_life
        )

    intro = (
        "The half-life of a unit is the number of steps after which half of its state remains. It is measured along "
        "the direct path from a state to its next value, without the recurrent weights. In an LSTM, this path leads "
        "through the forget gate."
    )
    if any(not direct for each in study.directions for _, direct in each.retained.values()):
        intro = (
            "The half-life of a unit is the number of steps after which half of its state remains. If the only path "
            "from a state to its next value leads through the recurrent weights, the half-life is computed from the "
            "diagonal of the Jacobian of a step."
        )
    return Section("memory", "Memory", intro, for_each_direction(study, plots, "row"))


def _flow_section(study: Study) -> Section:
    limits = figures.flow_range(study)

    def plots(each: Direction) -> str:
        return "".join(figure_element(figures.flow(each, state, limits)) for state in each.flow)

    lines = [("flow", "trained: median and 10 to 90 % over answers")]
    if any(flow.initial_median is not None for each in study.directions for flow in each.flow.values()):
        lines.append(("before", "before training"))
    has_direct_path = any(flow.direct_path is not None for each in study.directions for flow in each.flow.values())
    if has_direct_path:
        lines.append(("direct-path", "along the direct path only"))
    key = '<p class="key">' + " ".join(f'<span><i class="{kind}"></i>{words}</span>' for kind, words in lines) + "</p>"
    body = for_each_direction(study, plots, "row")
    intro = (
        f"The norm of the gradient of {escape(study.differentiated)} with respect to the state k steps earlier. It "
        "shows how strongly earlier states influence the answers."
    )
    if has_direct_path:
        intro += (
            " The dashed line is the gradient along the direct path only, from each state to its next value without "
            "the recurrent weights. Where it is above the solid line, the paths through gates and recurrent weights "
            "reduce the gradient. Where it is below, they increase it."
        )
    return Section("flow", "Gradient flow", intro, body and key + body)


def _causes_section(study: Study) -> Section:
    most = max((abs(each.loss) for run in study.on_page for each in run.causes), default=1.0) or 1.0
    shown = study.causes[:_MAX_CAUSES]
    rows = "".join(
        f'<tr><td>{escape(_part_in_words(each.name))}</td><td class="num">{signed(each.loss, 4)}</td>'
        + (f'<td class="num">{signed(each.points, 1)}</td>' if each.points is not None else "")
        + '<td><svg class="bar" viewBox="0 0 100 8" aria-hidden="true">'
        f'<rect width="{max(0.0, 100 * each.loss / most):.0f}" height="8"/></svg></td></tr>'
        for each in shown
    )
    left = len(study.causes) - len(shown)
    more = f'<p class="source">and {left} more with smaller effects</p>' if left > 0 else ""
    points = f'<th class="num">lost {escape(study.points)}</th>' if study.points else ""
    table = (
        '<div class="scroll" tabindex="0"><table><thead><tr><th>held at its mean</th>'
        f'<th class="num">added loss, {escape(study.unit)}</th>{points}<th></th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
        f"{more}</div>"
    )
    windows = "".join(map(figure_element, figures.windows(study)))
    intro = (
        "The table shows the increase of the loss when a gate, a state, a group of units, a direction or a layer is "
        "held at its mean. The plot shows the increase when all states are held at their means in a window of steps. "
        "An increase means that the answers depend on the part."
    )
    return Section("causes", "Causes", intro, f'<div class="row causes">{table}{windows}</div>' if rows else "")


def _part_in_words(name: str) -> str:
    """The name of a part that is held at its mean, in words.

    Example:
        >>> _part_in_words("layer0.forward[8:16]"), _part_in_words("layer0.forward.f")
        ('layer0.forward, units 8 to 15', 'layer0.forward.f')
    """
    match = re.fullmatch(r"(.*)\[(\d+):(\d+)\]", name)
    return f"{match[1]}, units {match[2]} to {int(match[3]) - 1}" if match else name


def _search_section(study: Study) -> Section:
    """The form of the search, and an empty list for the script to fill."""
    places, count = study.places, len(study.passages)
    number_input = (
        "" if count == 1 else f'<label>sequence <input type="number" data-id="sequence" min="1" max="{count}"></label>'
    )
    body = (
        f'<div class="search"><form aria-label="Search">{number_input}'
        '<label>steps <input data-id="steps" placeholder="2-3"></label>'
        '<label>units <input data-id="units" placeholder="active units"></label><button>Find</button></form>'
        '<output aria-live="polite"></output><ol></ol><p class="source" data-id="places-note"></p></div>'
        '<noscript><p class="source">The search needs JavaScript.</p></noscript>'
    )
    intro = (
        "Select text, drag over a picture, or hold Shift and press the left or right arrow key to mark steps. The list "
        "shows the other steps at which the outputs of the same units are most similar to those at the marked steps. "
        "By default, the search compares the units that are active at all marked steps. A unit is active if it is more "
        "than one standard deviation from its mean. The distance is the root mean square difference, in standard "
        "deviations of each unit. Source: Strobelt et al. 2018."
    )
    if places is None:
        intro += (
            " The search covers the steps on this page. In the report of a run whose data "
            "<code>glassgate search</code> has indexed, it covers steps of these data instead."
        )
    else:
        intro += (
            f" The search covers {places.steps:,} of the {places.steps_read:,} steps that were read from the "
            f"{escape(places.data)} data."
        )
    return Section("search", "Search", intro, body)


def _training_section(study: Study) -> Section:
    body = "".join(map(figure_element, figures.training(study)))
    scores = study.metrics.get("dev") or study.metrics.get("test") or {}
    scores_text = ", ".join(f"{name.replace('_', ' ')} {rounded(value, 4)}" for name, value in scores.items())
    where = "dev data" if study.metrics.get("dev") else "test data"
    intro = f"The scores of the run on its {where}: {escape(scores_text)}." if scores_text else "The training log."
    if not body and study.training:
        last = {name: value for name, value in study.training[-1].items() if name != "step"}
        rows = "".join(
            f"<tr><th>{escape(name.replace('_', ' '))}</th><td>{rounded(value, 4)}</td></tr>"
            for name, value in last.items()
        )
        body = f'<table class="cost"><tbody>{rows}</tbody></table>'
    return Section("training", "Training", intro, f'<div class="row">{body}</div>' if body or scores_text else "")


def _cost_section(study: Study) -> Section:
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in study.cost)
    body = f'<div class="scroll" tabindex="0"><table class="cost"><tbody>{rows}</tbody></table></div>'
    return Section(
        "cost", "Cost", "The computation for the steps on this page, and the speed of training.", body if rows else ""
    )


_MAKERS: Sequence[Callable[[Study], Section]] = (
    _findings_section,
    text_section,
    _saturation_section,
    _memory_section,
    _flow_section,
    dynamics_section,
    connectivity_section,
    _causes_section,
    gates_section,
    _search_section,
    cell_section,
    _training_section,
    _cost_section,
)
