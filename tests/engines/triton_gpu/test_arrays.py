"""Cells whose states are arrays on the kernels of a GPU, in Triton's interpreter: equal to the reference engine."""

import pytest
import torch

import glassgate as gg
from glassgate.cell_shapes import example_sizes
from glassgate.engines.arrays import prepared as prepared_arrays
from glassgate.engines.contract import PLAIN_TYPES
from glassgate.engines.triton_gpu.arrays.engine import GPUArrayEngine, GPUArrays
from glassgate.layers import prepared_calls, signature
from tests.compare import check, measure
from tests.engines.llvm_cpu.array_cells import Decayed, DeltaRule, Masked, Named, Projectable, Vectors
from tests.engines.llvm_cpu.test_arrays import STRUCTURED
from tests.engines.test_arrays import STEPS, make_cell
from tests.simulated_gpu import OnGPU, simulated_gpu, to_cpu, to_gpu

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
"""Numbers beyond the size of an axis have no meaning, so that NumPy may warn about them."""

MEMORIES = {name: (cell(2, 3), 5, 8) for name, cell in gg.cells.MATRIX_MEMORIES.items()}
OWN = {
    "delta rule": (DeltaRule(2, 4, 3), 5, 6),
    "decayed": (Decayed(2, 3, 5), 5, 10),
    "masked": (Masked(2, 3, 4), 5, 8),
    "vectors": (Vectors(), 5, 19),
    "names": (Named(), 5, 6),
    "gates shared by the heads": (gg.cells.Mamba2(2, 3), 5, 8),
}
FAST = ("CfC", "GRUD", "LMU", "S4D", "softmax", "maxima", "cumsum", "parts", "merged axes", "heads that mix")
"""The structured cells and the steps that run without `make test-gpu`."""


def marked(names):
    """The names; those not in `FAST` only run in `make test-gpu`."""
    return [pytest.param(name, marks=() if name in FAST else pytest.mark.gpu) for name in names]


@pytest.fixture(autouse=True)
def _short_chunks(monkeypatch):
    monkeypatch.setattr(GPUArrays, "chunk", 2)


def run(cell, sizes, engine, dtype, options=None, resets=True, **arguments):
    """Output, final states and gradients of a layer with both directions, for sequences of unequal length."""
    torch.manual_seed(0)
    layer = gg.Recurrent(cell, *sizes, bidirectional=True, dtype=torch.float64, **(options or {})).to(dtype)
    x = torch.randn(5, 3, sizes[0], dtype=torch.float64).to(dtype).requires_grad_()
    if resets:
        arguments |= {"resets": torch.tensor([[0, 0, 1], [1, 0, 0], [0, 0, 0], [1, 0, 1], [0, 0, 0]]).bool()}
    with gg.engine(engine):
        torch.manual_seed(0)
        output, final, *more = layer(x, **{"lengths": torch.tensor([4, 0, 5]), **arguments})
    final = final if isinstance(final, tuple) else (final,)
    outputs = {"output": output} | {f"final {k}": v for k, v in enumerate(final)}
    outputs |= dict(more[0]) if more else {}
    outputs = {name: v if v.requires_grad else v + 0.0 * x.sum() for name, v in outputs.items()}
    leaves = {"input": x, **{name: p for name, p in layer.named_parameters() if p.numel()}}
    return measure(outputs, leaves)


def compare(cell, *sizes, **arguments):
    """Compare a layer with the reference engine in float64."""
    truth, eager = (run(cell, sizes, "reference", dtype, **arguments) for dtype in (torch.float64, torch.float32))
    check(run(cell, sizes, "triton", torch.float32, **arguments), truth, eager)


@pytest.mark.parametrize("name", [*MEMORIES, *OWN])
def test_cells_equal_the_reference(name):
    compare(*{**MEMORIES, **OWN}[name])


@pytest.mark.parametrize("name", marked(STRUCTURED))
def test_structured_cells_equal_the_reference(name):
    cell = getattr(gg.cells, name)()
    compare(cell, *example_sizes(cell))


@pytest.mark.parametrize("name", marked(STEPS))
def test_values_at_any_position(name):
    compare(make_cell(STEPS[name]), 5, 8)


def test_calls_without_lengths_and_resets():
    compare(DeltaRule(2, 4, 3), 5, 6, lengths=None, resets=False)


def test_all_states_and_noise():
    options = {"zoneout": {"h": 0.3, "c": 0.2}, "recurrent_dropout": 0.4, "recurrent_dropout_on": "state"}
    compare(gg.cells.SCRN(3), 5, 6, options=options, return_states=True)


def test_projections():
    compare(Projectable(), 5, 6, options={"proj_size": 2})


def test_second_derivatives():
    layer = gg.Recurrent(DeltaRule(1, 2, 3), 2, 3)
    second = []
    for engine in ("triton", "reference"):
        x = torch.linspace(-1, 1, 12).view(3, 2, 2).requires_grad_()
        with gg.engine(engine):
            (first,) = torch.autograd.grad(layer(x)[0].pow(3).sum(), x, create_graph=True)
        second.append(torch.autograd.grad(first.square().sum(), [x, *layer.parameters()]))
    torch.testing.assert_close(*second)


