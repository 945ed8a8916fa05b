"""Precision: layer normalisation is as accurate as a loop with torch's, and extreme gates give finite numbers."""

from itertools import product

import pytest
import torch
from torch import Tensor, sigmoid
from torch.nn import functional as F

import glassgate as gg
from glassgate import cells
from tests.compare import noise

L, N, INPUTS, H = 20, 8, 16, 48
TIMES = 3.0
"""The maximum error, as a multiple of the error of torch's loop."""


class Normalised(gg.Cell):
    """A simple network with layer normalisation, written with `mean` and `var`."""

    gates = ("n",)
    state = ("h",)
    parameters = {"gain": gg.Parameter(1.0), "shift": gg.Parameter()}

    def step(self, a, s, p):
        centred = a.n - a.n.mean(-1, keepdim=True)
        scale = torch.rsqrt(a.n.var(-1, unbiased=False, keepdim=True) + 1e-5)
        return torch.tanh(centred * scale * p.gain + p.shift)


def norm(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], gain, shift)


def normalised(x, h, w, s):
    return (torch.tanh(norm(x + h, w["gain_l0"], w["shift_l0"])),)


def lstm(x, h, w, s):
    both = norm(x, w["gain_ih_l0"], w["shift_ih_l0"]) + norm(h, w["gain_hh_l0"], w["shift_hh_l0"])
    i, f, g, o = both.chunk(4, -1)
    c = sigmoid(f) * s[1] + sigmoid(i) * torch.tanh(g)
    return sigmoid(o) * torch.tanh(norm(c, w["gain_c_l0"], w["shift_c_l0"])), c


def gru(x, h, w, s):
    def parts(v, side):
        gain, shift = w[f"gain_{side}_l0"], w[f"shift_{side}_l0"]
        return norm(v[:, : 2 * H], gain[: 2 * H], shift[: 2 * H]), norm(v[:, 2 * H :], gain[2 * H :], shift[2 * H :])

    (x_g, x_n), (h_g, h_n) = parts(x, "ih"), parts(h, "hh")
    r, z = sigmoid(x_g + h_g).chunk(2, -1)
    return ((1 - z) * torch.tanh(x_n + r * h_n) + z * s[0],)


LOOPS = {"LSTM": (cells.LayerNormLSTM(), lstm), "GRU": (cells.LayerNormGRU(), gru), "own": (Normalised(), normalised)}


def with_torch(x, w, step, states):
    """Compute the layer in a loop with torch's own layer_norm."""
    s = [x.new_zeros(N, H)] * states
    output = []
    for x_t in x:
        ih, hh = F.linear(x_t, w["weight_ih_l0"], w["bias_ih_l0"]), F.linear(s[0], w["weight_hh_l0"], w["bias_hh_l0"])
        s = step(ih, hh, w, s)
        output.append(s[0])
    return torch.stack(output)


def measured(run, x, weights, dtype):
    """Return the output and the gradients of input and weights, by name."""
    leaves = {"input": x, **weights}
    leaves = {name: v.detach().to(dtype).requires_grad_() for name, v in leaves.items()}
    x, *_ = leaves.values()
    output = run(x, {name: v for name, v in leaves.items() if name != "input"})
    d = torch.autograd.grad(output, list(leaves.values()), noise(1, *output.shape).to(dtype))
    return {"output": output.detach(), **dict(zip(leaves, d, strict=True))}


def typical(value: Tensor, truth: Tensor) -> float:
    """Return the median error as a fraction of the median value."""
    return float((value.double() - truth).norm() / truth.norm())


def inputs(scale: float | None) -> Tensor:
    """Return inputs with one scale, or with a different scale per feature, from 1e-3 to 1e3."""
    x = noise(2, L, N, INPUTS)
    return x * (torch.logspace(-3, 3, INPUTS, dtype=torch.float64) if scale is None else scale)


