"""Kernels A and B, the order of programs, recordings and compiled graphs, in Triton's interpreter."""

from types import SimpleNamespace

import pytest
import torch

import glassgate as gg
from glassgate.engines.contract import Direction
from glassgate.engines.lowering.backward import backward_pass
from glassgate.engines.lowering.forward import Form, forward_pass
from glassgate.engines.plan import format_layer, format_plans, operands_of
from glassgate.engines.symbolic.step import equations_of
from glassgate.engines.symbolic.trace import build_trace
from glassgate.engines.torch_op import operators
from glassgate.engines.triton_gpu import graphs, launch, passes
from glassgate.engines.triton_gpu.costs import COSTS
from glassgate.engines.triton_gpu.emit import write_step_kernels
from glassgate.engines.triton_gpu.kernel import Kernel
from glassgate.engines.triton_gpu.launch import Blocks, KernelChoice, Launch, OtherArguments, options_with_fewest_spills
from glassgate.engines.triton_gpu.phases import Phases
from glassgate.engines.triton_gpu.select import Chip, blocks_of, estimate_solo, select_kernel
from tests.compare import check
from tests.engines.triton_gpu.test_layers import in_gpu, run

A = KernelChoice("solo", 0.0, Blocks(16, 16, 16))
ONE = KernelChoice("grid", 0.0, Blocks(16, 16, 16))
CHUNKS = KernelChoice("grid", 0.0, Blocks(16, 32, 16), 2)
CELLS = [gg.cells.LSTM(), gg.cells.GRUv3()]


@pytest.mark.parametrize("choice", [A, ONE, CHUNKS], ids=["A", "B", "B in two chunks"])
@pytest.mark.parametrize("cell", CELLS, ids=repr)
def test_persistent_kernels_equal_the_reference(cell, choice, monkeypatch):
    monkeypatch.setattr(passes, "select_kernel", lambda *_: choice)
    size = 20 if choice is CHUNKS else 6
    truth, eager = (run(cell, "reference", dtype, hidden_size=size) for dtype in (torch.float64, torch.float32))
    check(run(cell, "triton", torch.float32, hidden_size=size), truth, eager)


@pytest.mark.parametrize("cell", [gg.cells.SLSTM(heads=2), gg.cells.LayerNormGRU()], ids=repr)
def test_one_program_may_own_a_head_or_whole_rows(cell, monkeypatch):
    monkeypatch.setattr(passes, "select_kernel", lambda *_: A)
    check(
        run(cell, "triton", torch.float32), run(cell, "reference", torch.float64), run(cell, "reference", torch.float32)
    )


def test_persistent_kernels_run_projections_in_a_second_phase(monkeypatch):
    for kernel in (A, ONE):
        monkeypatch.setattr(passes, "select_kernel", lambda *_, choice=kernel: choice)
        truth, eager = (run(gg.cells.LSTM(), "reference", d, proj_size=2) for d in (torch.float64, torch.float32))
        check(run(gg.cells.LSTM(), "triton", torch.float32, proj_size=2), truth, eager)


@pytest.mark.parametrize("kernel", [A, ONE], ids=["A", "B"])
def test_persistent_kernels_reset_sequences_of_equal_length(kernel, monkeypatch):
    monkeypatch.setattr(passes, "select_kernel", lambda *_: kernel)
    layer, x, resets = gg.GRU(3, 4), torch.randn(4, 2, 3), torch.eye(4, 2).bool()
    output = layer(x, resets=resets)[0]
    with gg.engine("reference"):
        torch.testing.assert_close(output, layer(x, resets=resets)[0])


class ScaledByMean(gg.Cell):
    gates, state = ("n",), ("h", "m")

    def step(self, a, s):
        return torch.tanh(a.n) * torch.tanh(s.m), torch.zeros_like(a.n) + a.n.mean(-1, keepdim=True)


def test_gradients_of_restart_states_are_complete_before_the_last_phase():
    """The sum of these gradients is not part of the last phase, which writes its result."""
    layer = gg.Recurrent(ScaledByMean(), 2, 4, proj_size=2, learn_initial_state=True)
    x, resets, gradients = torch.randn(4, 2, 2), torch.eye(4, 2).bool(), {}
    for engine in ("triton", "reference"):
        with gg.engine(engine):
            total = layer(x, resets=resets)[0].square().sum()
            gradients[engine] = torch.autograd.grad(total, [*layer.parameters()])
    torch.testing.assert_close(gradients["triton"], gradients["reference"], atol=1e-6, rtol=1e-5)


