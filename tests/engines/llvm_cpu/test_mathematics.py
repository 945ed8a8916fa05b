"""The mathematical functions of vectors, compared with torch: errors, and results for NaN and infinity."""

from array import array

import pytest
import torch

from glassgate.engines.llvm_cpu.compile import compile_module, load
from glassgate.engines.llvm_cpu.processor import host
from glassgate.engines.llvm_cpu.simd.instructions import words
from glassgate.engines.llvm_cpu.simd.mathematics import FUNCTIONS
from glassgate.engines.llvm_cpu.simd.translate import translate
from glassgate.engines.llvm_cpu.simd.vector import memory_functions

WIDTHS = [(bits, width * 8 // bits) for bits in (32, 64) for width in (16, 32, 64) if width <= host().width]
TORCH = {
    "absolute": torch.abs,
    "round_even": torch.round,
    "power": torch.pow,
}
EXACT = {"fmod", "sqrt", "absolute", "sign", "floor", "ceil", "round_even", "trunc", "minimum", "maximum"}
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    float("inf"),
    -float("inf"),
    float("nan"),
    1e-30,
    -1e-30,
    88.5,
    -88.5,
    700.0,
    -700.0,
    1e30,
    -1e30,
    0.5,
]


APPLY = """
def apply(address):
    job = words(address)
    x, y, out, n = job[0], job[1], job[2], job[3]
    for at in range(0, n, LANES):
        live = n - at
        store(out, at, live, function({operands}))
"""


def compiled(function, arguments, bits, lanes):
    """Compile a function of one or two vectors. Return a function of tensors that applies it to all elements."""
    operands = ", ".join(f"load({name}, at, live)" for name in "xy"[:arguments])
    names = memory_functions(bits, lanes)._asdict() | {"words": words, "LANES": lanes, "function": function}
    apply = load(compile_module(translate(APPLY.format(operands=operands), "apply", names)), "apply")

    def run(*tensors):
        out = torch.full_like(tensors[0], 7.0)
        job = array("q", [tensors[0].data_ptr(), tensors[-1].data_ptr(), out.data_ptr(), out.numel()])
        apply(job.buffer_info()[0])
        return out

    return run


@pytest.mark.parametrize(("bits", "lanes"), WIDTHS)
@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n != "where"])
def test_error_and_special_values(name, bits, lanes):
    dtype = torch.float32 if bits == 32 else torch.float64
    torch_function = TORCH.get(name) or getattr(torch, name)
    arguments = 2 if name in ("minimum", "maximum", "power", "fmod") else 1
    function = compiled(FUNCTIONS[name], arguments, bits, lanes)
    torch.manual_seed(0)
    x = torch.cat([torch.linspace(-20, 20, 4001), torch.randn(2000), torch.randn(1000) * 1e-3]).to(dtype)
    if name in ("log", "sqrt", "rsqrt", "log1p"):
        x = x.abs()
    others = (torch.randn(len(x), dtype=dtype),) if arguments == 2 else ()
    if name == "power":
        x = x.abs() + 0.1
    actual, truth = function(x, *others), torch_function(x.double(), *(o.double() for o in others))
    scale = torch.finfo(dtype).eps * (truth.abs() + (1.0 if name in ("sin", "cos") else 1e-30))
    assert ((actual - truth).abs() / scale).max() <= (1.0 if name in EXACT else 4.0)
    special = torch.tensor(SPECIAL, dtype=dtype)
    others = (special.flip(0).contiguous(),) if arguments == 2 else ()
    torch.testing.assert_close(
        function(special, *others), torch_function(special, *others), equal_nan=True, rtol=1e-5, atol=1e-30
    )


@pytest.mark.parametrize(("bits", "lanes"), WIDTHS)
def test_magnitude_of_tanh_is_at_most_one(bits, lanes):
    x = torch.linspace(4, 25, 40001, dtype=torch.float32 if bits == 32 else torch.float64)
    tanh = compiled(FUNCTIONS["tanh"], 1, bits, lanes)
    assert max(tanh(x).max(), -tanh(-x).min()) == 1.0
