"""Matrix memories and blocks, compared with the packages of their authors and with transformers, in PyTorch on the CPU.

Matrix memories: the `naive` recurrences of flash-linear-attention, and the native step of mlstm-kernels. Blocks:
transformers, tirex-ts and xlstm, with the same state dict. Their code converts numbers to float32; where a comparison
is in float64, its source is changed first.
"""

import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

import glassgate as gg
from tests.compare import noise

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(importlib.util.find_spec("fla") is None, reason="`make clients` installs the packages"),
    pytest.mark.filterwarnings("ignore"),
]
N, L, HEADS, KEY, VALUE = 2, 12, 2, 4, 3


def folder(package: str) -> Path:
    """The folder of an installed package, which is not imported: some packages import CUDA kernels."""
    spec = importlib.util.find_spec(package)
    return Path(spec.submodule_search_locations[0])


def in_float64(file: Path) -> SimpleNamespace:
    """The functions of a file, with float64 for float32."""
    text = file.read_text("utf-8").replace(".float()", ".double()").replace("torch.float32", "torch.float64")
    text = text.replace("torch.float)", "torch.float64)").replace("dtype=torch.float,", "dtype=torch.float64,")
    names: dict = {"__name__": file.stem}
    exec(compile(text, str(file), "exec"), names)
    return SimpleNamespace(**names)


def naive(name: str) -> SimpleNamespace:
    return in_float64(folder("fla") / "ops" / name / "naive.py")


def unit(v):
    return F.normalize(v, dim=-1)


def linear_attention(g, p):
    phi = [F.elu(g[k]) + 1 for k in "qk"]
    return naive("linear_attn").naive_recurrent_linear_attn(*phi, g["v"], normalize=True, scale=1.0)[0]


def retention(g, p):
    return naive("retention").naive_retention(*(g[k].transpose(1, 2) for k in "qkv")).transpose(1, 2) * KEY**0.5


def gla(g, p):
    return naive("gla").naive_recurrent_gla(g["q"], g["k"], g["v"], F.logsigmoid(g["f"]) / 16)[0] * KEY**0.5


def hgrn2(g, p):
    f = torch.sigmoid(g["f"])
    return naive("gla").naive_recurrent_gla(F.silu(g["q"]), 1 - f, g["v"], f.log())[0] * KEY**0.5


def mamba2(g, p):
    t = F.softplus(g["t"])
    decay = (-p["A"].exp() * t)[..., None].expand(*t.shape, KEY)
    q, k = (g[name][:, :, None].expand(N, L, HEADS, KEY) for name in "CB")
    h = naive("gla").naive_recurrent_gla(q, k, t[..., None] * g["v"], decay)[0]
    return h * KEY**0.5 + p["D"][:, None] * g["v"]


def delta_net(g, p):
    values = unit(F.silu(g["q"])), unit(F.silu(g["k"])), g["v"], torch.sigmoid(g["b"])
    h, _ = naive("delta_rule").delta_rule_recurrence(*(v.transpose(1, 2) for v in values))
    return h.transpose(1, 2) * KEY**0.5


def gated_delta_net(g, p):
    values = unit(F.silu(g["q"])), unit(F.silu(g["k"])), F.silu(g["v"]), torch.sigmoid(g["b"])
    decay = -p["A"].exp() * F.softplus(g["f"])
    return naive("gated_delta_rule").naive_recurrent_gated_delta_rule(*values, decay)[0] * KEY**0.5


def mlstm(g, p):
    step = in_float64(folder("mlstm_kernels") / "torch/recurrent/native_step.py").mlstm_recurrent_step__native_fw
    state, outputs = (torch.zeros(N, HEADS, KEY, VALUE), torch.zeros(N, HEADS, KEY), torch.zeros(N, HEADS, 1)), []
    state = tuple(v.double() for v in state)
    for t in range(L):
        i, f = (g[name][:, t, :, None] for name in "if")
        h, state = step(*state, *(g[k][:, t] for k in "qkv"), i, f, eps=0.0, dtype_state=torch.float64)
        outputs.append(h)
    return torch.sigmoid(g["o"]) * torch.stack(outputs, 1)


MEMORIES = {
    "LinearAttention": linear_attention,
    "RetNet": retention,
    "GLA": gla,
    "HGRN2": hgrn2,
    "Mamba2": mamba2,
    "DeltaNet": delta_net,
    "GatedDeltaNet": gated_delta_net,
    "MLSTM": mlstm,
}


