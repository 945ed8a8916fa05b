"""The classic cells and state spaces, compared with the formulas of their papers in NumPy."""

import itertools
from math import prod

import numpy as np
import pytest
import torch

import glassgate as gg
from glassgate.cell_shapes import example_sizes, shapes_of
from tests.cells.papers import OPTIONS, PAPERS
from tests.compare import noise

STEPS, ROWS, INPUTS, H = 4, 2, 5, 4
COMPILED = ("BRC", "GRUD", "MUT3", "S4D", "UnICORNN")
"""The cells whose kernels every run compiles."""
CELLS = gg.cells.CLASSIC | gg.cells.STATE_SPACES


def layer_of(name):
    """A layer with random weights, an input and initial states."""
    cell = CELLS[name](**OPTIONS.get(name, {}))
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
    assert PAPERS.keys() == CELLS.keys()
    assert not PAPERS.keys() & set(gg.cells.__all__)


@pytest.mark.parametrize("name", PAPERS)
def test_a_cell_equals_the_formulas_of_its_paper(name):
    # The choice of an engine must support cells that read the input.
    check(name, "auto" if CELLS[name].inputs else "reference")


@pytest.mark.parametrize(
    "name",
    [name if name in COMPILED else pytest.param(name, marks=pytest.mark.matrix) for name in PAPERS],
)
def test_a_kernel_equals_the_formulas_of_the_paper(name):
    check(name, "cpu")


@pytest.mark.parametrize("name", ["HyperLSTM", "NBRC", "S5", "SRU", "UnICORNN"])
def test_the_checks_accept_a_cell(name):
    assert gg.check(CELLS[name]())


def test_the_legendre_memory_contains_the_input_of_theta_steps_ago():
    layer = gg.Recurrent(gg.cells.LMU(order=12, theta=40), 1, 1, dtype=torch.float64)
    with torch.no_grad():
        for weight in (layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0, layer.e_l0):
            weight.zero_()
        layer.weight_ih_l0.fill_(1)
        times = torch.arange(200, dtype=torch.float64)
        memory = [layer(torch.sin(times[: t + 1, None, None] / 10))[1][1][0, 0] for t in range(100, 200, 20)]
    # At the end of the window, every polynomial is 1. The hold delays the input by half a step.
    expected = torch.sin((times[100::20] - 39.5) / 10)
    assert torch.allclose(torch.stack(memory).sum(-1), expected, atol=0.01)


def test_the_first_values_of_state_spaces():
    ring = gg.Recurrent(gg.cells.LRU(200), 2, 3, dtype=torch.float64).ring_l0.detach()
    magnitude = (-ring[0].exp()).exp()
    assert 0.9 < magnitude.min() < 0.91 < 0.99 < magnitude.max() < 0.999
    assert torch.allclose(ring[2].exp(), (1 - magnitude**2).sqrt())
    L = gg.Recurrent(gg.cells.RGLRU(), 2, 200).L_l0.detach()
    assert 0.9 <= (torch.sigmoid(L) ** 8).min() < 0.91 < 0.99 < (torch.sigmoid(L) ** 8).max() <= 0.9991
    A = gg.Recurrent(gg.cells.S5(4), 2, 3, dtype=torch.float64).A_l0.detach().numpy()
    n = np.arange(8)
    hippo = -np.tril(np.sqrt(np.outer(2 * n + 1, 2 * n + 1)), -1) - np.diag(n + 1)
    normal = hippo + np.outer(np.sqrt(n + 0.5), np.sqrt(n + 0.5))
    eigenvalues = np.linalg.eigvals(normal)
    assert np.allclose(eigenvalues.real, -np.exp(A[0, 0]))
    assert np.allclose(np.sort(eigenvalues.imag)[4:], A[1])


@pytest.mark.parametrize("engine", ["reference", "cpu"])
def test_a_closed_gate_of_rglru_has_finite_gradients(engine):
    layer = gg.Recurrent(gg.cells.RGLRU(), 1, 1)
    with torch.no_grad():
        layer.weight_ih_l0.fill_(1)
    x = torch.tensor([[[-300.0]], [[300.0]]], requires_grad=True)
    with gg.engine(engine):
        layer(x)[0].sum().backward()
    assert all(v.grad.isfinite().all() for v in (x, *layer.parameters()))
