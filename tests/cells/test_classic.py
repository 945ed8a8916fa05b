"""The classic cells, compared with the formulas of their papers in NumPy."""

import itertools
from math import prod

import numpy as np
import pytest
import torch

import glassgate as gg
from glassgate.cell_shapes import example_sizes, shapes_of
from tests.compare import noise

STEPS, ROWS, INPUTS, H = 4, 2, 5, 4
COMPILED = ("BRC", "MUT3", "UnICORNN")
"""The cells whose kernels every run compiles."""


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


tanh = np.tanh

# One step of each paper. x(name) is W x + b of a gate, u(name, v) is U v + b of a gate for a vector v, s contains the
# states by name, and p the parameters by name. Each function returns the new states.


def atr(x, u, s, p):
    i, f = sigmoid(x("p") + u("p", s["h"])), sigmoid(x("p") - u("p", s["h"]))
    return (i * x("p") + f * s["h"],)


def brc(x, u, s, p):
    a = 1 + tanh(x("b") + p["w_b"] * s["h"])
    c = sigmoid(x("c") + p["w_c"] * s["h"])
    return (c * s["h"] + (1 - c) * tanh(x("n") + a * s["h"]),)


def nbrc(x, u, s, p):
    a = 1 + tanh(x("b") + u("b", s["h"]))
    c = sigmoid(x("c") + u("c", s["h"]))
    return (c * s["h"] + (1 - c) * tanh(x("n") + a * s["h"]),)


def cfn(x, u, s, p):
    theta, eta = sigmoid(u("f", s["h"]) + x("f")), sigmoid(u("i", s["h"]) + x("i"))
    return (theta * tanh(s["h"]) + eta * tanh(x("n")),)


def light_ru(x, u, s, p):
    f = sigmoid(u("f", s["h"]) + x("f"))
    return ((1 - f) * s["h"] + f * tanh(x("n")),)


def ligru(x, u, s, p):
    z = sigmoid(x("z") + u("z", s["h"]))
    return (z * s["h"] + (1 - z) * np.maximum(x("n") + u("n", s["h"]), 0),)


def lstm_1997(x, u, s, p):
    squash_g, squash_h = lambda v: 4 / (1 + np.exp(-v)) - 2, lambda v: 2 / (1 + np.exp(-v)) - 1
    y_in, y_out = sigmoid(x("i") + u("i", s["h"])), sigmoid(x("o") + u("o", s["h"]))
    c = s["c"] + y_in * squash_g(x("g") + u("g", s["h"]))
    return y_out * squash_h(c), c


def minimal_rnn(x, u, s, p):
    z = tanh(x("z"))
    gate = sigmoid(u("u", s["h"]) + u("v", z))
    return (gate * s["h"] + (1 - gate) * z,)


def mut1(x, u, s, p):
    z, r = sigmoid(x("z")), sigmoid(x("r") + u("r", s["h"]))
    return (tanh(u("n", r * s["h"]) + tanh(x("n"))) * z + s["h"] * (1 - z),)


def mut2(x, u, s, p):
    z, r = sigmoid(x("z") + u("z", s["h"])), sigmoid(x("r") + u("r", s["h"]))
    return (tanh(u("n", r * s["h"]) + x("n")) * z + s["h"] * (1 - z),)


def mut3(x, u, s, p):
    z, r = sigmoid(x("z") + u("z", tanh(s["h"]))), sigmoid(x("r") + u("r", s["h"]))
    return (tanh(u("n", r * s["h"]) + x("n")) * z + s["h"] * (1 - z),)


def nas(x, u, s, p):
    sums = [x(f"o{k}") + u(f"o{k}", s["h"]) for k in range(1, 9)]
    sums[3] = x("o4") * u("o4", s["h"])
    relu = lambda v: np.maximum(v, 0)  # noqa: E731
    leaves = [f(v) for f, v in zip((sigmoid, relu, sigmoid, relu, tanh, sigmoid, tanh, sigmoid), sums, strict=True)]
    pairs = tanh(leaves[0] * leaves[1]), tanh(leaves[2] + leaves[3]), tanh(leaves[4] * leaves[5])
    c = tanh(pairs[0] + s["c"]) * pairs[1]
    return tanh(c * tanh(pairs[2] + sigmoid(leaves[6] + leaves[7]))), c


def ran(x, u, s, p):
    c = sigmoid(u("i", s["h"]) + x("i")) * x("n") + sigmoid(u("f", s["h"]) + x("f")) * s["c"]
    return tanh(c), c


def sru(x, u, s, p):
    f, r = sigmoid(x("f") + p["v_f"] * s["c"]), sigmoid(x("r") + p["v_r"] * s["c"])
    c = f * s["c"] + (1 - f) * x("n")
    return r * c + (1 - r) * x("k"), c


def star(x, u, s, p):
    k = sigmoid(x("k") + u("k", s["h"]))
    return (tanh((1 - k) * s["h"] + k * tanh(x("n"))),)


