"""The pages that run a network: the page of a cell, sizes, and errors."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import glassgate as gg
from glassgate.glass.live.network import Network, wire_key
from glassgate.glass.live.page import LIMIT, check_size
from tests.export.test_javascript import CELLS, Sorted


@pytest.mark.parametrize("cell", CELLS[1:4], ids=lambda cell: type(cell).__name__)
def test_every_wire_of_the_diagram_has_a_value(cell: gg.Cell) -> None:
    (level,) = Network().layer(gg.Recurrent(cell, 2, 4), "encoder")["levels"]
    values = level["directions"][0]["values"]
    names = re.findall(r'class="wire[^"]*" data-name="([^"]+)"', str(gg.draw(cell)))
    assert len(names) > 4
    for name in names:
        assert name == "x" or name.endswith("_prev") or wire_key(name) in values


def test_the_page_of_a_cell_is_one_file_that_runs_no_text(tmp_path: Path) -> None:
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
    with pytest.raises(ValueError, match=rf"live: units must be 1 to 4, whose weights fit as sliders, got {units}"):
        gg.draw(gg.cells.LSTM()).live(units=units)


def test_an_operation_that_javascript_lacks_is_named() -> None:
    with pytest.raises(ValueError, match=r"live: cell Sorted: step uses .*sort"):
        Network().layer(gg.Recurrent(Sorted(), 2, 3), "encoder")


def test_a_page_that_is_too_large_states_its_size() -> None:
    assert check_size("x" * 10) == 10
    with pytest.raises(ValueError, match=r"the page would have 20\.0 MB, and the largest one has 20 MB; store its"):
        check_size("x" * (LIMIT + 1))


def test_a_regularised_layer_keeps_its_equations() -> None:
    torch.manual_seed(0)
    plain, noisy = (Network() for _ in range(2))
    plain.layer(gg.LSTM(2, 3).eval(), "encoder")
    noisy.layer(gg.LSTM(2, 3, zoneout=0.3).eval(), "encoder")
    assert plain.steps != noisy.steps
