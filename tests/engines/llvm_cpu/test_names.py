"""The names of gates, states, parameters and variables change nothing in a kernel except the names."""

import ast
import builtins
import keyword
from unittest.mock import patch

import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import glassgate as gg
from glassgate.engines.llvm_cpu import phase_printer
from glassgate.engines.llvm_cpu.costs import COSTS
from glassgate.engines.llvm_cpu.kernel import print_kernel
from glassgate.engines.llvm_cpu.simd.mathematics import FUNCTIONS
from glassgate.engines.symbolic.step import equations_of
from glassgate.engines.symbolic.trace import build_trace
from tests.compare import noise

STEP = """
def step(self, a, s, p):
    {l0} = torch.exp(-torch.sigmoid(a.{g0} + p.{p0}.{g0} * p.{p1}))
    {l1} = torch.tanh(a.ih.{g1} + a.hh({l0} * s.{s0}).{g1} * p.{p0}.{g1}) + s.{s1}.mean(-1, keepdim=True)
    {l2} = torch.where({l1} > 0, {l1}, {l0} * s.{s2})
    return (1 - {l0}) * {l1} + {l0} * s.{s0}, {l1} - s.{s1}, {l2}
"""
GATES, STATES, PARAMETERS, LOCALS = ("g0", "g1"), ("s0", "s1", "s2"), ("p0", "p1"), ("l0", "l1", "l2")
PLAIN = {name: f"plain_{name}" for name in (*GATES, *STATES, *PARAMETERS, *LOCALS)}
AFFIXES = ("", "d_", "_prev", "_next", "_0", "_rows", "_at", "_pitch", "_pre", "_ih", "_before", "_", "__")


def cell_with_names(names):
    """A cell with every kind of buffer. `names` maps the placeholders of `STEP` to names."""
    scope = {"torch": torch}
    exec(STEP.format(**names), scope)
    parameters = {names["p0"]: gg.Parameter(1.0, per_gate=True), names["p1"]: gg.Parameter(0.5)}
    gates, states = tuple(names[gate] for gate in GATES), tuple(names[state] for state in STATES)
    attributes = {"gates": gates, "state": states, "step": scope["step"], "parameters": parameters}
    return type("Named", (gg.Cell,), attributes)()


def kernels(cell):
    equations = equations_of(cell)
    trace = build_trace(equations, COSTS)
    with patch.object(phase_printer, "MAX_LENGTH", 10**6):  # a value of a long expression has a name of its own
        return [print_kernel("Named", equations, trace, is_backward).text for is_backward in (False, True)]


def assigned_names(kernel):
    """The names to which a kernel assigns."""
    return {node.id for node in ast.walk(kernel) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def check_equal_but_for_names(text, other):
    """Check that the variables of two kernels correspond one to one, and that all else is equal."""
    kernel, other_kernel = ast.parse(text), ast.parse(other)
    variables, other_variables = assigned_names(kernel), assigned_names(other_kernel)
    to_other, from_other = {}, {}
    for node, other_node in zip(ast.walk(kernel), ast.walk(other_kernel), strict=True):
        assert type(node) is type(other_node)
        if isinstance(node, ast.Name):
            assert (node.id in variables) == (other_node.id in other_variables)
            if node.id in variables:
                assert to_other.setdefault(node.id, other_node.id) == other_node.id
                assert from_other.setdefault(other_node.id, node.id) == node.id
            else:
                assert node.id == other_node.id
        if isinstance(node, ast.Constant):
            assert node.value == other_node.value or isinstance(node.value, str)


PLAIN_KERNELS = kernels(cell_with_names(PLAIN))
KERNEL_NAMES = {node.id for text in PLAIN_KERNELS for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
HOSTILE = sorted(
    {name for used in KERNEL_NAMES for name in (used, used.strip("_"), used.replace("plain_s0", "h").strip("_"))}
    | {*dir(builtins), *keyword.softkwlist, *FUNCTIONS, *dir(torch.nn.functional), "LANES", "H", "P", "ñ", "门"}
)
OF_PYTHON = {*keyword.kwlist, "torch", "self", "a", "s", "p", "ih", "hh", "noise", "update"}
"""Names that would break the step itself."""
HOSTILE = [n for n in HOSTILE if n.isidentifier()]
NAMES = st.tuples(st.sampled_from(HOSTILE), st.sampled_from(AFFIXES)).map(
    lambda pair: pair[1] + pair[0] if pair[1].startswith("d_") else pair[0] + pair[1]
)
"""Names that kernels use, with affixes that the engine adds to names."""


def is_allowed(name):
    return name not in OF_PYTHON and not name.startswith("__")


@given(st.lists(NAMES.filter(is_allowed), min_size=10, max_size=10, unique=True))
@settings(max_examples=30, phases=[Phase.generate])
def test_kernels_are_equal_except_for_the_names(names):
    chosen = dict(zip(PLAIN, names, strict=True))
    for text, plain in zip(kernels(cell_with_names(chosen)), PLAIN_KERNELS, strict=True):
        check_equal_but_for_names(text, plain)


def test_names_of_the_step_are_kept_and_names_of_the_engine_begin_with_an_underscore():
    kernel = ast.parse(kernels(cell_with_names(PLAIN | {"l0": "load", "l1": "h_at", "l2": "tanh"}))[0])
    variables = assigned_names(kernel)
    assert {"load", "h_at", "tanh_"} <= {name for name in variables if not name.startswith("_")}
    functions = {node.id for node in ast.walk(kernel) if isinstance(node, ast.Name)} - variables
    assert {name for name in functions if not name.startswith("_")} <= {*FUNCTIONS, "range", "min"}


class Hostile(gg.Cell):
    """A cell with names each of which once caused a wrong result, an abort or an error of the compiler."""

    gates = ("i", "n", "range")
    state = ("h", "d_h", "row", "left", "last", "unit", "h_prev")
    parameters = {"gain": gg.Parameter(1.0, per_gate=True), "gain_i": gg.Parameter(0.5)}

    def step(self, a, s, p):
        first = torch.sigmoid(a.i * p.gain.i + s.d_h * p.gain_i)
        exp = torch.exp(-first) * s.h_prev
        print = torch.tanh(a.n + a.hh(first * s.h).range)
        weights = print - print.mean(-1, keepdim=True)
        α = torch.sigmoid(a.ih.range) * s.last
        return (1 - first) * weights + first * s.h, exp, weights + 0.5 * s.row, first * s.left, α, -s.unit, s.h


def results_by_engine(layer, x, **options):
    """Return results and gradients of the kernels, and those of the reference."""
    by_engine = []
    for engine in ("cpu", "reference"):
        with gg.engine(engine):
            output, state = layer(x, **options)
            state = state if isinstance(state, tuple) else (state,)
            loss = output.sin().sum() + sum((k + 1) * v.cos().sum() for k, v in enumerate(state))
            leaves = [v for v in (x, *layer.parameters()) if v.requires_grad]
            d = torch.autograd.grad(loss + 0.0 * x.sum(), leaves, allow_unused=True, materialize_grads=True)
        by_engine.append([output, *state, *d])
    return by_engine


def check_same(layer, **options):
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    x = noise(1, 7, 3, layer.input_size).requires_grad_()
    for result, expected in zip(*results_by_engine(layer, x, **options), strict=True):
        torch.testing.assert_close(result, expected, rtol=0, atol=1e-12 * max(1.0, expected.abs().max().item()))


def test_a_cell_with_hostile_names_computes_the_same():
    layer = gg.Recurrent(Hostile(), 5, 6, dtype=torch.float64)
    check_same(layer, resets=noise(2, 7, 3) > 0.5)
