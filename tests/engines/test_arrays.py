"""The graph of a step over named axes: its values and gradients equal those of the step in float64."""

from math import prod

import pytest
import torch

import glassgate as gg
from glassgate.cell import Named
from glassgate.cell_axes import Gate, Parameter
from glassgate.cell_shapes import shapes_of
from glassgate.engines.reference_step import Step
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.differentiate import gradient
from glassgate.engines.symbolic.arrays.evaluate import Evaluation
from glassgate.engines.symbolic.arrays.step import array_step
from glassgate.engines.symbolic.rewrite import in_primitives
from glassgate.engines.symbolic.values import NotTraceable
from tests.test_declared_axes import DeltaRule, Skip

ROWS, INPUTS = 3, 5


def make_cell(step, gates=None, state=None, **attributes):
    """A cell with matrix states whose step is a function of `a`, `s` and `p`."""
    attributes = {"heads": 2, "key": 3, "value": 4, "recurrent": False} | attributes
    gates = gates or {"k": ("heads", "key"), "v": ("heads", "value"), "b": ("heads",)}
    state = state or {"h": ("heads", "value"), "S": ("heads", "key", "value")}
    takes_p = bool(attributes.get("parameters"))
    method = (lambda self, a, s, p: step(a, s, p)) if takes_p else (lambda self, a, s: step(a, s))
    return type("A", (gg.Cell,), attributes | {"gates": gates, "state": state, "step": method})()


def check_against_autograd(cell, hidden_size, input_size=INPUTS):
    """Compare the graph of a cell and its gradient with the step and autograd, on random numbers."""
    torch.manual_seed(0)
    graph, shapes = array_step(cell, input_size, hidden_size), shapes_of(cell, input_size, hidden_size)
    weights = {k: torch.randn(v, dtype=torch.float64) for k, v in cell.shapes(input_size, hidden_size).items()}

    def draw(shape, rows=ROWS):
        return torch.randn((*([] if rows is None else [rows]), *shape), dtype=torch.float64, requires_grad=True)

    leaves = {ops.State(name): draw(shape) for name, shape in shapes.state.items()}
    gates = {name: draw(shapes.gates[name]) for name in shapes.declaration.gates_that_read("x")}
    leaves |= {ops.InputHalf(name): v for name, v in gates.items()}
    inputs = {name: draw(shape) for name, shape in shapes.inputs.items()}
    leaves |= {ops.Input(name): v for name, v in inputs.items()}
    for name, parameter in cell.parameters.items():
        if not parameter.per_gate:
            weights[name] = leaves[ops.Parameter(name)] = draw(shapes.of(parameter.axes), None)
    states = tuple(leaves[ops.State(name)] for name in cell.state)
    step = Step(cell, weights, hidden_size)
    expected = step(Named(gates, gates.values()), states, {}, Named(inputs, inputs.values()) if inputs else None)
    d_new = [torch.randn_like(v) for v in expected]
    loss = sum((v * d).sum() for v, d in zip(expected, d_new, strict=True))
    d_expected = dict(zip(leaves, torch.autograd.grad(loss, [*leaves.values()], materialize_grads=True), strict=True))

    def products(value, u):
        names, counts = shapes.declaration.gates_that_read("h"), shapes.rows("h")
        rows = dict(zip(names, weights["weight_hh"].split(counts), strict=True))
        if isinstance(value.op, ops.RecurrentTranspose):
            return (u.flatten(1) @ rows[value.op.gates[0]]).unflatten(1, shapes.state[cell.state[0]])
        gate = value.op.gate
        bias = dict(zip(rows, weights["bias_hh"].split(counts), strict=True))[gate]
        return (u.flatten(1) @ rows[gate].T + bias).unflatten(1, shapes.gates[gate])

    values = {key: (v[None] if isinstance(key, ops.Parameter) else v).detach() for key, v in leaves.items()}
    values |= {ops.Gradient(name): d for name, d in zip(cell.state, d_new, strict=True)}
    evaluation, derived = Evaluation(graph.sizes, values, products), gradient(graph)
    primitive = in_primitives([*graph.states, *derived.leaves.values()])
    evaluation(primitive.values())
    for name, new, true in zip(cell.state, graph.states, expected, strict=True):
        torch.testing.assert_close(
            evaluation.over(primitive[new], graph.state[name]).expand_as(true), true.detach(), rtol=1e-11, atol=1e-11
        )
    for key, true in d_expected.items():
        if key not in derived.leaves:
            assert not true.any(), f"the gradient of {key} is missing"
            continue
        axes = next(v.axes for v in graph.values if v.op == key)
        d = evaluation.over(primitive[derived.leaves[key]], axes)
        d = d.sum(0).expand_as(true) if isinstance(key, ops.Parameter) else d.expand_as(true)
        if isinstance(key, ops.Parameter) and len(evaluation.over(primitive[derived.leaves[key]], axes)) == 1:
            d = d * ROWS
        torch.testing.assert_close(
            d, true, rtol=1e-10, atol=1e-10, msg=lambda text, key=key: f"gradient of {key}: {text}"
        )
    return graph


