"""The interactive part of a page: its markup, style, script and data. The script does not evaluate text as code."""

from functools import partial
from typing import Any, NamedTuple

from glassgate.export.javascript import runtime
from glassgate.glass.languages import with_messages, with_texts
from glassgate.glass.live.network import Network
from glassgate.glass.page_parts import as_json
from glassgate.glass.page_parts import resource as package_resource

resource = partial(package_resource, package="glassgate.glass.live")
"""Returns the text of a file of this package."""

LIMIT = 20_000_000
"""The maximum size of a page, in bytes."""
SHARED_SCRIPTS = ("language", "elements", "numbers", "fields")
"""The files of the script that plain reports have, too."""
_SCRIPTS = ("base", "tokens", "editor", "edits", "activity", "step", "models", "series")


class Live(NamedTuple):
    """The interactive part of a report.

    Attributes:
        section: the markup, hidden until the script runs.
        style, script: the CSS and the JavaScript.
        data: the network as JSON, for the script.
        error: the largest rounding error of a stored weight.
    """

    section: str
    style: str
    script: str
    data: str
    error: float


def live_part(
    network: Network, model: dict[str, Any], initial_input: Any, run: dict[str, str], script: str, diagram: str
) -> Live:
    """Make the interactive part of a report.

    Args:
        network: the weights and the generated step functions.
        model: the description of the model for the script of the task.
        initial_input: the text or series that the page shows first.
        run: the folder of the run ("path") and the file of the examples ("file"), for the Python code on the page.
        script: the script of the task.
        diagram: the diagram of the cell without its style.
    """
    content = {
        "model": model,
        "weights": network.weights.packed(),
        "given": initial_input,
        "run": run,
        "diagram": diagram,
    }
    parts = [*map(script_part, (*SHARED_SCRIPTS, *_SCRIPTS)), script, script_part("report")]
    whole_script = wrap_script(network, parts, "live")
    return Live(
        with_texts(resource("section.html")),
        resource("live.css"),
        whole_script,
        as_json(content),
        network.weights.error,
    )


def wrap_script(network: Network, parts: list[str], start: str) -> str:
    """The whole script: the runtime, the generated steps and `parts`. Its last line calls `start` with the data."""
    steps = "const steps = {\n" + ",\n\n".join(network.steps) + "\n};"
    begin = f'globalThis.glassgate = {start}(JSON.parse(document.getElementById("live-data").textContent));'
    return "\n".join(['"use strict";', "(() => {", runtime(), steps, with_messages("\n".join(parts)), begin, "})();"])


def script_part(name: str) -> str:
    """The text of one file of the script."""
    return package_resource(f"script/{name}.js") if name in SHARED_SCRIPTS else resource(f"{name}.js")


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
