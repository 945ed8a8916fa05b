"""The sections of a report as HTML, from a study. They can be read without the script."""

import re
from collections.abc import Callable, Iterable, Sequence
from html import escape

from glassgate.glass import figures
from glassgate.glass.cell_section import cell_section
from glassgate.glass.dynamics_section import dynamics_section
from glassgate.glass.effects.answers import answers
from glassgate.glass.elements import Section, figure_element, for_each_direction, scrolled_table
from glassgate.glass.findings import RULES, Finding, findings
from glassgate.glass.heat_map_sections import connectivity_section, gates_section
from glassgate.glass.languages import clauses, say, say_html, sentences
from glassgate.glass.study import Direction, Study
from glassgate.glass.text_section import text_section
from glassgate.glass.wording import data_name, named, rounded, signed

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
                label = clauses(named("score", name), data_name(data))
                rows.setdefault(label, [_NONE] * len(studies))[column] = rounded(value, 4)
        for each in answers(study):
            rows.setdefault(say("scores.on_page"), [_NONE] * len(studies))[column] = str(each.words["right"])
    head = "".join(f'<th class="num">{escape(each.title)}</th>' for each in studies)
    lines = "".join(
        f"<tr><th>{escape(name)}</th>{''.join(f'<td class=num>{escape(value)}</td>' for value in values)}</tr>"
        for name, values in rows.items()
    )
    body = scrolled_table(f"<th></th>{head}", lines) if rows else ""
    return Section("scores", say("scores.title"), say("scores.intro"), body)


def _findings_section(study: Study) -> Section:
    all_findings = findings(study)
    rows = "".join(map(_finding, all_findings))
    columns = "four" if len(all_findings) > 6 or len(all_findings) == 4 else "three"
    body = f'<ol class="findings {columns}">{rows}</ol>'
    if not rows:
        body = f"<p>{say('findings.none', rules=len(RULES))}</p>"
    return Section("findings", say("findings.title"), say("findings.intro"), body)


def _finding(finding: Finding) -> str:
    kind = "fault" if finding.fault else "fact"
    unit = f' data-part="{escape(finding.unit[0])}" data-unit="{finding.unit[1]}"' if finding.unit else ""
    return (
        f'<li class="{kind}"><a href="#{finding.section}"{unit}>{escape(finding.sentence)}</a> '
        f"<span>{escape(finding.meaning)}</span> <small>{escape(finding.evidence)}</small></li>"
    )


def _saturation_section(study: Study) -> Section:
    body = for_each_direction(study, lambda each: "".join(map(figure_element, figures.saturation(each))), "row")
    return Section("saturation", say("saturation.title"), say("saturation.intro"), body)


def _memory_section(study: Study) -> Section:
    life_range, memory_range = figures.half_life_range(study), figures.memory_range(study)

    def plots(each: Direction) -> str:
        return "".join(
            figure_element(figures.half_lives(each, state, life_range))
            + figure_element(figures.memory(each, state, memory_range))
            for state in each.half_life
        )

    all_direct = all(direct for each in study.directions for _, direct in each.retained.values())
    path = say("memory.direct_path") if all_direct else say("memory.jacobian")
    intro = sentences(say("memory.intro"), path)
    return Section("memory", say("memory.title"), intro, for_each_direction(study, plots, "row"))


def _flow_section(study: Study) -> Section:
    limits = figures.flow_range(study)

    def plots(each: Direction) -> str:
        return "".join(figure_element(figures.flow(each, state, limits)) for state in each.flow)

    lines = [("flow", say("flow.trained"))]
    if any(flow.initial_median is not None for each in study.directions for flow in each.flow.values()):
        lines.append(("before", say("flow.before")))
    has_direct_path = any(flow.direct_path is not None for each in study.directions for flow in each.flow.values())
    if has_direct_path:
        lines.append(("direct-path", say("flow.direct_path")))
    key = '<p class="key">' + " ".join(f'<span><i class="{kind}"></i>{words}</span>' for kind, words in lines) + "</p>"
    body = for_each_direction(study, plots, "row")
    intro = sentences(
        say_html("flow.intro", value=study.differentiated), say("flow.dashed_line") if has_direct_path else ""
    )
    return Section("flow", say("flow.title"), intro, body and key + body)


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
    more = f'<p class="source">{say("causes.more", count=left)}</p>' if left > 0 else ""
    points = f'<th class="num">{say_html("causes.lost", points=study.points)}</th>' if study.points else ""
    table = (
        f'<div class="scroll" tabindex="0"><table><thead><tr><th>{say("causes.part")}</th>'
        f'<th class="num">{say_html("causes.loss", unit=study.unit)}</th>{points}<th></th></tr></thead>'
        f"<tbody>{rows}</tbody></table>{more}</div>"
    )
    windows = "".join(map(figure_element, figures.windows(study)))
    intro = say("causes.intro")
    return Section(
        "causes", say("causes.title"), intro, f'<div class="row causes">{table}{windows}</div>' if rows else ""
    )


