"""Checks that the equations of a cell compute the same values and gradients as its step, on random numbers."""

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from glassgate.cell import Cell, Named, PreActivations, RecurrentTerm, Weights
from glassgate.engines.reference_step import advance
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.evaluate import Leaves, new_states
from glassgate.engines.symbolic.arrays.matrices import BIAS, PROJECTION, WEIGHT, with_sums
from glassgate.engines.symbolic.arrays.step import ArrayStep
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph_cell import GraphCell
from glassgate.engines.symbolic.step import run_in_new_thread

_ROWS, _UNITS = 3, 4
_TOLERANCE = 1e-6
"""The tolerance relative to the largest value. It allows for operations that torch rounds to float32."""


class NotDifferentiable(RuntimeError):
    """A step has an operation without a derivative in torch, such as `2 % x`; the message names it."""


def first_difference(cell: Cell, equations: Equations) -> str | None:
    """The name of the first value or gradient for which the equations and the step differ; None if all agree."""
    return run_in_new_thread(lambda: _first_difference(cell, equations))


def _first_difference(cell: Cell, equations: Equations) -> str | None:
    generator = torch.Generator().manual_seed(0)
    for draw in (_normal, _positive):
        inputs = _inputs(cell, equations.projected, lambda *shape, draw=draw: draw(generator, shape))
        actual, expected = _results(GraphCell(equations), *inputs), _results(cell, *inputs)
        for name, value in expected.items():
            if not _equal(actual[name], value):
                return name
    return None


def first_array_difference(cell: Cell, step: ArrayStep) -> str | None:
    """The name of the first state or gradient for which a traced step of arrays and the cell differ, or None."""
    return run_in_new_thread(lambda: _first_array_difference(cell, step))


def _first_array_difference(cell: Cell, step: ArrayStep) -> str | None:
    generator, step = torch.Generator().manual_seed(0), with_sums(step)
    blocks: dict[ops.Leaf, tuple[int, tuple[str, ...]]] = {
        ops.InputHalf(name): (_ROWS, axes) for name, axes in step.gates.items()
    }
    blocks |= {ops.State(name): (_ROWS, axes) for name, axes in step.state.items()}
    blocks |= {ops.Input(name): (_ROWS, axes) for name, axes in step.inputs.items()}
    blocks |= {value.op: (_ROWS, value.axes) for value in step.values if isinstance(value.op, ops.Noise)}
    blocks |= {value.op: (1, value.axes) for value in step.values if isinstance(value.op, ops.Parameter)}
    for draw in (_normal, _positive):
        leaves = {
            key: draw(generator, (rows, *[step.sizes[axis] for axis in axes])) for key, (rows, axes) in blocks.items()
        }
        actual = _array_results(step, lambda values: new_states(step, values, _ROWS), leaves)
        expected = _array_results(step, lambda values: _new_states_of_cell(cell, step, values), leaves)
        for name, value in expected.items():
            if not _equal(actual[name], value):
                return name
    return None


def _new_states_of_cell(cell: Cell, step: ArrayStep, values: Leaves) -> Sequence[Tensor]:
    like = next(iter(values.values()))

    def parameter(name: str) -> Any:
        parameters = {op: v[0] for op, v in values.items() if isinstance(op, ops.Parameter)}
        own = {op.gate: v for op, v in parameters.items() if op.name == name}
        if cell.parameters[name].per_gate:
            blocks = {gate: [step.sizes[axis] for axis in axes] for gate, axes in step.gates.items()}
            return Named(blocks, [own[g] if g in own else like.new_zeros(shape) for g, shape in blocks.items()])
        if own:
            return own[None]
        return like.new_zeros([a if isinstance(a, int) else step.sizes[a] for a in cell.parameters[name].axes])

    def product(u: Tensor) -> Named:
        names, results = [name for name, half in step.reads.items() if "h" in half], []
        for name in names:
            shape = [step.sizes[axis] for axis in step.gates[name]]
            result = u.new_zeros(len(u), *shape)
            if ops.Parameter(WEIGHT, name) in values:
                matrix = values[ops.Parameter(WEIGHT, name)].reshape(prod(shape), -1)
                result = (u.flatten(1) @ matrix.T).view(result.shape) + values[ops.Parameter(BIAS, name)]
            results.append(result)
        return Named(names, results)

    def leaves(kind: type[ops.Leaf]) -> Named:
        own = {op.name: v * 1.0 for op, v in values.items() if isinstance(op, kind)}
        return Named(own, own.values())

    ih, s = leaves(ops.InputHalf), leaves(ops.State)
    hh = RecurrentTerm(product, next(iter(s))) if cell.recurrent else None
    reads = {name: half for name, half in step.reads.items() if half != "xh" and cell.recurrent}
    drawn = {name: 1.0 for name in cell.noise} | leaves(ops.Noise).__dict__
    inputs = leaves(ops.Input) if step.inputs else None
    a = PreActivations(ih, hh, Named(drawn, drawn.values()), reads=reads, input=inputs)
    matrix = values.get(PROJECTION)
    projection = None if matrix is None else lambda h: h @ matrix[0].T
    return cell.new_state(a, s, Named(cell.parameters, map(parameter, cell.parameters)), projection)


