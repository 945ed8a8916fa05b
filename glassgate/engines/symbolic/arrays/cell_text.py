"""Cells with declared axes as JSON text, and back. A text is never executed, and is checked before kernels read it."""

import json
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

import torch
from torch import Tensor

from glassgate.cell import Noise, Parameter
from glassgate.cell_axes import UNITS, Declaration, Gate, State, check_axes
from glassgate.cell_shapes import Shapes, shapes_of
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.cell import ArrayCell, Sizes
from glassgate.engines.symbolic.arrays.evaluate import Evaluation
from glassgate.engines.symbolic.arrays.step import ArrayStep
from glassgate.engines.symbolic.arrays.text import format_step, parse_step
from glassgate.engines.symbolic.arrays.value import Value
from glassgate.engines.symbolic.equations import NotEquations
from glassgate.engines.symbolic.operations import ARITY
from glassgate.engines.symbolic.ops import Index

FORMAT = 1
"""The version of the text format. `parse_cell` rejects other versions."""
_LEAVES = ops.InputHalf | ops.State | ops.Noise | ops.Input | ops.Parameter | ops.Constant
_PRODUCTS = ops.RecurrentHalf | ops.Projection
_OTHERS = ops.Sum | ops.Max | ops.CumulativeSum | ops.Gather | ops.Merge | ops.Concatenate | _PRODUCTS


def format_cell(cell: ArrayCell) -> str:
    """Return a cell as text. Initial values of parameters are left out."""
    declared = cell.declaration
    assert declared is not None
    content = {
        "arrays": FORMAT,
        "gates": {name: [gate.axes, gate.reads] for name, gate in declared.gates.items()},
        "state": {name: [state.axes, state.start] for name, state in declared.state.items()},
        "inputs": dict(declared.inputs),
        "parameters": {name: [p.per_gate, p.axes] for name, p in cell.parameters.items()},
        "noise": {name: astuple(noise) for name, noise in cell.noise.items()},
        "recurrent": cell.recurrent,
        "heads": cell.heads,
        "axis_sizes": dict(cell.axis_sizes),
        "steps": [[*sizes, json.loads(format_step(step, with_locals=True))] for sizes, step in cell.steps.items()],
    }
    return json.dumps(content, separators=(",", ":"))


def is_cell_text(text: str) -> bool:
    """Whether a text describes a cell with declared axes, and not `Equations`."""
    return text.startswith('{"arrays":')


def parse_cell(text: str) -> ArrayCell:
    """Return the cell of a text of `format_cell`.

    Raises:
        NotEquations: the text does not describe a cell.
    """
    try:
        return _parse(json.loads(text))
    except NotEquations:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RuntimeError, AssertionError) as error:
        raise NotEquations(f"this program's step cannot be read ({type(error).__name__}: {error})") from None


def _parse(content: Any) -> ArrayCell:
    if content["arrays"] != FORMAT:
        raise ValueError(f"expected format {FORMAT}, got {content['arrays']!r}")
    names = [*content["gates"], *content["state"], *content["inputs"], *content["parameters"], *content["noise"]]
    if invalid := [name for name in names if not name.isidentifier()]:
        raise ValueError(f"expected names, got {invalid[0]!r}")
    declaration = Declaration(
        {name: Gate(_axes(axes), reads) for name, (axes, reads) in content["gates"].items()},
        {name: State(_axes(axes), float(start)) for name, (axes, start) in content["state"].items()},
        {name: _axes(axes) for name, axes in content["inputs"].items()},
    )
    parameters = {
        name: Parameter(0.0, bool(per_gate), _axes(axes)) for name, (per_gate, axes) in content["parameters"].items()
    }
    noise = {name: Noise(*fields) for name, fields in content["noise"].items()}
    sizes = {axis: int(size) for axis, size in content["axis_sizes"].items()}
    steps: dict[Sizes, ArrayStep] = {}
    for input_size, hidden_size, *proj_size, step in content["steps"]:  # older texts have no `proj_size`
        (width,) = proj_size or [0]
        steps[int(input_size), int(hidden_size), int(width)] = parse_step(json.dumps(step))
    rest = bool(content["recurrent"]), int(content["heads"]), sizes
    cell = ArrayCell(declaration, parameters, noise, *rest, steps)
    for layer_sizes, step in steps.items():
        _check(cell, step, shapes_of(cell, *layer_sizes))
    return cell


def _axes(axes: list[Any]) -> tuple[Any, ...]:
    return check_axes("a cell", tuple(axes))


