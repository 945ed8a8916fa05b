"""Equations of a cell: written to text and parsed, run as a `GraphCell`, and changed with `replaced`."""

import json

import pytest
import torch

import glassgate as gg
from glassgate import cells
from glassgate.engines.axes import UNITS
from glassgate.engines.symbolic.equations import NotEquations, parse
from glassgate.engines.symbolic.graph import leaf
from glassgate.engines.symbolic.graph_cell import GraphCell
from glassgate.engines.symbolic.ops import Parameter
from glassgate.engines.symbolic.step import equations_of
from glassgate.layers.regularisers import Noisy
from tests.compare import check, measure, noise
from tests.engines.test_symbolic import Clipped, Everything, Keeps, Of

CELLS = {
    "RNN": (cells.RNN("relu"), True),
    "LSTM": (cells.LSTM(), True),
    "GRU": (cells.GRU(), False),
    "LayerNormLSTM": (cells.LayerNormLSTM(), False),
    "SLSTM": (cells.SLSTM(heads=2), False),
    "everything": (Everything(), False),
    "clipped": (Clipped(), True),
    "keeps": (Keeps(), True),
    "noise": (Noisy(cells.LSTM(), {"h": 0.3}, 0.2, "state"), False),
    "constants": (Of(lambda x, y: torch.where(x > 0, 0.125, -0.0) * y + torch.maximum(x, torch.tensor(0.3))), False),
}


@pytest.mark.parametrize("name", CELLS)
def test_parsed_equations_are_equal_and_run_as_a_cell(name):
    cell, projects = CELLS[name]
    for projected in {False, projects}:
        equations = equations_of(cell, projected)
        parsed = GraphCell(parse(equations.text))
        assert parsed.equations.text == equations_of(parsed, projected).text == equations.text
        if name in ("everything", "noise"):  # these cells have noise, which the layers of this test do not draw
            continue
        torch.manual_seed(0)
        layer = gg.Recurrent(cell, 3, 4, proj_size=2 * projected, dtype=torch.float64)
        other = gg.Recurrent(parsed, 3, 4, proj_size=2 * projected, dtype=torch.float64)
        other.load_state_dict(layer.state_dict())
        x = noise(1, 5, 2, 3)

        def run(layer, x=x):
            with gg.engine("reference"):
                output, _, states = layer(x, return_states=True)
            outputs = {"output": output, **{k: v for k, v in states.items() if v.requires_grad}}
            return measure(outputs, dict(layer.named_parameters()))

        check(run(other), run(layer))


def test_a_replaced_value_is_read_by_all_its_readers():
    class Halved(gg.Cell):
        gates, state = ("i", "f", "g", "o"), ("h", "c")

        def step(self, a, s):
            i, f, g, o = torch.sigmoid(a.i), torch.sigmoid(a.f), torch.tanh(a.g), torch.sigmoid(a.o)
            f = torch.where(f > 0.4, f * 0.5, f)
            c = f * s.c + i * g
            return o * torch.tanh(c), c

    equations = equations_of(cells.LSTM()).replaced({"f": lambda f: torch.where(f > 0.4, f * 0.5, f)})
    assert GraphCell(equations).equations.gate_values["f"].op == "where"
    results = []
    for cell in (GraphCell(equations), Halved()):
        torch.manual_seed(0)
        layer = gg.Recurrent(cell, 3, 4, dtype=torch.float64)
        results.append(measure({"output": layer(noise(1, 5, 2, 3))[0]}, dict(layer.named_parameters())))
    check(*results)
    held = equations_of(cells.GRU()).replaced(
        {"z": lambda z: z + leaf(Parameter("more"), UNITS)}, parameters={"more": gg.Parameter(0.5)}
    )
    layer = gg.Recurrent(GraphCell(held), 3, 4)
    assert layer.more_l0.shape == (4,)
    with pytest.raises(KeyError, match="none"):
        equations.replaced({"none": lambda v: v})


def changed_text(change):
    content = json.loads(equations_of(cells.LSTM()).text)
    change(content)
    return json.dumps(content)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "glassgate.cells:LSTM {}",
        "[" * 100_000,
        changed_text(lambda c: c.update(format=2)),
        changed_text(lambda c: c.update(heads=True)),
        changed_text(lambda c: c.update(state=["h", "c", "m"])),
        changed_text(lambda c: c["nodes"].insert(0, ["__import__", "H", None, "os"])),
        changed_text(lambda c: c["nodes"].insert(0, ["state", "H", "import os", "h"])),
        changed_text(lambda c: c["nodes"].append(["add", "H", None, 0, 10_000])),
        changed_text(lambda c: c["nodes"].append(["add", "H", None, 0])),
        changed_text(lambda c: c["nodes"].append(["where", "H", None, 0, 1, 2])),
        changed_text(lambda c: c["nodes"].append(["hr", "P", None, 0])),
        changed_text(lambda c: c["nodes"].append(["ih", "H", None, "none"])),
    ],
)
def test_a_text_without_valid_equations_raises_an_error(text):
    with pytest.raises(NotEquations, match="this program's equations cannot be read"):
        parse(text)
