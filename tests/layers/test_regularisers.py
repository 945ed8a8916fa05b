"""Kernels equal the reference with the same noise, for every built-in cell and every regulariser."""

from itertools import product
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

import glassgate as gg
from glassgate.cell import Noise
from glassgate.layers import regularisers
from tests.compare import Results, check, measure, noise

L, N, INPUTS, H, P = 4, 3, 3, 6, 4
CELLS = {name: getattr(gg.cells, name) for name in gg.cells.__all__} | {
    "RNN, relu": lambda: gg.cells.RNN("relu"),
    "IndRNN, tanh": lambda: gg.cells.IndRNN("tanh"),
    "ClippedLSTM": lambda: gg.cells.ClippedLSTM(0.2, 0.05),
    "SLSTM": lambda: gg.cells.SLSTM(heads=2),
}
PROJECTED = {"GRUP", "ClippedLSTM"}
WITHOUT_PRODUCT = {"IndRNN", "IndRNN, tanh", "MinGRU", "MinLSTM"}

ZONEOUT = {"zoneout": 0.3}
ON_UPDATE = {"recurrent_dropout": 0.2}
ON_STATE = {"recurrent_dropout": 0.2, "recurrent_dropout_on": "state"}
BETWEEN = {"dropout": 0.4, "variational_dropout": True, "num_layers": 2}
ON_WEIGHT = {"weight_dropout": 0.5}
REGULARISERS = {
    "none": {},
    "zoneout": ZONEOUT,
    "on the update": ON_UPDATE,
    "on the state": ON_STATE,
    "between layers": BETWEEN,
    "on the weight": ON_WEIGHT,
    "all": {**ZONEOUT, **ON_UPDATE, **BETWEEN, **ON_WEIGHT},
}
"""The regularisers that need separate kernels."""
TOGETHER = {
    "inside": ({**ZONEOUT, **ON_UPDATE}, torch.float64),
    "on the state": ({**ZONEOUT, **ON_STATE}, torch.float32),
    "around": ({**BETWEEN, **ON_WEIGHT}, torch.float64),
}
FORMS = {"padded": {}, "ragged": {"lengths": [2, 0, 4]}, "resets": {"resets": noise(98, L, N) > 0.5}}


def applies(cell: str, options: dict) -> bool:
    """Return whether a cell supports the options: dropout on the state or on recurrent weights needs `weight_hh`."""
    needs_product = "weight_dropout" in options or options.get("recurrent_dropout_on") == "state"
    return cell not in WITHOUT_PRODUCT or not needs_product


class Call:
    """A call of a layer, with the same numbers in any dtype."""

    def __init__(self, cell: str, options: dict, bidirectional: bool) -> None:
        self.cell, self.options = cell, {**options, "bidirectional": bidirectional}
        self.options["proj_size"] = P if cell in PROJECTED else 0

    def results(self, engine: str, dtype: torch.dtype, form: dict) -> Results:
        torch.manual_seed(0)
        layer = gg.Recurrent(CELLS[self.cell](), INPUTS, H, dtype=torch.float64, **self.options)
        with torch.no_grad():
            for k, weight in enumerate(layer.parameters()):
                weight.add_(noise(k, *weight.shape) / 2)
        layer.to(dtype)
        leaves = {"input": noise(99, L, N, INPUTS)}
        rows = layer.num_layers * layer.num_directions
        for k, state in enumerate(layer.cell.state):
            width = P if k == 0 and self.cell in PROJECTED else H
            leaves[f"{state}_0"] = noise(90 + k, rows, N, width).abs()
        leaves = {name: v.to(dtype).requires_grad_() for name, v in leaves.items()}
        x, *hx = leaves.values()
        torch.manual_seed(1)
        with gg.engine(engine):
            output, final = layer(x, tuple(hx) if len(hx) > 1 else hx[0], **form)
        final = final if isinstance(final, tuple) else (final,)
        outputs = {"output": output} | {f"{s}_n": v for s, v in zip(layer.cell.state, final, strict=True)}
        return measure(outputs, leaves | dict(layer.named_parameters()))

    def check(self, dtype: torch.dtype, form: str) -> None:
        """Compare the kernel with the reference. The noise must not depend on the dtype."""
        truth = self.results("reference", torch.float64, FORMS[form])
        eager = None if dtype == torch.float64 else self.results("reference", dtype, FORMS[form])
        try:
            check(self.results("cpu", dtype, FORMS[form]), truth, eager)
        except AssertionError as fault:
            fault.add_note(f"{form}, {self.options}")
            raise


