"""Every cell against its formulas written out by hand, and on the kernel against the reference.

Those that torch has too are in tests/layers/test_against_torch.py, all with noise in tests/layers/test_regularisers.py.
"""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import glassgate as gg
from glassgate import cells
from tests.compare import check, measure, noise

H, P, INPUTS, L, N = 6, 4, 3, 5, 4


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def layer_norm(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], gain, shift, 1e-5)


def peephole(x, h, w):
    i, f, g, o = (x + h).chunk(4, -1)
    i, f = sigmoid(i + w.peep_i_l0 * w.c), sigmoid(f + w.peep_f_l0 * w.c)
    c = f * w.c + i * torch.tanh(g)
    return sigmoid(o + w.peep_o_l0 * c) * torch.tanh(c), c


def cifg(x, h, w):
    f, g, o = (x + h).chunk(3, -1)
    c = sigmoid(f) * w.c + (1 - sigmoid(f)) * torch.tanh(g)
    return sigmoid(o) * torch.tanh(c), c


def clipped(x, h, w):
    i, f, g, o = (x + h).chunk(4, -1)
    c = (sigmoid(f) * w.c + sigmoid(i) * torch.tanh(g)).clip(-0.2, 0.2)
    return (torch.tanh(c) * sigmoid(o) @ w.weight_hr_l0.T).clip(-0.05, 0.05), c


def activated_lstm(x, h, w):
    i, f, g, o = (x + h).chunk(4, -1)
    i, f, o = (torch.clip(v / 6 + 0.5, 0, 1) for v in (i, f, o))
    c = f * w.c + i * (g / (1 + abs(g)))
    return o * torch.maximum(c, torch.zeros_like(c)), c


def activated_gru(x, h, w):
    (x_r, x_z, x_n), (h_r, h_z, h_n) = x.chunk(3, -1), h.chunk(3, -1)
    r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
    n = torch.log(1 + torch.exp(x_n + r * h_n))
    return ((1 - z) * n + z * w.h,)


def layer_norm_lstm(x, h, w):
    x = layer_norm(x, w.gain_ih_l0, w.shift_ih_l0) + layer_norm(h, w.gain_hh_l0, w.shift_hh_l0)
    i, f, g, o = x.chunk(4, -1)
    c = sigmoid(f) * w.c + sigmoid(i) * torch.tanh(g)
    return sigmoid(o) * torch.tanh(layer_norm(c, w.gain_c_l0, w.shift_c_l0)), c


def layer_norm_gru(x, h, w):
    two = slice(0, 2 * H), slice(2 * H, None)
    x_g, x_n = (layer_norm(x[:, part], w.gain_ih_l0[part], w.shift_ih_l0[part]) for part in two)
    h_g, h_n = (layer_norm(h[:, part], w.gain_hh_l0[part], w.shift_hh_l0[part]) for part in two)
    r, z = sigmoid(x_g + h_g).chunk(2, -1)
    return ((1 - z) * torch.tanh(x_n + r * h_n) + z * w.h,)


def gru_v3(x, h, w):
    r, z = sigmoid(x[:, : 2 * H] + h[:, : 2 * H]).chunk(2, -1)
    n = torch.tanh(x[:, 2 * H :] + F.linear(r * w.h, w.weight_hh_l0[2 * H :], w.bias_hh_l0[2 * H :]))
    return (z * w.h + (1 - z) * n,)


def gru_projected(x, h, w):
    (x_r, x_z, x_n), (h_r, h_z, h_n) = x.chunk(3, -1), h.chunk(3, -1)
    z = sigmoid(x_z + h_z)
    m = z * w.m + (1 - z) * torch.tanh(x_n + sigmoid(x_r + h_r) * h_n)
    return m @ w.weight_hr_l0.T, m


def mgu(x, h, w):
    f = sigmoid(x[:, :H] + h[:, :H])
    n = torch.tanh(x[:, H:] + F.linear(f * w.h, w.weight_hh_l0[H:], w.bias_hh_l0[H:]))
    return (w.h - f * w.h + f * n,)


def janet(x, h, w):
    f, g = (x + h).chunk(2, -1)
    return (sigmoid(f) * w.h + (1 - sigmoid(f - 1)) * torch.tanh(g),)


def indrnn(x, h, w):
    return (torch.clip(x + w.u_l0 * w.h, min=0),)


def indrnn_tanh(x, h, w):
    return (torch.tanh(x + w.u_l0 * w.h),)


def ctrnn(x, h, w):
    new = w.x + 0.2 * (x + h - w.x)
    return torch.tanh(new), new