def test_kernels_record_what_the_reference_records():
    layer, recorded = gg.Recurrent(gg.cells.MLSTM(2, 3), 5, 8, bidirectional=True), []
    x = torch.randn(4, 3, 5)
    for engine in ("triton", "reference"):
        with gg.engine(engine), gg.record(layer) as tape:
            output, _ = layer(x, lengths=[4, 2, 0])
        output.square().sum().backward()
        recorded.append((dict(tape), dict(tape.grad)))
    torch.testing.assert_close(*recorded, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_layers_in_half_precision(dtype):
    """The loop over time computes in float32."""
    layer = gg.Recurrent(DeltaRule(2, 4, 3), 5, 6, dtype=dtype)
    exact = gg.Recurrent(DeltaRule(2, 4, 3), 5, 6, dtype=torch.float64)
    exact.load_state_dict(layer.state_dict())
    x, results = torch.randn(4, 3, 5, dtype=dtype), []
    for engine, own in (("triton", layer), ("reference", exact)):
        with gg.engine(engine):
            output = own(x.to(own.weight_ih_l0.dtype))[0]
        results.append([output, *torch.autograd.grad(output.sum(), [*own.parameters()])])
    for value, truth in zip(*results, strict=True):
        assert value.dtype is dtype
        assert (value - truth).norm() < 2e-2 * truth.norm()


def test_torch_compile_runs_the_kernels():
    layer = gg.Recurrent(gg.cells.GatedDeltaNet(2, 3), 5, 8, bidirectional=True)
    x, results = torch.randn(4, 3, 5, requires_grad=True), []
    torch._dynamo.reset()
    for run_layer in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        output = run_layer(x, lengths=torch.tensor([4, 1, 2]))[0]
        results.append([output, *torch.autograd.grad(output.square().sum(), [x, *layer.parameters()])])
    for actual, expected in zip(*results, strict=True):
        assert torch.equal(actual, expected)


class Exchange(gg.Cell):
    """A state that takes the value of the other one before the step."""

    gates, state = {"x": ("width",)}, {"h": ("width",), "c": ("width",)}
    recurrent = False

    def step(self, a, s):
        return s.c, torch.tanh(a.x + s.h)


def test_a_state_may_take_the_value_of_another():
    compare(Exchange(), 5, 4)


def test_blocks_that_are_too_large_are_refused_with_the_remedy():
    layer, x = gg.Recurrent(gg.cells.DeltaNet(1, 512), 4, 512), torch.randn(2, 1, 4)
    message = "blocks of 262144 numbers, more than 32768; more heads or fewer units make them smaller"
    with pytest.raises(gg.EngineError, match=message):
        layer(x)


def test_the_source_and_the_kernel_have_names():
    text = gg.source(gg.cells.DeltaNet(), engine="triton")
    assert "def forward(" in text
    assert "def backward(" in text
    assert " S = s_S + " in text
    layer = gg.Recurrent(gg.cells.DeltaNet(2, 3), 5, 8)
    assert "one program per sequence and head" in str(gg.explain(layer, torch.randn(4, 2, 5)))


@pytest.mark.parametrize("options", [{}, {"lengths": torch.tensor([4, 0, 2])}], ids=["", "lengths"])
def test_a_training_call_does_not_wait_for_the_gpu(options, monkeypatch):
    layer, x = gg.Recurrent(gg.cells.MLSTM(2, 3), 5, 8, bidirectional=True), torch.randn(4, 3, 5)
    with gg.engine("reference"):
        expected = layer(x, **options)[0]
    with simulated_gpu(monkeypatch):
        layer._apply(to_gpu)
        output = layer(to_gpu(x), **options)[0]
        output.square().sum().backward()
        assert all(float(to_cpu(v.grad).abs().sum()) > 0 for v in layer.parameters())
    torch.testing.assert_close(to_cpu(output), expected.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"lengths": [4, 0, 2]}], ids=["", "lengths"])
def test_repeated_calls_are_prepared(options, monkeypatch):
    """On a simulated GPU, whose tensors are not plain tensors and whose operations are dispatched in Python."""
    layer, x = gg.Recurrent(gg.cells.MLSTM(2, 3), 5, 8, bidirectional=True), torch.randn(4, 3, 5)
    monkeypatch.setattr(signature, "PLAIN_TYPES", {*PLAIN_TYPES, OnGPU})
    monkeypatch.setattr(prepared_calls, "PLAIN_TYPES", {*PLAIN_TYPES, OnGPU})
    monkeypatch.setattr(prepared_calls, "is_eager", lambda: True)
    monkeypatch.setattr(prepared_arrays, "readable", lambda tensors: tensors)
    results, prepared = [], []
    prepare = GPUArrayEngine.prepare
    monkeypatch.setattr(GPUArrayEngine, "prepare", lambda *args: prepared.append(prepare(*args)) or prepared[-1])
    with simulated_gpu(monkeypatch):
        layer._apply(to_gpu)
        for _ in range(3):
            output, final = layer(to_gpu(x), **options)
            output.square().sum().backward()
            results.append([to_cpu(v) for v in (output, *final, *(w.grad for w in layer.parameters()))])
            layer.zero_grad()
    assert len(prepared) == 1
    assert prepared[0] is not None
    for again in results[1:]:
        torch.testing.assert_close(again, results[0])


@pytest.mark.parametrize(("cell", "sizes"), [(gg.cells.DeltaNet(2, 3), (5, 8)), (gg.cells.GRUD(), (6, 4))])
def test_streams(cell, sizes, monkeypatch):
    layer, x = gg.Recurrent(cell, *sizes), torch.randn(3, 2, sizes[0])
    with torch.no_grad(), gg.engine("reference"):
        expected = layer(x)[0]
    with simulated_gpu(monkeypatch):
        layer._apply(to_gpu)
        stream, on_gpu = layer.stream(2), to_gpu(x)
        steps = torch.stack([to_cpu(stream.step(v)) for v in on_gpu])
        stream.reset()
        block = to_cpu(stream.run(on_gpu))
    for actual in (steps, block):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