WITH_NOISE_IN_THE_KERNEL = {
    "LSTM": "inside",
    "GRU": "inside",
    "ClippedLSTM": "inside",
    "SLSTM": "inside",
    "MinLSTM": "inside",
    "LayerNormGRU": "inside",
    "LayerNormLSTM": "on the state",
    "GRUP": "on the state",
    "MGU": "on the state",
    "PeepholeLSTM": "on the state",
}
"""Cells of every structure: one to three states, gates that read a state, projections, heads, layer normalisation, two
matrix products per step, and none. Their kernels with noise are compiled, which takes seconds each. The other cells
have noise around the kernel."""
EACH_ONCE = [
    pytest.param(
        cell,
        together,
        marks=[] if together == WITH_NOISE_IN_THE_KERNEL.get(cell, "around") else [pytest.mark.matrix],
    )
    for cell in CELLS
    for together in TOGETHER
]
"""Each cell with one of the sets. Tests with the mark `matrix` run each cell with all sets."""


@pytest.mark.parametrize(("cell", "together"), EACH_ONCE)
def test_kernels_equal_the_reference(cell, together):
    options, dtype = TOGETHER[together]
    options = options if applies(cell, options) else {**ZONEOUT, **ON_UPDATE, **BETWEEN}
    for bidirectional, form in product((False, True), FORMS):
        Call(cell, options, bidirectional).check(dtype, form)


@pytest.mark.matrix
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("regulariser", REGULARISERS)
@pytest.mark.parametrize("cell", CELLS)
def test_every_combination_equals_the_reference(cell, regulariser, dtype):
    options = REGULARISERS[regulariser]
    if not applies(cell, options):
        with pytest.raises(ValueError, match="needs a matrix product with the state"):
            gg.Recurrent(CELLS[cell](), INPUTS, H, **options)
        return
    for bidirectional, form in product((False, True), FORMS):
        Call(cell, options, bidirectional).check(dtype, form)


def drawn(**options) -> dict[str, Tensor]:
    """Return the noise of one call of a layer, by name."""
    seen, of_layer = {}, regularisers.draw

    def draw(*args):
        seen.update(of_layer(*args))
        return seen

    with mock.patch.object(regularisers, "draw", draw):
        gg.LSTM(2, 64, **options)(torch.zeros(50, 40, 2))
    return seen


def test_noise_has_its_rates():
    keep = drawn(zoneout={"h": 0.1, "c": 0.6})
    assert {name: v.shape for name, v in keep.items()} == {"keep_h": (2000, 64), "keep_c": (2000, 64)}
    for name, rate in (("keep_h", 0.1), ("keep_c", 0.6)):
        assert set(keep[name].unique().tolist()) == {0.0, 1.0}
        assert abs(keep[name].mean() - rate) < 0.01
        assert (keep[name].mean(0) - rate).abs().max() < 0.06
        assert (keep[name].mean(1) - rate).abs().max() < 0.3
    assert (keep["keep_h"] * keep["keep_c"]).mean().sub(0.06).abs() < 0.01
    update = drawn(recurrent_dropout=0.2)["update"]
    assert update.shape == (2000, 64)
    assert sorted(update.unique().tolist()) == pytest.approx([0.0, 1.25])
    assert abs(update.mean() - 1) < 0.01
    state = drawn(recurrent_dropout=0.25, recurrent_dropout_on="state")["state"]
    assert state.shape == (40, 64)
    assert abs(state.mean() - 1) < 0.05


@pytest.mark.parametrize("rate", [1e-9, 1.0])
def test_rates_of_zero_and_one(rate):
    assert abs(drawn(zoneout=rate)["keep_h"].mean() - rate) < 1e-3
    factors = drawn(recurrent_dropout=rate)["update"]
    assert abs((factors == 0).float().mean() - rate) < 1e-3
    assert factors.isfinite().all()


def test_noise_depends_only_on_the_seed():
    def draw(threads: int) -> Tensor:
        torch.set_num_threads(threads)
        torch.manual_seed(5)
        return drawn(zoneout=0.3)["keep_c"]

    assert torch.equal(draw(1), draw(2))
    assert not torch.equal(drawn(zoneout=0.3)["keep_c"], draw(1))


def test_zoneout_with_rate_one_keeps_the_initial_state():
    layer, h_0, c_0 = gg.LSTM(3, 5, zoneout={"c": 1.0}), torch.randn(1, 2, 5), torch.randn(1, 2, 5)
    h_n, c_n = layer(torch.randn(7, 2, 3), (h_0, c_0))[1]
    assert torch.equal(c_n, c_0)
    assert not torch.equal(h_n, h_0)


def test_zoneout_in_eval_mode_is_a_weighted_average():
    layer, x = gg.RNN(3, 5, zoneout=0.25).eval(), torch.randn(1, 2, 3)
    h_0 = torch.randn(1, 2, 5)
    plain = gg.RNN(3, 5)
    plain.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x, h_0)[0], 0.25 * h_0 + 0.75 * plain(x, h_0)[0])


