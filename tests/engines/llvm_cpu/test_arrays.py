"""The kernels of cells whose states are arrays: equal to the reference engine, which loops over the steps in torch."""

import inspect

import pytest
import torch

import glassgate as gg
from glassgate.cell_shapes import example_sizes
from glassgate.engines.arrays.blocks import block_of
from glassgate.engines.arrays.engine import program_of_cell
from glassgate.engines.arrays.program import ArrayProgram
from glassgate.engines.llvm_cpu.arrays import engine as array_engine
from glassgate.engines.llvm_cpu.arrays import run as array_run
from glassgate.engines.llvm_cpu.processor import host, pretend
from glassgate.engines.symbolic.arrays.step import array_step
from glassgate.engines.symbolic.arrays.text import format_step, parse_step
from glassgate.engines.symbolic.ops import State, Sum
from tests.engines.fuzz.interpreted import interpreted
from tests.engines.llvm_cpu.array_cells import (
    Decayed,
    DeltaRule,
    Masked,
    Named,
    Projectable,
    Vectors,
)
from tests.engines.test_arrays import STEPS, make_cell

CELLS = {
    "delta rule": (DeltaRule(2, 4, 3), 6),
    "delta rule, wide": (DeltaRule(1, 3, 130), 130),
    "decayed": (Decayed(2, 5, 17), 34),
    "masked": (Masked(2, 3, 4), 8),
    "vectors": (Vectors(), 19),
    "names": (Named(), 6),
    "gates shared by the heads": (gg.cells.Mamba2(2, 3), 8),
    "delta rule, several steps at once": (DeltaRule(1, 16, 17), 17),
    "decayed, several steps at once": (Decayed(2, 16, 16), 32),
    "gates shared by the heads, several steps at once": (gg.cells.Mamba2(2, 16), 32),
}


def _results(layer, x, engine, **options):
    """All results of a call, and the gradients of a weighted sum of them."""
    x = x.clone().requires_grad_()
    with gg.engine(engine):
        output, states = layer(x, **options)
    results = [output, *states]
    total = sum((v * torch.linspace(-1, 1, v.numel(), dtype=v.dtype).view_as(v)).sum() for v in results)
    d = torch.autograd.grad(total, [x, *layer.parameters()], materialize_grads=True)
    return [*(v.detach() for v in results), *d]


def _check(layer, x, tolerance=1e-9, **options):
    for actual, expected in zip(*[_results(layer, x, e, **options) for e in ("cpu", "reference")], strict=True):
        scale = max(1.0, float(expected.abs().amax()) if expected.numel() else 1.0)
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance * scale)


class Squashed(DeltaRule):
    """A memory that is not an affine function of the previous one."""

    def step(self, a, s):
        h, S = super().step(a, s)
        return h, torch.tanh(S)


@pytest.mark.parametrize("name", gg.cells.MATRIX_MEMORIES)
def test_sums_over_the_memory_read_it_before_several_steps(name):
    block = block_of(program_of_cell(gg.cells.MATRIX_MEMORIES[name](2, 16), (5, 32, 0), False), 3)
    assert {"0_h", "1_h"} < {*block.step.state}
    sums = [value for value in block.step.values if isinstance(value.op, Sum) and len(value.inputs[0].axes) == 3]
    assert len(sums) >= 3
    assert all(any(isinstance(factor.op, State) for factor in each.inputs[0].inputs) for each in sums)


def test_single_steps_of_a_memory_that_is_not_affine():
    assert block_of(program_of_cell(Squashed(1, 16, 16), (5, 16, 0), False), 2) is None


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_to_the_reference(name, dtype):
    cell, width = CELLS[name]
    torch.manual_seed(0)
    layer = gg.Recurrent(cell, 5, width, bidirectional=True, dtype=dtype)
    x = torch.randn(9, 3, 5, dtype=dtype)
    _check(layer, x, 1e-9 if dtype == torch.float64 else 2e-4)
    options = {"lengths": torch.tensor([4, 9, 1]), "resets": torch.rand(9, 3) < 0.3}
    _check(layer, x, 1e-9 if dtype == torch.float64 else 2e-4, **options)


