"""Traced graphs: the forward graph computes the same as the step, and the backward graph the same as autograd."""

import cProfile
import gc
import math
import time

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import glassgate as gg
from glassgate import cells
from glassgate.cell import Cell, Noise, Parameter
from glassgate.engines.axes import PER_ROW
from glassgate.engines.llvm_cpu.costs import COSTS
from glassgate.engines.reference_step import advance, recurrent_product
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.graph import Node, gate_of
from glassgate.engines.symbolic.operations import OPERATIONS
from glassgate.engines.symbolic.step import equations_of
from glassgate.engines.symbolic.trace import Trace, build_trace
from glassgate.engines.symbolic.values import NotTraceable
from glassgate.layers.regularisers import Noisy
from tests.compare import check, noise
from tests.engines.interpreter import evaluate


class Step:
    """One step of a cell and its gradients on random rows, computed by the reference and by the two graphs."""

    def __init__(self, cell: Cell, projected: bool = False, N: int = 5, H: int = 6, P: int = 4) -> None:
        self.cell, self.projected = cell, projected
        widths = {name: P if projected and k == 0 else H for k, name in enumerate(cell.state)}
        shapes = cell.shapes(3, H, P if projected else 0) | {"ih": (N, len(cell.gates) * H)}
        shapes |= {f"{name} before": (N, width) for name, width in widths.items()}
        self.leaves = {name: noise(k, *shape).requires_grad_() for k, (name, shape) in enumerate(shapes.items())}
        self.factors = {name: noise(50, N, widths.get(spec.state, H)).abs() for name, spec in cell.noise.items()}
        self.d_new = {name: noise(60 + k, N, width) for k, (name, width) in enumerate(widths.items())}

    def by_reference(self) -> dict[str, Tensor]:
        before = tuple(self.leaves[f"{name} before"] for name in self.cell.state)
        new = advance(self.cell, self.leaves, self.leaves["ih"], before, self.factors)
        d = torch.autograd.grad(new, self.leaves.values(), self.d_new.values(), materialize_grads=True)
        return self._results(new, d)

    def by_graphs(self) -> dict[str, Tensor]:
        traced = build_trace(equations_of(self.cell, self.projected), COSTS)
        values = {name: v.detach() for name, v in self.leaves.items()}
        forward = evaluate(traced.forward, self.cell, values, self._leaf)
        new = [forward[node] for node in traced.forward.states]
        kept = {key: forward[node] for key, node in traced.saved.items()}
        backward = evaluate(
            traced.backward, self.cell, values, lambda n: kept[n.op] if isinstance(n.op, ops.Saved) else self._leaf(n)
        )
        return self._results(new, self._assembled(traced, backward))

    def _results(self, new, d) -> dict[str, Tensor]:
        gradients = {f"d {name}": v for name, v in zip(self.leaves, d, strict=True) if not name.endswith("_ih")}
        return {
            name: v.detach().expand_as(self.d_new[name]) for name, v in zip(self.cell.state, new, strict=True)
        } | gradients

    def _leaf(self, node: Node) -> Tensor:
        match node.op:
            case ops.Gradient(state):
                return self.d_new[state]
            case ops.Noise(name):
                return self.factors[name]
            case ops.State(state):
                return self.leaves[f"{state} before"].detach()
            case ops.InputHalf(gate):
                return self._rows(self.leaves["ih"], gate).detach()
            case ops.Parameter(name, gate):
                return self._rows(self.leaves[name], gate).detach()
        raise AssertionError(f"unknown leaf {node.op}")

    def _rows(self, v: Tensor, gate: str | None) -> Tensor:
        return v if gate is None else v.chunk(len(self.cell.gates), -1)[self.cell.gates.index(gate)]

    def _assembled(self, traced: Trace, values: dict[Node, Tensor]) -> list[Tensor]:
        """Return the gradients of all leaves. Autograd computes them from a sum that has the results as gradients."""
        leaves, total = self.leaves, torch.zeros((), dtype=torch.float64, requires_grad=True)
        d = traced.backward
        lefts = {u: values[node] for u, node in zip(traced.left, d.left, strict=True)}
        products, d_pre = [*traced.hh_only, *traced.shared], [values[node] for node in d.d_pre]
        for product, d_product in zip(products, d_pre, strict=False):
            gate, (u,) = gate_of(product), product.inputs
            left = lefts.get(u, leaves[f"{self.cell.state[0]} before"]).detach()
            hh = recurrent_product(left, leaves["weight_hh"], leaves["bias_hh"], self.cell.heads)
            total = total + (self._rows(hh, gate) * d_product).sum()
        for gate, d_ih in zip(traced.ih, d_pre[len(traced.hh_only) :], strict=True):
            total = total + (self._rows(leaves["ih"], gate) * d_ih).sum()
        for name, node in zip(self.cell.state, d.d_states, strict=True):
            total = total + (leaves[f"{name} before"] * values[node]).sum()
        for k, parameter in zip(traced.parameter_numbers, traced.parameters, strict=True):
            total = total + (self._rows(leaves[parameter.name], parameter.gate) * values[d.d_parameters[k]]).sum()
        for raw, d_hr in zip(d.raw, d.d_hr, strict=True):
            total = total + (F.linear(values[raw], leaves["weight_hr"]) * values[d_hr]).sum()
        return list(torch.autograd.grad(total, leaves.values(), materialize_grads=True))