def slstm(x, h, w):
    """Compute the equations without the stabiliser, which give the same numbers if nothing overflows."""
    blocks = [torch.block_diag(*rows.split(H // 2)) for rows in w.weight_hh_l0.split(H)]
    i, f, z, o = (x + F.linear(w.h, torch.cat(blocks), w.bias_hh_l0)).chunk(4, -1)
    c = sigmoid(f) * w.c + torch.exp(i) * torch.tanh(z)
    n = sigmoid(f) * w.n + torch.exp(i)
    return sigmoid(o) * c / n, c, n


def min_gru(x, h, w):
    z, n = x.chunk(2, -1)
    n = torch.where(n >= 0, n + 0.5, sigmoid(n))
    return (w.h + sigmoid(z) * (n - w.h),)


def min_lstm(x, h, w):
    f, i, n = x.chunk(3, -1)
    share = sigmoid(f) / (sigmoid(f) + sigmoid(i))
    return (share * w.h + (1 - share) * torch.where(n >= 0, n + 0.5, sigmoid(n)),)


CELLS = {
    "peephole": (cells.PeepholeLSTM(), peephole),
    "CIFG": (cells.CIFG(), cifg),
    "clipped": (cells.ClippedLSTM(0.2, 0.05), clipped),
    "hard sigmoid": (cells.ActivatedLSTM("hardsigmoid", "softsign", "relu"), activated_lstm),
    "softplus": (cells.ActivatedGRU("sigmoid", "softplus"), activated_gru),
    "layer-normalised LSTM": (cells.LayerNormLSTM(), layer_norm_lstm),
    "layer-normalised GRU": (cells.LayerNormGRU(), layer_norm_gru),
    "GRU, version 3": (cells.GRUv3(), gru_v3),
    "GRU with projection": (cells.GRUP(), gru_projected),
    "MGU": (cells.MGU(), mgu),
    "JANET": (cells.JANET(), janet),
    "IndRNN": (cells.IndRNN(), indrnn),
    "IndRNN, tanh": (cells.IndRNN("tanh"), indrnn_tanh),
    "CTRNN": (cells.CTRNN("tanh"), ctrnn),
    "sLSTM": (cells.SLSTM(heads=2), slstm),
    "minGRU": (cells.MinGRU(), min_gru),
    "minLSTM": (cells.MinLSTM(), min_lstm),
}
PROJECTED = {"clipped", "GRU with projection"}


class At:
    """A layer's parameters and the states before a step, by name."""

    def __init__(self, layer, states) -> None:
        self.__dict__.update(layer.named_parameters())
        self.__dict__.update(states)


def layer_of(name, **options):
    layer = gg.Recurrent(
        CELLS[name][0], INPUTS, H, proj_size=P if name in PROJECTED else 0, dtype=torch.float64, **options
    )
    with torch.no_grad():
        for k, weight in enumerate(layer.parameters()):
            weight.add_(noise(k, *weight.shape) / 2)
    return layer


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_equals_its_formulas(name):
    layer, x = layer_of(name), noise(99, L, N, INPUTS)
    cell, formulas = CELLS[name]
    with gg.engine("reference"):
        output, final = layer(x)
    states = {state: torch.zeros(N, H, dtype=torch.float64) for state in cell.state}
    if name in PROJECTED:
        states[cell.state[0]] = torch.zeros(N, P, dtype=torch.float64)
    expected = []
    for x_t in x:
        w = At(layer, states)
        ih = F.linear(x_t, w.weight_ih_l0, w.bias_ih_l0)
        full = cell.recurrent and cell.heads == 1
        hh = F.linear(states[cell.state[0]], w.weight_hh_l0, w.bias_hh_l0) if full else None
        states = dict(zip(cell.state, formulas(ih, hh, w), strict=False))
        expected.append(states[cell.state[0]])
    torch.testing.assert_close(output, torch.stack(expected), rtol=0, atol=1e-12)
    if name != "sLSTM":
        for got, state in zip(final if isinstance(final, tuple) else (final,), cell.state, strict=True):
            torch.testing.assert_close(got[0], states[state], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", CELLS)
def test_a_kernel_equals_the_reference(name):
    layer = layer_of(name, bidirectional=True)
    leaves = {"input": noise(99, L, N, INPUTS).requires_grad_()}
    widths = dict.fromkeys(layer.cell.state, H) | {layer.cell.state[0]: P if name in PROJECTED else H}
    leaves |= {state: noise(k, 2, N, width).abs().requires_grad_() for k, (state, width) in enumerate(widths.items())}
    resets = noise(98, L, N) > 0.7

    def run(engine, **options):
        hx = tuple(leaves[state] for state in layer.cell.state)
        with gg.engine(engine):
            output, final = layer(leaves["input"], hx if len(hx) > 1 else hx[0], **options)
        final = final if isinstance(final, tuple) else (final,)
        outputs = {"output": output} | {f"{state}_n": v for state, v in zip(layer.cell.state, final, strict=True)}
        return measure(outputs, leaves | dict(layer.named_parameters()))

    check(run("cpu"), run("reference"))
    check(run("cpu", resets=resets, lengths=[3, 0, 5, 2]), run("reference", resets=resets, lengths=[3, 0, 5, 2]))


def scan(log_kept: Tensor, log_new: Tensor) -> Tensor:
    """Compute all steps of h_t = exp(log_kept_t) h_(t-1) + exp(log_new_t) at once, with h_0 = 0 (Feng et al. 2024)."""
    total = log_kept.cumsum(0)
    return torch.exp(total + torch.logcumsumexp(log_new - total, 0))


@pytest.mark.parametrize("engine", ["reference", "cpu"])
@pytest.mark.parametrize("name", ["minGRU", "minLSTM"])
def test_minimal_cells_equal_their_parallel_form(name, engine):
    layer, x = layer_of(name), noise(1, 200, N, INPUTS)
    with gg.engine(engine):
        output, _ = layer(x)
    gates = F.linear(x, layer.weight_ih_l0, layer.bias_ih_l0).chunk(len(layer.cell.gates), -1)
    n = gates[-1]
    log_n = torch.where(n >= 0, torch.log(F.relu(n) + 0.5), F.logsigmoid(n))
    if name == "minGRU":
        expected = scan(F.logsigmoid(-gates[0]), F.logsigmoid(gates[0]) + log_n)
    else:
        more = F.softplus(-gates[0]) - F.softplus(-gates[1])
        expected = scan(-F.softplus(more), -F.softplus(-more) + log_n)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("engine", ["reference", "cpu"])
def test_slstm_stays_finite(engine):
    layer = layer_of("sLSTM")
    with gg.engine(engine):
        output, _ = layer(500 * noise(1, 50, N, INPUTS))
    assert output.isfinite().all()
    assert output.abs().max() <= 1


def test_wrong_options_are_rejected():
    with pytest.raises(ValueError, match="ClippedLSTM: cell_clip must be positive, got 0"):
        cells.ClippedLSTM(0)
    with pytest.raises(ValueError, match=r"ActivatedLSTM: an activation must be one of sigmoid, .*, got 'softmax'"):
        cells.ActivatedLSTM(gate="softmax")
    with pytest.raises(ValueError, match="SLSTM: heads must be a positive integer, got 0"):
        cells.SLSTM(0)
    with pytest.raises(ValueError, match="CTRNN: dt must be above 0 and at most tau = 100, got 200"):
        cells.CTRNN(tau=100, dt=200)
    with pytest.raises(ValueError, match="CTRNN: sigma must be 0 or more, got -1"):
        cells.CTRNN(sigma=-1)
    with pytest.raises(ValueError, match="IndRNN: nonlinearity must be 'relu' or 'tanh', got 'exp'"):
        cells.IndRNN("exp")
    with pytest.raises(ValueError, match="JANET: a step reads the units of h, so h cannot be projected"):
        gg.Recurrent(cells.JANET(), 3, 6, proj_size=4)


def test_noise_of_a_ctrnn_is_seeded_and_has_its_deviation():
    layer, x = gg.Recurrent(cells.CTRNN("tanh", sigma=0.5), 2, 50), torch.zeros(1, 400, 2)
    calm = layer.eval()(x, None)[1][1]
    torch.manual_seed(0)
    noisy = layer.train()(x)[1][1]
    torch.manual_seed(0)
    assert torch.equal(noisy, layer(x)[1][1])
    assert (noisy - calm).std().item() == pytest.approx(0.4**0.5 * 0.5, rel=0.02)


def test_the_former_name_of_the_third_version_of_the_gru():
    with pytest.warns(FutureWarning, match=r"GRUv1 has a new name, GRUv3: .* as in version 3 of arXiv:1406.1078"):
        assert gg.cells.GRUv1 is gg.cells.GRUv3


@pytest.mark.parametrize("shape", [(2,), (500, 2)])
def test_noise_of_single_steps_and_of_functions(shape):
    module, x = gg.RecurrentCell(cells.CTRNN("tanh", sigma=0.5), 2, 50), torch.zeros(shape)
    ((cell, weights),) = module.weights()
    expected = gg.RecurrentCell(cells.CTRNN("tanh"), 2, 50)
    expected.load_state_dict(module.state_dict())
    _, noisy = module(x)
    _, silent = expected(x)
    # The deviation of a step is sigma sqrt(2 dt / tau).
    assert abs(float((noisy - silent).detach().std()) / (0.5 * (2 * 20 / 100) ** 0.5) - 1) < (
        0.4 if len(shape) == 1 else 0.03
    )
    torch.testing.assert_close(module.eval()(x), expected(x))
    ih = torch.nn.functional.linear(x, weights["weight_ih"], weights["bias_ih"])
    zeros = (torch.zeros(*shape[:-1], 50),) * 2
    torch.testing.assert_close(gg.functional.step(cell, ih, zeros, weights), expected(x))
    output, _ = gg.functional.recurrent(cell, x[None], None, weights)
    torch.testing.assert_close(output[0], expected(x)[0])
