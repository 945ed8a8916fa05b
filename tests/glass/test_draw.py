"""Diagrams show all items and wires of a step without overlaps, and the pictures in the docs are current."""

import random
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
import torch

import glassgate as gg
from docs.draw_cells import FOLDER, pictures
from glassgate.glass.diagrams.flow import flow
from glassgate.glass.diagrams.values import wire_values
from tests.compare import noise
from tests.engines.test_arrays import make_cell
from tests.export.cases import ARRAYS

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def drawn():
    """Every built-in cell."""
    return pictures()


def squashed(x):
    return x / (1 + abs(x))


class CustomCell(gg.Cell):
    """A custom cell with most features of a step: helpers, reductions, parameters, states that are only passed on."""

    gates, state = ("f", "g"), ("h", "before_last", "kept", "c")
    parameters = {"gain": gg.Parameter(1.0, per_gate=True), "bias": gg.Parameter()}

    def step(self, a, s, p):
        f = torch.sigmoid(a.f * p.gain.f + s.c * p.bias)
        g = squashed(a.ih.g + a.hh(f * s.before_last).g)
        c = torch.clamp(f * s.c + (1 - f) * g, -3, 3)
        centred = c - c.mean(-1, keepdim=True)
        return torch.where(f > 0.5, centred, s.before_last), s.h, s.kept, c


def items(picture: str, *kinds: str) -> list[ElementTree.Element]:
    return [g for g in ElementTree.fromstring(picture).iter(f"{SVG}g") if g.get("class", "").split(" ")[0] in kinds]


def corners(wire: ElementTree.Element) -> list[tuple[float, float]]:
    """The points at which a wire turns: the control points of its round corners, and its ends."""
    path = next(p.get("d") for p in wire.iter(f"{SVG}path") if p.get("class") is None)
    points = re.findall(r"([MLQ])([-\d.]+) ([-\d.]+)", path)
    return [(float(x), float(y)) for k, (kind, x, y) in enumerate(points) if kind in "MQ" or k == len(points) - 1]


def boxes(picture: str) -> list[tuple[float, float, float, float]]:
    rects = [item.find(f"{SVG}rect") for item in items(picture, "gate", "product", "operation", "function")]
    sides = [[float(rect.get(name)) for name in ("x", "y", "width", "height")] for rect in rects]
    return [(x, y, x + width, y + height) for x, y, width, height in sides]


def overlap(a, b) -> bool:
    """Whether two straight pieces have more than a point in common."""
    for k in (0, 1):
        if a[0][k] == a[1][k] == b[0][k] == b[1][k]:
            low, high = sorted((a[0][1 - k], a[1][1 - k])), sorted((b[0][1 - k], b[1][1 - k]))
            return max(low[0], high[0]) < min(low[1], high[1])
    return False


def check_wires(picture: str) -> None:
    """Wires are horizontal or vertical, avoid items, and do not run along a wire with another value."""
    pieces = [(w.get("data-name"), piece) for w in items(picture, "wire") for piece in pairwise(corners(w))]
    for name, (a, b) in pieces:
        assert a[0] == b[0] or a[1] == b[1], (name, a, b)
        for left, top, right, bottom in boxes(picture):
            across = min(a[0], b[0]) < right - 1 and max(a[0], b[0]) > left + 1
            down = min(a[1], b[1]) < bottom - 1 and max(a[1], b[1]) > top + 1
            assert not (across and down), (name, a, b)
    for k, (name, piece) in enumerate(pieces):
        for other, along in pieces[:k]:
            assert name == other or not overlap(piece, along), (name, other)


def test_the_pictures_in_the_docs_are_current(drawn):
    kept = {path.stem: path.read_text("utf-8") for path in FOLDER.glob("*.svg")}
    assert kept == drawn, "run `python docs/draw_cells.py`"
    page = (FOLDER.parent / "cells.md").read_text("utf-8")
    assert set(re.findall(r"cells/(\w+)\.svg", page)) == set(drawn)