class Everything(Cell):
    """A cell with halves and sums of gates, two products, reductions, parameters, noise, heads and an unused gate."""

    gates = ("a", "b", "n", "unused")
    state = ("h", "c", "m")
    parameters = {"peep": Parameter(), "gain": Parameter(1.0, per_gate=True)}
    noise = {"update": Noise(0.5, False, True, None), "state": Noise(0.5, False, False, "h")}
    heads = 2

    def step(self, a, s, p):
        centred = a.hh.a - a.hh.a.mean(-1, keepdim=True)
        scaled = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-3)
        gate = torch.sigmoid(p.gain.a * a.ih.a + scaled + p.peep * s.c)
        u = gate * s.h * a.noise.state
        c = gate * s.c + (1 - gate) * torch.tanh(p.gain.n * a.hh(u).n + a.ih.n) * a.noise.update
        m = torch.maximum(s.m, a.b) + c.sum(-1, keepdim=True)
        return torch.sigmoid(a.b) * torch.tanh(c / torch.exp(m - a.b - m)), c, m


class Clipped(Cell):
    """A cell with operations after the projection, and with a state that has no gradient."""

    gates = ("x", "y")
    state = ("h", "last")

    def step(self, a, s):
        return torch.tanh(a.x) * a.y, s.last.sign()

    def project(self, h):
        return torch.clamp(h, -1, 1) * torch.sigmoid(h)


class Keeps(Cell):
    """A value of only one gate, a gate that is read twice, a state that costs more to compute than to read."""

    gates = ("i", "n", "g")
    state = ("h", "c")

    def step(self, a, s):
        i, g = torch.sigmoid(2 * a.i + s.c), torch.tanh(a.hh.g)
        mean = i.mean(-1, keepdim=True)
        h = (a.n * torch.sigmoid(a.n) + mean * i) / (1 + i)
        return h, g - mean * s.c + a.ih.g


CELLS = {
    "RNN": (cells.RNN(), True),
    "relu": (cells.RNN("relu"), True),
    "LSTM": (cells.LSTM(), True),
    "GRU": (cells.GRU(), False),
    "GRUv3": (cells.GRUv3(), False),
    "everything": (Everything(), False),
    "clipped": (Clipped(), True),
    "keeps": (Keeps(), True),
    "zoneout": (Noisy(cells.LSTM(), {"h": 0.3, "c": 0.2}, 0.2, "state"), True),
    "zoneout in eval mode": (Noisy(cells.LSTM(), {"h": 0.3, "c": 0.2}, 0.0, "state", training=False), True),
    "noise of updates": (Noisy(cells.GRU(), {}, 0.2, "update"), False),
}


