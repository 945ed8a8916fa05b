"""The description of a layer that the emitters of ONNX, C and JavaScript read.

A layer (`gg.Recurrent`) consists of `num_layers` levels. A level has one or two directions, each with its step and
weights.
"""

import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines.symbolic.arrays.cell import Sizes
from glassgate.engines.symbolic.arrays.step import ArrayStep, array_step
from glassgate.engines.symbolic.arrays.units import step_of_units
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.step import equations_of
from glassgate.engines.symbolic.values import NotTraceable
from glassgate.engines.traced_cells import current_equations, traced_array_step
from glassgate.export.errors import ExportError
from glassgate.layers import levels as walks
from glassgate.layers.arguments import checked_weights, default_states
from glassgate.layers.parts import sizes_of
from glassgate.layers.stack import Recurrent


@dataclass(frozen=True)
class ModelInputs:
    """The inputs of an exported layer, as in the arguments of `gg.to_onnx`.

    Attributes:
        step: whether the model computes one step instead of whole sequences.
        lengths: whether the lengths of the sequences are an input.
        resets: whether the reset mask is an input. It marks the steps before which states are reset.
        defaults: whether all inputs except the data have default values.
    """

    step: bool
    lengths: bool
    resets: bool
    defaults: bool


@dataclass(frozen=True)
class DirectionSpec:
    """One direction of one level.

    Attributes:
        label: for example "layer0.forward".
        suffix: the suffix of parameter names, for example "_l0_reverse".
        weights: the parameters by the names of `Cell.shapes`.
        reverse: whether time runs from the last step to the first.
        input_size, hidden_size: H_in and H_cell.
        shapes: the shape of each state in `hx`, by name; the first state is the output, (H_out,).
        initial: the initial value of each state, by name, flat.
        heads: the number of blocks of `weight_hh`; each multiplies the units of one head.
        step: one step in eval mode.
        equations: the equations of the step; None for a cell that declares axes.
    """

    label: str
    suffix: str
    weights: dict[str, Tensor]
    reverse: bool
    input_size: int
    hidden_size: int
    shapes: dict[str, tuple[int, ...]]
    initial: dict[str, Tensor]
    heads: int
    step: ArrayStep
    equations: Equations | None

    @property
    def widths(self) -> dict[str, int]:
        """The number of elements of each state, by name."""
        return {name: prod(shape) for name, shape in self.shapes.items()}

    @property
    def output_size(self) -> int:
        """H_out."""
        return next(iter(self.widths.values()))

    @property
    def output_axes(self) -> tuple[str, ...]:
        """The axes of the output."""
        return next(iter(self.step.state.values()))

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the parameters."""
        return self.weights["weight_ih"].dtype


@dataclass(frozen=True)
class Level:
    """One of the `num_layers` levels of a layer.

    Attributes:
        structure: the inputs, the merging and the residual connections of the level.
        directions: the forward direction, or the forward and the reverse direction.
    """

    structure: walks.Level
    directions: tuple[DirectionSpec, ...]


def levels_of(layer: Recurrent, operation: str) -> list[Level]:
    """The levels of a layer in eval mode. The weights are copied to the CPU.

    Args:
        layer: the layer.
        operation: the first word of error messages.

    Raises:
        ExportError: the layer is being recorded or edited, or the step of its cell cannot be traced.
    """
    if layer.glassgate.is_observed:
        raise ExportError(f"{operation}: the layer is being recorded or edited; export it outside of that block")
    cell, parts = layer.glassgate.eval_cell, layer.glassgate.parts
    equations = None if cell.declaration is not None else _equations(layer, cell, operation)
    states = default_states(layer, layer.weight_ih_l0.detach(), 1)
    directions = []
    for part, weights, initial in zip(parts, checked_weights(layer), states, strict=True):
        input_size, sizes = part.shapes["weight_ih"][1], {name: prod(form.shape) for name, form in part.forms.items()}
        if equations is None:
            input_size, *_ = layer_sizes = sizes_of(cell, part)
            step = _array_step(cell, layer_sizes, operation)
        else:
            step = step_of_units(equations, part.hidden_size, sizes[cell.state[0]])
        spec = DirectionSpec(
            part.label,
            part.suffix,
            {name: weight.detach().cpu().clone() for name, weight in weights.items()},
            part.direction == 1,
            input_size,
            part.hidden_size,
            {name: form.shape for name, form in part.forms.items()},
            {name: v.detach().cpu().reshape(-1).clone() for name, v in zip(part.forms, initial, strict=True)},
            cell.heads,
            step,
            equations,
        )
        directions.append(spec)
    return [Level(level, tuple(own)) for level, own in walks.by_level(layer.glassgate.levels, directions)]


def _equations(layer: Recurrent, cell: Cell, operation: str) -> Equations:
    try:
        return current_equations(cell, bool(layer.proj_size))
    except NotTraceable as error:
        trace = partial(equations_of, cell, bool(layer.proj_size))
        raise _refusal(operation, str(error), cell, trace) from error


def _array_step(cell: Cell, sizes: Sizes, operation: str) -> ArrayStep:
    """The step of a cell that declares axes, in a layer of these sizes."""
    step = traced_array_step(cell, *sizes)
    if isinstance(step, str):
        raise _refusal(operation, step, cell, partial(array_step, cell, *sizes))
    return step


def _refusal(operation: str, reason: str, cell: Cell, trace: Callable[[], object]) -> ExportError:
    """The error for a step that cannot be traced."""
    place = _location(cell, trace)
    reason = reason.removesuffix("; it runs on the reference engine")
    return ExportError(f"{operation}: {reason}{place}; write this step with other operations")


def _location(cell: Cell, trace: Callable[[], object]) -> str:
    """The file and the line of the operation in `step` that cannot be traced, as text; empty if unknown."""
    try:
        trace()
    except NotTraceable as not_traceable:
        error: BaseException | None = not_traceable
        frames: list[traceback.FrameSummary] = []
        while error is not None:
            frames += traceback.extract_tb(error.__traceback__)
            error = error.__cause__ or error.__context__
        code = getattr(inspect.unwrap(type(cell).step), "__code__", None)
        lines = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
        if lines:
            text = f": {lines[-1].line}" if lines[-1].line else ""  # code from a string has no text
            return f" ({Path(lines[-1].filename).name}, line {lines[-1].lineno}{text})"
    return ""
