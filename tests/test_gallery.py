"""The gallery of cells: its page has every cell, with its figures, equations and step."""

import importlib.util
import json
import re
from pathlib import Path

import pytest
import torch

import glassgate as gg

FILE = Path(__file__).parents[1] / "docs/gallery.py"


@pytest.fixture(scope="module")
def gallery():
    spec = importlib.util.spec_from_file_location("gallery", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_each_cell_once(gallery, monkeypatch):
    figures, cells = json.loads(gallery.FIGURES.read_text("utf-8")), gallery.cells()
    assert [*figures] == [*cells], "run `make gallery`"
    names = ["GRU", "LRU", "LSTM", "RetNet"]
    monkeypatch.setattr(gallery, "GROUPS", {"Cells": {name: cells[name] for name in names}})
    page = gallery.body(figures)
    assert re.findall(r'<h3 id="(\w+)">', page) == names
    assert re.findall(r'href="#(\w+)"', page) == names
    assert page.count("<svg") == len(names)
    assert "def step(self, a, s" in page.partition('id="LRU"')[2].partition("<h3")[0]


def test_a_measurement(gallery, monkeypatch):
    for name, value in {"SIZE": 6, "STEPS": 4, "ROWS": 2, "ROUNDS": 1, "UPDATES": 1, "BATCH": 2, "SEEDS": 1}.items():
        monkeypatch.setattr(gallery, name, value)
    monkeypatch.setattr(gallery, "PARAMETERS", 500)
    with gg.engine("reference"):
        figures = gallery.measure("TLSTM", gg.LSTM(6, 6))
    assert figures["parameters"] == 4 * (6 * 6 + 6 * 6 + 2 * 6) + 6 * 6 + 6
    assert figures["engine"] == "reference"
    assert 0 < figures["order"][0] <= 1
    assert gallery.units_for(gg.cells.LSTM(), gallery.PROBLEMS["order"]) == 6  # 4 * 6 * (8 + 6 + 2) + 4 * 7 parameters


def test_the_times_that_cells_read(gallery):
    x = torch.zeros(3, 1, 2)
    phased, gap, missing = (gg.cells.CLASSIC[name]() for name in ("PhasedLSTM", "LTC", "GRUD"))
    assert gallery.with_times(phased, x)[:, 0, 2].tolist() == [0, 1, 2]
    assert gallery.with_times(gap, x)[:, 0, 2].tolist() == [1, 1, 1]
    assert gallery.with_times(missing, x)[0, 0].tolist() == [0, 0, 1, 1, 0, 0]
