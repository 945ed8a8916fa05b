"""The operators of layers: opcheck, torch.compile, autocast, derivatives of any order, threads."""

import warnings
from copy import deepcopy
from typing import NamedTuple

import pytest
import torch

import glassgate as gg
from glassgate.engines import reference
from glassgate.engines.contract import Direction, Steps
from glassgate.engines.kernels import KernelEngine
from glassgate.engines.llvm_cpu import partition, passes
from glassgate.engines.llvm_cpu.executable import Executable
from glassgate.engines.llvm_cpu.pool import threads
from glassgate.engines.plan import Plan, directions_of, format_layer, format_plans, without_final_states
from glassgate.engines.registry import BACKENDS
from glassgate.engines.torch_op import operators
from glassgate.layers.prepared_calls import PreparedCalls
from tests.compare import EXACT, check, measure, noise


def layer_of(**options) -> gg.GRU:
    torch.manual_seed(0)
    return gg.GRU(3, 4, bidirectional=True, dtype=torch.float64, **options)


def call(layer, x, **options):
    with gg.engine("cpu"):
        output, final = layer(x, **options)
    return {"output": output, "h_n": final}


def gradients(layer, run, x):
    return measure(run(layer, x), {"input": x, **dict(layer.named_parameters())})


def arguments(resets: bool, ragged: bool):
    layer = layer_of()
    sizes = torch.tensor([3, 2, 2]) if ragged else None
    rows = 8 if ragged else 6
    operands = []
    for k in range(2):
        operands += [p.detach().clone().requires_grad_() for p in list(layer.parameters())[4 * k : 4 * k + 4]]
        operands.append(noise(k, 3, 4).requires_grad_())
    weights, h = dict.fromkeys(layer.cell.shapes(3, 4)), operands[-1]
    plans = format_plans([Direction(layer.cell, weights, (h,), reverse) for reverse in (False, True)])
    tensors, mask = [noise(9, rows, 3).requires_grad_(), *operands], noise(8, rows) > 0 if resets else None
    return tensors, sizes, mask, format_layer("cpu", "equations", True, plans), torch.float64


@pytest.mark.parametrize(("resets", "ragged"), [(True, False), (False, True)])
def test_opcheck(resets, ragged):
    tensors, *rest = arguments(resets, ragged)
    torch.library.opcheck(torch.ops.glassgate.layer.default, (tensors, *rest))
    # The passes have no gradients of their own.
    tensors = [v.detach() for v in tensors]
    torch.library.opcheck(torch.ops.glassgate.layer_forward.default, (tensors, *rest, True))
    flat = torch.ops.glassgate.layer_forward(tensors, *rest, True)
    reached, plans = [0, 2, 3], operators.parse_layer(*rest[2:]).passes.plans
    inputs = [*tensors, *without_final_states(plans, flat), *(noise(k, *flat[k].shape) for k in reached)]
    needed = [k != 1 for k in range(len(tensors))]
    torch.library.opcheck(torch.ops.glassgate.layer_backward.default, (inputs, *rest, needed, reached))


@pytest.mark.parametrize("options", [{}, {"lengths": torch.tensor([2, 0, 5])}], ids=["padded", "ragged"])
def test_compiles_to_one_graph(options):
    layer, x = layer_of(), noise(1, 5, 3, 3).requires_grad_()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")

    def run(module, x):
        return call(module, x, **options)

    expected = gradients(layer, run, x)
    check(gradients(layer, lambda _, x: run(compiled, x), x), expected)
    longer = noise(2, 8, 3, 3)
    check(run(compiled, longer), {k: v.detach() for k, v in run(layer, longer).items()})


FACTOR = 2.0


class Options:
    rate = 2.0


class Scaled(gg.Cell):
    gates = ("x",)
    of_class = 2.0

    def __init__(self):
        self.rate, self.options, self.table = 2.0, Options(), {"rate": 2.0}

    def step(self, a, s):
        number = self.rate * self.of_class * self.options.rate * self.table["rate"] * FACTOR
        return torch.tanh(a.x) * number + 0.1 * s.h


