"""A report as one HTML page that makes no network requests. The same study gives the same bytes."""

from collections.abc import Sequence
from html import escape

import numpy as np

from glassgate.glass import data
from glassgate.glass.languages import current, listed_with_and, say, say_html, with_messages
from glassgate.glass.live.page import Live
from glassgate.glass.page_parts import as_json, page_policy, page_style, resource
from glassgate.glass.sections import sections, side_by_side
from glassgate.glass.study import Study
from glassgate.glass.wording import place

_SCRIPTS = (
    "language",
    "elements",
    "numbers",
    "fields",
    "words",
    "values",
    "shading",
    "search",
    "marks",
    "saving",
    "link",
    "report",
    "start",
)


def page(*studies: Study, live: Live | None = None) -> str:
    """The page of one study, or of two studies of the same steps side by side.

    Args:
        studies: one or two studies.
        live: the interactive part; None for a page without it.
    """
    study, is_pair = studies[0], len(studies) > 1
    for each in studies:
        each.compared = studies
    style = page_style(resource("search.css"), live.style if live else "")
    script = '"use strict";\n' + with_messages("\n".join(resource(f"script/{name}.js") for name in _SCRIPTS))
    policy = page_policy(style, script, *([live.script] if live else []))
    shown_sections = side_by_side(studies) if is_pair else sections(study)
    embedded = [data.page_data(each, len(studies)) for each in studies]
    page_data = {"runs": [each for each, _ in embedded]} if is_pair else embedded[0][0]
    all_notes = dict.fromkeys([*(note for each in studies for note in each.notes), *(note for _, note in embedded)])
    notes = "".join(f"<p>{escape(note)}</p>" for note in all_notes if note)
    title = listed_with_and([each.title for each in studies])
    link_to_live = f'<li hidden><a href="#live">{say("live.title")}</a></li>'
    return f"""<!doctype html>
<html lang="{current().code}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)} · glassgate</title>
<style>{style}</style>
</head>
<body{' class="wide"' if is_pair else ""}>
<a class="skip" href="#findings">{say("page.skip")}</a>
<header>
<p class="kicker">{say("page.kicker")}</p>
<h1>{escape(title)}</h1>
{_subtitles(studies)}
{"".join(map(_not_finite, studies))}\
<p class="hint">{say("page.hint", next_answer=_next_answer_hint(study))}</p>
<p class="hint touch">{say("page.touch_hint")}</p>
</header>
<nav aria-label="{say("page.sections")}"><ol>{link_to_live if live else ""}\
{"".join(f'<li><a href="#{each.name}">{escape(each.title)}</a></li>' for each in shown_sections)}</ol></nav>
<main{' class="two"' if is_pair else ' data-run="0"'}>
{live.section if live else ""}
{"".join(_section(*each) for each in shown_sections)}
</main>
<footer>
{notes}
<p>{say("page.footer")}</p>
</footer>
{_bar(studies)}
<script type="application/json" id="data">{as_json(page_data)}</script>
<script>{script}</script>
{f'<script type="application/json" id="live-data">{live.data}</script><script>{live.script}</script>' if live else ""}
</body>
</html>
"""


def _next_answer_hint(study: Study) -> str:
    """The hint about the key for the next answer, if a passage has several answers about the whole passage."""
    several = any(sum(each.step is None for each in passage.answers) > 1 for passage in study.passages)
    return say("page.next_answer_hint") if several else ""


_PAGE_BUTTONS = """<button id="link" type="button" title="{link_title}">{link}</button>
<button id="theme" type="button" title="{title}">◐<span class="hidden"> {name}</span></button>
<output id="linked" aria-live="polite"></output>
"""
_CURSOR = """<div class="cursor" data-run="{run}">{name}<output id="now{end}" aria-live="off"></output>
<div class="controls">
<output id="wires{end}" tabindex="0"></output>
<span class="buttons"><button id="previous-step{end}" type="button" aria-label="{previous_step}">←</button>\
<button id="next-step{end}" type="button" aria-label="{next_step}">→</button></span>
<label>{layer} <select id="part{end}"></select></label>
<span class="buttons"><label>{unit} <input id="unit{end}" type="number" min="0" step="1"></label>\
<button id="previous-unit{end}" type="button" aria-label="{previous_unit}">↑</button>\
<button id="next-unit{end}" type="button" aria-label="{next_unit}">↓</button></span>
<label>{shade_by} <select id="shade{end}"></select></label>
{page_buttons}<output id="problem{end}" class="problem" aria-live="polite"></output></div>
</div>
"""
_LABELS = ("previous_step", "next_step", "layer", "unit", "previous_unit", "next_unit", "shade_by")


def _bar(studies: Sequence[Study]) -> str:
    """The bar at the bottom of the page, with a row for each run: the values at the cursor, and the controls."""
    labels = {name: say(f"bar.{name}") for name in _LABELS}
    buttons = _PAGE_BUTTONS.format(
        link=say("link.link"), link_title=say("link.title"), title=say("bar.theme_title"), name=say("bar.theme")
    )
    rows = "".join(
        _CURSOR.format(
            **labels,
            run=run,
            end=f"-{run}" if run else "",
            name=f'<b class="run">{escape(study.title)}</b> ' if len(studies) > 1 else "",
            page_buttons="" if run else buttons,
        )
        for run, study in enumerate(studies)
    )
    return f'<aside id="bar" aria-label="{say("bar.cursor")}" hidden>{rows}</aside>'


def _subtitles(studies: Sequence[Study]) -> str:
    if len(studies) == 1:
        return f'<p class="sub">{escape(studies[0].subtitle)}</p>'
    return "".join(f'<p class="sub"><b>{escape(each.title)}</b> · {escape(each.subtitle)}</p>' for each in studies)


def _not_finite(study: Study) -> str:
    """A warning that names the first value that is NaN or infinite, if there is one."""
    first: tuple[int, str] | None = None
    for each in study.directions:
        for name, values in each.values.items():
            bad = np.flatnonzero(~np.isfinite(values).all(1))
            if len(bad) and (first is None or bad[0] < first[0]):
                first = int(bad[0]), f"{each.label}.{name}"
    if first is None:
        return ""
    passage = max(k for k, start in enumerate(study.starts[:-1]) if start <= first[0])
    step = first[0] - study.starts[passage]
    where = place(step, step + 1, passage if len(study.passages) > 1 else None)
    return f'<p class="sub problem">{say_html("page.not_finite", name=first[1], where=where)}</p>\n'


def _section(name: str, title: str, intro: str, body: str) -> str:
    return (
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{escape(title)}</h2>'
        f'<p class="lede">{intro}</p>{body}</section>\n'
    )
