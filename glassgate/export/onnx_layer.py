"""Builds the ONNX model of a layer: its inputs, levels, directions, merged outputs and residual connections."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir.passes.common import RemoveUnusedNodesPass
from onnxscript.optimizer import fold_constants_ir

from glassgate.engines.symbolic.arrays.units import step_of_units
from glassgate.engines.symbolic.equations import Equations
from glassgate.export import onnx_native
from glassgate.export.errors import ExportError
from glassgate.export.network import Level, ModelInputs, levels_of
from glassgate.export.onnx_arrays import emit_arrays, extent_of
from glassgate.export.onnx_ops import Operators
from glassgate.layers import levels as walks
from glassgate.layers.stack import Recurrent

_BATCH = "N_or_1"
"""The batch axis of inputs with default values. Extent 1 means one value for all sequences."""


@dataclass(frozen=True)
class Call:
    """The inputs of one direction, time-major.

    Attributes:
        x: (L, N, H_in).
        initial: the initial states, (N, width of the state) each.
        lengths: (N,) int32; None if every sequence has L steps.
        resets: (L, N) bool; None without resets.
        is_single_step: whether there is only one step (L = 1), which needs no loop.
    """

    x: ir.Value
    initial: Sequence[ir.Value]
    lengths: ir.Value | None = None
    resets: ir.Value | None = None
    is_single_step: bool = False


def emit_direction(
    op: Operators, equations: Equations, weights: Mapping[str, ir.Value], reverse: bool, call: Call
) -> tuple[ir.Value, list[ir.Value]]:
    """Emit the nodes of one direction of one level: the ONNX operator of its cell if possible, otherwise a `Scan`.

    Args:
        op: collects the nodes.
        equations: the equations of one step.
        weights: parameters by the names of `Cell.shapes`.
        reverse: whether time runs from the last step to the first.
        call: the inputs of the direction.

    Returns:
        the output (L, N, H_out), zero after the end of each sequence, and the final states.
    """
    operator, hidden_size = onnx_native.operator_for(equations), extent_of(weights["weight_ih"]) // len(equations.gates)
    # ONNX Runtime implements its recurrent operators only for float32.
    if operator is None or call.resets is not None or weights["weight_ih"].dtype is not ir.DataType.FLOAT:
        output_size = extent_of(weights["weight_hr"]) if equations.projected else hidden_size
        return emit_arrays(op, step_of_units(equations, hidden_size, output_size), weights, reverse, call)
    output, final = onnx_native.emit(op, operator, weights, hidden_size, reverse, call.x, call.lengths, call.initial)
    if call.lengths is not None:  # for an empty sequence, the operators return zeros instead of the initial states
        empty = op("Equal", op.unsqueeze(call.lengths, 1), op.constant(np.int32(0)))
        final = [op("Where", empty, first, last) for first, last in zip(call.initial, final, strict=True)]
    return output, final


def emit_levels(
    op: Operators, levels: Sequence[Level], call: Call, states: Mapping[str, Sequence[ir.Value]]
) -> tuple[list[ir.Value], dict[str, list[ir.Value]]]:
    """Emit the nodes of a layer, level by level.

    Args:
        op: collects the nodes.
        levels: the levels of the layer.
        call: the inputs of the layer, without initial states.
        states: the initial states, by the label of each direction.

    Returns:
        the outputs (two if merge is "none"), and the final states by the label of each direction.
    """
    final = {}

    def emit_level(structure: walks.Level, level_inputs: list[ir.Value]) -> list[ir.Value]:
        outputs = []
        for k, spec in enumerate(levels[structure.depth].directions):
            weights = {
                name: op.initializer(ir.tensor(weight.numpy(), name=f"{name}{spec.suffix}"))
                for name, weight in spec.weights.items()
            }
            inputs = replace(call, x=level_inputs[k % len(level_inputs)], initial=states[spec.label])
            op.scope = f"{spec.label}."
            if spec.equations is None:
                output, final[spec.label] = emit_arrays(op, spec.step, weights, spec.reverse, inputs)
            else:
                output, final[spec.label] = emit_direction(op, spec.equations, weights, spec.reverse, inputs)
            op.scope = ""
            outputs.append(output)
        return outputs

    def halve(total: ir.Value) -> ir.Value:
        return op("Mul", total, op("CastLike", op("Constant", value_float=0.5), total))

    operations = walks.Operations(lambda outputs: op.concat(outputs, 2), partial(op, "Add"), halve)
    return walks.walk([level.structure for level in levels], call.x, emit_level, operations), final


def layer_model(layer: Recurrent, model_inputs: ModelInputs, opset: int) -> ir.Model:
    """The ONNX model of one layer.

    Args:
        layer: the layer.
        model_inputs: the inputs of the model.
        opset: the version of ONNX's operators.
    """
    return _LayerModel(layer, model_inputs).build(opset)


class _LayerModel:
    """Builds the ONNX model of one layer.

    Args:
        layer: the layer.
        model_inputs: the inputs of the ONNX model.
    """

    def __init__(self, layer: Recurrent, model_inputs: ModelInputs) -> None:
        self.layer, self.model_inputs, self.step = layer, model_inputs, model_inputs.step
        self.levels = levels_of(layer, "to_onnx")
        weight = self.levels[0].directions[0].weights["weight_ih"]
        if weight.dtype not in (torch.float32, torch.float64):
            raise ExportError(
                f"to_onnx: parameters must be float32 or float64, got {weight.dtype}; call layer.float() first"
            )
        self.dtype = ir.DataType.FLOAT if weight.dtype == torch.float32 else ir.DataType.DOUBLE
        self.op = Operators()
        self.inputs: list[ir.Value] = []

    def build(self, opset: int) -> ir.Model:
        """Build the model for a version of ONNX's operators."""
        op, layer = self.op, self.layer
        batch_first = layer.batch_first and not self.step
        leading_axes = ["N"] if self.step else ["N", "L"] if batch_first else ["L", "N"]
        x = self.add_input("input", self.dtype, [*leading_axes, layer.input_size])
        data = op("Transpose", x, perm=[1, 0, 2]) if batch_first else op.unsqueeze(x, 0) if self.step else x
        self.batch_size = op("Shape", data, start=1, end=2)
        lengths = self.add_lengths(op("Shape", data, start=0, end=1)) if self.model_inputs.lengths else None
        resets = None
        if self.model_inputs.resets:
            resets = self.add_input(
                "resets", ir.DataType.BOOL, [f"{axis}_or_1" for axis in leading_axes], np.array([[False]])
            )
            resets = op("Expand", resets, op("Shape", x, start=0, end=2))
            resets = op("Transpose", resets, perm=[1, 0]) if batch_first else resets
        outputs, final = emit_levels(op, self.levels, Call(data, (), lengths, resets, self.step), self.add_states())
        results: list[ir.Value] = []
        for value, name in zip(outputs, ("output", "output_reverse"), strict=False):
            width = self.levels[-1].structure.widths[len(results)]
            value = (
                op("Transpose", value, perm=[1, 0, 2]) if batch_first else op.squeeze(value, 0) if self.step else value
            )
            results.append(self.name_output(name, value, [*leading_axes, width]))
        results += self.name_final_states(final)
        graph = ir.Graph(
            self.inputs,
            results,
            nodes=op.nodes,
            initializers=op.initializers,
            opset_imports={"": opset},
            name=type(layer).__name__,
        )
        model = ir.Model(graph, ir_version=9, producer_name="glassgate")
        fold_constants_ir(model, input_size_limit=2**40, output_size_limit=2**40)
        RemoveUnusedNodesPass()(model)
        return model

    def add_input(
        self, name: str, dtype: ir.DataType, shape: Sequence[int | str], default: np.ndarray | None = None
    ) -> ir.Value:
        """Add an input of the model, which has a default value if `model_inputs.defaults`."""
        if default is None or not self.model_inputs.defaults:
            shape = [axis.removesuffix("_or_1") if isinstance(axis, str) else axis for axis in shape]
            value = self.op.input(name, dtype, shape)
        else:
            value = self.op.initializer(ir.tensor(default, name=self.op.unique(name)))
            value.shape = ir.Shape(shape)
        self.inputs.append(value)
        return value

    def name_output(self, name: str, value: ir.Value, shape: Sequence[int | str]) -> ir.Value:
        """Name a value as an output of the model."""
        named = self.op("Identity", value, name=name)
        named.dtype, named.shape = self.dtype, ir.Shape(shape)
        return named

    def add_lengths(self, steps: ir.Value) -> ir.Value:
        """Add the input `lengths`. Returns the lengths in the form that operators need: (N,) int32, at most `steps`."""
        op, default = self.op, np.array([np.iinfo(np.int32).max])
        lengths = self.add_input("lengths", ir.DataType.INT64, [_BATCH], default)
        return op("Expand", op("Cast", op("Min", lengths, steps), to=ir.DataType.INT32), self.batch_size)

    def add_states(self) -> dict[str, list[ir.Value]]:
        """Add inputs for the initial states. Returns the states, (N, width), by the label of each direction."""
        op = self.op
        directions = [direction for level in self.levels for direction in level.directions]
        by_direction: dict[str, list[ir.Value]] = {direction.label: [] for direction in directions}
        for state in self.layer.cell.state:
            defaults = [d.initial[state].reshape(d.shapes[state]).numpy() for d in directions]
            if len({v.shape for v in defaults}) == 1:
                default = np.stack(defaults)[:, None]
                shape = [len(defaults), _BATCH, *default.shape[2:]]
                stacked = self.add_input(f"{state}_0", self.dtype, shape, default)
                initial = [op("Gather", stacked, op.constant(np.int64(k)), axis=0) for k in range(len(defaults))]
            else:
                initial = [
                    self.add_input(f"{state}_0{d.suffix}", self.dtype, [_BATCH, *v.shape], v[None])
                    for d, v in zip(directions, defaults, strict=True)
                ]
            for direction, value in zip(directions, initial, strict=True):
                if len(direction.shapes[state]) != 1:
                    value = op("Reshape", value, op.constant([0, direction.widths[state]]))
                full = op.concat([self.batch_size, op.constant([direction.widths[state]])], 0)
                by_direction[direction.label].append(op("Expand", value, full))
        return by_direction

    def name_final_states(self, final: Mapping[str, Sequence[ir.Value]]) -> list[ir.Value]:
        """Name the final states as outputs, in the layout of the initial states."""
        outputs = []
        directions = [direction for level in self.levels for direction in level.directions]
        for k, state in enumerate(self.layer.cell.state):
            shapes = [direction.shapes[state] for direction in directions]
            values = [
                final[d.label][k]
                if len(shape) == 1
                else self.op("Reshape", final[d.label][k], self.op.constant([0, *shape]))
                for d, shape in zip(directions, shapes, strict=True)
            ]
            if len(set(shapes)) == 1:
                stacked = self.op.concat([self.op.unsqueeze(value, 0) for value in values], 0)
                outputs.append(self.name_output(f"{state}_n", stacked, [len(values), "N", *shapes[0]]))
            else:
                outputs += [
                    self.name_output(f"{state}_n{d.suffix}", value, ["N", *shape])
                    for d, value, shape in zip(directions, values, shapes, strict=True)
                ]
        return outputs
