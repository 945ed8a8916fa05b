"""The cells with a matrix as memory, compared with the formulas of their papers in NumPy.

`tests/clients/test_memories.py` compares them with the public recurrences of flash-linear-attention and mlstm-kernels.
"""

import numpy as np
import pytest
import torch

import glassgate as gg
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.step import array_step
from tests.engines.test_arrays import check_against_autograd

STEPS, ROWS, INPUTS, HEADS, KEY, VALUE = 6, 2, 5, 2, 3, 4


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def unit(x):
    return x / np.linalg.norm(x)


# One step of each paper for one head: the gates by name, the states by name, the parameters by name and the head. A
# state is transposed if the paper stores it as (value, key). Each function returns the output and the new states.


def linear_attention(g, s, p, head):
    phi = lambda x: np.where(x > 0, x + 1, np.exp(x))  # noqa: E731
    S, z = s["S"] + np.outer(phi(g["k"]), g["v"]), s["z"] + phi(g["k"])
    return phi(g["q"]) @ S / (phi(g["q"]) @ z), {"S": S, "z": z}


def retention(g, s, p, head):
    S = (1 - 2.0 ** (-5 - head)) * s["S"] + np.outer(g["k"], g["v"])
    return g["q"] @ S, {"S": S}


def gated_linear_attention(g, s, p, head):
    alpha = sigmoid(g["f"]) ** (1 / 16)
    S = np.outer(alpha, np.ones(VALUE)) * s["S"] + np.outer(g["k"], g["v"])
    return g["q"] @ S, {"S": S}


def hgrn2(g, s, p, head):
    f = sigmoid(g["f"])
    S = np.diag(f) @ s["S"] + np.outer(1 - f, g["v"])
    return silu(g["q"]) @ S, {"S": S}


def mamba2(g, s, p, head):
    dt, A = np.log1p(np.exp(g["t"])), -np.exp(p["A"][head])
    h = np.exp(dt * A) * s["S"].T + np.outer(dt * g["v"], g["B"])
    return h @ g["C"] + p["D"][head] * g["v"], {"S": h.T}


def mlstm(g, s, p, head):
    """Without the stabiliser: the paper's equations 19 to 27 with C = exp(m) S."""
    i, f, o = np.exp(g["i"]), sigmoid(g["f"]), sigmoid(g["o"])
    k = g["k"] / np.sqrt(KEY)
    scale = np.exp(s["m"])
    C, n = f * scale * s["S"].T + i * np.outer(g["v"], k), f * scale * s["n"] + i * k
    h = o * (C @ g["q"]) / max(abs(n @ g["q"]), 1)
    m = max(np.log(f) + s["m"], g["i"])
    return h, {"S": C.T / np.exp(m), "n": n / np.exp(m), "m": m}


def delta_net(g, s, p, head):
    q, k, b = unit(silu(g["q"])), unit(silu(g["k"])), sigmoid(g["b"])
    S = s["S"].T @ (np.eye(KEY) - b * np.outer(k, k)) + b * np.outer(g["v"], k)
    return S @ q, {"S": S.T}


def gated_delta_net(g, s, p, head):
    q, k, b = unit(silu(g["q"])), unit(silu(g["k"])), sigmoid(g["b"])
    alpha = np.exp(-np.exp(p["A"][head]) * np.log1p(np.exp(g["f"])))
    S = s["S"].T @ (alpha * (np.eye(KEY) - b * np.outer(k, k))) + b * np.outer(silu(g["v"]), k)
    return S @ q, {"S": S.T}


def rwkv7(g, s, p, head):
    w, a = np.exp(-np.exp(-0.5) * sigmoid(g["w"])), sigmoid(g["b"])
    kappa = unit(g["k"] * p["r_k"][head])
    k = g["k"] * (1 + (a - 1) * p["r_a"][head])
    S = s["S"].T @ (np.diag(w) - np.outer(kappa, a * kappa)) + np.outer(g["v"], k)
    return S @ g["q"], {"S": S.T}