@pytest.mark.parametrize("name", LOOPS)
def test_layer_normalisation_is_as_accurate_as_torch(name):
    cell, step = LOOPS[name]

    def loop(x, w):
        return with_torch(x, w, step, len(cell.state))

    def ours(x, w):
        return torch.func.functional_call(layer, w, (x,))[0]

    faults = []
    for bias in (0.0, 10.0, 100.0, 1000.0):
        errors: dict[tuple[str, str], float] = {}
        """Return sums of squared errors over scales and seeds, because the error of a single run is random."""
        for scale, seed in product((1e-3, 1.0, 1e3, None), range(3)):
            torch.manual_seed(seed)
            layer = gg.Recurrent(cell, INPUTS, H)
            weights = {key: v.detach() for key, v in layer.named_parameters()}
            for key in ("bias_ih_l0", "bias_hh_l0"):
                weights[key] += bias
            x = inputs(scale).float()
            truth = measured(loop, x, weights, torch.float64)
            results = {"torch": measured(loop, x, weights, torch.float32)}
            for engine in ("reference", "cpu"):
                with gg.engine(engine):
                    results[engine] = measured(ours, x, weights, torch.float32)
            for who, result in results.items():
                for key, value in result.items():
                    errors[who, key] = errors.get((who, key), 0.0) + typical(value, truth[key]) ** 2
        for (who, key), error in errors.items():
            times = (error / errors["torch", key]) ** 0.5
            if not times <= TIMES:
                faults.append(f"{who}, bias {bias}, {key}: {times:.1f} times the error of torch's loop")
    assert not faults, "\n".join(faults)


FAR = {
    "inputs of 1e3": (1e3, {}),
    "inputs of 1e6": (1e6, {}),
    "input gate shut": (1.0, {"i": -1000.0}),
    "input gate open": (1.0, {"i": 1000.0}),
    "both gates shut": (1.0, {"i": -1000.0, "f": -1000.0, "z": -1000.0}),
    "forget gate open": (1.0, {"f": 1000.0, "z": 1000.0}),
}


@pytest.mark.parametrize("cell", [cells.SLSTM(), cells.MinLSTM(), cells.MinGRU()], ids=lambda cell: type(cell).__name__)
def test_saturated_gates_give_finite_and_accurate_results(cell):
    for (where, (scale, biases)), engine in product(FAR.items(), ("reference", "cpu")):
        torch.manual_seed(4)
        layer = gg.Recurrent(cell, 3, H)
        weights = {key: v.detach() for key, v in layer.named_parameters()}
        for gate in set(biases) & set(cell.gates):
            weights["bias_ih_l0"].chunk(len(cell.gates))[cell.gates.index(gate)].fill_(biases[gate])
        x = (scale * noise(5, L, N, 3)).float()

        def ours(x, w, layer=layer):
            return torch.func.functional_call(layer, w, (x,))[0]

        with gg.engine("reference"):
            truth = measured(ours, x, weights, torch.float64)
        with gg.engine(engine):
            got = measured(ours, x, weights, torch.float32)
        for key, value in got.items():
            assert value.isfinite().all(), f"{where}, {engine}: {key}"
            off = (value.double() - truth[key]).abs().max()
            assert off <= 1e-3 * truth[key].abs().max() + 1e-9 * scale, f"{where}, {engine}: {key} off by {off:.1e}"


@pytest.mark.parametrize("engine", ["reference", "cpu"])
def test_min_lstm_is_accurate_with_two_nearly_closed_gates(engine):
    """sigmoid(-200) is 0 in float32, but the ratio of two such gates is not."""
    layer = gg.Recurrent(cells.MinLSTM(), 1, 1, bias=False)
    with torch.no_grad():
        layer.weight_ih_l0.copy_(torch.tensor([[-202.0], [-201.0], [3.0]]))
        with gg.engine(engine):
            output, _ = layer(torch.ones(1, 1, 1), torch.full((1, 1, 1), 7.0))
    kept = torch.sigmoid(torch.tensor(-1.0))
    torch.testing.assert_close(output[0, 0, 0], kept * 7 + (1 - kept) * 3.5)