def read(S, k):
    return (k[..., None] * S).sum(-2)


def outer(k, v):
    return k[..., :, None] * v[..., None, :]


STEPS = {
    "products": lambda a, s: (torch.tanh(read(s.S, a.k)), s.S + outer(a.k, a.v)),
    "einsum": lambda a, s: (
        torch.einsum("nhk,nhkv->nhv", a.k, s.S),
        s.S * 0.5 + torch.einsum("nhk,nhv->nhkv", a.k, a.v),
    ),
    "matmul": lambda a, s: ((a.k.unsqueeze(-2) @ s.S).squeeze(-2), s.S + a.k.unsqueeze(-1) @ a.v.unsqueeze(-2)),
    "softmax": lambda a, s: (
        read(s.S, a.k.softmax(-1)) + s.S.logsumexp(-2),
        torch.log_softmax(s.S, 2) * a.v[..., None, :],
    ),
    "means": lambda a, s: (s.S.mean(-2) + s.S.var(-2), (s.S - s.S.mean((-1, -2), keepdim=True)) * outer(a.k, a.v)),
    "norms": lambda a, s: (
        read(s.S, torch.nn.functional.normalize(a.k, dim=-1)),
        s.S / a.v.norm(dim=-1, keepdim=True)[..., None],
    ),
    "layer and mean square norms": lambda a, s: (
        torch.nn.functional.layer_norm(a.v, (4,), None, None, 1e-3),
        torch.nn.functional.rms_norm(s.S, (3, 4), eps=0.1) + outer(a.k, a.v),
    ),
    "maxima": lambda a, s: (s.S.amax(-2) * a.v, s.S * a.k.amin(-1, keepdim=True)[..., None]),
    "cumsum": lambda a, s: (read(s.S.cumsum(-2), a.k) + a.b.cumsum(-1)[..., None], s.S + outer(a.k, a.v)),
    "expand": lambda a, s: (a.b[..., None].expand(-1, 2, 4).cumsum(-1), a.b[..., None, None] + s.S * 0),
    "parts": lambda a, s: (
        torch.cat([a.v[..., :1] * s.S[..., 0, 1:2], a.v[..., 1:]], -1),
        torch.stack([s.S[:, :, 1], *s.S.unbind(2)[1:]], 2),
    ),
    "chunks": lambda a, s: (
        torch.cat(a.v.chunk(2, -1)[::-1], -1) + a.v.split([1, 3], -1)[0],
        s.S.select(-1, 2)[..., None] + s.S,
    ),
    "roll and flip": lambda a, s: (a.v.roll(1, -1) + a.v.flip(-1), s.S.roll((1, -2), (-2, -1)) * a.b[..., None, None]),
    "a product of an axis with itself": lambda a, s: (
        read(s.S, a.k),
        s.S - outer(a.k, a.k) @ s.S * a.b[..., None, None],
    ),
    "permutations": lambda a, s: (read(s.S, a.k), s.S + s.S.transpose(1, 2).movedim(2, 1).permute(0, 1, 2, 3)),
    "merged axes": lambda a, s: (
        a.v.flatten(1).softmax(-1).unflatten(1, (2, 4)),
        s.S.reshape(s.S.shape[0], -1).tanh().view(-1, 2, 3, 4),
    ),
    "heads that mix": lambda a, s: (a.v + a.v.sum(1, keepdim=True), s.S * a.b.mean(1)[:, None, None, None]),
    "conditions": lambda a, s: (a.v, s.S * torch.where(a.b > 0, a.b, a.b.exp())[..., None, None]),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_graph_equals_its_step(name):
    check_against_autograd(make_cell(STEPS[name]), 8)


def test_the_delta_rule_has_no_positions():
    graph = check_against_autograd(DeltaRule(2, 4, 3), 6)
    kinds = {value.op if isinstance(value.op, str) else type(value.op) for value in graph.values}
    assert kinds <= {ops.InputHalf, ops.State, ops.Sum, "mul", "add", "sub", "div", "sqrt", "sigmoid"}
    assert graph.named["S"].axes == ("heads", "key", "value")
    assert not graph.joined


def test_recurrent_products_and_parameters_of_any_shape():
    def step(a, s, p):
        context = torch.tanh(s.c @ p.U.mT + a.hh(s.h * a.z).z[:, :3] * p.scale)
        return a.z + p.gain[:, None].sum() + context @ p.V, context

    cell = make_cell(
        step,
        {"z": ("units",), "f": Gate(("context",), reads="h")},
        {"h": ("units",), "c": ("context",)},
        parameters={
            "U": Parameter(axes=("context", "context")),
            "V": Parameter(axes=("context", "units")),
            "scale": Parameter(1.0, axes=()),
            "gain": Parameter(axes=("heads",)),
        },
        context=3,
        heads=1,
        recurrent=True,
    )
    check_against_autograd(cell, 4)


def test_delayed_states():
    check_against_autograd(Skip(), 4)


def test_inputs():
    def step(a, s):
        return a.z * torch.exp(-torch.relu(a.input.dt)[:, None]) + a.input.x.sum(-1, keepdim=True) * s.h

    cell = make_cell(step, {"z": ("units",)}, {"h": ("units",)}, inputs={"x": ("features",), "dt": ()}, heads=1)
    assert cell.shapes(INPUTS, 4)["weight_ih"] == (4, INPUTS - 1)
    check_against_autograd(cell, 4)


@pytest.mark.parametrize(
    ("reason", "step"),
    [
        ("mixes the rows of a batch", lambda a, s: (a.v - a.v.mean(0), s.S)),
        ("the number of sequences", lambda a, s: (a.v * float(a.v.shape[0]), s.S)),
        ("a branch on a value", lambda a, s: (a.v if a.b.sum(-1) > 0 else -a.v, s.S)),
        ("torch.sort", lambda a, s: (a.v.sort(-1)[0], s.S)),
        ("random numbers", lambda a, s: (a.v * torch.rand(()), s.S)),
    ],
)
def test_other_steps_are_refused(reason, step):
    with pytest.raises(NotTraceable, match=reason):
        array_step(make_cell(step), INPUTS, 8)


def test_shapes_that_do_not_fit():
    def step(a, s):
        k = a.k.softmax(-1)
        return a.v, s.S + k[..., None] * a.v

    line = r"cell A: line \d+ of the step, `return a.v, s.S \+ k\[..., None\] \* a.v`: `\*` combines"
    with pytest.raises(gg.ShapeError, match=line):
        gg.Recurrent(make_cell(step), INPUTS, 8)(torch.randn(2, 1, INPUTS))
    with pytest.raises(
        gg.ShapeError, match=r"`\*` combines \(N, heads, key, 1\) = \(N, 2, 3, 1\) and \(N, heads, value\)"
    ):
        array_step(make_cell(lambda a, s: (a.k[..., None] * a.v, s.S)), INPUTS, 8)
    assert prod(array_step(make_cell(STEPS["products"]), INPUTS, 8).sizes.values()) == 2 * 3 * 4 * 8 * INPUTS


@pytest.mark.filterwarnings("ignore:cell A")  # an operation outside of kernels
@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            lambda a, s: (torch.einsum("nhk,nkhv->nhv", a.k, s.S), s.S),
            r"'h' has the sizes 2 and 3, 'k' has the sizes 3 and 2; use one letter for each axis",
        ),
        (
            lambda a, s: (a.v.view(-1, 7), s.S),
            r"reshape of \(N, heads, value\) = \(N, 2, 4\) to 7 numbers per row, which has 8",
        ),
        (
            lambda a, s: (torch.cat([a.v, s.S], -1), s.S),
            r"`cat` combines \(N, heads, value\) = .* and \(N, heads, key, value\) = .*, with different numbers",
        ),
        (
            lambda a, s: (torch.linalg.vecdot(s.S, a.k), s.S),
            r"line \d+ of the step, .*must match.* \(s.S is \(N, heads, key, value\) = \(1, 2, 3, 4\); "
            r"a.k is \(N, heads, key\) = \(1, 2, 3\)\); insert an axis",
        ),
    ],
)
def test_errors_of_shapes_have_remedies(step, message):
    layer = gg.Recurrent(make_cell(step), INPUTS, 8)
    with pytest.raises(gg.ShapeError, match=message):
        layer(torch.randn(2, 1, INPUTS))