def test_calls_without_gradients_return_final_states():
    layer, x = gg.LSTM(3, 4, bidirectional=True), torch.randn(4, 2, 3)
    with torch.no_grad():
        results = layer(x)
        with gg.engine("reference"):
            torch.testing.assert_close(results, layer(x))


def test_both_directions_run_in_the_same_launches(monkeypatch):
    grids = []
    make_start = Launch.make_start
    monkeypatch.setattr(
        Launch, "make_start", lambda self, *callers: grids.append(self.grid) or make_start(self, *callers)
    )
    x = torch.randn(4, 2, 3)
    gg.LSTM(3, 4, bidirectional=True)(x)[0].sum().backward()
    assert {grid[2] for grid in grids} == {2}
    grids.clear()
    gg.LSTM(3, (4, 5), bidirectional=True)(x)
    assert {grid[2] for grid in grids} == {1}


@pytest.mark.parametrize(
    "cell", [gg.cells.GRUv3(), in_gpu(gg.cells.LayerNormGRU()), gg.cells.MinGRU(), gg.cells.SLSTM(heads=2)], ids=repr
)
def test_a_graph_runs_calls_of_any_length(cell, monkeypatch):
    """Graphs of three steps run calls of 4 steps. The interpreter runs the launches instead of a captured graph."""
    monkeypatch.setattr(graphs, "STEPS_PER_GRAPH", 3)
    monkeypatch.setattr(graphs, "MIN_STEPS", 1)
    monkeypatch.setattr(graphs, "_graphs", {})
    monkeypatch.setattr(graphs, "_steps", {})
    truth, eager = (run(cell, "reference", dtype) for dtype in (torch.float64, torch.float32))
    for _ in range(2):
        check(run(cell, "triton", torch.float32), truth, eager)
    assert len(graphs._graphs) == 2  # the forward and the backward pass
    layer = gg.Recurrent(cell, 3, 6)
    for L, mode in ((5, torch.inference_mode), (2, torch.no_grad)):
        x = torch.randn(L, 2, 3)
        with mode():
            output = layer(x)[0]
        with gg.engine("reference"):
            torch.testing.assert_close(output, layer(x)[0], atol=1e-6, rtol=1e-5)
    assert len(graphs._graphs) == 3  # and the forward pass without lengths
    monkeypatch.setattr(graphs, "is_captured", lambda device: True)
    torch.testing.assert_close(layer(x)[0], output, atol=0, rtol=0)
    assert len(graphs._graphs) == 3


def test_explain_names_the_kernel():
    choice = gg.explain(gg.LSTM(3, 4), torch.randn(5, 2, 3))
    assert choice.engine == "triton"
    assert "kernel C (one launch per phase, long sequences in CUDA graphs), estimate" in str(choice)


@pytest.mark.parametrize(
    ("cell", "N", "H", "dtype", "kind"),
    [
        (gg.cells.LSTM(), 16, 128, torch.bfloat16, "solo"),
        (gg.cells.LSTM(), 16, 768, torch.bfloat16, "grid"),
        (gg.cells.LSTM(), 16, 2048, torch.bfloat16, "steps"),
        (gg.cells.LSTM(), 512, 1024, torch.bfloat16, "steps"),
        (gg.cells.SLSTM(heads=8), 16, 512, torch.bfloat16, "solo"),
        (gg.cells.LayerNormLSTM(), 16, 768, torch.bfloat16, "steps"),
        (gg.cells.MinGRU(), 16, 768, torch.bfloat16, "steps"),
    ],
)
def test_the_cost_model_selects_a_kernel(cell, N, H, dtype, kind):
    equations = equations_of(cell)
    phases = Phases(forward_pass(equations, build_trace(equations, COSTS), Form(save=True)))
    sizes = {"T": 1000, "N": N, "H": H, "P": H, "heads": phases.heads}
    assert select_kernel(phases, sizes, dtype, Chip(132, 232_448)).kind == kind
    assert select_kernel(phases, sizes, dtype, None).kind == "steps"
    # A single step, as in a stream, does not repay a cooperative launch.
    assert select_kernel(phases, {**sizes, "T": 1}, dtype, Chip(132, 232_448)).kind != "grid"
    # Nor can a 32-bit counter count the arrivals of so many steps.
    assert select_kernel(phases, {**sizes, "T": 2**27}, dtype, Chip(132, 232_448)).kind != "grid"