def test_projections():
    """Of an output with one number per unit; kernels run all calls, also those with infinities and NaN."""
    layer = gg.Recurrent(Projectable(), 5, 6, num_layers=2, proj_size=2, bidirectional=True, dtype=torch.float64)
    x = torch.randn(6, 3, 5, dtype=torch.float64)
    options = {"lengths": torch.tensor([6, 0, 4]), "resets": torch.rand(6, 3) < 0.3}
    with interpreted():
        _check(layer, x, **options)
        x[2, 0, 1], x[3, 2, 2] = torch.inf, torch.nan
        results = [_results(layer, x, engine, **options)[0] for engine in ("cpu", "reference")]
    assert torch.equal(results[0].isfinite(), results[1].isfinite())
    assert 0 < results[0].isfinite().sum() < results[0].numel()


@pytest.mark.parametrize(
    ("cell", "options"),
    [(DeltaRule(1, 2, 3), {}), (gg.cells.LMU(), {}), (gg.cells.HyperLSTM(), {}), (Projectable(), {"proj_size": 2})],
)
def test_second_derivatives(cell, options):
    layer = gg.Recurrent(cell, 2, 3, dtype=torch.float64, **options)
    x = torch.randn(3, 2, 2, dtype=torch.float64)
    options = {"lengths": [3, 1], "resets": torch.tensor([[False, False], [True, False], [False, False]])}
    second = []
    for engine in ("cpu", "reference"):
        v = x.clone().requires_grad_()
        with gg.engine(engine):
            total = layer(v, **options)[0].pow(3).sum()
        first = torch.autograd.grad(total, [v, *layer.parameters()], create_graph=True)
        second.append(torch.autograd.grad(sum(d.pow(2).sum() for d in first), [v, *layer.parameters()]))
    for actual, expected in zip(*second, strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("lazy", ["negated", "without memory", "batched"])
def test_gradients_that_torch_computes_later_are_read(lazy):
    layer = gg.Recurrent(DeltaRule(1, 2, 3), 2, 3)
    x = torch.randn(3, 2, 2)
    ones = torch.ones(3, 2, 3)
    gradient = {
        "negated": torch._neg_view(ones),
        "without memory": torch._efficientzerotensor(ones.shape),
        "batched": torch.stack([ones, 2 * ones]),
    }[lazy]
    results = []
    for engine in ("cpu", "reference"):
        with gg.engine(engine):
            output = layer(x)[0]
        is_batched = lazy == "batched"
        results.append(torch.autograd.grad(output, [*layer.parameters()], gradient, is_grads_batched=is_batched))
    torch.testing.assert_close(*results)


def test_several_chunks_and_threads(monkeypatch):
    """A chunk of four steps gives the gradients of the reference for 11 steps, on one and on two threads."""
    monkeypatch.setattr(array_run, "MOST_STEPS", 4)
    monkeypatch.setattr(array_run, "SMALLEST_PART", 1)
    layer = gg.Recurrent(DeltaRule(3, 4, 5), 3, 15, dtype=torch.float64)
    x = torch.randn(11, 3, 3, dtype=torch.float64)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            _check(layer, x, lengths=[11, 8, 4])
    finally:
        torch.set_num_threads(threads)


def test_every_width_of_vectors():
    """Processors with shorter vectors and fewer registers compute the same."""
    layer = gg.Recurrent(Decayed(1, 3, 9), 3, 9)
    x = torch.randn(6, 2, 3)
    for width, registers in ((32, 16), (16, 16)):
        if width <= host().width:
            with pretend(host().full_precision._replace(width=width, registers=registers)):
                _check(layer, x, 2e-4)


def test_values_that_are_not_finite():
    """Infinities and NaN reach the same numbers as in torch."""
    layer = gg.Recurrent(DeltaRule(2, 4, 3), 5, 6)
    x = torch.randn(6, 3, 5)
    x[2, 0, 1], x[3, 1, 2] = torch.inf, torch.nan
    with torch.no_grad():
        results = []
        for engine in ("cpu", "reference"):
            with gg.engine(engine):
                results.append(layer(x)[0])
    assert torch.equal(results[0].isfinite(), results[1].isfinite())
    assert results[0].isfinite().all(0).any()
    assert not results[0].isfinite().all()


def test_sums_of_numbers_that_are_too_large():
    """Kernels round a product and a sum once, torch rounds both.

    Of products beyond the largest number, torch therefore adds infinities of both signs, which is NaN. Kernels add the
    next product to an infinity, which stays the same. Both round the equations correctly.
    """
    layer, results = gg.Recurrent(gg.cells.GLA(2, 4), 5, 8), []
    x = torch.randn(6, 3, 5) * 1e19
    with torch.no_grad():
        for engine in ("cpu", "reference"):
            with gg.engine(engine):
                output, final = layer(x)
            results.append(torch.cat([v.flatten() for v in (output, *final)]))
    actual, expected = results
    assert not (actual.isnan() & ~expected.isnan()).any()
    assert torch.equal(actual.isfinite(), expected.isfinite())
    assert not expected.isfinite().all()


def test_autocast_computes_the_recurrence_in_float32():
    """Only the input product and the results are rounded to bfloat16."""
    layer = gg.Recurrent(DeltaRule(2, 4, 3), 5, 6)
    gates = len(layer.weight_ih_l0)
    exact = gg.Recurrent(DeltaRule(2, 4, 3), gates, 6, bias=False)
    x = torch.randn(60, 3, 5)
    with torch.no_grad():
        exact.weight_ih_l0.copy_(torch.eye(gates))
        with torch.autocast("cpu", torch.bfloat16), gg.engine("cpu"):
            output, (_, S) = layer(x)
            pre_activations = torch.nn.functional.linear(x, layer.weight_ih_l0, layer.bias_ih_l0)
        with gg.engine("reference"):
            expected, (_, expected_S) = exact(pre_activations.float())
    for actual, value in ((output, expected), (S, expected_S)):
        assert actual.dtype == torch.bfloat16
        torch.testing.assert_close(actual, value.bfloat16(), rtol=2**-7, atol=1e-6)  # neighbours in bfloat16


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "autocast"])
def test_lower_precision_is_more_accurate_than_the_reference(kind):
    """Layers with parameters in half precision compute in float32. Autocast rounds only the input product."""
    exact = gg.Recurrent(gg.cells.GLA(2, 8), 32, 32, dtype=torch.float64)
    dtype = torch.float32 if kind == "autocast" else getattr(torch, kind)
    layer = gg.Recurrent(exact.cell, 32, 32, dtype=dtype)
    layer.load_state_dict(exact.state_dict())
    exact.load_state_dict(layer.state_dict())
    x = torch.randn(30, 3, 32, dtype=dtype)
    d_output = torch.randn(30, 3, 32)

    def run(own, engine):
        with gg.engine(engine), torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
            output = own(x.to(own.weight_ih_l0.dtype))[0]
        return output, *torch.autograd.grad(output, [*own.parameters()], d_output.to(output.dtype))

    kernels, reference, true = run(layer, "cpu"), run(layer, "reference"), run(exact, "cpu")
    for ours, theirs, value in zip(kernels, reference, true, strict=True):
        assert ours.dtype == theirs.dtype
        assert (ours - value).norm() < (theirs - value).norm() + 1e-3 * value.norm()


