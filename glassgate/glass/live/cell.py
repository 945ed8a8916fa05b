"""`gg.draw(cell).live()`: a page that runs one or several cells on a signal that the user draws."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import torch

from glassgate.cell import Cell
from glassgate.engines.retention import memory_of
from glassgate.glass.cell_section import without_style
from glassgate.glass.diagrams.cell import draw_cell
from glassgate.glass.diagrams.svg import Diagram
from glassgate.glass.languages import current, listed_with_and, say, speaking
from glassgate.glass.live.network import Network
from glassgate.glass.live.page import SHARED_SCRIPTS, resource, script_part, wrap_script
from glassgate.glass.page_parts import as_json, page_policy, page_style
from glassgate.init import gate_bias
from glassgate.layers.stack import Recurrent
from glassgate.storage import write_file

_SCRIPTS = (*SHARED_SCRIPTS, "base", "activity", "step", "cell")
MAX_UNITS = 4
"""The maximum number of units, because the page has a slider for each weight."""


class LivePage:
    """A page that runs in the browser. A notebook shows it, `str` returns its HTML, and `save` writes it.

    Args:
        html: the page.
        height: the height of the frame in a notebook, in pixels.
    """

    def __init__(self, html: str, height: int = 900) -> None:
        self._html, self._height = html, height

    def __str__(self) -> str:
        return self._html

    def __repr__(self) -> str:
        return f"LivePage({len(self._html.encode()) / 1e3:.0f} kB)"

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{escape(self._html)}" width="100%" height="{self._height}" sandbox="allow-scripts" '
            'style="border: 0" title="an interactive page"></iframe>'
        )

    def save(self, path: str | Path) -> None:
        """Write the page to a file."""
        write_file(path, self._html.encode())


class CellDiagram(Diagram):
    """The diagram of a cell.

    Args:
        drawn: the diagram.
        cell: the cell.
    """

    def __init__(self, drawn: Diagram, cell: Cell) -> None:
        super().__init__(str(drawn))
        self._cell = cell

    def live(self, units: int = 1, *, beside: Sequence[Cell] = (), seed: int = 0, language: str = "en") -> LivePage:
        """Make a page on which users draw a signal, change weights, and see the response of gates and states.

        Args:
            units: the number of units at first, 1 to 4. Users can change it on the page.
            beside: other cells, shown next to this one and run on the same signal.
            seed: the seed of the initial weights.
            language: the language of the page, "en" or "zh".

        Returns:
            The page. A notebook shows it, and `save(path)` writes it. It makes no network requests.

        Raises:
            ValueError: the number of units is outside of 1 to 4, the language is unknown, or the cell declares axes
                or uses an operation without an equivalent in JavaScript.

        Example:
            >>> import glassgate as gg
            >>> page = gg.draw(gg.cells.LSTM()).live(units=2)
            >>> "Draw on the signal" in str(page)
            True
        """
        if not isinstance(units, int) or not 1 <= units <= MAX_UNITS:
            raise ValueError(f"live: units must be 1 to {MAX_UNITS}, because each weight has a slider, got {units!r}")
        for cell in (self._cell, *beside):
            if cell.declaration is not None:
                raise ValueError(
                    f"live: cell {type(cell).__name__} declares axes, and this page has one input and a few units; the "
                    "live report of a trained network runs such cells (glassgate report RUN --live)"
                )
        with speaking(language):
            return cell_page([self._cell, *beside], units, seed)


def cell_page(cells: Sequence[Cell], units: int, seed: int) -> LivePage:
    """Make the page of some cells."""
    network, descriptions = Network(), []
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        for number, cell in enumerate(cells):
            sizes = [_add_layer(cell, size, network, number) for size in range(1, MAX_UNITS + 1)]
            descriptions.append({"name": type(cell).__name__, "alone": len(cells) == 1, "sizes": sizes})
    content = {"cells": descriptions, "weights": network.weights.packed(), "units": units}
    script = wrap_script(network, [script_part(name) for name in _SCRIPTS], "liveCells")
    style = page_style(resource("live.css"), resource("cell.css"))
    names = [type(cell).__name__ for cell in cells]
    title = listed_with_and(names)
    sections = "".join(
        f'<section id="cell-{number}">{f"<h2>{escape(name)}</h2>" if len(cells) > 1 else ""}'
        f"<figure>{without_style(draw_cell(cell))}</figure></section>"
        for number, (cell, name) in enumerate(zip(cells, names, strict=True))
    )
    return LivePage(
        _PAGE.format(
            policy=page_policy(style, script),
            title=escape(title),
            style=style,
            kind="several" if len(cells) > 1 else "alone",
            language=current().code,
            lede=say("cell_page.lede", count=len(cells)),
            theme=say("bar.theme"),
            noscript=say("cell_page.noscript"),
            units=say("search.units"),
            unit=say("cell_page.unit"),
            step=say("live.step"),
            previous_step=say("bar.previous_step"),
            next_step=say("bar.next_step"),
            footer=say("cell_page.footer"),
            sections=sections,
            counts="".join(f"<option>{count}</option>" for count in range(1, MAX_UNITS + 1)),
            data=as_json(content),
            script=script,
        )
    )


def _add_layer(cell: Cell, units: int, network: Network, number: int) -> dict[str, Any]:
    """Add a layer with one input. Its weights are large enough for a visible response of the states to a signal."""
    heads = cell.heads
    if units % heads:
        units = heads
    layer = Recurrent(cell, 1, units).eval()
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.startswith("weight_ih"):
                torch.nn.init.uniform_(parameter, 0.5, 1.5)
            elif name.startswith("weight_hh"):
                torch.nn.init.uniform_(parameter, -0.6, 0.6)
            elif name.startswith("bias"):
                parameter.zero_()
    memory = memory_of(cell, units)
    if "bias_ih" in memory.offsets:
        forget = {gate: 2.0 * sign for gate, sign in memory.keeping.items() if gate not in memory.coupled}
        gate_bias(**forget)(layer)
    return network.add_layer(layer, f"cell{number}.units{units}")


_PAGE = """<!doctype html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title} · glassgate</title>
<style>{style}</style>
</head>
<body class="cell-page {kind}">
<header>
<p class="kicker">Glassgate</p>
<h1>{title}</h1>
<p class="sub">{lede}</p>
<button id="theme" class="theme" type="button" aria-label="{theme}">◐</button>
</header>
<main>
<noscript><p class="sub">{noscript}</p></noscript>
<div id="cell-live" hidden>
<div id="cell-signal"></div>
<div class="cell-controls">
<label>{units} <select id="cell-units">{counts}</select></label>
<label>{unit} <select id="cell-unit"></select></label>
<label class="live-wide">{step} <input type="range" id="cell-step" min="0" value="0" step="1"></label>
<button type="button" id="cell-back" aria-label="{previous_step}">←</button><button type="button" id="cell-forth" \
aria-label="{next_step}">→</button>
<output id="cell-now"></output>
</div>
<p class="key" id="cell-key"></p>
</div>
<div class="cells">{sections}</div>
</main>
<footer><p>{footer}</p></footer>
<script type="application/json" id="live-data">{data}</script>
<script>{script}</script>
</body>
</html>
"""