@pytest.mark.parametrize("name", MEMORIES)
def test_a_memory_equals_the_public_recurrence(name: str) -> None:
    cell = gg.cells.MATRIX_MEMORIES[name](HEADS, KEY)
    layer = gg.Recurrent(cell, 5, HEADS * VALUE, batch_first=True, dtype=torch.float64)
    x = noise(1, N, L, 5)
    with torch.no_grad():
        output = layer(x)[0].unflatten(-1, (HEADS, VALUE))
        sizes = {"heads": HEADS, "key_size": KEY, "value_size": VALUE}
        shapes = {gate: [sizes[axis] for axis in each.axes] for gate, each in cell.declaration.gates.items()}
        counts = [int(torch.Size(shape).numel()) for shape in shapes.values()]
        blocks = F.linear(x, layer.weight_ih_l0, layer.bias_ih_l0).split(counts, -1)
        gates = {g: v.unflatten(-1, shape) for (g, shape), v in zip(shapes.items(), blocks, strict=True)}
        expected = MEMORIES[name](gates, {p: getattr(layer, f"{p}_l0") for p in cell.parameters})
    # fla adds 1e-10 to the denominator of linear attention.
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-9 if name == "LinearAttention" else 1e-10)


def qwen3_next(monkeypatch: pytest.MonkeyPatch) -> tuple:
    from transformers.models.qwen3_next import modeling_qwen3_next as public

    # With fla installed, the wrapped function would call its CUDA kernel.
    plain = inspect.unwrap(public.torch_chunk_gated_delta_rule)
    monkeypatch.setattr(public, "torch_chunk_gated_delta_rule", plain)

    config = public.Qwen3NextConfig(
        hidden_size=32,
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=6,
        num_hidden_layers=1,
        layer_types=["linear_attention"],
    )
    ours = gg.blocks.GatedDeltaNetBlock(32, key_heads=2, value_heads=4, key_size=8, value_size=6)
    return ours, public.Qwen3NextGatedDeltaNet(config, 0)


def mamba2_block(monkeypatch: pytest.MonkeyPatch) -> tuple:
    from transformers.models.mamba2 import modeling_mamba2 as public

    config = public.Mamba2Config(
        num_heads=4, head_dim=16, hidden_size=32, state_size=8, n_groups=2, chunk_size=16, num_hidden_layers=1
    )
    return gg.blocks.Mamba2Block(32, heads=4, head_size=16, state_size=8, groups=2), public.Mamba2Block(config, 0)


def without_init(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Let packages be imported without their __init__, which needs models or CUDA."""
    root = folder(packages[0])
    for name in packages:
        module = ModuleType(name)
        module.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        monkeypatch.setitem(sys.modules, name, module)


def tirex(monkeypatch: pytest.MonkeyPatch) -> tuple:
    without_init(monkeypatch, "tirex", "tirex.models", "tirex.models.slstm")
    util = ModuleType("tirex.util")
    util.dataclass_from_dict, util.round_up_to_next_multiple_of = None, lambda x, m: int((x + m - 1) // m * m)
    monkeypatch.setitem(sys.modules, "tirex.util", util)
    from tirex.models.slstm import block, cell

    def in_float32(self, x, state):  # the package computes in bfloat16
        bias = self._bias_.reshape(4, 4, -1).permute(1, 0, 2).reshape(-1)
        return self._impl_forward_torch(x.view(*x.shape[:2], -1), state, self._recurrent_kernel_, bias)

    monkeypatch.setattr(cell.sLSTMCell, "_impl_torch", in_float32)
    return gg.blocks.SLSTMBlock(32, heads=4), block.sLSTMBlock(cell.sLSTMBlockConfig(32, 4), "torch")


def xlstm(monkeypatch: pytest.MonkeyPatch) -> tuple:
    without_init(monkeypatch, "xlstm")
    from xlstm.xlstm_large import model as public

    config = public.xLSTMLargeConfig(
        embedding_dim=32,
        num_heads=4,
        num_blocks=1,
        vocab_size=8,
        return_last_states=True,
        mode="inference",
        chunkwise_kernel="chunkwise--native_autograd",
        sequence_kernel="native_sequence__native",
        step_kernel="native",
        autocast_kernel_dtype="float32",
    )
    return gg.blocks.MLSTMBlock(32, heads=4), public.mLSTMBlock(config)


@pytest.mark.parametrize("build", [qwen3_next, mamba2_block, tirex, xlstm])
def test_a_block_equals_the_public_one(build, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, public = build(monkeypatch)
    with torch.no_grad():
        for number, (name, value) in enumerate(public.named_parameters()):
            value.copy_(noise(number, *value.shape).float() * (1.0 if "A_log" in name else 0.3))
        ours.load_state_dict(public.state_dict())
        assert ours.state_dict().keys() == public.state_dict().keys()
        x = noise(99, 2, 70, 32).float()
        expected = public.eval()(x)
        expected = expected[0] if isinstance(expected, tuple) else expected
        torch.testing.assert_close(ours(x)[0], expected, rtol=1e-4, atol=3e-5)
