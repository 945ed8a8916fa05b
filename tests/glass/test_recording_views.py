"""A recording without a task: its page with a custom cell, a plot, and its display in a notebook."""

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
import torch

import glassgate as gg
from glassgate.glass.data import decode_array
from glassgate.glass.heat_map import heat_map, similarity_order
from tests.glass.test_measures import Leaky


def test_the_report_of_a_custom_cell(tmp_path: Path) -> None:
    layer = gg.Recurrent(Leaky(), 3, 5, num_layers=2, bidirectional=True)
    with gg.record(layer) as tape:
        output, _ = layer(torch.randn(9, 2, 3), lengths=torch.tensor([9, 4]))
    output[0].sum().backward()
    tape.report(tmp_path / "page.html", [list("nine step"), ["four", "steps", "to", "read"]])
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "Model: Leaky, 2 layers in two directions, 5 units. Input: 13 steps of 2 sequences." in text
    assert "return f * s.h + (1 - f) * torch.tanh(a.n)" in text
    assert 'class="gg-diagram"' in text
    assert "Gradient flow" in text
    assert "before training" not in text.lower()
    assert "The dashed line is the gradient along the direct path only" in text
    script = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert script is not None
    data = json.loads(script[1])
    values = decode_array(data["parts"][2]["values"]["f"]).reshape(13, 5)
    expected = torch.cat([tape["layer1.forward.f"][:9, 0], tape["layer1.forward.f"][:4, 1]])
    np.testing.assert_allclose(values, expected, atol=1e-6)
    with pytest.raises(
        ValueError, match=r"steps must have a list for each of 2 rows, with \[9, 4\] entries, got \[3\]"
    ):
        tape.report(tmp_path / "page.html", ["a", "b", "c"])


def test_a_plot_and_the_notebook_display(tmp_path: Path) -> None:
    with gg.record(layer := gg.GRU(3, 5)) as tape:
        layer(torch.randn(9, 2, 3))
    picture = tape.plot("layer0.forward.z")
    assert picture._repr_svg_() == str(picture)
    picture.save(tmp_path / "z.svg")
    root = ElementTree.parse(tmp_path / "z.svg").getroot()
    assert root.get("aria-label") == "layer0.forward.z of row 0: 5 units over 9 steps, values from 0 to 1"
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[:5] == ["0", "2", "4", "6", "8"]  # steps
    assert sorted(texts[5:10]) == list("01234")  # units, similar ones adjacent
    assert texts[10:] == ["0", "0.5", "1", "step", "layer0.forward.z", "unit"]
    assert tape._repr_html_().count("<img") == 4
    with pytest.raises(KeyError, match="was not recorded"):
        tape.plot("layer0.forward.f")


def test_the_colour_bar_of_a_state_spans_its_values() -> None:
    with gg.record(layer := gg.LSTM(3, 20)) as tape, torch.no_grad():
        layer.bias_ih_l0.fill_(3.0)
        layer(torch.randn(9, 2, 3))
    size = float(tape["layer0.forward.c"][:, 1].abs().max())
    assert size > 1
    picture = str(tape.plot("layer0.forward.c", row=1))
    assert f">{size:.3g}</text>" in picture
    assert f">−{size:.3g}</text>" in picture
    assert "20 units, similar ones adjacent" in picture


def test_pictures_of_many_steps_and_units_are_small() -> None:
    """Pictures show means of adjacent units. Constant units have an order, too."""
    picture = heat_map(np.random.default_rng(0).random((512, 2000)), "gate")
    assert len(picture) < 350_000
    assert sorted(similarity_order(np.zeros((30, 512)))) == list(range(512))