class EightGates(gg.Cell):
    gates = tuple("abcdefgh")

    def step(self, a, s):
        return torch.tanh(a.a * a.b + a.c * a.d + a.e * a.f + a.g * a.h)


def test_operands_fit_into_the_shared_memory_of_a_small_chip():
    chip, sizes = Chip(82, 101_376), {"T": 100, "N": 64, "H": 128, "P": 128, "heads": 1}
    for cell in (gg.cells.LSTM(), gg.cells.CIFG(), EightGates()):
        equations = equations_of(cell)
        phases = Phases(backward_pass(equations, build_trace(equations, COSTS), Form(save=True)))
        for kernel in write_step_kernels(phases, "backward", False).steps:
            blocks = blocks_of(kernel, sizes, torch.bfloat16, chip)
            assert 3 * len(cell.gates) * blocks.columns * (blocks.rows + blocks.units) * 2 + 8192 <= chip.shared
        # The weights of CIFG, 98,304 bytes, fit without their left operands only.
        assert estimate_solo(phases, sizes, torch.bfloat16, chip, 1) is None


def test_repeated_calls_do_not_generate_their_kernels_again(monkeypatch):
    written, module_text = [], launch.module_text
    monkeypatch.setattr(launch, "module_text", lambda module: written.append(module) or module_text(module))
    monkeypatch.setattr(passes, "select_kernel", lambda *_: A)
    layer, x = gg.GRU(3, 7, bidirectional=True), torch.randn(4, 2, 3)
    layer(x)[0].sum().backward()
    first = len(written)
    layer(torch.randn(5, 3, 3))[0].sum().backward()
    assert len(written) == first


def test_each_compilation_of_a_kernel_has_its_own_options(monkeypatch):
    """Only the kernel with float32 operands spills."""

    class Function:
        def __getitem__(self, grid):
            return lambda x, *_, maxnreg=0, **__: (
                used.append(maxnreg) or SimpleNamespace(n_spills=int(x.dtype == torch.float32))
            )

        def warmup(self, *_, maxnreg, **__):
            return SimpleNamespace(n_spills=0, run=True)

    used, function = [], Function()
    monkeypatch.setattr(launch, "triton_function", lambda *_: function)
    kernel, sizes = Kernel("any", ()), dict.fromkeys(("T", "N", "H", "P", "heads"), 1)
    for dtype, expected in ((torch.bfloat16, [0, 0]), (torch.float32, [0, 255])):
        used.clear()
        x = torch.zeros(1, dtype=dtype)
        for _ in expected:
            Launch((kernel,), Blocks(16, 16, 16), [[x]], OtherArguments(sizes, "ieee")).start([x])
        assert used == expected


def test_a_kernel_that_spills_is_compiled_again_with_all_registers():
    def compiled(spills):
        return SimpleNamespace(n_spills=spills, run=True)

    assert options_with_fewest_spills(compiled(0), None) == {}
    assert options_with_fewest_spills(compiled(4), lambda maxnreg: compiled(0)) == {"maxnreg": 255}
    assert options_with_fewest_spills(compiled(4), lambda maxnreg: compiled(8)) == {}


def test_the_order_of_programs_does_not_matter(monkeypatch):
    def blocks(kernel, **_):
        return Blocks(1, 16, 16) if kernel.by_rows else Blocks(16, 4, 16)

    monkeypatch.setattr(passes, "blocks_of", blocks)
    cells = [gg.cells.GRUv3(), gg.cells.LayerNormGRU()]
    first = [run(cell, "triton", torch.float32) for cell in cells]
    interpreter = pytest.importorskip("triton.runtime.interpreter").interpreter_builder
    place, size = interpreter.set_grid_idx, []
    monkeypatch.setattr(
        interpreter,
        "set_grid_dim",
        lambda *dims: (size.append(dims), type(interpreter).set_grid_dim(interpreter, *dims)),
    )
    monkeypatch.setattr(
        interpreter, "set_grid_idx", lambda *at: place(*(n - 1 - k for n, k in zip(size[-1], at, strict=True)))
    )
    for cell, expected in zip(cells, first, strict=True):
        again = run(cell, "triton", torch.float32)
        assert all(torch.equal(again[name], expected[name]) for name in expected)
    assert max(dims[1] for dims in size) > 1


