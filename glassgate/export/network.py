"""The description of a layer that the emitters of ONNX, C and JavaScript read.

A layer (`gg.Recurrent`) consists of `num_layers` levels. A level has one or two directions, each with its equations and
weights.
"""

import inspect
import traceback
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines.symbolic.equations import Equations
from glassgate.engines.symbolic.graph import NotTraceable
from glassgate.engines.symbolic.step import equations_of
from glassgate.engines.traced_cells import current_equations
from glassgate.export.errors import ExportError
from glassgate.layers.calls import checked_weights, default_states
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
        equations: the equations of one step in eval mode.
        weights: the parameters by the names of `Cell.shapes`.
        reverse: whether time runs from the last step to the first.
        input_size, hidden_size: H_in and H_cell.
        widths: the width of each state, by name; the first state is the output.
        initial: the initial value of each state, by name, (width,).
    """

    label: str
    suffix: str
    equations: Equations
    weights: dict[str, Tensor]
    reverse: bool
    input_size: int
    hidden_size: int
    widths: dict[str, int]
    initial: dict[str, Tensor]

    @property
    def output_size(self) -> int:
        """H_out."""
        return next(iter(self.widths.values()))


@dataclass(frozen=True)
class Level:
    """One of the `num_layers` levels of a layer.

    Attributes:
        directions: the forward direction, or the forward and the reverse direction.
        merge: how the outputs of two directions are merged: "concat", "sum", "mean", or "none".
        residual: for each output of the level, whether the input of the level is added to it.
    """

    directions: tuple[DirectionSpec, ...]
    merge: str
    residual: tuple[bool, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """The width of each output of the level. Two directions have two outputs if merge is "none", otherwise one."""
        outputs = tuple(direction.output_size for direction in self.directions)
        if len(outputs) == 1 or self.merge == "none":
            return outputs
        return (sum(outputs),) if self.merge == "concat" else outputs[:1]


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
    if cell.declaration is not None:
        raise ExportError(
            f"{operation}: cell {type(layer.cell).__name__} declares axes, and exported programs store one number per "
            "unit; run the layer in Python (gg.freeze), or export it for one length with torch.export.export or "
            "torch.onnx.export(..., dynamo=True)"
        )
    try:
        equations = current_equations(cell, bool(layer.proj_size))
    except NotTraceable as error:
        reason = str(error).removesuffix("; it runs on the reference engine")
        place = _location(cell, bool(layer.proj_size))
        raise ExportError(f"{operation}: {reason}{place}; write this step with other operations") from error
    states = default_states(layer, layer.weight_ih_l0.detach(), 1)
    directions = [
        DirectionSpec(
            part.label,
            part.suffix,
            equations,
            {name: weight.detach().cpu().clone() for name, weight in weights.items()},
            part.direction == 1,
            part.shapes["weight_ih"][1],
            part.hidden_size,
            part.widths,
            {name: v.detach().cpu().reshape(-1).clone() for name, v in zip(part.widths, initial, strict=True)},
        )
        for part, weights, initial in zip(parts, checked_weights(layer), states, strict=True)
    ]
    levels: list[Level] = []
    for first in range(0, len(directions), layer.num_directions):
        level = Level(tuple(directions[first : first + layer.num_directions]), layer.merge, ())
        below = levels[-1].widths if levels else ()
        residual = tuple(layer.residual and width == input for width, input in zip(level.widths, below, strict=False))
        levels.append(Level(level.directions, layer.merge, residual or (False,) * len(level.widths)))
    return levels


def _location(cell: Cell, projected: bool) -> str:
    """The file and the line of the operation in `step` that cannot be traced, as text; empty if unknown."""
    try:
        equations_of(cell, projected)
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
