"""Pages that run a network in the browser: the page of a cell, size limits, and errors."""

import base64
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import glassgate as gg
from glassgate.glass.live.network import Network, wire_key
from glassgate.glass.live.page import LIMIT, check_size
from tests.export.javascript import node
from tests.export.test_javascript import CELLS, Sorted
from tests.raised import ROOT


@pytest.mark.parametrize("cell", CELLS[1:4], ids=lambda cell: type(cell).__name__)
def test_every_wire_of_the_diagram_has_a_value(cell: gg.Cell) -> None:
    (level,) = Network().add_layer(gg.Recurrent(cell, 2, 4), "encoder")["levels"]
    values = level["directions"][0]["values"]
    names = re.findall(r'class="wire[^"]*" data-name="([^"]+)"', str(gg.draw(cell)))
    assert len(names) > 4
    for name in names:
        assert name == "x" or name.endswith("_prev") or wire_key(name) in values


def test_the_page_of_a_cell_is_one_file_without_eval(tmp_path: Path) -> None:
    page = gg.draw(gg.cells.GRU()).live(units=2)
    page.save(tmp_path / "gru.html")
    text = (tmp_path / "gru.html").read_text("utf-8")
    assert text == str(page) == str(gg.draw(gg.cells.GRU()).live(units=2))
    assert not re.search(r"\beval\(|new Function|https?://(?!www\.w3\.org)|unsafe-", text)
    assert len(text) < 200_000
    assert "<iframe srcdoc=" in page._repr_html_()


def test_cells_are_shown_side_by_side() -> None:
    text = str(gg.draw(gg.cells.RNN()).live(beside=[gg.cells.GRU(), gg.cells.SLSTM(heads=2)]))
    assert text.count('class="gg-diagram"') == 3
    assert "RNN, GRU and SLSTM" in text


@pytest.mark.parametrize("units", [0, 5, 1.5])
def test_a_page_has_one_to_four_units(units: Any) -> None:
    with pytest.raises(ValueError, match=rf"live: units must be 1 to 4, because each weight has a slider, got {units}"):
        gg.draw(gg.cells.LSTM()).live(units=units)


def test_the_error_names_an_operation_that_javascript_lacks() -> None:
    with pytest.raises(ValueError, match=r"live: cell Sorted: step uses .*sort"):
        Network().add_layer(gg.Recurrent(Sorted(), 2, 3), "encoder")


def test_a_page_that_is_too_large_states_its_size() -> None:
    assert check_size("x" * 10) == 10
    with pytest.raises(ValueError, match=r"the page would have 20\.0 MB, and the limit is 20 MB; store its"):
        check_size("x" * (LIMIT + 1))


def test_a_regularised_layer_keeps_its_equations() -> None:
    torch.manual_seed(0)
    plain, noisy = (Network() for _ in range(2))
    plain.add_layer(gg.LSTM(2, 3).eval(), "encoder")
    noisy.add_layer(gg.LSTM(2, 3, zoneout=0.3).eval(), "encoder")
    assert plain.steps != noisy.steps


def test_a_layer_lists_the_gates_that_keep_the_state() -> None:
    network = Network()
    for cell, gates in ((gg.cells.MGU(), ["f"]), (gg.cells.GRU(), ["z"]), (gg.cells.RNN(), [])):
        description = network.add_layer(gg.Recurrent(cell, 2, 3).eval(), f"layer_{cell._class_name}")
        assert description["levels"][0]["directions"][0]["keeping"] == gates


_CELLS_PAGE = """
const read = withArrays(data.cells, unpackWeights(data.weights));
const results = read.map(({ sizes }) => sizes.map(({ levels: [{ directions: [direction] }] }) => {
  const { values } = runDirection(direction, steps[direction.label], Float32Array.from(signal), signal.length);
  const names = [...direction.gates, ...Object.keys(direction.states)];
  return Object.fromEntries(names.map((name) => [name, [...values[name]]]));
}));
console.log(JSON.stringify(results));
"""


def test_the_page_of_the_documentation_is_current_and_gives_the_numbers_of_python(tmp_path: Path) -> None:
    cells = [gg.cells.RNN(), gg.cells.GRU(), gg.cells.LSTM()]
    page = (ROOT / "docs/student/cells.html").read_text("utf-8")
    assert page == str(gg.draw(cells[0]).live(beside=cells[1:])), "run docs/draw_student.py"
    data = json.loads(page.split('id="live-data">')[1].split("</script>")[0])
    script = page.split("</script>\n<script>")[1].split("globalThis.glassgate = ")[0]
    signal = torch.randn(60).tolist()
    inside = f"const data = {json.dumps(data)};\nconst signal = {signal};\n{_CELLS_PAGE}\n}})();"
    (tmp_path / "program.js").write_text(script + inside, "utf-8")
    done = subprocess.run([node(), str(tmp_path / "program.js")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    numbers = np.frombuffer(base64.b64decode(data["weights"]["base64"]), "<f4")
    for cell, description, results in zip(cells, data["cells"], json.loads(done.stdout), strict=True):
        for size, values in zip(description["sizes"], results, strict=True):
            (direction,) = size["levels"][0]["directions"]
            layer = layer_of(cell, direction, numbers)
            with gg.engine("reference"), torch.no_grad(), gg.record(layer) as tape:
                layer(torch.tensor(signal)[:, None, None])
            for name, got in values.items():
                torch.testing.assert_close(
                    torch.tensor(got), tape[f"layer0.forward.{name}"].flatten(), atol=1e-5, rtol=1e-5
                )


def layer_of(cell: gg.Cell, direction: dict[str, Any], numbers: np.ndarray) -> gg.Recurrent:
    """The layer whose weights a page contains."""
    units = direction["units"]
    layer = gg.Recurrent(cell, 1, units)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        for name, parts in direction["products"].items():
            first = cell.gates.index(re.sub("_(pre|ih|hh)$", "", name)) * units
            rows = {part["weight"]: "weight_ih_l0" if part["vector"] == "x" else "weight_hh_l0" for part in parts}
            rows[f"{name}_bias"] = "bias_hh_l0" if name.endswith("_hh") else "bias_ih_l0"
            for key, parameter_name in rows.items():
                place = direction["weights"][key]
                values = numbers[place["at"] : place["at"] + int(np.prod(place["shape"]))].reshape(place["shape"])
                getattr(layer, parameter_name)[first : first + units] = torch.tensor(values)
    return layer