def test_recordings_and_compiled_graphs():
    layer = gg.Recurrent(gg.cells.GRU(), 3, 4, bidirectional=True)
    x = torch.randn(4, 3, 3, requires_grad=True)
    with gg.record(layer) as tape:
        output = layer(x)[0]
        output.sum().backward()
    with gg.engine("reference"), gg.record(layer) as expected:
        layer(x)[0].sum().backward()
    for recorded, truth in ((tape, expected), (tape.grad, expected.grad)):
        assert dict(recorded.items()).keys() == dict(truth.items()).keys()
        for name, value in truth.items():
            torch.testing.assert_close(recorded[name], value, atol=1e-6, rtol=1e-5)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x)[0], output)


def test_autocast_multiplies_in_float16():
    layer, x = gg.LSTM(3, 4), torch.randn(4, 3, 3)
    with torch.autocast("cpu", torch.float16):
        output = layer(x)[0]
    assert output.dtype == torch.float16
    torch.testing.assert_close(output.float(), layer(x)[0], atol=2e-3, rtol=0)


def test_fake_kernels_return_the_dtypes_of_saved_tensors():
    layer = gg.Recurrent(gg.cells.LayerNormGRU(), 3, 4, dtype=torch.float16)
    weights = {name.removesuffix("_l0"): v.detach() for name, v in layer.named_parameters()}
    directions = [Direction(layer.cell, weights, (torch.zeros(2, 4, dtype=torch.float16),), False)]
    text = format_layer("triton", "equations", False, format_plans(directions))
    call = [torch.randn(6, 3).half(), *operands_of(directions)], None, None, text, torch.float16, True
    real, fake = operators.layer_forward(*call), operators.fake_layer_forward(*call)
    assert [(v.shape, v.dtype) for v in real] == [(v.shape, v.dtype) for v in fake]
    assert {v.dtype for v in real[2:]} == {torch.float16, torch.float32}  # float32: row sums


@pytest.mark.parametrize("options", [{"proj_size": 3}, {"residual": True, "learn_initial_state": True}], ids=str)
def test_streams_advance_step_by_step(options):
    layer, x = gg.LSTM(4, 4, num_layers=2, **options), torch.randn(4, 2, 4)
    stream = layer.stream(2)
    steps = [stream.step(x_t).clone() for x_t in x]
    stream.reset([1])
    steps.append(stream.step(x[0]).clone())
    with gg.engine("reference"), torch.no_grad():
        output = layer(x)[0]
        resets = torch.tensor([[False, False]] * 4 + [[False, True]])
        again = layer(torch.cat([x, x[:1]]), resets=resets)[0][-1]
    torch.testing.assert_close(torch.stack(steps[:-1]), output, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(steps[-1], again, atol=1e-6, rtol=1e-5)


def test_sessions_run_on_the_kernels():
    layer, x, lengths = gg.GRU(3, 4, num_layers=2, bidirectional=True), torch.randn(4, 2, 3), torch.tensor([2, 4])
    session = gg.freeze(layer)
    with gg.engine("reference"), torch.no_grad():
        expected = layer(x, lengths=lengths)
    torch.testing.assert_close(session(x, lengths=lengths), expected, atol=1e-6, rtol=1e-5)
    with torch.autocast("cpu", torch.float16):
        assert session(x)[0].dtype == torch.float32
    with pytest.raises(gg.EngineError, match=r"precision='int8' is for the CPU; on a GPU use precision='float32'"):
        gg.freeze(layer, precision="int8")


def test_phase_0_sets_the_states_that_only_it_reads():
    """The backward pass of the LSTM sets the gradient of c in phase 0, and that of h after the matrix product."""
    equations = equations_of(gg.cells.LSTM())
    phases = Phases(backward_pass(equations, build_trace(equations, COSTS), Form(save=True)))
    assert [[carry.before.name for carry in phase.carries] for phase in phases.all] == [["d_c_next"], ["d_h_next"]]
    assert not any(phase.stored for phase in phases.all)
