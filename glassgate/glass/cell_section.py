"""The section "The cell" of a report: the diagrams of the cell and the layer, and the source code of a step."""

import inspect
import re
from html import escape

from glassgate.engines.symbolic.values import NotTraceable
from glassgate.glass.diagrams.cell import draw_cell
from glassgate.glass.diagrams.layer import draw_layer
from glassgate.glass.diagrams.svg import Diagram
from glassgate.glass.elements import Section
from glassgate.glass.languages import say, say_html
from glassgate.glass.study import Study
from glassgate.layers.stack import Recurrent

_WIDE_DIAGRAM = 720  # pixels


def diagrams(layer: Recurrent) -> list[tuple[str, str]]:
    """The captions and diagrams of the cell and of the layer, without style elements."""
    name = type(layer.cell).__name__
    try:
        step = say("cell.step_caption", cell=name), without_style(draw_cell(layer.cell, layer.proj_size > 0))
    except NotTraceable as error:
        step = say("cell.not_drawn", cell=name, reason=error), ""
    return [step, (say("cell.layer_caption"), without_style(draw_layer(layer)))]


def without_style(diagram: Diagram) -> str:
    """Remove the style from a diagram, so that the style of the page applies."""
    drawn = re.sub(r"<style>.*?</style>", "", str(diagram), flags=re.DOTALL)
    drawn = re.sub(r'(<svg[^>]*?) style="[^"]*"', r"\1", drawn)
    return re.sub(r'<text style="text-anchor: (\w+)"([^>]*?) class="', r'<text\2 class="at-\1 ', drawn)


def cell_section(study: Study) -> Section:
    """The section "The cell"."""
    cells = {type(each.cell): each for each in study.directions}
    parts = [
        f'<figure class="diagram{_width_class(drawn)}">{drawn}<figcaption>{escape(caption)}</figcaption></figure>'
        for caption, drawn in study.diagrams
    ]
    parts = [f'<div class="row diagrams">{"".join(parts)}</div>'] if parts else []
    for kind, each in cells.items():
        rows = "".join(f"<tr><th>{escape(name)}</th><td></td></tr>" for name in each.values)
        source = inspect.cleandoc("\n" + _source(kind))
        caption = say_html("cell.source_caption", cell=kind.__name__)
        parts.append(
            f'<figure class="cell"><pre tabindex="0"><code>{escape(source)}</code></pre><table class="wires"><tbody>'
            f"{rows}</tbody></table><figcaption>{caption}</figcaption></figure>"
        )
    return Section("cell", say("cell.title"), say("cell.intro"), "".join(parts))


def _width_class(drawn: str) -> str:
    """The CSS class " wide" for a diagram that needs the full width of the page, otherwise an empty string."""
    match = re.search(r' width="([\d.]+)"', drawn)
    return " wide" if match and float(match[1]) > _WIDE_DIAGRAM else ""


def _source(kind: type) -> str:
    try:
        return inspect.getsource(kind.step)  # type: ignore[attr-defined]
    except (OSError, TypeError):
        return say("cell.no_source")