def ugrnn(x, u, s, p):
    g = sigmoid(u("g", s["h"]) + x("g"))
    return (g * s["h"] + (1 - g) * tanh(u("n", s["h"]) + x("n")),)


def antisymmetric(x, u, s, p):
    M = p["W"] - p["W"].T - 0.02 * np.eye(H)
    return (s["h"] + 0.1 * tanh(M @ s["h"] + x("h")),)


def gated_antisymmetric(x, u, s, p):
    M = p["W"] - p["W"].T - 0.02 * np.eye(H)
    return (s["h"] + 0.1 * sigmoid(M @ s["h"] + x("z")) * tanh(M @ s["h"] + x("h")),)


def cornn(x, u, s, p):
    y, z = s["h"], s["z"]
    z = z + 0.1 * tanh(u("z", y) + u("v", z) + x("z")) - 0.1 * 2 * y - 0.1 * 3 * z
    return y + 0.1 * z, z


def unicornn(x, u, s, p):
    rate = 0.1 * (0.5 + 0.5 * tanh(p["c"] / 2))
    z = s["z"] - rate * (tanh(p["w"] * s["h"] + x("z")) + 2 * s["h"])
    return s["h"] + rate * z, z


def lem(x, u, s, p):
    dt, dt_bar = (0.5 * sigmoid(u(gate, s["h"]) + x(gate)) for gate in ("t", "u"))
    z = (1 - dt) * s["z"] + dt * tanh(u("z", s["h"]) + x("z"))
    return (1 - dt_bar) * s["h"] + dt_bar * tanh(u("y", z) + x("y")), z


def fast_rnn(x, u, s, p):
    return (sigmoid(p["alpha"]) * tanh(x("n") + u("n", s["h"])) + sigmoid(p["beta"]) * s["h"],)


def fast_grnn(x, u, s, p):
    both = x("n") + u("n", s["h"])
    z = sigmoid(both + p["b_z"])
    return ((sigmoid(p["zeta"]) * (1 - z) + sigmoid(p["nu"])) * tanh(both) + z * s["h"],)


def rhn(x, u, s, p):
    state = s["h"]
    for depth in range(2):
        R_h, R_t = (u(gate, state) if depth == 0 else p["R"][0, k] @ state for k, gate in enumerate("nt"))
        h = tanh(x("n") + R_h if depth == 0 else R_h + p["b"][0, 0])
        t = sigmoid(x("t") + R_t if depth == 0 else R_t + p["b"][0, 1])
        state = h * t + state * (1 - t)
    return (state,)


def scrn(x, u, s, p):
    context = (1 - 0.9) * x("c") + 0.9 * s["c"]
    return sigmoid(p["P"] @ context + x("h") + u("h", s["h"])), context


def t_lstm(x, u, s, p):
    short = tanh(p["D"] @ s["c"] + p["b_d"])
    c = (s["c"] - short) + short * (1 / np.log(np.e + s["input"][-1]))
    i, f, g, o = (x(gate) + u(gate, s["h"]) for gate in "ifgo")
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return sigmoid(o) * tanh(c), c


def gru_d(x, u, s, p):
    value, m, delta = np.split(s["input"], 3)
    gamma_x = np.exp(-np.maximum(0, p["w"] * delta + p["b_w"]))
    h = np.exp(-np.maximum(0, p["D"] @ delta + p["b_d"])) * s["h"]
    filled = m * value + (1 - m) * gamma_x * s["l"] + (1 - m) * (1 - gamma_x) * p["mean"]
    r, z = (sigmoid(p["W"][k] @ filled + u(gate, h) + p["V"][k] @ m) for k, gate in enumerate("rz"))
    new = tanh(p["W"][2] @ filled + u("n", r * h) + p["V"][2] @ m)
    return (1 - z) * h + z * new, m * value + (1 - m) * s["l"]


def cfc(x, u, s, p):
    backbone = 1.7159 * tanh(0.666 * (x("b") + u("b", s["h"])))
    f, g, h = (H_k @ backbone + c_k for H_k, c_k in zip(p["H"], p["c"], strict=True))
    return (sigmoid(-f * s["input"][-1]) * tanh(g) + (1 - sigmoid(-f * s["input"][-1])) * tanh(h),)


PAPERS = {
    "AntisymmetricRNN": antisymmetric,
    "CfC": cfc,
    "CoRNN": cornn,
    "FastGRNN": fast_grnn,
    "FastRNN": fast_rnn,
    "GRUD": gru_d,
    "GatedAntisymmetricRNN": gated_antisymmetric,
    "LEM": lem,
    "RHN": rhn,
    "SCRN": scrn,
    "TLSTM": t_lstm,
    "UnICORNN": unicornn,
    "ATR": atr,
    "BRC": brc,
    "CFN": cfn,
    "LSTM1997": lstm_1997,
    "LiGRU": ligru,
    "LightRU": light_ru,
    "MUT1": mut1,
    "MUT2": mut2,
    "MUT3": mut3,
    "MinimalRNN": minimal_rnn,
    "NAS": nas,
    "NBRC": nbrc,
    "RAN": ran,
    "SRU": sru,
    "STAR": star,
    "UGRNN": ugrnn,
}


