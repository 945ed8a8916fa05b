"""Emits a layer as ONNX nodes: its levels, directions, merged outputs and residual connections."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import onnx_ir as ir

from glassgate.engines.symbolic.arrays.units import step_of_units
from glassgate.engines.symbolic.equations import Equations
from glassgate.export import onnx_native
from glassgate.export.network import Level
from glassgate.export.onnx_arrays import emit_arrays, extent_of
from glassgate.export.onnx_ops import Operators
from glassgate.layers import levels as walks


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
