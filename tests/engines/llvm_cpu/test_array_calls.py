"""Streams, sessions, recordings, torch.compile and exports of layers whose states are arrays run the kernels."""

import pytest
import torch
from torch.utils._pytree import tree_map_only

import glassgate as gg
from glassgate.engines import reference
from glassgate.engines.contract import Direction, Steps
from glassgate.engines.kernels import KernelEngine
from glassgate.engines.llvm_cpu.processor import host
from tests.engines.llvm_cpu.array_cells import (
    DeltaRule,
    OneValue,
    Projectable,
    Surprised,
)
from tests.layers.test_parameters import Wrapped


def test_tensors_that_override_operations_run_on_the_reference_engine():
    weights = {"weight_ih": torch.randn(8, 2)}
    direction = Direction(DeltaRule(1, 2, 3), weights, (torch.zeros(2, 3), torch.zeros(2, 6)), False)
    engine, x = KernelEngine("cpu"), torch.randn(6, 2)
    assert engine.why_not(Steps(x, None, None), [direction]) is None
    reason = engine.why_not(Steps(Wrapped(x), None, None), [direction])
    assert "overrides torch's operations" in str(reason)


def test_the_cpu_engine_is_preferred_and_gives_reasons():
    layer = gg.Recurrent(DeltaRule(2, 4, 3), 5, 6)
    x = torch.randn(4, 2, 5)
    assert gg.explain(layer, x).engine == "cpu"

    class Sorted(DeltaRule):
        def step(self, a, s):
            return a.v.sort(-1)[0], s.S

    other = gg.Recurrent(Sorted(2, 4, 3), 5, 6)
    assert "torch.sort" in gg.explain(other, x).reasons["cpu"]
    with pytest.warns(UserWarning, match="cell Sorted: step uses torch.sort"):
        other(x)


FROZEN = {
    "two layers": lambda: gg.Recurrent(gg.cells.GatedDeltaNet(2, 3), 4, 4, num_layers=2),
    "residual, float64": lambda: gg.Recurrent(
        gg.cells.MLSTM(2, 3), 4, 4, num_layers=2, residual=True, dtype=torch.float64
    ),
    "the input has more columns than the weights": lambda: gg.Recurrent(gg.cells.GRUD(), 6, 5),
    "recurrent": lambda: gg.Recurrent(gg.cells.HyperLSTM(), 5, 8),
    "projected": lambda: gg.Recurrent(Projectable(), 5, 8, num_layers=2, proj_size=3),
    "bfloat16": lambda: gg.Recurrent(gg.cells.RetNet(2, 3), 4, 4, dtype=torch.bfloat16),
}


@pytest.mark.parametrize("name", FROZEN)
def test_streams_run_native_code(name):
    """Steps and blocks of a stream give the outputs of a call, also after their states were replaced."""
    torch.manual_seed(0)
    layer = FROZEN[name]()
    x = torch.randn(6, 3, layer.input_size, dtype=layer.weight_ih_l0.dtype)
    with torch.no_grad(), gg.engine("reference"):
        expected = layer(x)[0]
    with gg.engine("cpu"):
        stream = layer.stream(3)
    tolerance = 2e-2 if x.dtype is torch.bfloat16 else None
    for _ in range(2):
        outputs = [stream.step(v).clone() for v in x]
        torch.testing.assert_close(torch.stack(outputs), expected, rtol=tolerance, atol=tolerance)
        stream.reset()
        blocks = torch.cat([stream.run(x[:4]).clone(), stream.run(x[4:])])
        torch.testing.assert_close(blocks, expected, rtol=tolerance, atol=tolerance)
        stream.reset()


RECORDED = {
    "lengths and resets": (lambda: gg.Recurrent(gg.cells.MLSTM(2, 4), 6, 8, bidirectional=True), True),
    "two layers": (lambda: gg.Recurrent(gg.cells.GatedDeltaNet(2, 4), 8, 8, num_layers=2, residual=True), False),
    "inputs and zoneout": (lambda: gg.Recurrent(gg.cells.GRUD(), 6, 5, zoneout={"h": 0.4}), True),
    "recurrent": (lambda: gg.Recurrent(gg.cells.HyperLSTM(), 5, 8), True),
    "projected": (lambda: gg.Recurrent(Projectable(), 5, 6, proj_size=2, zoneout={"c": 0.4}), True),
    "a variable that no state reads": (lambda: gg.Recurrent(Surprised(2, 3, 4), 5, 8), True),
    "a variable of all heads": (lambda: gg.Recurrent(OneValue(), 5, 8), True),
}


@pytest.mark.parametrize("name", RECORDED)
def test_kernels_record_what_the_reference_records(name):
    make, is_ragged = RECORDED[name]
    layer = make().double()
    x = torch.randn(6, 3, layer.input_size, dtype=torch.float64)
    initial = [
        torch.randn(len(layer.glassgate.parts), 3, *form.shape, dtype=torch.float64, requires_grad=True)
        for form in layer.glassgate.parts[0].forms.values()
    ]
    options = {"lengths": [6, 4, 0], "resets": torch.rand(6, 3) < 0.3} if is_ragged else {}
    recorded = []
    for engine in ("cpu", "reference"):
        torch.manual_seed(1)
        with gg.engine(engine), gg.record(layer) as tape:
            output, final = layer(x, tuple(initial) if len(initial) > 1 else initial[0], **options)
        last = final if isinstance(final, tuple) else (final,)
        (output.square().sum() + sum(v.sin().sum() for v in last)).backward()
        labels = [label for label, *_ in tape.directions()]
        recorded.append((dict(tape), dict(tape.grad), {label: tape.steps_with_gradient(label) for label in labels}))
    torch.testing.assert_close(*recorded)
    assert len(recorded[0][0]) > len(last)


