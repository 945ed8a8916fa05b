"""A traced graph computes what the step computes, and its backward graph what autograd computes."""

import pytest
import torch
from torch import Tensor

import glassgate.cells as cells
from glassgate.cell import Cell, Named, PreActivations, Recurrent
from glassgate.engines.graph import Node
from glassgate.engines.reference import advance
from glassgate.engines.trace import trace
from tests.engines.interpreter import evaluate


def close(actual: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(actual, wanted, rtol=1e-11, atol=1e-12)


def check(cell: Cell, projected: bool = False, N: int = 5, H: int = 6, P: int = 4) -> None:
    """One step by the graphs, against the reference's step and its autograd."""
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()

    out = P if projected else H
    weights = {name: random(*shape) for name, shape in cell.shapes(3, H, P if projected else 0).items()}
    state = tuple(random(N, out if k == 0 else H) for k in range(len(cell.state)))
    ih = random(N, len(cell.gates) * H)
    new = advance(cell, weights, ih, state)
    d_new = [torch.randn(v.shape, dtype=torch.float64, generator=generator) for v in new]
    inputs = [ih, *state, *weights.values()]
    wanted = torch.autograd.grad(new, inputs, d_new, allow_unused=True)
    wanted = [torch.zeros_like(v) if d is None else d for v, d in zip(inputs, wanted, strict=True)]

    traced = trace(cell, projected)
    ih_by_gate = dict(zip(cell.gates, ih.detach().chunk(len(cell.gates), -1), strict=True))

    def parameter(name: str, gate: str | None) -> Tensor:
        value = weights[name].detach()
        return value if gate is None else value.chunk(len(cell.gates))[cell.gates.index(gate)]

    def forward_leaf(node: Node) -> Tensor:
        if node.op == "parameter":
            return parameter(*node.args)
        return ih_by_gate[node.args[0]] if node.op == "ih" else state[cell.state.index(node.args[0])].detach()

    with torch.no_grad():
        value = evaluate(traced.forward, cell, weights, forward_leaf)
        for k, v in enumerate(new):
            close(value[traced.forward.outputs["state", k]].expand_as(v), v.detach())

        def backward_leaf(node: Node) -> Tensor:
            if node.op == "saved":
                return value[traced.saved[node.args]]
            return d_new[cell.state.index(node.args[0])] if node.op == "grad" else forward_leaf(node)

        d = evaluate(traced.backward, cell, weights, backward_leaf)
        d = {key: d[node] for key, node in traced.backward.outputs.items()}
    got = assembled(cell, traced, d, state, weights, ih)
    for name, v, w in zip(["ih", *cell.state, *weights], inputs, wanted, strict=True):
        if name not in ("weight_ih", "bias_ih"):
            torch.testing.assert_close(got[name], w, rtol=1e-10, atol=1e-10, msg=lambda m, name=name: f"d_{name}: {m}")


def assembled(cell, traced, d, state, weights, ih):
    """Gradients by name from the columns, as what surrounds the kernel puts them together."""
    H = ih.shape[1] // len(cell.gates)
    products = [*traced.hh_only, *traced.shared]
    got = {name: torch.zeros_like(v) for name, v in weights.items()}
    got["ih"] = torch.zeros_like(ih)
    for k, gate in enumerate(traced.ih):
        rows = slice(cell.gates.index(gate) * H, (cell.gates.index(gate) + 1) * H)
        got["ih"][:, rows] = d["d_pre", len(traced.hh_only) + k]
    if cell.recurrent:
        d_hh = torch.zeros_like(ih)
        weight = weights["weight_hh"].detach().requires_grad_()
        for k, product in enumerate(products):
            gate, u = product.args
            value = (
                state[0] if u.op == "state" else d["left", next(i for i, left in enumerate(traced.left) if left is u)]
            )
            d_gate = torch.zeros_like(ih)
            at = cell.gates.index(gate) * H
            d_gate[:, at : at + H] = d["d_pre", k]
            d_hh += d_gate
            from glassgate.engines.reference import recur

            with torch.enable_grad():
                got["weight_hh"] += torch.autograd.grad(
                    recur(value.detach(), weight, None, cell.heads), weight, d_gate
                )[0]
        got["bias_hh"] = d_hh.sum(0)
    if "weight_hr" in weights:
        got["weight_hr"] = d["d_hr", 0].T @ d["raw", 0]
    for k, (name, gate) in enumerate(traced.parameters):
        at = 0 if gate is None else cell.gates.index(gate) * H
        got[name][at : at + H] = d["d_parameter", k].expand(ih.shape[0], H).sum(0)
    for k, name in enumerate(cell.state):
        got[name] = d["d_state", k] if ("d_state", k) in d else torch.zeros_like(state[k])
    return got


@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("cell", [cells.RNN(), cells.RNN("relu"), cells.LSTM()], ids=repr)
def test_cells(cell, projected):
    check(cell, projected)


@pytest.mark.parametrize("cell", [cells.GRU(), cells.GRUv1()], ids=repr)
def test_cells_without_projection(cell):
    check(cell)