RECORDED = {"b": gg.cells.GatedDeltaNet(2, 3), "u": gg.cells.S4D(3)}


@pytest.mark.parametrize(("name", "cell"), RECORDED.items(), ids=str)
def test_recordings_of_edited_cells(name, cell):
    """A recorded gradient is that of the value, wherever the step reads it."""
    layer, recorded = gg.Recurrent(cell, 5, 8, dtype=torch.float64), []
    x = torch.randn(4, 2, 5, dtype=torch.float64)
    for engine in ("cpu", "reference"):
        with interpreted(), gg.engine(engine), gg.edit(layer, {f"layer0.forward.{name}": gg.scale(0.5)}):
            with gg.record(layer) as tape:
                output, _ = layer(x)
            output.square().sum().backward()
        recorded.append((dict(tape), dict(tape.grad)))
    torch.testing.assert_close(*recorded)
    assert all(d.any() for d in recorded[0][1].values())


@pytest.mark.parametrize("name", STEPS)
def test_values_at_any_position(name):
    """Slices, concatenations, rolled, merged and exchanged axes, maxima, and heads that depend on each other."""
    with interpreted():
        layer = gg.Recurrent(make_cell(STEPS[name]), 5, 8, bidirectional=True, dtype=torch.float64)
        _check(layer, torch.randn(4, 3, 5, dtype=torch.float64), lengths=[4, 2, 1], resets=torch.rand(4, 3) < 0.3)