PAPERS = {
    "LinearAttention": linear_attention,
    "RetNet": retention,
    "GLA": gated_linear_attention,
    "HGRN2": hgrn2,
    "Mamba2": mamba2,
    "MLSTM": mlstm,
    "DeltaNet": delta_net,
    "GatedDeltaNet": gated_delta_net,
    "RWKV7": rwkv7,
}


def test_every_memory_has_a_formula():
    assert PAPERS.keys() == gg.cells.MATRIX_MEMORIES.keys()


@pytest.mark.parametrize("name", PAPERS)
def test_a_memory_equals_its_paper(name):
    torch.manual_seed(0)
    cell = gg.cells.MATRIX_MEMORIES[name](heads=HEADS, key_size=KEY)
    layer = gg.Recurrent(cell, INPUTS, HEADS * VALUE, dtype=torch.float64)
    with torch.no_grad():
        for parameter_name, parameter in layer.named_parameters():
            if "weight" in parameter_name or "r_" in parameter_name:
                parameter.normal_()
    x = torch.randn(STEPS, ROWS, INPUTS, dtype=torch.float64)
    _, initial = layer(x[:2])
    output, final = layer(x[2:], tuple(v.detach() for v in initial))
    pre = (x[2:] @ layer.weight_ih_l0.T + layer.bias_ih_l0).detach()
    shapes = cell.declaration.gates
    sizes = {"heads": HEADS, "key_size": KEY, "value_size": VALUE}
    gates = {}
    for gate, block in zip(shapes, pre.split([*gate_rows(cell, sizes)], -1), strict=True):
        gates[gate] = block.unflatten(-1, [sizes[axis] for axis in shapes[gate].axes]).numpy()
    parameters = {key: getattr(layer, f"{key}_l0").detach().numpy() for key in cell.parameters}
    for n in range(ROWS):
        for head in range(HEADS):
            states = {k: v[0, n, head].detach().numpy() for k, v in zip(cell.state[1:], initial[1:], strict=True)}
            for t in range(STEPS - 2):
                own = {k: v[t, n, head] if "heads" in shapes[k].axes else v[t, n] for k, v in gates.items()}
                h, states = PAPERS[name](own, states, parameters, head)
                ours = output[t, n].detach().numpy().reshape(HEADS, VALUE)[head]
                assert np.abs(ours - h).max() <= 1e-10 * max(1, np.abs(h).max())
            for k, v in zip(cell.state[1:], final[1:], strict=True):
                assert np.allclose(v[0, n, head].detach().numpy(), states[k], 1e-10, 1e-10)


def gate_rows(cell, sizes):
    """The number of rows of each gate."""
    return [int(np.prod([sizes[axis] for axis in gate.axes])) for gate in cell.declaration.gates.values()]


@pytest.mark.parametrize("name", PAPERS)
def test_the_graph_of_a_memory(name):
    cell = gg.cells.MATRIX_MEMORIES[name](heads=HEADS, key_size=KEY)
    graph = check_against_autograd(cell, HEADS * VALUE)
    assert not graph.joined
    # No operation depends on positions: a kernel needs loops over heads, keys and values, and sums.
    positions = ops.Gather | ops.Merge | ops.Concatenate | ops.Scatter
    assert not any(isinstance(value.op, positions) for value in graph.values)


def test_noise_and_dropout_of_the_update():
    cell = gg.cells.GatedDeltaNet(heads=2, key_size=3)
    layer = gg.Recurrent(cell, INPUTS, 8, recurrent_dropout=0.3, zoneout={"S": 0.1})
    output, (_, S) = layer(torch.randn(STEPS, ROWS, INPUTS))
    output.sum().backward()
    assert S.shape == (1, ROWS, 2, 3, 4)
    assert layer.A_l0.grad.shape == (2,)
    assert torch.allclose(layer.A_l0, torch.tensor([0.0, np.log(2)], dtype=torch.float32))


def test_a_memory_survives_large_inputs():
    """The stabiliser of the mLSTM keeps its output finite where exp overflows."""
    layer = gg.Recurrent(gg.cells.MLSTM(2, 3), INPUTS, 8)
    assert layer(1e4 * torch.randn(STEPS, ROWS, INPUTS))[0].isfinite().all()
    assert array_step(layer.cell, INPUTS, 8).state["m"] == ("heads",)
