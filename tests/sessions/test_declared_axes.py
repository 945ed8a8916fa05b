"""Saved sessions of cells that declare axes, and texts of such cells that do not describe one."""

import json

import pytest
import torch

import glassgate as gg
from glassgate.engines.symbolic.arrays.cell import ArrayCell
from glassgate.engines.symbolic.arrays.cell_text import format_cell, parse_cell
from glassgate.engines.symbolic.equations import NotEquations
from glassgate.engines.traced_cells import traced_array_step
from tests.engines.llvm_cpu.array_cells import Projectable

LAYERS = {
    "two layers, two directions": lambda: gg.Recurrent(
        gg.cells.MLSTM(2, 4), 16, 8, num_layers=2, bidirectional=True, zoneout={"h": 0.2}
    ),
    "inputs": lambda: gg.Recurrent(gg.cells.GRUD(), 6, 5),
    "recurrent products": lambda: gg.Recurrent(gg.cells.HyperLSTM(), 5, 8),
    "slices": lambda: gg.Recurrent(gg.cells.S4D(), 5, 8),
    "projected": lambda: gg.Recurrent(Projectable(), 5, 8, num_layers=2, proj_size=3, zoneout={"c": 0.2}),
}


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("name", LAYERS)
def test_loaded_sessions_equal_the_saved_ones(name, precision, tmp_path):
    layer = LAYERS[name]().eval()
    session, path = gg.freeze(layer, precision), tmp_path / "session.safetensors"
    session.save(path)
    loaded, x = gg.load_session(path), torch.randn(5, 3, layer.input_size)
    for own, other in zip(session(x, lengths=[5, 2, 0]), loaded(x, lengths=[5, 2, 0]), strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=0)
    if not layer.bidirectional:
        with gg.engine("cpu"):
            assert torch.equal(session.stream(3).run(x), loaded.stream(3).run(x))


def test_a_traced_cell_in_layers_of_other_sizes_runs_on_the_reference_engine():
    cell = gg.cells.MLSTM(2, 4)
    traced = ArrayCell.like(cell, {(6, 8, 0): traced_array_step(cell, 6, 8)})
    layer = gg.Recurrent(traced, 7, 8)
    x = torch.randn(3, 2, 7)
    with pytest.warns(UserWarning, match=r"was traced for layers of the sizes \[\(6, 8, 0\)\]"):
        output, _ = layer(x)
    expected = gg.Recurrent(cell, 7, 8)
    expected.load_state_dict(layer.state_dict())
    torch.testing.assert_close(output, expected(x)[0])


def _text(cell, *sizes):
    return format_cell(ArrayCell.like(cell, {(*sizes, 0): traced_array_step(cell, *sizes)}))


def _changed(content, op, change):
    """Change the first value with this operation."""
    next(change(value) for value in content["steps"][0][-1]["values"] if value[0] == op)


DAMAGES = {
    "an unknown operation": lambda c: _changed(c, "sum", lambda v: v.__setitem__(0, "system") or v),
    "a missing argument": lambda c: _changed(c, "mul", lambda v: v[1].pop()),
    "another axis": lambda c: _changed(c, "mul", lambda v: v.__setitem__(2, ["heads"]) or v),
    "a position outside of an axis": lambda c: _changed(
        c, "index", lambda v: v[1][1]["indices"][-1].__setitem__(1, 100) or v
    ),
    "a negative position": lambda c: _changed(c, "index", lambda v: v[1][1]["indices"][-1].__setitem__(1, -1) or v),
    "another size": lambda c: c["steps"][0][-1]["sizes"].update(units=9),
    "a name that is no name": lambda c: c["gates"].update({"x; y": [["units"], "x"]}),
    "another state": lambda c: c["steps"][0][-1].update(states=[0, 0]),
    "another format": lambda c: c.update(arrays=2),
    "a leaf that the cell lacks": lambda c: _changed(c, "state", lambda v: v.__setitem__(1, ["z"]) or v),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_texts_are_rejected(name):
    content = json.loads(_text(gg.cells.S4D(), 5, 8))
    assert parse_cell(json.dumps(content)).state == gg.cells.S4D().state
    DAMAGES[name](content)
    with pytest.raises(NotEquations):
        parse_cell(json.dumps(content))
