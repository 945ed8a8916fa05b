"""Kernels for narrower vector registers than those of this processor compute the same results."""

import pytest
import torch

import glassgate as gg
from glassgate.engines.llvm_cpu.processor import Processor, host, pretend
from tests.compare import check, measure, noise

SSE, NEON, AVX2, AVX512 = Processor(16, 16), Processor(16, 32), Processor(32, 16), Processor(64, 32)


def results(layer, dtype):
    layer.to(dtype)
    x = noise(1, 5, 3, 4).to(dtype).requires_grad_()
    output, state = layer(x)
    state = state if isinstance(state, tuple) else (state,)
    return measure({"output": output} | {f"state {k}": v for k, v in enumerate(state)}, dict(layer.named_parameters()))


@pytest.mark.parametrize("processor", [p for p in (SSE, NEON, AVX2, AVX512) if p.width <= host().width], ids=str)
@pytest.mark.parametrize(("layer", "dtype"), [("LSTM", torch.float32), ("GRU", torch.float64)])
def test_results_for_each_register_width(processor, layer, dtype):
    torch.manual_seed(0)
    layer = getattr(gg, layer)(4, 19)
    with gg.engine("reference"):
        truth, eager = results(layer, torch.float64), results(layer, dtype)
    with gg.engine("cpu"), pretend(processor):
        check(results(layer, dtype), truth, eager if dtype == torch.float32 else None)