def compile_to_one_graph(module):
    torch._dynamo.reset()
    return torch.compile(module, fullgraph=True, backend="eager")


def test_a_graph_is_compiled_again_when_its_cell_changes(monkeypatch):
    class ByReference(NamedTuple):
        """The reference in place of kernels, because compiling a kernel for each of these cells would take a minute."""

        plans: tuple[Plan, ...]

        def forward(self, steps, operands, *_):
            (result,) = reference.run(steps, directions_of(self.plans, operands))
            return [result.states[0], *result.final]

    monkeypatch.setattr(BACKENDS["cpu"], "compile", ByReference)
    layer, x = gg.Recurrent(Scaled(), 3, 4, dtype=torch.float64).requires_grad_(False), noise(1, 5, 2, 3)
    compiled, cell, outputs = compile_to_one_graph(layer), layer.cell, []
    changes = [
        lambda: None,
        lambda: setattr(cell, "rate", 3.0),
        lambda: setattr(cell, "rate", 3.5),
        lambda: monkeypatch.setattr(Scaled, "of_class", 3.0),
        lambda: setattr(cell.options, "rate", 3.0),
        lambda: cell.table.update(rate=3.0),
        lambda: monkeypatch.setitem(globals(), "FACTOR", 3.0),
        lambda: monkeypatch.setattr(Scaled, "step", lambda self, a, s: torch.relu(a.x)),
    ]
    for change in changes:
        change()
        with gg.engine("reference"):
            expected = layer(x)[0]
        check({"output": compiled(x)[0]}, {"output": expected})
        assert all(not torch.equal(expected, output) for output in outputs)
        outputs.append(expected)


def test_engines_are_selected_inside_and_outside_of_compiled_code():
    layer, x = gg.LSTM(3, 4, dtype=torch.float64), noise(1, 5, 2, 3)

    def inside(x):
        with gg.engine("cpu"):
            return layer(x)[0]

    expected = layer(x)[0]
    torch.testing.assert_close(compile_to_one_graph(inside)(x), expected)
    compiled = compile_to_one_graph(layer)
    for name in ("cpu", "reference", "auto"):  # with fullgraph=True, torch.compile does not support torch's LSTM
        with gg.engine(name):
            torch.testing.assert_close(compiled(x)[0], expected)


