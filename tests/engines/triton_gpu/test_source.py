"""`gg.source` for Triton: the equations of a cell with the author's names, as the text of a module."""

import ast
import re

import pytest
import torch

import glassgate as gg
from glassgate.engines.contract import Direction, Steps
from glassgate.engines.triton_gpu.backend import GPU, why_unsupported

CELLS = [gg.cells.LSTM(), gg.cells.GRU(), gg.cells.GRUv3(), gg.cells.LayerNormLSTM(), gg.cells.MinGRU()]


def names(text: str) -> list[str]:
    return [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize("cell", CELLS, ids=repr)
def test_gates_have_their_names(cell):
    text = gg.source(cell, engine="triton")
    for gate in cell.gates:
        assert f" {gate} = " in text


def test_the_source_contains_the_equations():
    text = gg.source(gg.cells.LSTM(), engine="triton")
    assert "c = f * c_prev + i * g" in text
    assert "h = o * tanh(c)" in text


def test_there_is_one_kernel_per_phase():
    assert names(gg.source(gg.cells.LSTM(), engine="triton"))[2:] == [
        "forward_begin",
        "forward",
        "backward_begin",
        "backward",
    ]
    gru_v3 = names(gg.source(gg.cells.GRUv3(), engine="triton"))
    assert [name for name in gru_v3 if name.startswith("forward")] == ["forward_begin", "forward_1", "forward_2"]
    normalised = names(gg.source(gg.cells.LayerNormLSTM(), engine="triton"))
    assert "forward_products" in normalised  # a program that owns whole rows computes the sums
    without_products = names(gg.source(gg.cells.MinGRU(), engine="triton"))
    assert "forward_begin" not in without_products


def test_a_state_may_have_the_name_of_a_kernel_variable():
    class Row(gg.Cell):
        gates = ("t",)
        state = ("row", "seq")

        def step(self, a, s):
            return torch.tanh(a.t) + s.seq, s.row

    text = gg.source(Row(), engine="triton")
    assert "row_ = " in text
    layer, x = gg.Recurrent(Row(), 3, 4), torch.randn(5, 2, 3)
    output = layer(x)[0]
    with gg.engine("reference"):
        torch.testing.assert_close(output, layer(x)[0])


@pytest.mark.parametrize(
    ("device", "rocm", "installed", "reason"),
    [
        ("mps", False, True, r"Triton has no backend for Apple GPUs \(MPS\)"),
        ("cuda", True, True, r"have not been tested on AMD GPUs \(ROCm\)"),
        ("xpu", False, True, "run on CUDA GPUs, and the input is on xpu"),
        ("cuda", False, False, r"pip install glassgate\[gpu\]"),
    ],
)
def test_other_devices_are_refused_with_the_reason(device, rocm, installed, reason):
    assert re.search(reason, why_unsupported(torch.device(device), rocm, installed))


def test_old_gpus_are_refused_with_the_reason():
    device = torch.device("cuda")
    assert re.search(r"compute capability 8\.0 .* this one has 7\.5", why_unsupported(device, False, True, (7, 5)))
    assert why_unsupported(device, False, True, (8, 0)) is None


def test_float64_is_refused():
    with pytest.raises(gg.EngineError, match=r"float32, bfloat16 or float16, and the input is torch\.float64"):
        gg.LSTM(3, 4, dtype=torch.float64)(torch.randn(5, 2, 3, dtype=torch.float64))


def test_weights_that_32_bits_cannot_index_are_refused():
    weights = {"weight_ih": torch.zeros(1).expand(1 << 16, 1 << 15)}
    direction = Direction(gg.cells.RNN(), weights, (torch.zeros(1, 1 << 16),), False)
    reason = GPU().why_not(Steps(torch.zeros(1, 1 << 15), None, None), [direction])
    assert str(reason) == "Triton kernels index weights with 32 bits, and a weight has 2147483648 elements"


def test_the_cpu_is_refused_without_the_interpreter(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET")
    with pytest.raises(gg.EngineError, match="run on CUDA GPUs, and the input is on the CPU"):
        gg.LSTM(3, 4)(torch.randn(5, 2, 3))