def test_every_cell_is_drawn_with_separate_wires(drawn):
    cells = {name: getattr(gg.cells, name)() for name in drawn} | {"CustomCell": CustomCell()}
    for name, cell in cells.items():
        picture = drawn.get(name) or str(gg.draw(cell))
        check_wires(picture)
        read = flow(cell)
        shared = all(item.reads in ((), ("x", "h")) for item in read.items)
        taps = sum(bool(item.reads) if shared else len(item.reads) for item in read.items)
        assert picture.count('class="head"') == sum(len(item.inputs) for item in read.items) + len(read.new) + taps
        assert all(item.find(f"{SVG}title") is not None for item in items(picture, "gate", "operation", "function"))


def random_cell(seed: int) -> gg.Cell:
    """A cell with random equations, which may swap states or read a value many times."""
    rng = random.Random(seed)

    class Random(gg.Cell):
        gates, state = tuple("abde"[: rng.randint(1, 4)]), tuple("hcm"[: rng.randint(1, 3)])
        recurrent = rng.random() < 0.8

        def step(self, a, s):
            rng = random.Random(seed + 1)
            pool = [rng.choice([torch.sigmoid, torch.relu, lambda v: v])(getattr(a, gate)) for gate in self.gates]
            pool += list(s)
            for _ in range(rng.randint(0, 9)):
                x, y = rng.choice(pool), rng.choice(pool)
                several = (x + y, x * y, 1 - x, torch.tanh(x), torch.where(x > 0, x, y), x - x.mean(-1, keepdim=True))
                pool.append(rng.choice(several))
            return tuple(rng.choice(pool) for _ in self.state)

    return Random()


def test_random_cells_can_be_drawn():
    for seed in range(40):
        check_wires(str(gg.draw(random_cell(seed))))


def test_an_lstm_is_drawn_as_in_tutorials(drawn):
    picture = drawn["LSTM"]
    labels = [["".join(t.itertext()) for t in g.findall(f"{SVG}text")] for g in items(picture, "gate")]
    assert labels == [["f", "σ"], ["i", "σ"], ["g", "tanh"], ["o", "σ"]]
    assert [g.find(f"{SVG}text").text for g in items(picture, "operation")] == ["×", "×", "+", "×", "tanh"]
    rail = [wire for wire in items(picture, "wire") if wire.get("class") == "wire state" and corners(wire)[0][0] < 50]
    (across,) = [wire for wire in rail if wire.get("data-name") == "c_prev"]
    assert corners(across)[0][1] == corners(across)[-1][1]
    assert sum(top < corners(across)[0][1] for _, top, _, _ in boxes(picture)) == 2
    assert "c = f * c_prev + i * g; h = o * tanh(c)" in picture


def test_a_custom_cell_shows_its_functions_by_name():
    read = flow(CustomCell())
    by_name = {item.name: item for item in read.items if item.name}
    assert by_name["g"].lines == ("squashed",)
    before = "(W_ih[f] x + b_ih[f] + W_hh[f] h_prev + b_hh[f]) * gain_f + c_prev * bias"
    assert by_name["f"].equation == f"f = sigmoid({before})"
    assert by_name["c"].lines == ("clamp -3, 3",)
    assert "mean" in str(gg.draw(CustomCell()))

    class Sorts(gg.Cell):
        gates = ("f",)

        def step(self, a, s):
            return torch.sort(a.f)[0]

    with pytest.raises(TypeError, match=r"cell Sorts: step uses torch\.sort, which no diagram can show"):
        gg.draw(Sorts())
    assert "which no diagram can show" in Sorts()._repr_html_()
    with pytest.raises(TypeError, match="draw: expected a cell or a layer of glassgate, got Linear"):
        gg.draw(torch.nn.Linear(2, 2))
    with pytest.raises(
        TypeError, match=r"got torch\.nn\.LSTM; replace the layers of torch\.nn by .*: gg.convert\(model\)"
    ):
        gg.draw(torch.nn.LSTM(2, 2))
    with pytest.raises(TypeError, match="got the class GRU; create an object of it"):
        gg.draw(gg.cells.GRU)


@pytest.mark.parametrize("name", sorted({*ARRAYS} - {"HyperLSTM"}))  # a diagram of 8 seconds
def test_cells_that_declare_axes(name):
    read, picture = flow(ARRAYS[name]), str(gg.draw(ARRAYS[name]))
    ElementTree.fromstring(picture)
    for axes in read.axes.values():
        assert axes in picture
    assert {state.removesuffix("_") for state in read.new} == {*ARRAYS[name].state}


