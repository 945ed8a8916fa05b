"""Blocks, compared with the equations of the public implementations in NumPy, with weights in the public format.

`tests/clients/test_memories.py` compares them with the public packages themselves.
"""

import numpy as np
import pytest
import torch

import glassgate as gg
from tests.compare import noise

N, L, D, HEADS = 2, 5, 12, 2


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.log1p(np.exp(x))


def rms(x, weight, eps):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * weight


def layer_norm(x, eps):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)


def unit(x):
    return x / np.sqrt((x**2).sum() + 1e-6)


def convolve(x, weight, bias=0):
    """Convolve (L, C) with weights (C, 1, steps), and zeros before the first step."""
    steps = weight.shape[2]
    padded = np.concatenate([np.zeros((steps - 1, x.shape[1])), x])
    return np.array([(padded[t : t + steps].T * weight[:, 0]).sum(1) for t in range(len(x))]) + bias


def feed_forward(x, p):
    return (silu(x @ p["ffn.proj_up_gate.weight"].T) * (x @ p["ffn.proj_up.weight"].T)) @ p["ffn.proj_down.weight"].T


def slstm(x, p):
    """One sequence (L, D) through sLSTMBlock of tirex-ts, in which `fgate` multiplies the input of i."""
    size = D // HEADS
    kernel = p["slstm_layer.slstm_cell._recurrent_kernel_"]
    bias = p["slstm_layer.slstm_cell._bias_"].reshape(HEADS, 4, size)
    y, c, n, m = (np.zeros((HEADS, size)) for _ in range(4))
    outputs = []
    for row in rms(x, p["norm_slstm.weight"], 1e-6):
        raw = np.array(
            [
                [p[f"slstm_layer.{gate}gate.weight"][h] @ row.reshape(HEADS, size)[h] for h in range(HEADS)]
                for gate in "fizo"
            ]
        )
        raw = (
            raw
            + np.array([(y[h] @ kernel[h]).reshape(4, size) for h in range(HEADS)]).swapaxes(0, 1)
            + bias.swapaxes(0, 1)
        )
        i, f, z, o = raw
        kept = m - softplus(-f)
        m = i if not outputs else np.maximum(i, kept)
        c, n = np.exp(kept - m) * c + np.exp(i - m) * np.tanh(z), np.exp(kept - m) * n + np.exp(i - m)
        y = sigmoid(o) * c / n
        outputs.append(layer_norm(y, 1e-5).reshape(D) * (1 + p["slstm_layer.group_norm.weight"]))
    x = x + np.array(outputs)
    return x + feed_forward(rms(x, p["norm_ffn.weight"], 1e-6), p)


def mlstm(x, p):
    """One sequence (L, D) through mLSTMBlock of xlstm, with the native recurrent kernel."""
    normed, keys, values = rms(x, p["norm_mlstm.weight"], 1e-6), 3, D // HEADS
    W = {
        name: p[f"mlstm_layer.{name}.weight"]
        for name in ("q", "k", "v", "ogate_preact", "igate_preact", "fgate_preact")
    }
    C, n, m = np.zeros((HEADS, keys, values)), np.zeros((HEADS, keys)), np.zeros(HEADS)
    outputs = []
    for row in normed:
        q, k = (W[name] @ row for name in "qk")
        i, f = (15 * np.tanh((W[g] @ row + p[f"mlstm_layer.{g}.bias"]) / 15) for g in ("igate_preact", "fgate_preact"))
        h = []
        for head in range(HEADS):
            key, value = k[head * keys :][:keys], (W["v"] @ row)[head * values :][:values]
            query = q[head * keys :][:keys] / np.sqrt(keys)
            new = max(np.log(sigmoid(f[head])) + m[head], i[head])
            decay, write = sigmoid(f[head]) * np.exp(m[head] - new), np.exp(i[head] - new)
            m[head], C[head] = new, decay * C[head] + write * np.outer(key, value)
            n[head] = decay * n[head] + write * key
            h.append(query @ C[head] / (max(abs(query @ n[head]), np.exp(-new)) + 1e-6))
        h = layer_norm(np.array(h), 1e-6).reshape(D) * p["mlstm_layer.multihead_norm.weight"]
        outputs.append(p["mlstm_layer.out_proj.weight"] @ (sigmoid(W["ogate_preact"] @ row) * h))
    x = x + np.array(outputs)
    return x + feed_forward(rms(x, p["norm_ffn.weight"], 1e-6), p)