OPTIONS = {
    "AntisymmetricRNN": {"epsilon": 0.1, "gamma": 0.02},
    "CfC": {"backbone": 3},
    "CoRNN": {"dt": 0.1, "gamma": 2.0, "epsilon": 3.0},
    "GatedAntisymmetricRNN": {"epsilon": 0.1, "gamma": 0.02},
    "LEM": {"dt": 0.5},
    "RHN": {"depth": 2},
    "SCRN": {"context": 3, "alpha": 0.9},
    "UnICORNN": {"dt": 0.1, "alpha": 2.0},
}
"""The arguments of the cells. The formulas contain them as numbers."""
ON_REFERENCE = {name for name, cell in gg.cells.CLASSIC.items() if cell().declaration is not None}
"""The cells with declared axes and recurrent matrices, which have no kernels."""


def layer_of(name):
    """A layer with random weights, an input and initial states."""
    cell = gg.cells.CLASSIC[name](**OPTIONS.get(name, {}))
    layer = gg.Recurrent(cell, example_sizes(cell, INPUTS)[0], H, dtype=torch.float64)
    with torch.no_grad():
        for number, weight in enumerate(layer.parameters()):
            weight.copy_(noise(number, *weight.shape) / 2)
    _, final = run(layer, noise(98, 1, ROWS, layer.input_size).abs(), None, "reference")
    states = [noise(90 + k, *state.shape) for k, state in enumerate(final)]
    x = noise(99, STEPS, ROWS, layer.input_size)
    return layer, x.abs() if cell.inputs else x, states  # the time between steps is positive


def run(layer, x, states, engine):
    with gg.engine(engine), torch.no_grad():
        output, final = layer(x, tuple(states) if states and len(states) > 1 else states and states[0])
    return output, final if isinstance(final, tuple) else (final,)


def rows_of(layer, weights, half, names):
    """The function that returns W v + b of one of the gates with these names, from the weights of x or h."""
    has_axes = layer.cell.declaration is not None
    gates = shapes_of(layer.cell, layer.input_size, H).gates if has_axes else dict.fromkeys(names, (H,))
    ends = np.cumsum([0, *(prod(gates[name]) for name in names)])
    rows = {name: slice(*pair) for name, pair in zip(names, itertools.pairwise(ends), strict=True)}
    return lambda name, v: (
        weights[f"weight_{half}"][rows[name]] @ v[: weights[f"weight_{half}"].shape[1]]
        + weights[f"bias_{half}"][rows[name]]
    )


def from_paper(name, layer, x, states):
    """Compute the outputs and the final states of each row with the formulas in NumPy."""
    weights = {key.removesuffix("_l0"): value.detach().numpy() for key, value in layer.named_parameters()}
    cell = layer.cell
    x_rows, h_rows = (
        rows_of(layer, weights, half, cell.gates_that_read(reads)) for half, reads in (("ih", "x"), ("hh", "h"))
    )
    outputs, finals = [], []
    for row in range(ROWS):
        s = {key: state[0, row].numpy() for key, state in zip(cell.state, states, strict=True)}
        for x_t in x[:, row].numpy():
            s["input"] = x_t
            new = PAPERS[name](lambda gate, x_t=x_t: x_rows(gate, x_t), h_rows, s, weights)
            s = dict(zip(cell.state, new, strict=True))
            outputs.append(new[0])
        finals.append(s)
    output = torch.from_numpy(np.array(outputs)).view(ROWS, STEPS, -1).transpose(0, 1)
    return output, [torch.from_numpy(np.array([s[key] for s in finals]))[None] for key in cell.state]


def check(name, engine):
    layer, x, states = layer_of(name)
    output, final = run(layer, x, states, engine)
    expected, expected_final = from_paper(name, layer, x, states)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-10)
    for got, state in zip(final, expected_final, strict=True):
        torch.testing.assert_close(got, state, rtol=0, atol=1e-10)


def test_every_cell_has_a_formula():
    assert PAPERS.keys() == gg.cells.CLASSIC.keys()
    assert not PAPERS.keys() & set(gg.cells.__all__)


@pytest.mark.parametrize("name", PAPERS)
def test_a_cell_equals_the_formulas_of_its_paper(name):
    # The choice of an engine must support cells that read the input.
    check(name, "auto" if gg.cells.CLASSIC[name].inputs else "reference")


@pytest.mark.parametrize(
    "name",
    [
        name if name in COMPILED else pytest.param(name, marks=pytest.mark.matrix)
        for name in PAPERS
        if name not in ON_REFERENCE
    ],
)
def test_a_kernel_equals_the_formulas_of_the_paper(name):
    check(name, "cpu")


@pytest.mark.parametrize("name", ["NBRC", "SRU", "UnICORNN"])
def test_the_checks_accept_a_cell(name):
    assert gg.check(gg.cells.CLASSIC[name]())
