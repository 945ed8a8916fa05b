"""HTML elements of a report's sections: blocks for directions, plots with captions, colour scales and rulers."""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from glassgate.glass.figures import Figure
from glassgate.glass.study import Direction, Study
from glassgate.glass.svg import nice


class Section(NamedTuple):
    """A section: its name in the page's address, its heading, an introductory sentence, and its content."""

    name: str
    title: str
    lede: str
    body: str


def by_part(study: Study, make: Callable[[Direction], str], kind: str) -> str:
    """A block for each direction of each layer. The page's script shows the selected one."""

    def blocks() -> Iterator[str]:
        for each in study.directions:
            content = make(each)
            if content:
                title = f"<h3>{escape(each.label)}</h3>" if len(study.directions) > 1 else ""
                name = escape(each.label)
                yield f'<div class="part" data-part="{name}">{title}<div class="{kind}">{content}</div></div>'

    return "".join(blocks())


def figure(figure: Figure) -> str:
    """A plot with its caption, and an output element for the measure of the selected unit."""
    measure, value = figure.unit or ("", "")
    output = f' <output data-measure="{measure}" data-of="{escape(value)}"></output>' if measure else ""
    return f"<figure>{figure.svg}<figcaption>{escape(figure.caption)}{output}</figcaption></figure>"


def ramp(low: str, high: str, kind: str, name: str = "") -> str:
    """A colour scale between two words or numbers; `kind` is "gate" or "signed"."""
    named = f' data-id="{name}"' if name else ""
    return f'<span class="scale {kind}"{named}><span>{escape(low)}</span><i></i><span>{escape(high)}</span></span>'


def ruler(length: int, starts: Sequence[int] = ()) -> str:
    """Step numbers beneath a picture, and the starts of sequences."""
    marks = [(step, f"{step:g}") for step in nice(0, length, 10) if step == int(step)]
    if len(starts) > 2:
        marks = [(start, f"sequence {k + 1}" if len(starts) < 8 else str(k + 1)) for k, start in enumerate(starts[:-1])]
    elements = "".join(
        f'<line x1="{100 * at / length:.2f}%" x2="{100 * at / length:.2f}%" y2="4"/><text x="{100 * at / length:.2f}%" '
        f'y="15"{_anchor(at, length)}>{words}</text>'
        for at, words in marks
    )
    return f'<svg class="ruler" width="100%" height="18" aria-hidden="true">{elements}</svg>'


def _anchor(at: float, length: int) -> str:
    return "" if at == 0 else ' text-anchor="end"' if at > 0.97 * length else ' text-anchor="middle"'


def left_ruler(rows: Sequence[int]) -> str:
    """Row numbers to the left of a picture."""
    labelled = range(0, len(rows), max(1, len(rows) // 8))
    elements = "".join(
        f'<text x="100%" y="{100 * (k + 0.5) / len(rows):.2f}%" dy="4" text-anchor="end">{rows[k]}</text>'
        for k in labelled
    )
    return f'<svg class="ruler left" width="100%" height="100%" aria-hidden="true">{elements}</svg>'