def test_sessions_of_cells_that_declare_axes():
    """Of the weights, only those of the input are quantised. A session has the results of the layer's general calls."""
    layer = gg.Recurrent(gg.cells.DeltaNet(2, 8), 32, 32, num_layers=2, bidirectional=True)
    x, resets = torch.randn(5, 3, 32), torch.rand(5, 3) < 0.3
    with torch.no_grad():
        expected, final = layer(x, lengths=[5, 3, 1], resets=resets)
    errors = {}
    for precision in ("float32", *(["bfloat16"] if host().bfloat16 else []), "int8"):
        session = gg.freeze(layer, precision)
        output, (h, S) = session(x, lengths=[5, 3, 1], resets=resets)
        assert (h.shape, S.shape) == (final[0].shape, final[1].shape)
        errors[precision] = float((output - expected).norm() / expected.norm())
    assert errors["float32"] < 1e-6 < errors.get("bfloat16", 0.001) < 0.01 < errors["int8"] < 0.05


def test_many_sequences_with_large_matrices_run_in_torch():
    layer = gg.Recurrent(gg.cells.FastRNN(), 4, 256)
    assert [gg.explain(layer, torch.randn(2, N, 4)).engine for N in (64, 128)] == ["cpu", "reference"]


@pytest.mark.parametrize("cell", [gg.cells.GatedDeltaNet(2, 3), gg.cells.CfC(4)], ids=["heads", "recurrent weights"])
def test_torch_compile_runs_the_kernels(cell, monkeypatch):
    """A compiled layer gives the results of the kernels, bit for bit."""
    layer = gg.Recurrent(cell, 5, 8, bidirectional=True, zoneout={"h": 0.2})
    x = torch.randn(6, 3, 5, requires_grad=True)
    options = {"lengths": torch.tensor([6, 2, 4]), "resets": torch.rand(6, 3) < 0.3}
    torch._dynamo.reset()
    compiled, results = torch.compile(layer, fullgraph=True, backend="aot_eager"), []
    for run in (layer, compiled):
        torch.manual_seed(0)
        output, states = run(x, **options)
        total = sum((v * torch.linspace(-1, 1, v.numel()).view_as(v)).sum() for v in (output, *_flat(states)))
        results.append([output, *_flat(states), *torch.autograd.grad(total, [x, *layer.parameters()])])
        monkeypatch.setattr(reference, "run", None)  # a compiled layer that does not run the kernels fails
    for actual, expected in zip(*results, strict=True):
        assert torch.equal(actual, expected)


def _flat(states):
    return states if isinstance(states, tuple) else (states,)


class Checked(torch.fx.Interpreter):
    """Runs a graph and checks each of our operators in it."""

    def call_function(self, target, args, kwargs):
        if "glassgate" in str(target):
            learns = target is torch.ops.glassgate.layer.default
            leaves = tree_map_only(torch.Tensor, lambda v: v.detach().requires_grad_(learns), args)
            torch.library.opcheck(target, leaves, kwargs)
        return super().call_function(target, args, kwargs)


FACTOR = 1.0


class Scaled(gg.Cell):
    gates, state, unit = {"n": ("unit",)}, {"h": ("unit",)}, 3
    recurrent = False

    def step(self, a, s):
        return torch.tanh(a.n) * FACTOR + s.h.mean(-1, keepdim=True)


def test_a_graph_is_compiled_again_when_its_cell_changes(monkeypatch):
    torch._dynamo.reset()
    layer, x = gg.Recurrent(Scaled(), 2, 3), torch.randn(4, 2, 2)
    with gg.engine("cpu"):
        compiled = torch.compile(layer, backend="eager", fullgraph=True)
        before = compiled(x)[0]
        monkeypatch.setitem(globals(), "FACTOR", 2.0)
        torch.testing.assert_close(compiled(x)[0], 2 * before)


@pytest.mark.filterwarnings("ignore:.isinstance.treespec", "ignore:The .grad attribute")  # of torch's own checks
def test_torch_export_with_any_length():
    layer = gg.Recurrent(gg.cells.RetNet(2, 3), 5, 8).eval()
    length = torch.export.Dim("L", min=2, max=1000)
    program = torch.export.export(layer, (torch.randn(6, 3, 5),), dynamic_shapes=({0: length},))
    x = torch.randn(150, 3, 5)
    for each in (program, program.run_decompositions({})):
        assert any("glassgate.layer" in str(node.target) for node in each.graph.nodes)
        assert torch.equal(Checked(each.module()).run(x)[0], layer(x)[0])


@pytest.mark.parametrize("name", gg.cells.MATRIX_MEMORIES)
def test_the_matrix_memories_have_kernels(name):
    layer = gg.Recurrent(gg.cells.MATRIX_MEMORIES[name](2, 3), 5, 8)
    assert gg.explain(layer, torch.randn(4, 2, 5)).engine == "cpu"