def test_variational_dropout_has_one_mask_per_sequence():
    layer = gg.RNN(2, 3, 2, "relu", dropout=0.5, variational_dropout=True)
    with torch.no_grad():
        for name, weight in layer.named_parameters():
            weight.zero_()
            if name.startswith("bias_ih_l0"):
                weight.fill_(1.0)
            if name == "weight_ih_l1":
                weight.copy_(torch.eye(3))
    output = layer(torch.zeros(6, 50, 2), lengths=torch.arange(50) % 7)[0]
    assert set(output.unique().tolist()) == {0.0, 2.0}
    for k in range(50):
        length = k % 7
        assert output[:length, k].unique(dim=0).shape[0] == (1 if length else 0)
        assert not output[length:, k].any()


@pytest.mark.parametrize(
    ("option", "options"), [("weight_dropout", ON_WEIGHT), ("recurrent_dropout_on='state'", ON_STATE)]
)
def test_dropout_in_the_recurrent_product_needs_recurrent_weights(option, options):
    for cell in WITHOUT_PRODUCT:
        with pytest.raises(
            ValueError, match=rf"^Recurrent: {option} needs a matrix product with the state, which .* lacks$"
        ):
            gg.Recurrent(CELLS[cell](), INPUTS, H, **options)


def test_weight_dropout_does_not_change_the_parameter():
    layer = gg.LSTM(3, 64, weight_dropout=0.5)
    before = layer.weight_hh_l0.clone()
    output, _ = layer(torch.randn(5, 2, 3))
    output.sum().backward()
    assert torch.equal(layer.weight_hh_l0, before)
    assert abs((layer.weight_hh_l0.grad == 0).float().mean() - 0.5) < 0.02


class CTRNN(gg.Cell):
    """A continuous-time network with noise in its state (Song, Yang and Wang 2016, equation 6)."""

    gates, state = ("x",), ("r", "x")

    def __init__(self, leak: float = 0.2, deviation: float = 0.1) -> None:
        self.leak = leak
        self.noise = {"xi": Noise(deviation=(2 * leak) ** 0.5 * deviation)}

    def step(self, a, s):
        x = (1 - self.leak) * s.x + self.leak * a.x + a.noise.xi
        return torch.relu(x), x


class Dropped(gg.Cell):
    """A cell with two kinds of noise: dropout on the candidate, and zoneout on the state."""

    gates = ("n",)

    def __init__(self, rate: float = 0.4) -> None:
        self.rate = rate
        self.noise = {"drop": Noise(rate), "keep": Noise(rate / 2, keeps=True)}

    def step(self, a, s):
        return a.noise.keep * s.h + (1 - a.noise.keep) * a.noise.drop * torch.tanh(a.n)


def test_noise_of_a_cell_has_its_mean_in_eval_mode() -> None:
    layer = gg.Recurrent(Dropped(), 3, 4).eval()
    x = noise(1, 1, 2, 3).float()
    with gg.engine("reference"):
        output, h_n = layer(x)
        again, _ = layer(x, h_n)
    expected = torch.tanh(x[0] @ layer.weight_ih_l0.T + layer.bias_ih_l0 + layer.bias_hh_l0)
    assert torch.allclose(output[0], 0.8 * expected, atol=1e-6)
    expected = torch.tanh(
        x[0] @ layer.weight_ih_l0.T + layer.bias_ih_l0 + h_n[0] @ layer.weight_hh_l0.T + layer.bias_hh_l0
    )
    assert torch.allclose(again[0], 0.2 * h_n[0] + 0.8 * expected, atol=1e-6)


def test_noise_of_a_cell_is_seeded_and_has_its_variance() -> None:
    layer, x = gg.Recurrent(CTRNN(), 3, 4), noise(1, 6, 2, 3).float()
    results = []
    for engine in ("cpu", "cpu", "reference"):
        torch.manual_seed(0)
        with gg.engine(engine):
            results.append(layer(x)[0])
    assert torch.equal(results[0], results[1])
    assert torch.allclose(results[0], results[2], atol=1e-6)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    _, (_, final) = layer(torch.zeros(60, 4000, 3))
    assert final.var().item() == pytest.approx(0.4 * 0.01 / (1 - 0.8**2), rel=0.05)


def test_noise_of_a_cell_is_zero_in_eval_mode() -> None:
    torch.manual_seed(0)
    layer, x = gg.Recurrent(CTRNN(), 3, 4, zoneout=0.1).eval(), noise(2, 6, 2, 3).float()
    plain = gg.Recurrent(CTRNN(deviation=0.0), 3, 4, zoneout=0.1).eval()
    plain.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x)[0], layer(x)[0])
    assert torch.allclose(layer(x)[0], plain(x)[0], atol=1e-7)