def test_errors_of_unsupported_transformations_suggest_alternatives():
    layer, x = gg.LSTM(3, 4), torch.randn(5, 2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(
            gg.EngineError, match=r"torch.jit.trace does not support these layers; use torch.export.export"
        ):
            torch.jit.trace(layer, x)
        for module in (layer, torch.nn.Sequential(gg.GRUCell(3, 4))):
            with pytest.raises(gg.EngineError, match=r"torch.jit.script cannot compile these layers; use torch"):
                torch.jit.script(module)


def test_second_and_third_derivatives():
    layer = gg.GRU(2, 3, dtype=torch.float64)
    names = [name for name, _ in layer.named_parameters()]
    leaves = [noise(1, 3, 2, 2), noise(2, 1, 2, 3), *layer.parameters()]
    leaves = [v.detach().requires_grad_() for v in leaves]

    def run(x, h, *weights):
        return torch.func.functional_call(layer, dict(zip(names, weights, strict=True)), (x, h))

    def squares(*leaves):
        return torch.autograd.grad(sum(v.square().sum() for v in run(*leaves)), leaves, create_graph=True)

    with gg.engine("cpu"):
        assert torch.autograd.gradcheck(run, leaves, fast_mode=True)
        assert torch.autograd.gradgradcheck(run, leaves, fast_mode=True)
        assert torch.autograd.gradgradcheck(squares, leaves, fast_mode=True)


@pytest.mark.parametrize("options", [{}, {"proj_size": 2}], ids=["plain", "projected"])
def test_second_derivatives_if_only_some_parameters_need_gradients(options):
    layer, x = gg.LSTM(2, 3, bidirectional=True, dtype=torch.float64, **options), noise(1, 3, 2, 2)
    for name, weight in layer.named_parameters():
        weight.requires_grad_(name.endswith("_reverse"))
    leaves = [weight for weight in layer.parameters() if weight.requires_grad]

    def second():
        first = torch.autograd.grad(layer(x)[0].square().sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(v.square().sum() for v in first), leaves)

    with gg.engine("cpu"):
        by_kernels = second()
    with gg.engine("reference"):
        torch.testing.assert_close(by_kernels, second(), rtol=0, atol=10 * EXACT)


def test_a_second_derivative_runs_each_pass_once(monkeypatch):
    runs, run = [], Executable.run
    monkeypatch.setattr(Executable, "run", lambda own, *rest: runs.append(own) or run(own, *rest))
    layer, x = gg.LSTM(2, 3, dtype=torch.float64), noise(1, 3, 2, 2)
    weights = list(layer.parameters())
    with gg.engine("cpu"):
        first = torch.autograd.grad(layer(x)[0].sum(), weights, create_graph=True)
        torch.autograd.grad(sum(v.square().sum() for v in first), weights)
    assert len(runs) == 4  # forward and backward passes of the layer and of its tangent


def test_a_cell_without_a_kernel_raises_an_error_or_a_warning():
    class Sorts(gg.Cell):
        gates = ("x",)

        def step(self, a, s):
            return torch.sort(a.x)[0]

    layer, x = gg.Recurrent(Sorts(), 3, 4), torch.ones(2, 1, 3)
    with (
        gg.engine("cpu"),
        pytest.raises(gg.EngineError, match=r"cell Sorts: step uses torch\.sort, which the kernels do not support"),
    ):
        layer(x)
    with pytest.warns(UserWarning, match=r"cell Sorts: .* runs on the reference engine"):
        layer(x)


@pytest.mark.parametrize("kind", [gg.LSTM, gg.GRU, gg.RNN])
def test_autocast_errors_are_those_of_the_reference(kind):
    layer, x = kind(30, 40), noise(1, 5, 2, 30).float()
    leaves = {"input": x.requires_grad_(), **dict(layer.named_parameters())}

    def run(engine, dtype=None):
        module = layer if dtype is None else deepcopy(layer).to(dtype)
        own = leaves if dtype is None else {"input": x.to(dtype), **dict(module.named_parameters())}
        with gg.engine(engine), torch.autocast("cpu", torch.bfloat16, enabled=dtype is None):
            output, final = module(own["input"])
        states = final if isinstance(final, tuple) else (final,)
        return measure({"output": output} | {f"final {k}": v for k, v in enumerate(states)}, own)

    got, eager = run("cpu"), run("reference")
    check(got, run("reference", torch.float64), eager)
    assert {got[name].dtype for name in got if "grad" not in name} == {torch.bfloat16}
    assert {got[name].dtype for name in got if "grad" in name} == {torch.float32}


def test_unneeded_gradients_are_not_computed(monkeypatch):
    layer, x, tasks, compute = layer_of(), noise(1, 5, 3, 3), [], passes.LayerPass.run
    leaves = {"input": x, **dict(layer.named_parameters())}
    expected_gradients = gradients(layer, call, x.requires_grad_())

    def run_counted(own, *call, **options):
        tasks.append(tuple(len(plan.tasks.after[0]) for plan in own.kernel_plans))
        compute(own, *call, **options)

    monkeypatch.setattr(passes.LayerPass, "run", run_counted)
    products = {}
    for needed in leaves:
        for name, leaf in leaves.items():
            leaf.requires_grad_(name == needed)
        layer.glassgate.prepared_calls = PreparedCalls()
        measured = measure(call(layer, x), {needed: leaves[needed]})
        torch.testing.assert_close(measured[f"grad {needed}"], expected_gradients[f"grad {needed}"], rtol=0, atol=0)
        products[needed] = tasks[-1]
    # The gradient of a GRU's recurrent weights takes two GEMMs: one for the gates r and z, another for n.
    halves = {"weight_ih": 1, "bias_ih": 1, "weight_hh": 2, "bias_hh": 2}
    expected = {"input": (1, 1)} | {f"{name}_l0": (count, 0) for name, count in halves.items()}
    assert products == expected | {f"{name}_l0_reverse": (0, count) for name, count in halves.items()}


def test_no_values_are_saved_without_gradients():
    call = arguments(True, False)
    saving, others = (torch.ops.glassgate.layer_forward(*call, save) for save in (True, False))
    assert len(others) == 4 < len(saving)


def check_bitwise_equal(layer, x, **options) -> None:
    """Check that gradients on two threads are bitwise equal to those on one thread."""
    launch_counts = []

    def run_counted(launches, run=threads.run):
        launch_counts.append(len(launches))
        run(launches)

    def compute_gradients():
        with gg.engine("cpu"):
            output, final = layer(x, **options)
        states = final if isinstance(final, tuple) else (final,)
        return torch.autograd.grad(
            (output * x.sum()).sum() + sum((v * v).sum() for v in states), list(layer.parameters())
        )

    on_one_thread = compute_gradients()
    torch.set_num_threads(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "run", run_counted)
        patch.setattr(partition, "MIN_WORK_PER_THREAD", 1_000_000)
        on_two_threads = compute_gradients()
    assert launch_counts.count(2) >= 4  # rounds before, in and after the loops of the forward and backward pass
    for a, b, name in zip(on_one_thread, on_two_threads, dict(layer.named_parameters()), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("lengths", [None, [50, 3, 0, 31, 50, 20, 7, 44, 12]], ids=["padded", "ragged"])
def test_gradients_are_bitwise_equal_on_one_and_two_threads(lengths, bidirectional):
    """Each thread computes a direction, or some of the sequences."""
    check_bitwise_equal(gg.LSTM(65, 130, bidirectional=bidirectional), torch.randn(50, 9, 65), lengths=lengths)


@pytest.mark.parametrize("cell", [gg.cells.MinLSTM(), gg.cells.IndRNN()], ids=repr)
def test_gradients_are_bitwise_equal_if_threads_divide_independent_units(cell):
    check_bitwise_equal(gg.Recurrent(cell, 5, 100), torch.randn(1000, 1, 5))


def test_inputs_and_states_that_are_not_contiguous():
    layer, x = layer_of(), noise(1, 5, 3, 6)[:, :, ::2].transpose(0, 1)[:, 1:].transpose(0, 1)
    h = noise(2, 2, 1, 4).expand(2, 3, 4)
    with gg.engine("cpu"):
        strided = layer(x, h)[0]
        assert torch.equal(strided, layer(x.contiguous(), h.contiguous())[0])


def test_gradients_of_all_states():
    layer = gg.LSTM(3, 4, dtype=torch.float64)
    names = list(layer.cell.state)
    weights = {name.removesuffix("_l0"): p for name, p in layer.named_parameters()}
    leaves = {
        "x": noise(1, 8, 3).requires_grad_(),
        "h": noise(2, 2, 4).requires_grad_(),
        "c": noise(3, 2, 4).requires_grad_(),
    }

    def run(engine):
        direction = Direction(layer.cell, weights, (leaves["h"], leaves["c"]), False)
        (result,) = engine.run(Steps(leaves["x"], None, None), [direction], all_states=True)
        outputs = dict(zip([*names, "h_n", "c_n"], (*result.states, *result.final), strict=True))
        return measure(outputs, leaves | weights)

    check(run(KernelEngine("cpu")), run(reference))
