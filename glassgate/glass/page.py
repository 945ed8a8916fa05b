"""A report as one HTML page: no network, nothing but its own style and script, the same bytes for the same study."""

import base64
import hashlib
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from glassgate.glass import data
from glassgate.glass.diagrams.svg import STYLE
from glassgate.glass.sections import sections
from glassgate.glass.study import Study


def page(study: Study) -> str:
    """The page of a study."""
    # A diagram brings its own colours, and the page those of its theme: its rules come last.
    style, script = f"{_DIAGRAM}\n{_resource('page.css')}", _resource("page.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = sections(study)
    numbers, left_out = data.embedded(study)
    notes = "".join(f"<p>{escape(note)}</p>" for note in [*study.notes, left_out] if note)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(study.title)} · glassgate</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#findings">To the findings</a>
<header>
<p class="kicker">Glassgate report</p>
<h1>{escape(study.title)}</h1>
<p class="sub">{escape(study.subtitle)}</p>
<p class="hint">One cursor runs through every plot: point anywhere, or press <kbd>←</kbd> <kbd>→</kbd> for the step, \
<kbd>↑</kbd> <kbd>↓</kbd> for the unit, <kbd>L</kbd> for the layer, {_NEXT if _many(study) else ""}<kbd>T</kbd> for \
light or dark.</p>
</header>
<nav aria-label="Sections"><ol>{_contents([(each.name, each.title) for each in parts])}</ol></nav>
<main>
{"".join(_section(*each) for each in parts)}
</main>
<footer>
{notes}
<p>Made by <code>glassgate report</code> from recordings of the model's own kernels. The page holds its numbers as \
JSON, and loads nothing from anywhere.</p>
</footer>
{_BAR}
<script type="application/json" id="data">{data.text(numbers)}</script>
<script>{script}</script>
</body>
</html>
"""


_NEXT = "<kbd>N</kbd> for the next answer, "


def _many(study: Study) -> bool:
    """Whether some sequence has several answers that belong to no step of it."""
    return any(sum(each.step is None for each in passage.said) > 1 for passage in study.passages)


_DIAGRAM = "\n".join(line for line in STYLE.splitlines() if re.match(r"\.gg-diagram [^{]", line))
_BAR = """<aside id="bar" aria-label="Cursor" hidden>
<output id="now" aria-live="off"></output>
<div class="controls">
<output id="wires"></output>
<label>layer <select id="part"></select></label>
<label>unit <input id="unit" type="number" min="0" step="1"></label>
<label>shade by <select id="shade"></select></label>
<button id="theme" type="button" title="light or dark (t)">◐<span class="hidden"> light or dark</span></button>
</div>
</aside>"""


def _contents(entries: Sequence[tuple[str, str]]) -> str:
    return "".join(f'<li><a href="#{name}">{escape(title)}</a></li>' for name, title in entries)


def _section(name: str, title: str, lede: str, body: str) -> str:
    return (
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{escape(title)}</h2>'
        f'<p class="lede">{lede}</p>{body}</section>\n'
    )


def _resource(name: str) -> str:
    return files("glassgate.glass").joinpath(name).read_text(encoding="utf-8").strip()


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