def gated_delta_net(x, p):
    """One sequence (L, D) through Qwen3NextGatedDeltaNet of transformers: 2 key heads, 4 value heads."""
    keys, values = 3, 2
    groups = (x @ p["in_proj_qkvz.weight"].T).reshape(L, 2, -1)
    q, k = groups[..., :keys], groups[..., keys : 2 * keys]
    v, z = groups[..., 2 * keys : 2 * keys + 2 * values], groups[..., 2 * keys + 2 * values :]
    b, a = (x @ p["in_proj_ba.weight"].T).reshape(L, 2, 2, 2).swapaxes(0, 2).swapaxes(1, 2).reshape(2, L, 4)
    mixed = silu(convolve(np.concatenate([u.reshape(L, -1) for u in (q, k, v)], 1), p["conv1d.weight"]))
    q, k, v = np.split(mixed, [2 * keys, 4 * keys], axis=1)
    S, outputs = np.zeros((4, keys, values)), []
    for t in range(L):
        h = np.zeros((4, values))
        for head in range(4):
            key = unit(k[t].reshape(2, keys)[head // 2])
            query = unit(q[t].reshape(2, keys)[head // 2]) / np.sqrt(keys)
            S[head] *= np.exp(-np.exp(p["A_log"][head]) * softplus(a[t, head] + p["dt_bias"][head]))
            S[head] += np.outer(key, sigmoid(b[t, head]) * (v[t].reshape(4, values)[head] - key @ S[head]))
            h[head] = query @ S[head]
        gated = rms(h, p["norm.weight"], 1e-6) * silu(z[t].reshape(4, values))
        outputs.append(p["out_proj.weight"] @ gated.reshape(-1))
    return np.array(outputs)


def mamba2(x, p):
    """One sequence (L, D) through Mamba2Block of transformers: 4 heads of size 3, 2 groups of state size 2."""
    p = (
        p
        | {name.removeprefix("mixer."): value for name, value in p.items() if name.startswith("mixer.")}
        | {"block_norm": p["norm.weight"]}
    )
    z, mixed, dt = np.split(rms(x, p["block_norm"], 1e-5) @ p["in_proj.weight"].T, [12, 32], axis=1)
    v, B, C = np.split(silu(convolve(mixed, p["conv1d.weight"], p["conv1d.bias"])), [12, 16], axis=1)
    S, outputs = np.zeros((4, 3, 2)), []
    for t in range(L):
        y = np.zeros((4, 3))
        for head in range(4):
            step = softplus(dt[t, head] + p["dt_bias"][head])
            value = v[t].reshape(4, 3)[head]
            S[head] = np.exp(-np.exp(p["A_log"][head]) * step) * S[head]
            S[head] += step * np.outer(value, B[t].reshape(2, 2)[head // 2])
            y[head] = S[head] @ C[t].reshape(2, 2)[head // 2] + p["D"][head] * value
        grouped = rms((y.reshape(-1) * silu(z[t])).reshape(2, 6), 1, 1e-5).reshape(-1)
        outputs.append(p["out_proj.weight"] @ (grouped * p["norm.weight"]))
    return x + np.array(outputs)


def rwkv7(x, p, v_first=None):
    """One sequence (L, D) through Block of RWKV-LM. Returns the output and v_first."""

    def norm(v, name):
        return layer_norm(v, 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]

    def shifted(v):
        return np.concatenate([np.zeros((1, D)), v[:-1]]) - v

    def low_rank(v, name, inner=lambda u: u):
        return inner(v @ p[f"att.{name}1"]) @ p[f"att.{name}2"]

    size = D // HEADS
    x = norm(x, "ln0") if v_first is None else x
    a = norm(x, "ln1")
    xr, xw, xk, xv, xa, xg = (a + shifted(a) * p[f"att.x_{name}"][0, 0] for name in "rwkvag")
    r, k, v = (u @ p[f"att.{name}.weight"].T for u, name in ((xr, "receptance"), (xk, "key"), (xv, "value")))
    w = -softplus(-(p["att.w0"][0, 0] + low_rank(xw, "w", np.tanh))) - 0.5
    if v_first is None:
        v_first = v
    else:
        v = v + (v_first - v) * sigmoid(p["att.v0"][0, 0] + low_rank(xv, "v"))
    rate, g = sigmoid(p["att.a0"][0, 0] + low_rank(xa, "a")), low_rank(xg, "g", sigmoid)
    kk = (k * p["att.k_k"][0, 0]).reshape(L, HEADS, size)
    kk = kk / np.sqrt((kk**2).sum(-1, keepdims=True))
    k = k * (1 + (rate - 1) * p["att.k_a"][0, 0])
    r, k, v_heads, decay, rate = (u.reshape(L, HEADS, size) for u in (r, k, v, np.exp(-np.exp(w)), rate))
    state, outputs = np.zeros((HEADS, size, size)), np.zeros((L, D))
    for t in range(L):
        for h in range(HEADS):
            correction = state[h] @ np.outer(-kk[t, h], kk[t, h] * rate[t, h])
            state[h] = state[h] * decay[t, h] + correction + np.outer(v_heads[t, h], k[t, h])
            part = slice(h * size, (h + 1) * size)
            y = layer_norm(state[h] @ r[t, h], 64e-5) * p["att.ln_x.weight"][part] + p["att.ln_x.bias"][part]
            outputs[t, part] = y + (r[t, h] * k[t, h] * p["att.r_k"][h]).sum() * v_heads[t, h]
    x = x + (outputs * g) @ p["att.output.weight"].T
    c = norm(x, "ln2")
    inner = np.maximum((c + shifted(c) * p["ffn.x_k"][0, 0]) @ p["ffn.key.weight"].T, 0) ** 2
    return x + inner @ p["ffn.value.weight"].T, v_first


BLOCKS = {
    "slstm": (slstm, lambda: gg.blocks.SLSTMBlock(D, heads=HEADS)),
    "mlstm": (mlstm, lambda: gg.blocks.MLSTMBlock(D, heads=HEADS)),
    "gated_delta_net": (
        gated_delta_net,
        lambda: gg.blocks.GatedDeltaNetBlock(D, key_heads=2, value_heads=4, key_size=3, value_size=2),
    ),
    "mamba2": (mamba2, lambda: gg.blocks.Mamba2Block(D, heads=4, head_size=3, state_size=2, groups=2)),
    "rwkv7": (rwkv7, lambda: gg.blocks.RWKV7Block(D, head_size=D // HEADS, ranks=(2, 3, 4, 5), first=True)),
}
HEADWISE = {f"slstm_layer.{gate}gate.weight": (HEADS, D // HEADS, D // HEADS) for gate in "fizo"}
PUBLIC = HEADWISE | {
    "slstm_layer.slstm_cell._recurrent_kernel_": (HEADS, D // HEADS, 4 * (D // HEADS)),
    "slstm_layer.slstm_cell._bias_": (4 * D,),
}
"""The shapes in checkpoints of the parameters that a block stores in another form."""


def loaded(name, seed=0):
    """A block in float64 and its parameters: random values with the names and shapes of a public checkpoint."""
    block = BLOCKS[name][1]().double()
    shapes = {key: value.shape for key, value in block.state_dict().items()}
    assert PUBLIC.items() <= shapes.items() or name != "slstm"
    values = {key: noise(seed + k, *shape) / 2 for k, (key, shape) in enumerate(shapes.items())}
    block.load_state_dict(values)
    return block, {key: value.numpy() for key, value in values.items()}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_equals_the_public_equations(name):
    block, values = loaded(name)
    x = noise(99, N, L, D)
    expected = [BLOCKS[name][0](row.numpy(), values) for row in x]
    expected = [row[0] if isinstance(row, tuple) else row for row in expected]
    assert np.allclose(block(x)[0].detach().numpy(), expected, rtol=0, atol=1e-10)


def test_a_later_block_of_rwkv7_mixes_with_the_values_of_the_first():
    first, values = loaded("rwkv7")
    later = gg.blocks.RWKV7Block(D, head_size=D // HEADS, ranks=(2, 3, 4, 5)).double()
    own = {key: noise(k + 50, *value.shape) / 2 for k, (key, value) in enumerate(later.state_dict().items())}
    later.load_state_dict(own)
    x = noise(99, N, L, D)
    y, v_first, _ = first(x)
    y, _, _ = later(y, v_first)
    for row, got in zip(x, y, strict=True):
        expected = rwkv7(row.numpy(), values)
        expected, _ = rwkv7(expected[0], {key: value.numpy() for key, value in own.items()}, expected[1])
        assert np.allclose(got.detach().numpy(), expected, rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match="first=False needs v_first, which the first block returns"):
        later(x)
    unused = {f"att.v{k}": torch.zeros(1) for k in range(3)}  # checkpoints contain them in the first block, too
    first.load_state_dict(first.state_dict() | unused)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_state_continues_the_sequences(name):
    block, _ = loaded(name)
    x, state, parts = noise(99, N, L, D), None, []
    for part in (x[:, :2], x[:, 2:3], x[:, 3:]):
        y, *_, state = block(part, state=state)
        parts.append(y)
    assert torch.allclose(torch.cat(parts, 1), block(x)[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_saved_block_is_in_the_public_format(name):
    block, values = loaded(name)
    x = noise(99, N, L, D)
    block(x)[0].square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in block.parameters() if p.requires_grad)
    saved = block.state_dict()
    assert saved.keys() == values.keys()
    assert all(np.allclose(saved[key].numpy(), value, rtol=0, atol=1e-15) for key, value in values.items())


def test_training_keeps_the_heads_of_an_slstm_apart():
    block, _ = loaded("slstm")
    optimizer = torch.optim.SGD(block.parameters(), 0.1)
    block(noise(99, N, L, D))[0].square().mean().backward()
    optimizer.step()
    weight = block.slstm_layer.recurrent.weight_ih_l0.view(4, HEADS, D // HEADS, HEADS, D // HEADS)
    assert not weight[:, 0, :, 1].any()
    assert not weight[:, 1, :, 0].any()
    assert weight[:, 0, :, 0].all()


@pytest.mark.parametrize("name", BLOCKS)
def test_the_recurrence_of_a_block_runs_on_kernels(name):
    (layer,) = [module for module in BLOCKS[name][1]().modules() if isinstance(module, gg.Recurrent)]
    assert gg.explain(layer, torch.zeros(N, L, layer.input_size)).engine == "cpu"


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("autocast", [False, True])
def test_a_block_in_bfloat16(name, autocast):
    block, _ = loaded(name)
    x = noise(99, N, L, D)
    expected = block(x)[0].detach()
    block = block.float() if autocast else block.bfloat16()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        y = block(x.to(torch.float32 if autocast else torch.bfloat16))[0]
    assert y.dtype == torch.bfloat16 or autocast
    assert (y.double() - expected).abs().max() < 0.1 * expected.abs().max()
    for layer in block.modules():
        if isinstance(layer, gg.Recurrent) and name != "slstm":
            assert layer.weight_ih_l0.dtype == torch.float32


def test_errors_of_sizes():
    with pytest.raises(ValueError, match="value_heads must be a multiple of key_heads, got 3 and 2"):
        gg.blocks.GatedDeltaNetBlock(D, key_heads=2, value_heads=3, key_size=3, value_size=2)
    with pytest.raises(ValueError, match="heads must be a multiple of groups, got 4 and 3"):
        gg.blocks.Mamba2Block(D, heads=4, groups=3)
    with pytest.raises(ValueError, match="hidden_size must be a multiple of head_size, got 12 and 5"):
        gg.blocks.RWKV7Block(D, head_size=5)
