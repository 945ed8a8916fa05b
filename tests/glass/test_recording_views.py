"""A recording without a task: its page with a custom cell, a plot, and its display in a notebook."""

import json
import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch

import glassgate as gg
from glassgate.glass.data import decode_array
from glassgate.glass.gradients import flow_from_backward
from glassgate.glass.heat_map import heat_map, similarity_order
from glassgate.glass.page import page
from glassgate.glass.study import Passage, Study, directions
from glassgate.glass.svg import Axis, Plot
from tests.glass.test_measures import Leaky

SVG = "{http://www.w3.org/2000/svg}"


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


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
def test_the_report_of_a_recording_with_nan_names_the_first_one(bad: float, tmp_path: Path) -> None:
    layer, x = gg.LSTM(3, 4), torch.randn(12, 1, 3)
    with torch.no_grad():
        layer.weight_ih_l0.fill_(1.0)
    x[7, 0, :2] = torch.tensor([bad, -bad])
    with gg.record(layer) as tape:
        output, _ = layer(x)
    output.sum().backward()
    tape.report(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "Some recorded values are NaN or infinite: layer0.forward.i at step 8, for example." in text
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    values = decode_array(data["parts"][0]["values"]["h"]).reshape(12, 4)
    np.testing.assert_array_equal(np.isnan(values).any(1), np.arange(12) >= 7)


def test_compared_plots_have_the_same_axes() -> None:
    """Of all states and directions of a page, and of both studies of a page."""
    torch.manual_seed(0)
    studies = []
    for bias in (6.0, -6.0):
        layer = gg.LSTM(3, 4, bidirectional=True)
        with torch.no_grad():
            layer.bias_ih_l0[4:8] = layer.bias_ih_l0_reverse[4:8] = bias  # of the forget gate
        with gg.record(layer) as tape:
            output, _ = layer(torch.randn(30, 1, 3))
        output[-1].sum().backward()
        made = Study("x", "", [Passage([str(k) for k in range(30)])], directions(tape))
        flow_from_backward(made, tape)
        studies.append(made)

    def axes(words: str, *made: Study) -> set[tuple[str, ...]]:
        """The marks of the vertical axes of all plots whose vertical axis has a label with these words."""
        plots = [each for each in page(*made).split("<svg")[1:] if re.search(f'class="name"[^>]*>{words}', each)]
        assert len(plots) == 2 * len(made) * (2 if words == "norm" else 1)
        return {tuple(re.findall(r'class="tick"[^>]*text-anchor="end">([^<]*)', each)) for each in plots}

    for words in ("norm", "half-life", "fraction of"):
        assert len(axes(words, *studies)) == 1
    assert axes("norm", *studies) != axes("norm", studies[0])


def test_a_legend_names_every_line() -> None:
    names = [f"channel {k}" for k in range(12)]
    plot = Plot(
        Axis(0, 1), Axis(0, 1, "standard deviations"), 640, 200, "", legend=[("thin k0", name) for name in names]
    )
    picture = ElementTree.fromstring(plot.svg())
    texts = {each.text: (float(each.get("x", 0)), float(each.get("y", 0))) for each in picture.iter(f"{SVG}text")}
    assert set(names) <= set(texts)
    places = [texts[name] for name in names]
    assert all(x > 4 for x, _ in places)
    assert all(abs(a[0] - b[0]) > 50 for a, b in combinations(places, 2) if a[1] == b[1])
    assert max(y for _, y in places) < plot.top
    assert all(x > 130 for x, y in places if y == max(y for _, y in places))  # next to the label of the axis


class SameName(gg.Cell):
    """The gate z decides how much of the state z is kept."""

    gates, state = ("z", "n"), ("z",)

    def step(self, a, s):
        z = torch.sigmoid(a.z)
        return z * s.z + (1 - z) * torch.tanh(a.n)


def test_recordings_warn_of_a_gate_with_the_name_of_another_state() -> None:
    with pytest.warns(UserWarning, match=r"record: cell SameName: 'z' is a gate and a state; .* Give each"):
        gg.record(gg.Recurrent(SameName(), 2, 3))
    gg.record(gg.RNN(2, 3))  # the gate h is the state h
