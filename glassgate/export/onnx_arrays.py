"""Emits a direction as ONNX nodes: a Scan over the steps, whose body is the graph of one step.

A value of the graph becomes a tensor (N, *axes), or a tensor (*axes) if it depends only on parameters. Such tensors are
computed before the loop.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from glassgate.engines.arrays.program import parameter_name
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.step import ArrayStep
from glassgate.engines.symbolic.arrays.tensor import ROWS
from glassgate.engines.symbolic.arrays.value import Value
from glassgate.engines.symbolic.operations import MASKS
from glassgate.engines.symbolic.ops import Index
from glassgate.engines.symbolic.rewrite import in_primitives
from glassgate.engines.symbolic.values import topological_order
from glassgate.export.onnx_elementwise import elementwise, number
from glassgate.export.onnx_ops import Operators

if TYPE_CHECKING:
    from glassgate.export.onnx_layer import Call

Axes = tuple[str, ...]


def emit_arrays(
    op: Operators, step: ArrayStep, weights: Mapping[str, ir.Value], reverse: bool, call: "Call"
) -> tuple[ir.Value, list[ir.Value]]:
    """Emit the nodes of one direction; see `onnx_layer.emit_direction`. States are flat, (N, width)."""
    x, sequences, dtype = call.x, dict[str, ir.Value](), weights["weight_ih"].dtype
    assert dtype is not None
    if extent_of(weights["weight_ih"]):
        features = prod(step.sizes[axis] for axis in next(iter(step.inputs.values()), ()))
        first = op("Slice", x, *map(op.constant, ([0], [features], [2]))) if step.inputs else x
        gates = op("MatMul", first, op("Transpose", weights["weight_ih"], perm=[1, 0]))
        sequences["gates"] = op("Add", gates, weights["bias_ih"]) if "bias_ih" in weights else gates
    if step.inputs or not sequences:
        sequences["x"] = x
    return emit_steps(op, step, weights, dtype, sequences, call, reverse)


def emit_steps(
    op: Operators,
    step: ArrayStep,
    weights: Mapping[str, ir.Value],
    dtype: ir.DataType,
    sequences: Mapping[str, ir.Value],
    call: "Call",
    reverse: bool,
) -> tuple[ir.Value, list[ir.Value]]:
    """Emit the steps of one direction as a Scan, or without a loop for a single step.

    Args:
        op: collects the nodes.
        step: one step.
        weights: the parameters of the direction, by the names of `Cell.shapes`, or those of kernels by their names.
        dtype: the dtype of numbers.
        sequences: "gates" (L, N, rows of `weight_ih`) if a gate reads the input, "x" (L, N, H_in) if the step or no
            gate reads the input.
        call: the initial states (N, width), lengths and resets. The input is not read.
        reverse: whether time runs from the last step to the first.
    """
    sequences = {**sequences, **({} if call.resets is None else {"reset": call.resets})}
    if call.is_single_step:
        at = {name: op.squeeze(value, 0) for name, value in sequences.items()}
        new = StepEmitter(op, op, step, weights, dtype).run(call.initial, at, call.initial)
        return op.unsqueeze(new[0], 0), new
    body = Operators(f"{op.scope}step.")
    widths = [prod(step.sizes[axis] for axis in axes) for axes in step.state.values()]
    states = [body.input(f"{name}_prev", dtype, [ROWS, width]) for name, width in zip(step.state, widths, strict=True)]
    at = {
        name: body.input(name, ir.DataType.BOOL, [ROWS])
        if name == "reset"
        else body.input(name, dtype, [ROWS, f"{name}_width"])
        for name in sequences
    }
    new = StepEmitter(body, op, step, weights, dtype).run(states, at, call.initial)
    results = [*new, new[0]]
    if call.lengths is not None:
        length = op("Shape", next(iter(sequences.values())), start=0, end=1)
        sequences["active"] = op.is_active(length, call.lengths)
        at["active"] = body.input("active", ir.DataType.BOOL, [ROWS])
        active = body.unsqueeze(at["active"], 1)
        after = [*states, number(body, 0.0, dtype)]
        results = [body("Where", active, value, old) for value, old in zip(results, after, strict=True)]
    shapes: list[list[int | str]] = [[ROWS, width] for width in (*widths, widths[0])]
    typed = [(value, dtype, shape) for value, shape in zip(results, shapes, strict=True)]
    *final, output = op.scan(body, [*states, *at.values()], typed, call.initial, [*sequences.values()], reverse)
    return output, final


def extent_of(weight: ir.Value, axis: int = 0) -> int:
    """The extent of an axis of a weight."""
    extent = None if weight.shape is None else weight.shape[axis]
    assert isinstance(extent, int)
    return extent


@dataclass(frozen=True)
class Emitted:
    """A value of the graph as a tensor. `axes` are those of the tensor; the first is `ROWS` if it depends on rows."""

    value: ir.Value
    axes: Axes


class StepEmitter:
    """Emits the graph of one step.

    Args:
        op: collects the nodes that depend on rows.
        outer: collects the nodes that depend only on parameters.
        step: the step.
        weights: the parameters of the direction, by the names of `Cell.shapes`.
        dtype: the dtype of numbers.
    """

    def __init__(
        self, op: Operators, outer: Operators, step: ArrayStep, weights: Mapping[str, ir.Value], dtype: ir.DataType
    ) -> None:
        self.op, self.outer, self.step, self.weights, self.dtype = op, outer, step, weights, dtype
        self.sizes = step.sizes
        self.emitted: dict[Value, Emitted] = {}
        self.leaves: dict[ops.Leaf, ir.Value] = {}
        """The gates, states and inputs by operation, (N, width)."""
        self.recurrent: dict[Value, dict[str, ir.Value]] = {}
        """The recurrent product of each vector, by gate."""
        self.readers: dict[Value, set[str]] = {}
        """The gates of the recurrent products of each vector."""

    def run(
        self, states: Sequence[ir.Value], rows: Mapping[str, ir.Value], restart: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """Emit the step. Return the new states, (N, width).

        Args:
            states: the states before the step, (N, width).
            rows: "gates" (N, rows of `weight_ih`) if a gate reads the input, "x" (N, H_in) if the step or no gate
                reads the input, and "reset" (N,) with resets.
            restart: the states after a reset.
        """
        op, step = self.op, self.step
        if "gates" in rows:
            self.leaves |= _leaves(ops.InputHalf, self._split(rows["gates"], self._gates_that_read("x")))
        if step.inputs:
            self.leaves |= _leaves(ops.Input, self._split(rows["x"], step.inputs))
        if "reset" in rows:
            reset = op.unsqueeze(rows["reset"], 1)
            states = [op("Where", reset, first, old) for first, old in zip(restart, states, strict=True)]
        self.leaves |= _leaves(ops.State, dict(zip(step.state, states, strict=True)))
        self.batch = op("Shape", states[0], start=0, end=1)
        primitive = in_primitives(step.states)
        results = [primitive[value] for value in step.states]
        values = topological_order(results)
        uses = Counter(arg for value in values for arg in value.inputs)
        for value in values:
            if isinstance(value.op, ops.RecurrentHalf):
                self.readers.setdefault(value.inputs[0], set()).add(value.op.gate)
        is_factor = {v.inputs[0] for v in values if self._is_product(v) and uses[v.inputs[0]] == 1}
        for value in values:
            if value not in is_factor:
                self.emitted[value] = self._emit(value)
        return [self._flat(self.emitted[v], axes) for v, axes in zip(results, step.state.values(), strict=True)]

    def _flat(self, x: Emitted, axes: Axes) -> ir.Value:
        """The tensor as (N, elements), with its elements in the order of these axes."""
        full = self._full(x, (ROWS, *axes))
        return full if len(axes) == 1 else self.op("Reshape", full, self.op.constant([0, self._count(axes)]))

    def _gates_that_read(self, half: str) -> dict[str, Axes]:
        """The axes of the gates with rows in the weights of x or h."""
        return {name: axes for name, axes in self.step.gates.items() if half in self.step.reads[name]}

    def _count(self, axes: Axes) -> int:
        return prod(self.sizes[axis] for axis in axes)

    def _split(self, value: ir.Value, blocks: Mapping[str, Axes]) -> dict[str, ir.Value]:
        """The columns of a value (N, columns) by name."""
        parts = [value]
        if len(blocks) > 1:
            counts = [*map(self._count, blocks.values())]
            parts = [*self.op.several("Split", len(counts), value, self.op.constant(counts), axis=1)]
        return dict(zip(blocks, parts, strict=True))

    def _emit(self, value: Value) -> Emitted:
        match value.op:
            case str(name):
                return self._elementwise(value, name)
            case ops.Parameter(weight, of_gate):
                return self._parameter(value, weight, of_gate)
            case ops.Leaf():
                return self._with_axes(self.leaves[value.op], value.axes)
            case ops.Constant(number):
                full = np.full(self._shape(value.axes), number, self.dtype.numpy())
                return Emitted(self.outer.constant(full), value.axes)
            case ops.RecurrentHalf(gate):
                return self._with_axes(self._product_with_state(value.inputs[0])[gate], value.axes)
            case ops.Projection():
                matrix = self.outer("Transpose", self.weights["weight_hr"], perm=[1, 0])
                vector = self._flat(self.emitted[value.inputs[0]], value.inputs[0].axes)
                return Emitted(self.op("MatMul", vector, matrix, name=value.name), (ROWS, *value.axes))
            case ops.Concatenate(axis, parts):
                return self._concatenate(value, axis, parts)
            case ops.Sum(axes) if value.inputs[0] not in self.emitted:
                a, b = value.inputs[0].inputs
                return self._matrix_product(self.emitted[a], self.emitted[b], axes)
        x = self.emitted[value.inputs[0]]
        match value.op:
            case ops.Sum(axes):
                return self._reduce("ReduceSum", x, axes, value.name)
            case ops.Max(axes):
                return self._max(x, axes, value.name)
            case ops.CumulativeSum(axis, reverse):
                op = self._ops(x)
                position = op.constant(np.int64(x.axes.index(axis)))
                return Emitted(op("CumSum", x.value, position, reverse=int(reverse), name=value.name), x.axes)
            case ops.Gather(indices):
                return self._gather(x, value.inputs[0].axes, indices)
            case ops.Merge(merged, into):
                rest = tuple(axis for axis in x.axes if axis not in merged)
                op, axes = self._ops(x), (*rest, into)
                return Emitted(op("Reshape", self._over(x, (*rest, *merged)), op.constant(self._shape(axes))), axes)
        raise AssertionError(f"a step has no {value.op}")

    def _ops(self, *args: Emitted) -> Operators:
        """Where an operation on these arguments is emitted."""
        return self.op if any(ROWS in arg.axes for arg in args) else self.outer

    def _shape(self, axes: Iterable[str]) -> list[int]:
        """The shape of axes in Reshape. The number of rows is written as 0."""
        return [0 if axis == ROWS else self.sizes[axis] for axis in axes]

    def _with_axes(self, flat: ir.Value, axes: Axes) -> Emitted:
        axes = (ROWS, *axes)
        value = flat if len(axes) == 2 else self.op("Reshape", flat, self.op.constant(self._shape(axes)))
        return Emitted(value, axes)

    def _parameter(self, value: Value, name: str, gate: str | None) -> Emitted:
        weights, key = self.weights, parameter_name(ops.Parameter(name, gate))
        weight = weights[key] if gate is None or key in weights else self._rows_of(weights[name], gate, self.step.gates)
        return Emitted(self.outer("Reshape", weight, self.outer.constant(self._shape(value.axes))), value.axes)

    def _rows_of(self, weight: ir.Value, gate: str, gates: Mapping[str, Axes]) -> ir.Value:
        """The rows of a gate in a parameter with the rows of several gates."""
        counts, k = [*map(self._count, gates.values())], [*gates].index(gate)
        return self.outer.rows(weight, sum(counts[:k]), sum(counts[: k + 1]))

    def _product_with_state(self, u: Value) -> dict[str, ir.Value]:
        """The pre-activations `W_hh u + b_hh` (N, rows) of each gate that reads u."""
        if u not in self.recurrent:
            op, outer, own, weights = self.op, self.outer, self._gates_that_read("h"), self.weights["weight_hh"]
            gates = {name: axes for name, axes in own.items() if name in self.readers[u]}

            def rows_of(name: str) -> ir.Value:
                weight = self.weights[name]
                return weight if gates == own else outer.concat([self._rows_of(weight, g, own) for g in gates], 0)

            axes = next(iter(self.step.state.values()))
            vector, heads = self._flat(self.emitted[u], axes), self._count(axes) // extent_of(weights, 1)
            if heads == 1:
                product = op("MatMul", vector, outer("Transpose", rows_of("weight_hh"), perm=[1, 0]))
                product = op("Add", product, rows_of("bias_hh")) if "bias_hh" in self.weights else product
                self.recurrent[u] = self._split(product, gates)
            else:
                self.recurrent[u] = self._product_by_heads(vector, heads, gates)
        return self.recurrent[u]

    def _product_by_heads(self, vector: ir.Value, heads: int, gates: Mapping[str, Axes]) -> dict[str, ir.Value]:
        """The pre-activations of gates, if each head of a gate reads one block of the vector."""
        op, outer, own = self.op, self.outer, self._gates_that_read("h")
        counts = {gate: self._count(axes) for gate, axes in gates.items()}

        def by_head(name: str) -> ir.Value:
            """A parameter as (heads, rows of all gates, columns)."""
            rows = ((self._rows_of(self.weights[name], gate, own), count) for gate, count in counts.items())
            blocks = [outer("Reshape", block, outer.constant([heads, count // heads, -1])) for block, count in rows]
            return outer.concat(blocks, 1)

        blocks = op("Transpose", op("Reshape", vector, op.constant([0, heads, -1])), perm=[1, 0, 2])
        product = op("MatMul", blocks, outer("Transpose", by_head("weight_hh"), perm=[0, 2, 1]))
        product = op("Transpose", product, perm=[1, 0, 2])
        if "bias_hh" in self.weights:
            product = op("Add", product, outer.squeeze(by_head("bias_hh"), 2))
        parts: Sequence[ir.Value] = [product]
        if len(gates) > 1:
            per_head = op.constant([count // heads for count in counts.values()])
            parts = op.several("Split", len(gates), product, per_head, axis=2)
        by_gate = zip(counts.items(), parts, strict=True)
        return {gate: op("Reshape", part, op.constant([0, n])) for (gate, n), part in by_gate}

    def _elementwise(self, value: Value, name: str) -> Emitted:
        args = [self.emitted[arg] if isinstance(arg, Value) else arg for arg in value.args]
        tensors = [arg for arg in args if isinstance(arg, Emitted)]
        op, rows = self._ops(*tensors), (ROWS,) if any(ROWS in arg.axes for arg in tensors) else ()
        axes = rows + value.axes
        operands = [self._over(a, axes) if isinstance(a, Emitted) else number(op, float(a), self.dtype) for a in args]
        return Emitted(elementwise(op, name, operands, self.dtype, value.name), axes)

    def _over(self, x: Emitted, axes: Axes) -> ir.Value:
        """The tensor with its axes in this order, and with axes of size 1 between them where they are missing."""
        op, order = self._ops(x), [axis for axis in axes if axis in x.axes]
        value = x.value if [*x.axes] == order else op("Transpose", x.value, perm=[x.axes.index(a) for a in order])
        first = axes.index(order[0]) if order else len(axes)
        missing = [k - first for k, axis in enumerate(axes) if k > first and axis not in x.axes]
        return op.unsqueeze(value, *missing) if missing else value

    def _full(self, x: Emitted, axes: Axes) -> ir.Value:
        """The tensor with all of these axes."""
        value = self._over(x, axes)
        if {*axes} == {*x.axes}:
            return value
        op = self.op if ROWS in axes else self.outer
        shape = [self.batch if axis == ROWS else op.constant([self.sizes[axis]]) for axis in axes]
        return op("Expand", value, op.concat(shape, 0))

    def _max(self, arg: Emitted, axes: Axes, name: str | None) -> Emitted:
        """ReduceMax, plus NaN if a number is NaN, which runtimes may ignore."""
        op = self._ops(arg)
        nan = op("Where", op("IsNaN", arg.value), arg.value, number(op, 0.0, self.dtype))
        largest = self._reduce("ReduceMax", arg, axes)
        sum_of_nan = self._reduce("ReduceSum", Emitted(nan, arg.axes), axes)
        return Emitted(op("Add", largest.value, sum_of_nan.value, name=name), largest.axes)

    def _reduce(self, kind: str, x: Emitted, axes: Axes, name: str | None = None) -> Emitted:
        op, positions = self._ops(x), [x.axes.index(axis) for axis in axes]
        value = op(kind, x.value, op.constant(positions), keepdims=0, name=name)
        return Emitted(value, tuple(axis for axis in x.axes if axis not in axes))

    def _is_product(self, value: Value) -> bool:
        """Whether a sum is a matrix product: of two values that both have the summed axes."""
        if not isinstance(value.op, ops.Sum):
            return False
        (x,), over = value.inputs, value.op.axes
        if x.op != "mul" or len(x.inputs) != 2 or any(arg.op in MASKS for arg in x.inputs):
            return False
        a, b = x.inputs
        return all(axis in a.axes and axis in b.axes for axis in over) and {*a.axes} != {*b.axes}

    def _matrix_product(self, a: Emitted, b: Emitted, over: Axes) -> Emitted:
        """The sum of `a * b` over axes, as a product of matrices. Other axes of both are axes of batches."""
        if ROWS in b.axes and ROWS not in a.axes:
            a, b = b, a
        op = self._ops(a)
        shared = [axis for axis in a.axes if axis in b.axes and axis not in (ROWS, *over)]
        rows = [axis for axis in a.axes if axis not in (ROWS, *shared, *over)]
        columns = [axis for axis in b.axes if axis not in (ROWS, *shared, *over)]
        is_dense = not rows and not shared and ROWS in a.axes and ROWS not in b.axes
        left = self._matrices(a, shared, None if is_dense else rows, over)
        product = op("MatMul", left, self._matrices(b, shared, over, columns))
        axes = (*a.axes[: ROWS in a.axes], *shared, *rows, *columns)
        if len(rows) == len(columns) == 1 or (is_dense and len(columns) == 1):
            return Emitted(product, axes)
        return Emitted(op("Reshape", product, op.constant(self._shape(axes))), axes)

    def _matrices(
        self, x: Emitted, shared: Sequence[str], rows: Sequence[str] | None, columns: Sequence[str]
    ) -> ir.Value:
        """The tensor as (N, *shared, rows, columns); without rows if they are None."""
        batch = (*x.axes[: ROWS in x.axes], *shared)
        value = self._over(x, (*batch, *(rows or ()), *columns))
        groups = [columns] if rows is None else [rows, columns]
        if all(len(group) == 1 for group in groups):
            return value
        op, shape = self._ops(x), self._shape(batch) + [prod(self._shape(group)) for group in groups]
        return op("Reshape", value, op.constant(shape))

    def _gather(self, x: Emitted, own_axes: Axes, indices: Sequence[Index]) -> Emitted:
        """A new order, a part, or another name of each axis: one Gather per axis that is not only renamed."""
        op, result, axes = self._ops(x), x.value, [*x.axes]
        for axis, each in zip(own_axes, indices, strict=True):
            at, own = axes.index(axis), [name for name, _ in each.terms]
            position = each.offset + sum(
                factor * np.arange(self.sizes[name]).reshape([-1 if name == other else 1 for other in own])
                for name, factor in each.terms
            )
            position = np.asarray(position if each.modulus is None else position % each.modulus, np.int64)
            if not np.array_equal(position, np.arange(self.sizes[axis])):
                result = op("Gather", result, op.constant(position), axis=at)
            axes[at : at + 1] = [f"{name} of {axis}" for name in own]  # a new name may equal one that is replaced later
        return Emitted(result, tuple(axis.partition(" of ")[0] for axis in axes))

    def _concatenate(self, value: Value, axis: str, parts: Axes) -> Emitted:
        tensors = [self.emitted[each] for each in value.inputs]
        rest = tuple(a for a in value.axes if a != axis)
        rest = (ROWS, *rest) if any(ROWS in tensor.axes for tensor in tensors) else rest
        full = [self._full(tensor, (*rest, part)) for tensor, part in zip(tensors, parts, strict=True)]
        return Emitted(self._ops(*tensors).concat(full, len(rest)), (*rest, axis))


def _leaves(kind: type[ops.Leaf], values: Mapping[str, ir.Value]) -> dict[ops.Leaf, ir.Value]:
    return {kind(name): value for name, value in values.items()}