@pytest.mark.parametrize("name", CELLS)
def test_graphs_equal_step_and_autograd(name):
    cell, projects = CELLS[name]
    for projected in {False, projects}:
        step = Step(cell, projected)
        check(step.by_graphs(), step.by_reference())


def saved_names(cell: Cell) -> dict:
    """The names of the values that the forward pass saves, by column."""
    saved = build_trace(equations_of(cell), COSTS).saved
    return {(key.kind, key.number): node.name for key, node in saved.items() if node.axis != PER_ROW}


def test_the_saved_values():
    gates = dict(enumerate("ifgo"))
    assert (
        saved_names(cells.LSTM()) == saved_names(cells.PeepholeLSTM()) == {("ih", k): gate for k, gate in gates.items()}
    )
    assert saved_names(cells.RNN()) == {("ih", 0): "h"}
    assert saved_names(cells.RNN("relu")) == {("ih", 0): "h_pre"}
    assert saved_names(cells.MinLSTM()) == {("ih", 0): "f_ih", ("ih", 1): "i_ih", ("ih", 2): "n_ih"}
    assert saved_names(Keeps()) == {("hh", 0): "g", ("ih", 0): "i", ("ih", 1): "n_pre", ("state", 0): "h"}


def test_kernels_run_with_and_without_saved_values():
    assert gg.check(Keeps())
    layer, x = gg.Recurrent(Keeps(), 4, 33, dtype=torch.float64), noise(1, 7, 5, 4)
    output = {}
    for engine in ("cpu", "reference"):
        with torch.no_grad(), gg.engine(engine):
            output[engine] = {"output": layer(x)[0]}
    check(output["cpu"], output["reference"])


class Of(Cell):
    """A cell without recurrence that computes h = function(x, y)."""

    gates = ("x", "y")
    recurrent = False

    def __init__(self, function) -> None:
        self.function = function

    def step(self, a, s):
        return self.function(a.x, a.y)


