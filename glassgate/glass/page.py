"""A report as one HTML page without requests: its own style and script, the same bytes for the same study."""

from collections.abc import Sequence
from html import escape

from glassgate.glass import data
from glassgate.glass.frame import page_policy, page_style, resource
from glassgate.glass.live.page import Live
from glassgate.glass.sections import sections, side_by_side
from glassgate.glass.study import Study


def page(*studies: Study, live: Live | None = None) -> str:
    """The page of a study, or of two side by side that read the same steps; `live` is its interactive part."""
    study, pair = studies[0], len(studies) > 1
    style, script = page_style(live.style if live else ""), resource("page.js")
    policy = page_policy(style, script, *([live.script] if live else []))
    parts = side_by_side(studies) if pair else sections(study)
    embedded = [data.embedded(each, len(studies)) for each in studies]
    numbers = {"runs": [each for each, _ in embedded]} if pair else embedded[0][0]
    left_out = dict.fromkeys([*(note for each in studies for note in each.notes), *(said for _, said in embedded)])
    notes = "".join(f"<p>{escape(note)}</p>" for note in left_out if note)
    title = " and ".join(each.title for each in studies)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)} · glassgate</title>
<style>{style}</style>
</head>
<body{' class="wide"' if pair else ""}>
<a class="skip" href="#findings">To the findings</a>
<header>
<p class="kicker">Glassgate report</p>
<h1>{escape(title)}</h1>
{_subtitles(studies)}
<p class="hint">One cursor runs through every plot: point anywhere, or press <kbd>←</kbd> <kbd>→</kbd> for the step, \
<kbd>↑</kbd> <kbd>↓</kbd> for the unit, <kbd>L</kbd> for the layer, {_NEXT if _many(study) else ""}<kbd>T</kbd> for \
light or dark.</p>
</header>
<nav aria-label="Sections"><ol>{'<li hidden><a href="#live">Try it</a></li>' if live else ""}\
{_contents([(each.name, each.title) for each in parts])}</ol></nav>
<main{' class="two"' if pair else ' data-run="0"'}>
{live.section if live else ""}
{"".join(_section(*each) for each in parts)}
</main>
<footer>
{notes}
<p>Made by <code>glassgate report</code> from recordings of the model's own kernels. The page holds its numbers as \
JSON, and loads nothing from anywhere.</p>
</footer>
{_bar(studies)}
<script type="application/json" id="data">{data.text(numbers)}</script>
<script>{script}</script>
{f'<script type="application/json" id="live-data">{live.data}</script><script>{live.script}</script>' if live else ""}
</body>
</html>
"""


_NEXT = "<kbd>N</kbd> for the next answer, "


def _many(study: Study) -> bool:
    """Whether some sequence has several answers that belong to no step of it."""
    return any(sum(each.step is None for each in passage.said) > 1 for passage in study.passages)


_THEME = """<button id="theme" type="button" title="light or dark (t)">◐\
<span class="hidden"> light or dark</span></button>
"""
_CURSOR = """<div class="cursor" data-run="{run}">{name}<output id="now{end}" aria-live="off"></output>
<div class="controls">
<output id="wires{end}"></output>
<span class="buttons"><button id="back{end}" type="button" aria-label="step back">←</button><button id="forth{end}" \
type="button" aria-label="step on">→</button></span>
<label>layer <select id="part{end}"></select></label>
<span class="buttons"><label>unit <input id="unit{end}" type="number" min="0" step="1"></label>\
<button id="before{end}" type="button" aria-label="unit above">↑</button>\
<button id="after{end}" type="button" aria-label="unit below">↓</button></span>
<label>shade by <select id="shade{end}"></select></label>
{theme}</div>
</div>
"""


def _bar(studies: Sequence[Study]) -> str:
    """The cursor's values and the controls, a row for each run."""
    rows = "".join(
        _CURSOR.format(
            run=run,
            end=f"-{run}" if run else "",
            name=f'<b class="run">{escape(study.title)}</b> ' if len(studies) > 1 else "",
            theme="" if run else _THEME,
        )
        for run, study in enumerate(studies)
    )
    return f'<aside id="bar" aria-label="Cursor" hidden>{rows}</aside>'


def _subtitles(studies: Sequence[Study]) -> str:
    if len(studies) == 1:
        return f'<p class="sub">{escape(studies[0].subtitle)}</p>'
    return "".join(f'<p class="sub"><b>{escape(each.title)}</b>: {escape(each.subtitle)}</p>' for each in studies)


def _contents(entries: Sequence[tuple[str, str]]) -> str:
    return "".join(f'<li><a href="#{name}">{escape(title)}</a></li>' for name, title in entries)


def _section(name: str, title: str, lede: str, body: str) -> str:
    return (
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{escape(title)}</h2>'
        f'<p class="lede">{lede}</p>{body}</section>\n'
    )
