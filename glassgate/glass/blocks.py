"""The elements of sections: blocks for the directions of layers, plots with their captions, scales and rulers."""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from glassgate.glass.figures import Figure
from glassgate.glass.study import Direction, Study
from glassgate.glass.svg import nice


class Section(NamedTuple):
    """A section: the name in the page's address, the heading, one sentence beneath it, and its content."""

    name: str
    title: str
    lede: str
    body: str


def by_part(study: Study, make: Callable[[Direction], str], kind: str) -> str:
    """A block for each direction of each layer; the script shows the chosen one."""

    def blocks() -> Iterator[str]:
        for each in study.directions:
            inside = make(each)
            if inside:
                title = f"<h3>{escape(each.label)}</h3>" if len(study.directions) > 1 else ""
                name = escape(each.label)
                yield f'<div class="part" data-part="{name}">{title}<div class="{kind}">{inside}</div></div>'

    return "".join(blocks())


def figure(figure: Figure) -> str:
    """A plot with its caption, and a place for the measure of the chosen unit."""
    measure, of = figure.unit or ("", "")
    said = f' <output data-measure="{measure}" data-of="{escape(of)}"></output>' if measure else ""
    return f"<figure>{figure.svg}<figcaption>{escape(figure.caption)}{said}</figcaption></figure>"


def ramp(low: str, high: str, kind: str, name: str = "") -> str:
    """A colour scale between two words or numbers; `kind` is "gate" or "signed"."""
    named = f' data-id="{name}"' if name else ""
    return f'<span class="scale {kind}"{named}><span>{escape(low)}</span><i></i><span>{escape(high)}</span></span>'


def ruler(length: int, starts: Sequence[int] = ()) -> str:
    """Step numbers beneath a picture, and the starts of sequences."""
    marks = [(step, f"{step:g}") for step in nice(0, length, 10) if step == int(step)]
    if len(starts) > 2:
        marks = [(start, f"sequence {k + 1}" if len(starts) < 8 else str(k + 1)) for k, start in enumerate(starts[:-1])]
    drawn = "".join(
        f'<line x1="{100 * at / length:.2f}%" x2="{100 * at / length:.2f}%" y2="4"/><text x="{100 * at / length:.2f}%" '
        f'y="15"{_anchor(at, length)}>{words}</text>'
        for at, words in marks
    )
    return f'<svg class="ruler" width="100%" height="18" aria-hidden="true">{drawn}</svg>'


def _anchor(at: float, length: int) -> str:
    return "" if at == 0 else ' text-anchor="end"' if at > 0.97 * length else ' text-anchor="middle"'


def left_ruler(rows: Sequence[int]) -> str:
    """Numbers at the left of a picture's rows."""
    some = range(0, len(rows), max(1, len(rows) // 8))
    drawn = "".join(
        f'<text x="100%" y="{100 * (k + 0.5) / len(rows):.2f}%" dy="4" text-anchor="end">{rows[k]}</text>' for k in some
    )
    return f'<svg class="ruler left" width="100%" height="100%" aria-hidden="true">{drawn}</svg>'