UNARY = """
abs absolute neg negative sign floor ceil round trunc fix sqrt exp expm1 exp2 log log1p log2 log10 sin cos tan atan
arctan sinh cosh asinh acosh atanh asin acos arcsin sinc sigmoid tanh erf erfc square reciprocal rsqrt relu
"""
ACTIVATIONS = """
relu6 leaky_relu hardtanh hardsigmoid hardswish hardshrink softshrink tanhshrink softsign softplus logsigmoid silu mish
gelu elu celu selu relu sigmoid tanh
"""
BINARY = """
add sub mul div pow minimum maximum hypot logaddexp multiply subtract divide true_divide rsub atan2 arctan2 fmod
remainder copysign
"""
EXPRESSIONS = {
    **{f"torch.{name}": lambda x, y, name=name: getattr(torch, name)(x) for name in UNARY.split()},
    **{f"F.{name}": lambda x, y, name=name: getattr(F, name)(x) for name in ACTIVATIONS.split()},
    **{f"torch.{name}(x, y)": lambda x, y, name=name: getattr(torch, name)(x, y) for name in BINARY.split()},
    "operators": lambda x, y: (2 - x) * y / (1 + abs(y)) - (-x + 3) / 4 + 1 / (x * x + 2) - 0.5 * y + x % 0.7,
    "powers": lambda x, y: x**2 + y**3 + (x * x + 1) ** -2 + (y * y + 1) ** 0.5 + (x * x + 1) ** 1.5 + x**0.0,
    "bases": lambda x, y: 2**x + 0.5**y + (x * x + 1) ** y,
    "masks": lambda x, y: torch.where((x > 0) & ~(y <= 0.5) | (x == y), x, 2.0) * (x != 0) + (x < y) * y + (x >= 1) * x,
    "methods": lambda x, y: x.sigmoid().mul(y).add(x, alpha=2).clamp(min=-1).tanh() + x.clip(-0.5, 0.5) + x.square(),
    "keywords": lambda x, y: (
        torch.clamp(input=x, min=-1, max=1) + torch.lerp(x, y, 0.3) + torch.addcmul(x, x, y, value=2)
    ),
    "functional": lambda x, y: F.elu(x, alpha=2.0) + F.gelu(y, approximate="tanh") + F.softplus(x, beta=2.0),
    "slopes": lambda x, y: F.leaky_relu(x, 0.2) + F.hardtanh(y, -0.5, 2.0) + F.softshrink(x, 0.3) + F.celu(x, 2.0),
    "modules": lambda x, y: nn.ELU()(x) + nn.Threshold(0.1, 2.0)(y) + nn.Softsign()(x) + nn.SiLU(inplace=False)(y),
    "scalars": lambda x, y: torch.tensor(0.5) * x + y * torch.tensor(2) + torch.sub(x, y, alpha=3),
    "constants": lambda x, y: x * torch.full_like(x, 3.0) + torch.zeros_like(y) + torch.ones_like(y),
    "bounds": lambda x, y: torch.clamp(x, max=0.3) + torch.clamp_min(y, 0.2) + y.clamp_max(0.1),
    "variance": lambda x, y: y * x.var(-1, keepdim=True) + torch.var(y, -1, unbiased=False, keepdim=True),
    "reductions": lambda x, y: x / (1 + x.square().sum(-1, keepdim=True)) + y.mean(dim=-1, keepdim=True).mean(-1, True),
    "logit": lambda x, y: torch.logit(torch.sigmoid(x)) + torch.logit(y, 0.1) + torch.addcdiv(x, y, 1 + x * x),
    "neutral": lambda x, y: torch.true_divide(x, 1) + 0 * x + x * 1 - 0 - (-(y - 0.0)) + y**1 + (0 - x) + x * -1,
    "nan_to_num": lambda x, y: torch.nan_to_num(torch.log(x), 2.0, 3.0, -3.0) * y.nan_to_num(posinf=1.0, neginf=0.0),
    "comparisons": lambda x, y: torch.gt(x, y) * x + torch.ge(x, 0.5) * y + torch.less(x, y),
    "detached": lambda x, y: x * y.detach() + (x - torch.detach(x.mean(-1, keepdim=True))).square(),
    "logical": lambda x, y: torch.where(
        torch.logical_not(torch.logical_or(x > 1, torch.logical_and(y > 1, x < 0))), x, y
    ),
}
TOLERANCES = {"F.hardsigmoid": 1e-7}
"""Tolerances other than 1e-13. torch's derivative of hardsigmoid multiplies by 1 / 6 in float32."""


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_operations_equal_torch(name):
    special = torch.tensor([-25.0, -6, -3, -1, -0.5, 0, 0.5, 1, 3, 6, 25], dtype=torch.float64)
    x = torch.cat([special.repeat(11), noise(1, 200)]).view(-1, 3)
    y = torch.cat([special.repeat_interleave(11), noise(2, 200)]).view(-1, 3)
    step = Step(Of(EXPRESSIONS[name]), N=x.shape[0], H=3)
    step.leaves["ih"] = torch.cat([x, y], 1).requires_grad_()
    results = step.by_graphs()
    for key, expected in step.by_reference().items():
        tolerance = TOLERANCES.get(name, 1e-13)
        torch.testing.assert_close(results[key], expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def test_every_operation_is_tested():
    tested = {node.op for function in EXPRESSIONS.values() for node in equations_of(Of(function)).nodes}
    assert set(OPERATIONS) <= tested


@pytest.mark.parametrize(
    ("step", "operation"),
    [
        (lambda self, a, s: torch.sort(a.x)[0], r"torch\.sort"),
        (lambda self, a, s: a.x.cumsum(-1), r"torch\.Tensor\.cumsum"),
        (lambda self, a, s: torch.softmax(a.x, -1), r"torch\.softmax"),
        (lambda self, a, s: F.dropout(a.x), r"torch\.nn\.functional\.dropout"),
        (lambda self, a, s: a.x.add_(1), r"torch\.Tensor\.add_"),
        (lambda self, a, s: a.x[:, :1], "indexing"),
        (lambda self, a, s: a.x if a.x.mean() > 0 else s.h, r"torch\.mean with these arguments"),
        (lambda self, a, s: a.x / a.x.sum(0), "a reduction without dim=-1 and keepdim=True"),
        (lambda self, a, s: a.x if (a.x > 0) else s.h, "a branch on a computed value"),
        (lambda self, a, s: a.x * torch.ones(6), "a Tensor that is neither a number nor"),
        (lambda self, a, s: a.x * "1", "a str that is neither a number nor"),
        (lambda self, a, s: math.exp(a.x), "the number inside a tensor"),
        (lambda self, a, s: torch.div(a.x, 2, rounding_mode="floor"), r"torch\.div with these arguments"),
        (lambda self, a, s: torch.sigmoid(a.x, out=s.h), r"torch\.sigmoid with these arguments"),
        (lambda self, a, s: F.relu(a.x, inplace=True), r"torch\.relu with these arguments"),
        (lambda self, a, s: a.x.mean(-1, keepdim=True), "for state 'h' a value that is not one number per unit"),
        (
            lambda self, a, s: a.hh(a.hh.x.mean(-1, keepdim=True)).x,
            "a recurrent product with something that is not as wide",
        ),
    ],
)
def test_errors_name_the_unsupported_operation(step, operation):
    cell = type("Foo", (Cell,), {"gates": ("x",), "step": step})()
    with pytest.raises(
        NotTraceable,
        match=rf"cell Foo: step uses {operation}.*, which the kernels do not support; it runs on the reference engine",
    ):
        build_trace(equations_of(cell), COSTS)


def test_error_for_a_step_that_does_not_support_a_projection():
    with pytest.raises(
        NotTraceable, match=r"cell GRU: step uses torch\.mul of a value of the hidden size and one of the projected"
    ):
        build_trace(equations_of(cells.GRU(), projected=True), COSTS)


def test_values_have_the_names_of_the_steps_variables():
    names = {node.name for node in build_trace(equations_of(cells.LSTM()), COSTS).forward.nodes} - {None}
    assert names == {"i", "f", "g", "o", "c", "h", "i_pre", "f_pre", "g_pre", "o_pre", "h_prev", "c_prev"}
    traced = build_trace(equations_of(cells.LSTM()), COSTS)
    assert {"d_i_pre", "d_f_pre", "d_c", "d_c_prev", "d_h_prev"} <= {node.name for node in traced.backward.nodes}
    assert traced.ih == ("i", "f", "g", "o")
    assert [node.name for node in build_trace(equations_of(cells.GRU()), COSTS).hh_only] == ["n_hh"]


def test_the_backward_graph_reads_exactly_the_saved_values():
    traced = build_trace(equations_of(Everything()), COSTS)
    read = {node.op for node in traced.backward.nodes if isinstance(node.op, ops.Saved)}
    assert read == set(traced.saved)
    projected = ops.Saved(ops.SavedKind.PROJECTED, 0)
    assert projected in build_trace(equations_of(Clipped(), projected=True), COSTS).saved
    assert projected not in build_trace(equations_of(cells.LSTM(), projected=True), COSTS).saved


def test_callbacks_of_the_garbage_collection_are_not_traced():
    def call_impure_function(phase, info):
        time.perf_counter()

    threshold = gc.get_threshold()
    gc.callbacks.append(call_impure_function)
    gc.set_threshold(1)
    try:
        assert equations_of(cells.LSTM()).nodes
        assert gc.isenabled()
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(call_impure_function)


def test_a_profiler_is_active_again_after_tracing():
    profiler = cProfile.Profile()
    with profiler:
        build_trace(equations_of(cells.LSTM()), COSTS)
        torch.sigmoid(torch.zeros(1))
    assert any("sigmoid" in str(entry.code) for entry in profiler.getstats())


class Unread(Cell):
    """States that the step never reads, and a recurrent product of a state other than the output."""

    gates = ("x",)
    state = ("h", "c", "d")

    def step(self, a, s):
        y = torch.sigmoid(a.x)
        return torch.tanh(a.hh(y).x + a.hh(s.d).x), y * y.mean(-1, keepdim=True), torch.tanh(a.ih.x + s.d)


def test_unread_states_and_products_of_other_states():
    report = gg.check(Unread())
    assert report, str(report)