def _check(cell: ArrayCell, step: ArrayStep, shapes: Shapes) -> None:
    """Raise unless a step fits the cell and its values fit each other: a kernel would read memory outside of them."""
    for axis, size in step.sizes.items():
        if not axis.rstrip("'").isidentifier() or type(size) is not int or size < 1:
            raise ValueError(f"an axis {axis!r} of size {size!r}")

    def shape(axes: tuple[str, ...]) -> tuple[int, ...]:
        return tuple([step.sizes[axis] for axis in axes])

    blocks: dict[ops.Leaf, tuple[int, ...]] = {ops.InputHalf(name): each for name, each in shapes.gates.items()}
    blocks |= {ops.State(name): each for name, each in shapes.state.items()}
    blocks |= {ops.Input(name): each for name, each in shapes.inputs.items()}
    for name, parameter in cell.parameters.items():
        own = {gate: shapes.gates[gate] for gate in cell.gates} if parameter.per_gate else {None: parameter.axes}
        blocks |= {ops.Parameter(name, gate): shapes.of(axes) for gate, axes in own.items()}
    declared = {"gates": shapes.gates, "state": shapes.state, "inputs": shapes.inputs}
    for kind, expected in declared.items():
        if {name: shape(axes) for name, axes in getattr(step, kind).items()} != dict(expected):
            raise ValueError(f"{kind} whose shapes differ from those of the cell")
    if {name: gate.reads for name, gate in shapes.declaration.gates.items()} != dict(step.reads):
        raise ValueError("gates that read other halves of the weights")
    leaves: dict[ops.Leaf, Tensor] = {}
    for value in step.values:
        _check_value(cell, value, step.sizes)
        if isinstance(value.op, ops.Leaf):
            if not isinstance(value.op, ops.Noise) and blocks.get(value.op) != shape(value.axes):
                raise ValueError(f"a leaf {value.op} of the shape {shape(value.axes)}")
            leaves[value.op] = torch.zeros(1, *shape(value.axes))
    _check_shapes(step, leaves, shapes.sizes[UNITS])


def _check_value(cell: ArrayCell, value: Value, sizes: Mapping[str, int]) -> None:
    op, inputs = value.op, value.inputs
    if isinstance(op, str):
        is_complete = len(value.args) == ARITY[op]
        if not is_complete or not all(isinstance(arg, Value | float | int) for arg in value.args) or not inputs:
            raise ValueError(f"an operation {op} of {value.args}")
    elif isinstance(op, _LEAVES):
        is_known = not isinstance(op, ops.Noise) or op.name in cell.noise
        if inputs or not is_known or (isinstance(op, ops.Constant) and not isinstance(op.number, float | int)):
            raise ValueError(f"a leaf {op}")
    elif not isinstance(op, _OTHERS) or not inputs:
        raise ValueError(f"an operation {op}")
    if isinstance(op, ops.Gather):
        for axis, each in zip(inputs[0].axes, op.indices, strict=True):
            _check_index(each, sizes, sizes[axis])


def _check_index(each: Index, sizes: Mapping[str, int], size: int) -> None:
    """Raise unless the positions of an index are inside of an axis of this size."""
    ends = [(0, factor * (sizes[axis] - 1)) for axis, factor in each.terms]
    first, last = (each.offset + sum(end(pair) for pair in ends) for end in (min, max))
    if first < 0 or (each.modulus is None and last >= size) or each.modulus not in (None, size):
        raise ValueError(f"the positions {first} to {last} of an axis of size {size}")


def _check_shapes(step: ArrayStep, leaves: Mapping[ops.Leaf, Tensor], units: int) -> None:
    """Raise unless every value has the axes that it claims to have."""

    def product(value: Value, u: Tensor) -> Tensor:
        axes = next(iter(step.state.values()))
        if isinstance(value.op, ops.Projection):
            if u.shape != (1, units):
                raise ValueError("a projection of a value that has not one number per unit")
            return torch.zeros(1, *(step.sizes[axis] for axis in axes))
        assert isinstance(value.op, ops.RecurrentHalf)
        if {*value.inputs[0].axes} != {*axes}:
            raise ValueError("a recurrent product of a value that has not the axes of the output")
        return torch.zeros(1, *(step.sizes[axis] for axis in step.gates[value.op.gate]))

    evaluation = Evaluation(step.sizes, leaves, product, torch.zeros(1))
    for value, tensor in zip(step.values, evaluation(step.values), strict=True):
        if tensor.shape[1:] != tuple(step.sizes[axis] for axis in value.axes) or len({*value.axes}) < len(value.axes):
            raise ValueError(f"a value {value.op} of the shape {tuple(tensor.shape[1:])} with the axes {value.axes}")
    for value, axes in zip(step.states, step.state.values(), strict=True):
        if not {*value.axes} <= {*axes}:
            raise ValueError(f"a new state with the axes {value.axes} instead of {axes}")
    for name, local in step.locals.items():
        if not name.isidentifier() or not {*local.value.axes} <= {*local.dims}:
            raise ValueError(f"a variable {name!r} with the axes {local.dims}")