def test_axes_of_a_matrix_memory():
    cell = ARRAYS["DeltaRule"]
    read = flow(cell)
    by_name = {item.name: item for item in read.items if item.name}
    assert read.axes == {"h": "heads × value", "S": "heads × key × value"}
    assert by_name["old"].lines == ("Σ key",)
    assert by_name["old"].equation == "old[heads, value] = sum(k * S_prev, key)"
    assert "<title>S (heads, key, value)</title>" in str(gg.draw(cell))
    assert {item.name for item in read.items if item.reads} == {"q", "k", "v", "b"}
    with pytest.raises(ValueError, match="live: cell DeltaRule declares axes, and this page has one input"):
        gg.draw(cell).live()
    parts = flow(make_cell(lambda a, s: (a.v.roll(1, -1) + a.v.flip(-1), torch.cat([s.S[:, :, 1:], s.S[:, :, :1]], 2))))
    labels = {line for item in parts.items for line in item.lines}
    assert {"part value rolled", "part value reversed", "part key 1:3", "cat"} <= labels


def test_pictures_are_saved_only_as_svg(tmp_path):
    picture = gg.draw(gg.cells.GRU())
    with pytest.raises(ValueError, match=r"so the path must end in \.svg, got '.*gru\.png'"):
        picture.save(tmp_path / "gru.png")
    picture.save(tmp_path / "gru.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["gru.svg"]


def test_every_wire_has_a_value():
    layer = gg.LSTM(3, 4, dtype=torch.float64)
    (cell, weights), x, before = next(layer.weights()), noise(0, 5, 3), [noise(1, 5, 4), noise(2, 5, 4)]
    values = wire_values(cell, weights, x, before)
    carried = {wire.get("data-name") for wire in items(str(gg.draw(cell)), "wire")}
    assert carried - set(values) == {"x"}
    h, c = torch.nn.LSTMCell(3, 4).double(), None
    h.load_state_dict({name.removesuffix("_l0"): value for name, value in layer.state_dict().items()})
    new_h, c = h(x, tuple(before))
    torch.testing.assert_close([values["h"], values["c"]], [new_h, c], atol=1e-12, rtol=0)
    kept = values["f"] * before[1]
    assert any(torch.equal(value, kept) for name, value in values.items() if not name.isidentifier())


def test_a_layer_draws_its_depth_directions_and_sizes():
    layer = gg.GRU(8, (16, 12), 2, bidirectional=True, dropout=0.2, residual=True)
    picture = str(gg.draw(layer))
    labels = ["".join(text.itertext()) for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]
    assert {"input, 8 features", "output, 28 features", "dropout 0.2", "concat", "+"} <= set(labels)
    assert {"8 → 16 units", "8 → 12 units", "28 → 16 units", "28 → 12 units", "h0", "hn"} <= set(labels)
    assert [box.get("data-name") for box in items(picture, "gate")] == [part.label for part in layer.glassgate.parts]
    apart = str(gg.draw(gg.LSTM(8, 16, bidirectional=True, merge="none", proj_size=4)))
    assert "output reverse, 4 features" in apart
    assert "8 → 16 units → 4" in apart


def test_a_notebook_shows_cells_and_layers(tmp_path):
    picture = gg.draw(gg.LSTMCell(3, 4))
    assert picture._repr_svg_() == str(picture) == str(gg.draw(gg.cells.LSTM()))
    picture.save(tmp_path / "cell.svg")
    assert (tmp_path / "cell.svg").read_text("utf-8") == str(picture)
    shown = gg.LSTM(3, 4, proj_size=2)._repr_html_()
    assert shown.count("<svg") == 2
    assert "<td>(16, 3)</td><td style='text-align: right'>48</td>" in shown
    assert f"{sum(p.numel() for p in gg.LSTM(3, 4, proj_size=2).parameters()):,}" in shown
    assert "gates 3 (r z n), states h" in gg.cells.GRU()._repr_html_()
    assert gg.GRUCell(3, 4)._repr_html_().count("<svg") == 1
