"""Cells compared with a second form of their papers: sums over all steps, convolutions, or the authors' own code."""

import numpy as np
import pytest
import torch

import glassgate as gg
from tests.compare import noise

L, N, D, H = 7, 2, 3, 4
ENGINES = ("reference", "cpu")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def layer_and_gates(cell):
    """A layer with random weights, its input, its parameters in NumPy, and its pre-activations by gate, (L, N, H)."""
    layer = gg.Recurrent(cell, D, H, dtype=torch.float64)
    with torch.no_grad():
        for number, weight in enumerate(layer.parameters()):
            weight.copy_(noise(number, *weight.shape) / 2)
    x = noise(50, L, N, D)
    own = {name.removesuffix("_l0"): v.detach().numpy() for name, v in layer.named_parameters()}
    rows = np.split(x.numpy() @ own["weight_ih"].T + own["bias_ih"], len(cell.gates), -1)
    return layer, x, own, dict(zip(cell.gates, rows, strict=True))


def assert_output(layer, x, expected, engine):
    with gg.engine(engine), torch.no_grad():
        np.testing.assert_allclose(layer(x)[0].numpy(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("engine", ENGINES)
def test_qrnn_is_a_weighted_sum_of_all_inputs(engine):
    """c_t is the sum over k <= t of (1 - f_k) n_k times the product of f from k + 1 to t."""
    layer, x, _, a = layer_and_gates(gg.cells.QRNN())
    f, n = sigmoid(a["f"]), np.tanh(a["n"])
    c = [sum((1 - f[k]) * n[k] * f[k + 1 : t + 1].prod(0) for k in range(t + 1)) for t in range(L)]
    assert_output(layer, x, sigmoid(a["o"]) * np.array(c), engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_sru_equals_the_code_of_its_authors(engine):
    """The elementwise loop of github.com/asappresearch/sru: c = (c - u0) f + u0, h = (c - x) r + x."""
    layer, x, own, a = layer_and_gates(gg.cells.SRU())
    c, outputs = np.zeros((N, H)), []
    for u0, u1, u2, skipped in zip(*(a[gate] for gate in "nfrk"), strict=True):
        forget, reset = sigmoid(u1 + c * own["v_f"]), sigmoid(u2 + c * own["v_r"])
        c = (c - u0) * forget + u0
        outputs.append((c - skipped) * reset + skipped)
    assert_output(layer, x, np.array(outputs), engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_s4d_is_a_convolution(engine):
    """The kernel is K[l] = 2 Re(sum over modes of C (exp(dt A) - 1) / A exp(dt A l)), section 3.3 of the paper."""
    layer, x, own, a = layer_and_gates(gg.cells.S4D(3))
    A, C = -np.exp(own["A"][0]) + 1j * own["A"][1], own["C"][0] + 1j * own["C"][1]
    dtA = A * np.exp(own["log_dt"])[:, None]
    vandermonde = np.exp(dtA[..., None] * np.arange(L))
    kernel = 2 * np.einsum("um,uml->lu", C * (np.exp(dtA) - 1) / A, vandermonde).real
    u = a["u"]
    y = [sum(kernel[t - k] * u[k] for k in range(t + 1)) + own["D"] * u[t] for t in range(L)]
    assert_output(layer, x, np.array(y), engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_lmu_solves_the_differential_equation_of_its_paper(engine):
    """theta m' = A m + B u with u constant within a step, equations 1 and 2: the exponential of a matrix."""
    order, theta = 5, 6.0
    layer = gg.Recurrent(gg.cells.LMU(order, theta), D, H, dtype=torch.float64)
    i, j = np.indices((order, order))
    A = (2 * i + 1) * np.where(i < j, -1.0, (-1.0) ** (i - j + 1))
    B = (2 * np.arange(order) + 1) * (-1.0) ** np.arange(order)
    with torch.no_grad():
        for weight in (layer.weight_hh_l0, layer.bias_hh_l0, layer.e_l0):
            weight.zero_()
    x, own = noise(50, L, N, D), {name.removesuffix("_l0"): v.detach().numpy() for name, v in layer.named_parameters()}
    rows = x.numpy() @ own["weight_ih"].T + own["bias_ih"]
    system = np.zeros((order + 1, order + 1))
    system[:order, :order], system[:order, order] = A / theta, B / theta
    held = torch.matrix_exp(torch.from_numpy(system)).numpy()
    m, outputs = np.zeros((N, order)), []
    for row in rows:
        m = (held @ np.concatenate([m, row[:, H:]], 1).T).T[:, :order]
        outputs.append(np.tanh(row[:, :H] + m @ own["W"].T))
    assert_output(layer, x, np.array(outputs), engine)
