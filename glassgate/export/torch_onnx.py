"""Translates the operator `layer_forward` to ONNX nodes for `torch.onnx.export(dynamo=True)`.

The first use of torch's exporter imports this module (see `glassgate/__init__.py`).
"""

from collections.abc import Sequence
from itertools import count
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnxscript import evaluator
from torch.onnx._internal.exporter._torchlib._torchlib_registry import onnx_impl

from glassgate.engines.arrays.passes import ArrayPasses
from glassgate.engines.arrays.program import parameter_name
from glassgate.engines.plan import by_direction
from glassgate.engines.torch_op.calls import SingleCall
from glassgate.engines.torch_op.operators import parse_layer
from glassgate.export.errors import ExportError
from glassgate.export.onnx_arrays import emit_steps, extent_of
from glassgate.export.onnx_layer import Call, emit_direction
from glassgate.export.onnx_ops import Operators

_calls = count()
_ZERO, _ONE = np.int64(0), np.int64(1)


@onnx_impl(torch.ops.glassgate.layer_forward.default, trace_only=True, no_compile=True)
def layer_forward(
    tensors: Sequence[Any],
    batch_sizes: ir.Value | None,
    resets: ir.Value | None,
    layer: str,
    dtype: object,
    save: bool,
) -> list[ir.Value]:
    """Add the ONNX nodes of the operator `glassgate::layer_forward`. Returns its results in the order of its schema.

    The parameters have the names of the schema in `engines.torch_op.schema`.
    """
    passes, _, all_states = parse_layer(layer, torch.float32)  # equations do not depend on the dtype
    if all_states:
        raise ExportError("torch.onnx.export: return_states=True cannot be exported; read the output and final states")
    op, call = Operators(f"glassgate{next(_calls)}."), (tensors, batch_sizes, resets, save)
    results = _emit_arrays(op, passes, *call) if isinstance(passes, ArrayPasses) else _emit_layer(op, passes, *call)
    recorder: Any = evaluator.default()
    recorder.nodes.extend(op.nodes)
    return results


def _emit_arrays(
    op: Operators,
    passes: ArrayPasses,
    tensors: Sequence[Any],
    batch_sizes: ir.Value | None,
    resets: ir.Value | None,
    save: bool,
) -> list[ir.Value]:
    """Emit a direction of a cell that declares axes. The arguments are those of `_emit_layer`."""
    program, (gates, *others) = passes.compiled.program, tensors
    step, weights = program.step, dict(zip(map(parameter_name, program.parameter_axes), others, strict=False))
    initial = others[len(weights) :][: len(step.state)]
    if (passes.restarts and resets is not None) or program.noise:
        raise ExportError("torch.onnx.export: restart= and noise cannot be exported; call model.eval() first")
    layout = _Rows(op, gates, batch_sizes, initial[0])
    sequences = {"gates": layout.padded(gates)} if any("x" in half for half in step.reads.values()) else {}
    if program.inputs:
        sequences["x"] = layout.padded(tensors[-1])
    elif not sequences:
        sequences["x"] = layout.padded(gates)
    masks = None if resets is None else layout.padded(resets)
    call = Call(next(iter(sequences.values())), initial, layout.lengths, masks)
    output, final = emit_steps(op, step, weights, gates.dtype, sequences, call, passes.reverse)
    flat = layout.flat(output, prod(program.sizes[axis] for axis in next(iter(step.state.values()))))
    saved = [op("Identity", flat)] if save else []  # for the backward pass, which an exported model lacks
    return [flat, *final, *saved]


def _emit_layer(
    op: Operators,
    passes: SingleCall,
    tensors: Sequence[Any],
    batch_sizes: ir.Value | None,
    resets: ir.Value | None,
    save: bool,
) -> list[ir.Value]:
    """Emit each direction of a layer.

    Args:
        op: collects the nodes.
        passes: the passes of the call.
        tensors, batch_sizes, resets, save: the arguments of the operator.
    """
    results = list[ir.Value]()
    data, *operands = tensors
    directions: Any = by_direction(passes.plans, operands)
    for plan, own in directions:
        weights = dict(zip(plan.weights, own, strict=False))
        initial = list(own[len(weights) : len(weights) + len(plan.equations.state)])
        if plan.restarts or plan.noise:
            raise ExportError("torch.onnx.export: restart= and noise cannot be exported; call model.eval() first")
        rows = _Rows(op, data, batch_sizes, initial[0])
        has_projection = "weight_hr" in weights
        output_size = extent_of(weights["weight_hr" if has_projection else "weight_ih"])
        output_size //= 1 if has_projection else len(plan.equations.gates)
        call = Call(rows.padded(data), initial, rows.lengths, rows.padded(resets) if resets is not None else None)
        output, final = emit_direction(op, plan.equations, weights, plan.reverse, call)
        results.append(rows.flat(output, output_size))
        # With `save`, the operator also returns the other states at every step, for the backward pass. An exported
        # model has no backward pass, so it returns copies of the output instead.
        results += [op("Identity", results[-1]) for _ in initial[1:]] if save else []
        results += final
    return results


class _Rows:
    """Converts flat rows (S, W), time-major, to padded steps (L, N, W) and back.

    S is the total number of steps of all sequences, and W is the width of a row. Packed sequences are stored as flat
    rows; see `engines.contract.Steps`.

    Args:
        op: collects the nodes.
        data: the flat rows, (S, W).
        batch_sizes: the number of rows of each step, (L,); None if every step has N rows.
        state: an initial state, (N, W).
    """

    def __init__(self, op: Operators, data: ir.Value, batch_sizes: ir.Value | None, state: ir.Value) -> None:
        self.op, self.is_packed, self.lengths = op, batch_sizes is not None, None
        self.N = op("Shape", state, start=0, end=1)
        if batch_sizes is not None:
            self.S = op("Shape", data, start=0, end=1)
            self.L = op("Shape", batch_sizes, start=0, end=1)
            sequence = op("Range", op.constant(_ZERO), op.squeeze(self.N), op.constant(_ONE))
            first_row = op("CumSum", batch_sizes, op.constant(_ZERO), exclusive=1)
            is_valid = op("Less", op.unsqueeze(sequence, 0), op.unsqueeze(batch_sizes, 1))
            row = op("Add", op.unsqueeze(first_row, 1), op.unsqueeze(sequence, 0))
            self.row = op("Where", is_valid, row, self.S)  # (L, N); padding refers to an extra row at the end
            steps = op("Cast", is_valid, to=ir.DataType.INT32)
            self.lengths = op("ReduceSum", steps, op.constant([0]), keepdims=0)

    def padded(self, flat: ir.Value) -> ir.Value:
        """Convert flat rows (S, ...) to padded steps (L, N, ...)."""
        op = self.op
        if self.is_packed:
            last = op("Sub", self.S, op.constant([1]))
            return op("Gather", flat, op("Min", self.row, last), axis=0)
        trailing = [op("Shape", flat, start=1)]
        return op("Reshape", flat, op.concat([op.constant([-1]), self.N, *trailing], 0))

    def flat(self, padded: ir.Value, width: int) -> ir.Value:
        """Convert padded steps (L, N, W) to flat rows (S, W), without the padding."""
        op = self.op
        if not self.is_packed:
            return op("Reshape", padded, op.constant([-1, width]))
        rows = op("Add", self.S, op.constant([1]))
        zeros = op("Expand", op("CastLike", op.constant([0]), padded), op.concat([rows, op.constant([width])], 0))
        placed = op("ScatterND", zeros, op.unsqueeze(self.row, 2), padded)
        return op("Slice", placed, op.constant([0]), self.S, op.constant([0]))