def _part_in_words(name: str) -> str:
    """The name of a part that is held at its mean, in words.

    Example:
        >>> _part_in_words("layer0.forward[8:16]"), _part_in_words("layer0.forward[8:9]")
        ('layer0.forward, units 8 to 15', 'layer0.forward, unit 8')
        >>> _part_in_words("layer0.forward.f")
        'layer0.forward.f'
    """
    match = re.fullmatch(r"(.*)\[(\d+):(\d+)\]", name)
    if match is None:
        return name
    part, first, last = match[1], int(match[2]), int(match[3]) - 1
    return say("causes.unit" if first == last else "causes.units", name=part, first=first, last=last)


def _search_section(study: Study) -> Section:
    """The form of the search, and an empty list for the script to fill."""
    places, count = study.places, len(study.passages)
    sequence = f'<label>{say("search.sequence")} <input type="number" data-id="sequence" min="1" max="{count}"></label>'
    body = (
        f'<div class="search"><form aria-label="{say("search.title")}">{sequence if count > 1 else ""}'
        f'<label>{say("search.steps")} <input data-id="steps" placeholder="2-3"></label>'
        f'<label>{say("search.units")} <input data-id="units" placeholder="{say("search.active_units")}"></label>'
        f"<button>{say('search.find')}</button></form>"
        '<output aria-live="polite"></output><ol></ol><p class="source" data-id="places-note"></p></div>'
        f'<noscript><p class="source">{say("search.needs_script")}</p></noscript>'
    )
    covered = (
        say("search.own_steps")
        if places is None
        else say_html(
            "search.places", steps=f"{places.steps:,}", read=f"{places.steps_read:,}", data=data_name(places.data)
        )
    )
    return Section("search", say("search.title"), sentences(say("search.intro"), covered), body)


def _simple_models_text(study: Study) -> str:
    """A sentence with the first two scores of each simple model."""
    compared = study.metrics.get("baselines") or {}
    texts = []
    for title, scores in compared.get("scores", {}).items():
        values = (f"{named('score', name)} {rounded(value, 4)}" for name, value in list(scores.items())[:2])
        texts.append(f"{named('simple_model', title)} ({clauses(*values)})")
    if not texts:
        return ""
    return say_html("training.simple_models", data=data_name(compared["part"]), models=clauses(*texts))


def _training_section(study: Study) -> Section:
    body = "".join(map(figure_element, figures.training(study)))
    scores = study.metrics.get("dev") or study.metrics.get("test") or {}
    scores_text = clauses(*(f"{named('score', name)} {rounded(value, 4)}" for name, value in scores.items()))
    data = data_name("dev" if study.metrics.get("dev") else "test")
    intro = say_html("training.scores", data=data, scores=scores_text) if scores_text else say("training.log")
    intro = sentences(intro, _simple_models_text(study))
    if not body and study.training:
        last = {name: value for name, value in study.training[-1].items() if name != "step"}
        body = _amounts((named("score", name), rounded(value, 4)) for name, value in last.items())
    return Section(
        "training", say("training.title"), intro, f'<div class="row">{body}</div>' if body or scores_text else ""
    )


def _cost_section(study: Study) -> Section:
    body = f'<div class="scroll" tabindex="0">{_amounts(study.cost)}</div>' if study.cost else ""
    return Section("cost", say("cost.title"), say("cost.intro"), body)


def _amounts(rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and amounts."""
    body = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f'<table class="cost"><tbody>{body}</tbody></table>'


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
