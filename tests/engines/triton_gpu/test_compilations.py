"""Calls with other batch sizes and lengths compile no new kernels, except for a few block sizes of kernels B and C."""

from collections import defaultdict
from itertools import product

import pytest
import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime.jit import create_function_from_signature

import glassgate as gg
from glassgate.engines.lowering.backward import backward_pass
from glassgate.engines.lowering.forward import Form, forward_pass
from glassgate.engines.symbolic.step import equations_of
from glassgate.engines.symbolic.trace import build_trace
from glassgate.engines.triton_gpu import launch, passes
from glassgate.engines.triton_gpu.costs import COSTS
from glassgate.engines.triton_gpu.emit import write_step_kernels
from glassgate.engines.triton_gpu.launch import Blocks, KernelChoice
from glassgate.engines.triton_gpu.phases import Phases
from glassgate.engines.triton_gpu.select import Chip, blocks_of, select_kernel
from tests.simulated_gpu import simulated_gpu, to_gpu

LETTERS = {
    "A": KernelChoice("solo", 0.0, Blocks(16, 32, 32)),
    "B": KernelChoice("grid", 0.0, Blocks(16, 16, 32)),
    "C": KernelChoice("steps", 0.0),
}
SAME_BLOCKS = [(1, 1), (1, 3), (5, 1), (16, 2), (3, 40), (16, 33)]
"""Batch sizes and lengths that use the same blocks, but differ in properties on which Triton specialises."""


@pytest.fixture
def compiled(monkeypatch):
    """The kernels that Triton would compile for an H100: by name, a key for each compilation. No kernel runs."""
    backend, keys = make_backend(GPUTarget("cuda", 90, 32)), defaultdict(set)

    class Function:
        def __init__(self, module, interpreted):
            self.function = launch.compile_module.__wrapped__(launch.module_text(module), False)[module[-1].name]
            self.binder = create_function_from_signature(self.function.signature, self.function.params, backend)

        def __getitem__(self, grid):
            def start(*arguments, **options):
                _, specialization, rest = self.binder(*arguments, **options)
                keys[self.function.__name__].add((self.function.cache_key, str(specialization), str(rest)))

            return start

    monkeypatch.delenv("TRITON_INTERPRET")
    monkeypatch.setattr(launch, "triton_function", Function)
    return keys


def train(layer, N, L, lengths=None):
    """Run two training calls: one with a loss of the output, one with a loss of the final state."""
    for part in (0, 1):
        result = layer(to_gpu(torch.zeros(L, N, 3)), lengths=lengths)[part]
        (result[0] if isinstance(result, tuple) else result).sum().backward()


@pytest.mark.parametrize("letter", LETTERS)
def test_batch_sizes_and_lengths_compile_nothing(letter, compiled, monkeypatch):
    monkeypatch.setattr(passes, "select_kernel", lambda *_: LETTERS[letter])
    with simulated_gpu(monkeypatch):
        layer = gg.LSTM(3, 20)._apply(to_gpu)  # 20 is no multiple of 16
        for N, L in SAME_BLOCKS:
            train(layer, N, L)
        before = {name: len(keys) for name, keys in compiled.items()}
        for N, L in ((17, 2), (20, 32), (40, 33), (70, 1), (300, 2)):
            train(layer, N, L)
    after = {name: len(keys) for name, keys in compiled.items()}
    # The gradient of an output that the loss does not read is a row of zeros, with another stride than other rows.
    with_gradient = {"backward_solo", "backward_grid", "backward", "backward_in_graph", "backward_begin"}
    assert before == {name: 2 if name in with_gradient else 1 for name in before}
    # Without a product, kernels have one size of blocks. Those of kernel C with products have 16, 32 or 64 rows.
    assert after == {name: 3 * n if letter == "C" and "begin" not in name else n for name, n in before.items()}


def test_lengths_of_single_rows_compile_nothing(compiled, monkeypatch):
    monkeypatch.setattr(passes, "select_kernel", lambda *_: LETTERS["A"])
    with simulated_gpu(monkeypatch):
        layer = gg.GRU(3, 20)._apply(to_gpu)
        for lengths in ([1], [2, 1], [0, 1], [5, 3, 0]):
            layer(to_gpu(torch.zeros(5, len(lengths), 3)), lengths=torch.tensor(lengths))[0].sum().backward()
    assert {name: len(keys) for name, keys in compiled.items()} == {"forward_solo": 1, "backward_solo": 1}


CHIPS = [Chip(108, 166_912), Chip(132, 232_448), Chip(82, 101_376)]
MAX_PERSISTENT, MAX_STEPS = 3, 4
"""The largest number of compilations of kernels A and B of a pass, and of each kernel C, as docs/gpu.md states."""


def test_all_batch_sizes_and_lengths_together_use_few_blocks():
    most_persistent = most_steps = 0
    for cell, build in product(
        (gg.cells.LSTM(), gg.cells.GRUv3(), gg.cells.LayerNormGRU()), (forward_pass, backward_pass)
    ):
        equations = equations_of(cell)
        phases = Phases(build(equations, build_trace(equations, COSTS), Form(save=True)))
        step_kernels = write_step_kernels(phases, "any", False).all
        for H, dtype, chip in product((64, 768, 1024), (torch.bfloat16, torch.float32), CHIPS):
            persistent, steps = set(), defaultdict(set)
            for N, T in product((*range(1, 70, 3), 128, 256, 512, 5000), (1, 20, 1000)):
                sizes = {"T": T, "N": N, "H": H, "P": H, "heads": 1}
                if (choice := select_kernel(phases, sizes, dtype, chip)).kind != "steps":
                    persistent.add(choice.key)
                for kernel in step_kernels:
                    steps[kernel.name].add(blocks_of(kernel, sizes, dtype, chip))
            most_persistent, most_steps = (
                max(most_persistent, len(persistent)),
                max(most_steps, *map(len, steps.values())),
            )
    assert (most_persistent, most_steps) == (MAX_PERSISTENT, MAX_STEPS)
