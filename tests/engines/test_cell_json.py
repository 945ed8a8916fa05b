"""Cells as JSON: cells from JSON compute the same as the original, and damaged texts raise errors."""

import copy
import json
import pickle

import pytest
import torch

import glassgate as gg
from glassgate import cells
from tests.compare import check, measure, noise
from tests.engines.test_symbolic import Everything


@pytest.mark.parametrize("name", cells.__all__)
@pytest.mark.parametrize("proj_size", [0, 2])
def test_a_cell_from_json_computes_the_same(name: str, proj_size: int) -> None:
    cell = getattr(cells, name)()
    text = gg.cell_to_json(cell)
    from_json = gg.cell_from_json(text)
    assert gg.cell_to_json(from_json) == text
    results = []
    for each in (cell, from_json):
        torch.manual_seed(0)
        try:
            layer = gg.Recurrent(each, 3, 4, proj_size=proj_size, dtype=torch.float64)
            with gg.engine("reference"):
                output, _ = layer(noise(1, 5, 2, 3))
        except ValueError:  # the step reads h unit by unit, so the cell does not support a projection
            results.append(None)
        else:
            results.append(measure({"output": output}, dict(layer.named_parameters())))
    if results[0] is None:
        assert results[1] is None
    else:
        check(results[1], results[0])


def test_copies_and_the_name_of_a_cell_from_json() -> None:
    cell = gg.cell_from_json(gg.cell_to_json(cells.SLSTM(heads=2)))
    for each in (pickle.loads(pickle.dumps(cell)), copy.deepcopy(cell)):
        assert gg.cell_to_json(each) == gg.cell_to_json(cell)
        assert (repr(each), each.heads) == ("SLSTM(from JSON)", 2)
    assert str(gg.draw(gg.cell_from_json(gg.cell_to_json(cells.MGU())))) == str(gg.draw(cells.MGU()))


def test_a_step_that_reads_its_output_unit_by_unit_has_no_projection() -> None:
    class Mixed(gg.Cell):
        gates = ("n",)

        def step(self, a, s):
            return a.n + s.h

    cell = gg.cell_from_json(gg.cell_to_json(Mixed()))
    with pytest.raises(ValueError, match="cell Mixed: its step reads h unit by unit, so h cannot be projected"):
        gg.Recurrent(cell, 3, 4, proj_size=2)


def test_the_mean_of_a_mean_is_written_and_read() -> None:
    class Centred(gg.Cell):
        gates = ("n",)

        def step(self, a, s):
            return torch.tanh(a.n - a.n.mean(-1, keepdim=True).mean(-1, keepdim=True))

    text = gg.cell_to_json(Centred())
    assert gg.cell_to_json(gg.cell_from_json(text)) == text


def _changed(**changes: object) -> str:
    return json.dumps({**json.loads(gg.cell_to_json(cells.LSTM())), **changes})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected the text that cell_to_json returns, got JSONDecodeError"),
        ("[]", "expected the text that cell_to_json returns, got TypeError"),
        (_changed(format=9), "expected format 1, got 9; upgrade glassgate"),
        (_changed(name="a b"), "expected the name of a class, got 'a b'"),
        (_changed(equations={}), "expected the text that cell_to_json returns"),
        (
            _changed(projected=json.loads(gg.cell_to_json(cells.LSTM()))["equations"]),
            "the plain equations and those with a projection are interchanged",
        ),
    ],
)
def test_errors_for_damaged_texts(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gg.cell_from_json(text)


def test_errors_for_cells_that_cannot_be_written() -> None:
    with pytest.raises(TypeError, match=r"cell_to_json: cell must be an instance of glassgate.Cell, got 'LSTM'"):
        gg.cell_to_json("LSTM")  # type: ignore[arg-type]

    class Sorting(gg.Cell):
        gates = ("n",)

        def step(self, a, s):
            return torch.sort(a.n, -1).values

    with pytest.raises(TypeError, match=r"cell Sorting: step uses torch.sort, which the kernels do not support"):
        gg.cell_to_json(Sorting())


def test_noise_and_parameters_are_written_and_read() -> None:
    cell = Everything()
    from_json = gg.cell_from_json(gg.cell_to_json(cell))
    assert (from_json.noise, from_json.parameters) == (cell.noise, cell.parameters)