STRUCTURED = [
    name
    for name, cell in inspect.getmembers(gg.cells, inspect.isclass)
    if issubclass(cell, gg.Cell) and name not in gg.cells.MATRIX_MEMORIES and cell().declaration is not None
]
"""The cells that declare axes, besides the matrix memories."""


@pytest.mark.parametrize("name", STRUCTURED)
def test_structured_cells_equal_the_reference(name):
    cell = getattr(gg.cells, name)()
    sizes = example_sizes(cell)
    with interpreted():
        layer = gg.Recurrent(cell, *sizes, dtype=torch.float64)
        assert gg.explain(layer, torch.randn(4, 2, sizes[0], dtype=torch.float64)).engine == "cpu"
        _check(layer, torch.randn(4, 2, sizes[0], dtype=torch.float64), lengths=[4, 2])


def test_matrices_that_are_wider_than_the_registers():
    """Rows of 41 numbers are divided into blocks, and two matrices have the same axes in another order."""
    with interpreted():
        for cell in (gg.cells.AntisymmetricRNN(), gg.cells.CfC(37)):
            layer = gg.Recurrent(cell, 5, 41, dtype=torch.float64)
            _check(layer, torch.randn(3, 2, 5, dtype=torch.float64))


def test_recurrent_dropout_and_zoneout():
    cell = gg.cells.SCRN(3)
    options = {"zoneout": {"h": 0.3, "c": 0.2}, "recurrent_dropout": 0.4, "recurrent_dropout_on": "state"}
    layer = gg.Recurrent(cell, 5, 6, dtype=torch.float64, **options)
    x, results = torch.randn(6, 3, 5, dtype=torch.float64), []
    with interpreted():
        for engine in ("cpu", "reference"):
            torch.manual_seed(1)
            results.append(_results(layer, x, engine, lengths=[6, 4, 1]))
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected)


def test_all_states_and_their_gradients():
    layer = gg.Recurrent(DeltaRule(2, 4, 3), 5, 6, dtype=torch.float64)
    x, results = torch.randn(6, 3, 5, dtype=torch.float64), []
    with interpreted():
        for engine in ("cpu", "reference"):
            with gg.engine(engine):
                states = layer(x, return_states=True)[2]["layer0.forward.S"]
            results.append([states, *torch.autograd.grad(states.square().sum(), [*layer.parameters()])])
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected)


def test_steps_as_text():
    """A step that was read from its text has the same text and kernels."""
    for cell, sizes in ((gg.cells.GRUD(), (9, 4)), (make_cell(STEPS["parts"]), (5, 8)), (gg.cells.RWKV7(2, 3), (5, 8))):
        step = array_step(cell, *sizes)
        again = parse_step(format_step(step))
        assert format_step(again) == format_step(step)
        sources = [ArrayProgram(each).forward for each in (step, again)]
        assert [store.memory for store in sources[0]] == [store.memory for store in sources[1]]


