"""The HTML elements of the sections of a report."""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple

from glassgate.glass.figures import Figure
from glassgate.glass.languages import say
from glassgate.glass.study import Direction, Study
from glassgate.glass.svg import round_numbers


class Section(NamedTuple):
    """A section of a page.

    Attributes:
        name: the id of the section in links
        title: the heading
        intro: the introduction below the heading, as HTML
        body: the content as HTML; empty if the study has no data for it
    """

    name: str
    title: str
    intro: str
    body: str


def for_each_direction(study: Study, content_of: Callable[[Direction], str], css_class: str) -> str:
    """Return one block for each direction of each layer. The script of the page shows only the selected block.

    Args:
        study: the study with the directions
        content_of: returns the content of a direction's block as HTML; empty to leave the block out
        css_class: the class of the element around the content
    """

    def blocks() -> Iterator[str]:
        for each in study.directions:
            content = content_of(each)
            if content:
                title = f"<h3>{escape(each.label)}</h3>" if len(study.directions) > 1 else ""
                name = escape(each.label)
                yield f'<div class="part" data-part="{name}">{title}<div class="{css_class}">{content}</div></div>'

    return "".join(blocks())


def scrolled_table(head: str, rows: str) -> str:
    """Return a table that scrolls if it is wider than the page, from the cells of its head and its rows as HTML."""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="scroll" tabindex="0">{table}</div>'


def figure_element(figure: Figure) -> str:
    """Return a plot with its caption. If the plot has a measure, the script fills the output element."""
    measure, gate_or_state = figure.measure or ("", "")
    output = f' <output data-measure="{measure}" data-of="{escape(gate_or_state)}"></output>' if measure else ""
    return f"<figure>{figure.svg}<figcaption>{escape(figure.caption)}{output}</figcaption></figure>"


def colour_scale(low: str, high: str, kind: str, name: str = "") -> str:
    """Return a legend of colours.

    Args:
        low, high: the labels of the ends of the scale
        kind: "gate" for the colours of values from 0 to 1, "signed" for those of negative and positive values
        name: the name by which the page's script finds the labels; empty if it does not change them
    """
    data_id = f' data-id="{name}"' if name else ""
    return f'<span class="scale {kind}"{data_id}><span>{escape(low)}</span><i></i><span>{escape(high)}</span></span>'


_SHORT_LABEL = 0.03
"""The fraction of a ruler's width that a number needs."""
_NARROWEST = 0.25
"""The fraction of a ruler's width that the label "sequence 1" needs on the screen of a phone."""


def step_ruler(length: int, starts: Sequence[int] = ()) -> str:
    """Return the axis below a picture of `length` steps.

    Its ticks are step numbers, below the middle of each step, or the starts of the sequences if there are several.
    Sequences whose number would cover the previous one have none.

    Args:
        length: the number of steps
        starts: the first step of each sequence, and the end of the last one

    Example:
        >>> "sequence 2" in step_ruler(20, [0, 10, 20]), "sequence 2" in step_ruler(20, [0, 2, 20])
        (True, False)
        >>> '<text x="12.50%" y="15" text-anchor="middle">1</text>' in step_ruler(4)
        True
    """
    numbers = {1, *(int(step) for step in round_numbers(0, length, 10) if step == int(step) and step)}
    ticks = [(step - 0.5, str(step)) for step in sorted(numbers) if step == 1 or step > 0.05 * length]
    if len(starts) > 2:
        wide = all(end - start >= _NARROWEST * length for start, end in pairwise(starts))
        last, ticks = -length, []
        for k, start in enumerate(starts[:-1]):
            if start - last >= _SHORT_LABEL * length:
                ticks.append((start, say("words.sequence", number=k + 1) if wide else str(k + 1)))
                last = start
    elements = "".join(
        f'<line x1="{100 * step / length:.2f}%" x2="{100 * step / length:.2f}%" y2="4"/>'
        f'<text x="{100 * step / length:.2f}%" y="15"{_text_anchor(step, length)}>{label}</text>'
        for step, label in ticks
    )
    return f'<svg class="ruler" width="100%" height="18" aria-hidden="true">{elements}</svg>'


def _text_anchor(step: float, length: int) -> str:
    """The alignment of a label at a step: centred, except at the ends, where it would leave the picture."""
    return "" if step == 0 else ' text-anchor="end"' if step > 0.99 * length else ' text-anchor="middle"'


def row_ruler(rows: Sequence[int]) -> str:
    """Return the axis to the left of a picture, with the numbers of about eight of its rows."""
    labelled = range(0, len(rows), max(1, len(rows) // 8))
    elements = "".join(
        f'<text x="100%" y="{100 * (k + 0.5) / len(rows):.2f}%" dy="4" text-anchor="end">{rows[k]}</text>'
        for k in labelled
    )
    return f'<svg class="ruler left" width="100%" height="100%" aria-hidden="true">{elements}</svg>'