def _array_results(
    step: ArrayStep, function: Callable[[Leaves], Sequence[Tensor]], leaves: Leaves
) -> dict[str, Tensor]:
    """The new states, and the gradients of their weighted sum with respect to all leaves."""
    leaves = {key: v.clone().requires_grad_() for key, v in leaves.items()}
    new = function(leaves)
    total: Any = sum((v * (k + 1 + v.detach().sign())).sum() for k, v in enumerate(new))
    d = _gradients(total, leaves.values())
    values = {f"state {name!r}": v.detach() for name, v in zip(step.state, new, strict=True)}
    return values | {f"the gradient of {leaf.name!r}": v.detach() for leaf, v in zip(leaves, d, strict=True)}


def _gradients(total: Tensor, leaves: Iterable[Tensor]) -> Sequence[Tensor]:
    try:
        return torch.autograd.grad(total, list(leaves), allow_unused=True, materialize_grads=True)
    except RuntimeError as error:
        if "is not implemented" in str(error):
            raise NotDifferentiable(str(error)) from None
        raise


def _normal(generator: torch.Generator, shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _positive(generator: torch.Generator, shape: tuple[int, ...]) -> Tensor:
    return torch.rand(shape, generator=generator, dtype=torch.float64) * 0.9 + 0.05


def _inputs(cell: Cell, projected: bool, draw: Callable[..., Tensor]) -> tuple[Weights, Tensor, list[Tensor], Weights]:
    """Parameters, `W_ih x + b_ih`, states and noise of one step."""
    units = _UNITS * cell.heads
    out = 2 * cell.heads if projected else units
    shapes = cell.shapes(1, units, out if projected else 0, bias=False)
    weights = {name: draw(*shape) for name, shape in shapes.items() if name != "weight_ih"}
    states = [draw(_ROWS, units if k else out) for k in range(len(cell.state))]
    noise = {
        name: draw(_ROWS, states[cell.state.index(n.state)].shape[1] if n.state else units)
        for name, n in cell.noise.items()
    }
    return weights, draw(_ROWS, len(cell.gates) * units), states, noise


def _results(cell: Cell, weights: Weights, ih: Tensor, states: list[Tensor], noise: Weights) -> dict[str, Tensor]:
    """The new states, and the gradients of their weighted sum with respect to `ih`, states and weights."""
    leaves: dict[str, Tensor] = {"W_ih x + b_ih": ih}
    leaves |= {f"the state {name!r}": v for name, v in zip(cell.state, states, strict=True)}
    leaves |= {f"the parameter {name!r}": v for name, v in weights.items()}
    leaves = {name: v.clone().requires_grad_() for name, v in leaves.items()}
    parameters = {name: leaves[f"the parameter {name!r}"] for name in weights}
    # Pass copies, because a step may write to its states in place.
    before = tuple(leaves[f"the state {name!r}"] * 1.0 for name in cell.state)
    noise = {name: v.clone() for name, v in noise.items()}
    new = advance(cell, parameters, leaves["W_ih x + b_ih"] * 1.0, before, noise)
    total: Any = sum((v * (k + 1 + v.detach().sign())).sum() for k, v in enumerate(new) if v.requires_grad)
    values = {f"state {name!r}": v.detach() for name, v in zip(cell.state, new, strict=True)}
    if isinstance(total, Tensor):
        d = _gradients(total, leaves.values())
        values |= {f"the gradient of {name}": v.detach() for name, v in zip(leaves, d, strict=True)}
    else:
        values |= {f"the gradient of {name}": torch.zeros_like(v) for name, v in leaves.items()}
    return values


def _equal(actual: Tensor, expected: Tensor) -> bool:
    scale = max(1.0, float(expected.nan_to_num(0.0, 0.0, 0.0).abs().max())) if expected.numel() else 1.0
    tolerance = _TOLERANCE, _TOLERANCE * scale
    return bool(torch.isclose(actual.double(), expected.double(), *tolerance, equal_nan=True).all())