@pytest.mark.matrix
@pytest.mark.parametrize("name", gg.cells.MATRIX_MEMORIES)
def test_the_matrix_memories_equal_the_reference(name):
    layer = gg.Recurrent(gg.cells.MATRIX_MEMORIES[name](2, 3), 5, 8, dtype=torch.float64)
    _check(layer, torch.randn(9, 3, 5, dtype=torch.float64), lengths=[4, 9, 1], resets=torch.rand(9, 3) < 0.3)


def test_large_input_products_run_on_the_kernels(monkeypatch):
    """Values and gradients equal those of the reference engine, without a matrix product of torch."""
    layer = gg.Recurrent(gg.cells.GLA(heads=2, key_size=32), 96, 128, bidirectional=True, dtype=torch.float64)
    x = torch.randn(90, 4, 96, dtype=torch.float64, requires_grad=True)
    results = []
    for name in ("reference", "cpu"):
        with monkeypatch.context() as patch, gg.engine(name):
            if name == "cpu":
                patch.setattr(array_engine, "torch_multiplies_with_mkl", lambda: False)
                patch.setattr(array_engine, "_MIN_ROWS_AGAINST_MKL", 32)  # for processors with 16 registers
                patch.delattr("glassgate.engines.kernels.linear")
            output, final = layer(x, lengths=[90, 80, 0, 70])
        inputs = [x, *layer.parameters()]
        d = torch.autograd.grad(output.square().sum() + final[1].sum(), inputs, retain_graph=True, create_graph=True)
        second = torch.autograd.grad(sum(v.square().sum() for v in d), inputs, retain_graph=True)
        gradients = torch.stack([torch.ones_like(output), output.detach()])
        batched = torch.autograd.grad(output, inputs, gradients, is_grads_batched=True)
        results.append([output, *final, *d, *second, *batched])
    for expected, actual in zip(*results, strict=True):
        scale = max(1, expected.detach().abs().max().item())
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9 * scale)


NORMS = {
    "normalize": lambda k: torch.nn.functional.normalize(k, dim=-1),
    "norm": lambda k: k.norm(dim=-1, keepdim=True),
    "std": lambda k: k.std(-1, keepdim=True),
}


@pytest.mark.parametrize("name", NORMS)
def test_norms_of_zeros_have_the_gradients_of_torch(name):
    def step(a, s):
        return a.v + NORMS[name](a.k).sum(-1, keepdim=True), s.S

    layer = gg.Recurrent(make_cell(step), 5, 8, bias=False, dtype=torch.float64)
    _check(layer, torch.zeros(4, 2, 5, dtype=torch.float64))


@pytest.mark.parametrize("cell", [gg.cells.DeltaNet(2, 3), gg.cells.GatedDeltaNet(2, 3)])
def test_badly_scaled_inputs_have_finite_gradients(cell):
    layer = gg.Recurrent(cell, 4, 8, dtype=torch.float64)
    _check(layer, 1e4 * torch.randn(7, 3, 4, dtype=torch.float64))


@pytest.mark.parametrize("engine", ["cpu", "reference"])
def test_learned_initial_states_that_no_step_reads_have_a_gradient_of_zero(engine):
    layer, x = gg.Recurrent(gg.cells.DeltaNet(2, 3), 4, 8, learn_initial_state=True), torch.randn(3, 2, 4)
    for lengths in (None, [3, 1]):
        layer.zero_grad()
        with gg.engine(engine):
            layer(x, lengths=lengths)[0].sum().backward()
        assert torch.equal(layer.h_0_l0.grad, torch.zeros_like(layer.h_0_l0))
        assert layer.S_0_l0.grad.any()
