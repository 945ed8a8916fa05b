"""The interactive part of a page: its markup, style, script and data; the script evaluates no text."""

from functools import partial
from typing import Any, NamedTuple

from glassgate.export.javascript import runtime
from glassgate.glass.live.network import Network
from glassgate.glass.page_parts import as_json
from glassgate.glass.page_parts import resource as of_package

resource = partial(of_package, package="glassgate.glass.live")
"""A file of this package."""

LIMIT = 20_000_000
"""The maximum size of a page, in bytes."""
_SCRIPTS = ("base", "tokens", "editor", "edits", "activity", "inside", "models", "series")


class Live(NamedTuple):
    """The interactive part of a report.

    Attributes:
        section: the markup, hidden until the script runs.
        style, script: the CSS and the JavaScript.
        data: the network, as text for the script.
        error: the largest error of a stored weight.
    """

    section: str
    style: str
    script: str
    data: str
    error: float


def live_part(
    network: Network, model: dict[str, Any], given: Any, run: dict[str, str], script: str, diagram: str
) -> Live:
    """The interactive part of a report.

    Args:
        network: the weights and steps.
        model: the data of the task's script.
        given: the input that the page begins with, a text or a series.
        run: the names in the Python code that the page shows.
        script: the script of the task.
        diagram: the diagram of the cell, without a style of its own.
    """
    content = {"model": model, "weights": network.weights.packed(), "given": given, "run": run, "diagram": diagram}
    whole = enclosed(network, [*map(part, _SCRIPTS), script, part("report")], "live")
    return Live(resource("section.html"), resource("live.css"), whole, as_json(content), network.weights.error)


def enclosed(network: Network, parts: list[str], start: str) -> str:
    """The whole script: the runtime, the generated steps and the parts. It calls the function named `start`."""
    steps = "const steps = {\n" + ",\n\n".join(network.steps) + "\n};"
    begin = f'globalThis.glassgate = {start}(JSON.parse(document.getElementById("live-data").textContent));'
    return "\n".join(['"use strict";', "(() => {", runtime(), steps, *parts, begin, "})();"])


def part(name: str) -> str:
    """A part of the script."""
    return resource(f"{name}.js")


def check_size(content: str) -> int:
    """The size of a page in bytes.

    Raises:
        ValueError: the page is larger than `LIMIT`.
    """
    size = len(content.encode())
    if size > LIMIT:
        raise ValueError(
            f"the page would have {size / 1e6:.1f} MB, and the limit is {LIMIT / 1e6:.0f} MB; store its weights "
            "with 16 bits, train a smaller network, or write the plain report"
        )
    return size
