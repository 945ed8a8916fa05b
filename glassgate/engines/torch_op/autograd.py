"""Autograd for the kernels of a layer: functions for eager calls, and the gradients of the operators."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from glassgate.engines import reference
from glassgate.engines.backend import CompiledLayer, Passes, RaggedLayout
from glassgate.engines.contract import Recording, Steps, is_batched
from glassgate.engines.plan import (
    Plan,
    directions_of,
    operands_of,
    plan_of,
    results_by_direction,
    state_result_count,
    without_final_states,
)
from glassgate.engines.registry import BACKENDS
from glassgate.engines.symbolic.tangent import is_tangent
from glassgate.engines.torch_names import is_legacy_batch, is_wrapped
from glassgate.engines.torch_op.operators import format_layer, layer_plans, to_kernel_gradients
from glassgate.engines.torch_op.tangents import tangent_arguments, values_and_tangents

T = TypeVar("T")

_BATCH_OF_GRADIENTS = (
    "kernels have no gradient for a batch of gradients (is_grads_batched, torch.func.vmap of a backward pass): run the "
    'forward pass inside `with glassgate.engine("reference")`'
)


class LayerFunction(torch.autograd.Function):
    """An eager call of a layer. It computes the results of the operator `layer` without the cost of the dispatcher.

    Its arguments are the passes of the call, the name of their backend, the layout of sequences of different lengths,
    the recordings of all directions if gates are recorded, the mask of resets, and the tensors; see `Passes.forward`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        passes: Passes,
        backend: str,
        layout: RaggedLayout | None,
        recordings: Sequence[Recording] | None,
        resets: Tensor | None,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        visible, saved, kernel_tensors = passes.forward(tensors, resets, layout, recordings)
        ctx.call = passes, backend, layout, recordings, len(tensors)
        ctx.save_for_backward(resets, *tensors, *(() if layout is None else kernel_tensors), *saved)
        ctx.set_materialize_grads(False)
        return tuple(visible)

    @staticmethod
    def backward(ctx: Any, *d_visible: Tensor | None) -> tuple[Tensor | None, ...]:
        for d in d_visible:
            if d is not None and (is_wrapped(d) or is_legacy_batch(d)):
                raise RuntimeError(_BATCH_OF_GRADIENTS)
        passes, backend, layout, recordings, n = ctx.call
        resets, *saved = ctx.saved_tensors
        tensors = saved[:n]
        kernel_tensors, saved = (tensors, saved[n:]) if layout is None else (saved[n : 2 * n], saved[2 * n :])
        needed = ctx.needs_input_grad[5:]
        if recordings:
            for recording, (d_states, d_final) in zip(recordings, passes.by_direction(d_visible), strict=True):
                if recording.on_gradients is not None:
                    recording.on_gradients((d_states[0], *d_final))
            if recordings[0].skips_input:
                needed = False, *needed[1:]
        if torch.is_grad_enabled():
            arguments = tensors, resets, saved, d_visible, ctx.needs_input_grad[5]
            d_tensors = _call_gradients_by_operator(passes, backend, layout, *arguments)
        else:
            d_tensors = passes.backward(kernel_tensors, saved, resets, d_visible, needed, layout, recordings)
        return None, None, None, None, None, *d_tensors


class InputProductFunction(LayerFunction):
    """The call of a layer whose step returns its pre-activations. torch multiplies a batch of gradients."""

    @staticmethod
    def backward(ctx: Any, *d_results: Tensor | None) -> tuple[Tensor | None, ...]:
        d = d_results[0]
        if d is None or not is_batched(d):
            return LayerFunction.backward(ctx, *d_results)
        n, (_, data, weight, *others) = ctx.call[-1], ctx.saved_tensors
        d_others = [d.sum(0) if v.dim() == 1 else None for v in others[: n - 2]]  # the bias if any, and the state
        return *(None,) * 5, d @ weight, d.T @ data, *d_others


class _Layout(NamedTuple):
    """`RaggedLayout` of rows that are in the order of the kernels."""

    batch_sizes: Tensor
    order: None = None
    places: None = None


class _SinglePasses(NamedTuple):
    """`Passes` of one call, whose tensors have one row per step of each sequence."""

    compiled: CompiledLayer
    all_states: bool
    dtype: torch.dtype
    visible_count: int = 0
    shapes: Mapping[int, tuple[int, ...]] = MappingProxyType({})

    @property
    def plans(self) -> tuple[Plan, ...]:
        """See `Passes`."""
        return self.compiled.plans

    def by_direction(self, values: Sequence[T]) -> Iterator[tuple[Sequence[T], Sequence[T]]]:
        """See `Passes`."""
        return results_by_direction(self.plans, values)

    def forward(
        self,
        tensors: Sequence[Tensor],
        resets: Tensor | None,
        ragged: _Layout | None = None,
        recordings: Sequence[Recording] | None = None,
    ) -> tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]]:
        """See `Passes`."""
        steps = Steps(tensors[0], ragged and ragged.batch_sizes, resets)
        flat = self.compiled.forward(steps, tensors[1:], self.all_states, True, self.dtype, recordings or None)
        return flat[: state_result_count(self.plans)], without_final_states(self.plans, flat), tensors

    def backward(
        self,
        tensors: Sequence[Tensor],
        saved: Sequence[Tensor],
        resets: Tensor | None,
        d_visible: Sequence[Tensor | None],
        needed: Sequence[bool],
        ragged: _Layout | None = None,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Tensor | None]:
        """See `Passes`."""
        steps = Steps(tensors[0], ragged and ragged.batch_sizes, resets)
        d = to_kernel_gradients(steps, d_visible)
        return self.compiled.backward(steps, tensors[1:], saved, d, needed[0], needed[1:], recordings or None)


def run(
    compiled: CompiledLayer,
    backend: str,
    steps: Steps,
    operands: Sequence[Tensor],
    all_states: bool,
    dtype: torch.dtype,
    recordings: Sequence[Recording] | None = None,
    function: type[LayerFunction] = LayerFunction,
) -> Sequence[Tensor]:
    """Run a training call. Return every state at every step and every final state, in the order of `CompiledLayer`."""
    data, batch_sizes, resets = steps
    passes, layout = _SinglePasses(compiled, all_states, dtype), None if batch_sizes is None else _Layout(batch_sizes)
    results: tuple[Tensor, ...] = function.apply(passes, backend, layout, recordings, resets, data, *operands)
    return results


def _call_gradients_by_operator(
    passes: Passes,
    backend: str,
    layout: RaggedLayout | None,
    tensors: Sequence[Tensor],
    resets: Tensor | None,
    saved: Sequence[Tensor],
    d_visible: Sequence[Tensor | None],
    needs_d_data: bool,
) -> list[Tensor | None]:
    """The gradients of the tensors of a call, computed by the differentiable operator."""
    rows: dict[int, Tensor | None] = {}
    """For ragged sequences, the row indices of the input and of each initial state, in the order in which kernels read
    the rows. Keys are the positions in `tensors`; None means all rows in order."""
    order = None
    if layout is not None:
        order, places = layout.order, layout.places
        rows = {k: order if k else places for k in passes.shapes}
    data, *operands = [_select_rows(v, rows.get(k)) for k, v in enumerate(tensors)]
    steps = Steps(data, None if layout is None else layout.batch_sizes, None if resets is None else resets.flatten())
    d_flat = [
        None if d is None else _select_rows(d, rows.get(0) if k < passes.visible_count else order)
        for k, d in enumerate(d_visible)
    ]
    d_results = list[Tensor | None]()
    for plan, (d_states, d_final) in zip(passes.plans, passes.by_direction(d_flat), strict=True):
        d_results += [*d_states, *[None] * (len(plan.equations.state) - len(d_states)), *d_final]
    text = format_layer(backend, [plan.text for plan in passes.plans])
    saved = [_as_rows(v)[: len(data)] for v in saved]
    d_data, d_operands = _gradients_by_operator(steps, operands, saved, text, d_results, needs_d_data)
    return [
        None if d is None else _undo_select_rows(d, v, rows.get(k))
        for k, (d, v) in enumerate(zip((d_data, *d_operands), tensors, strict=True))
    ]


def _select_rows(tensor: Tensor, rows: Tensor | None) -> Tensor:
    """Return the rows of a tensor with these indices; all rows for None."""
    return _as_rows(tensor) if rows is None else _as_rows(tensor)[rows]


def _undo_select_rows(d: Tensor, like: Tensor, rows: Tensor | None) -> Tensor:
    """Return the gradient of the tensor `like`, from the gradient `d` of `_select_rows(like, rows)`."""
    if rows is not None:
        d = d.new_zeros(_as_rows(like).shape).index_copy(0, rows, d)
    return d.view_as(like)


def _as_rows(tensor: Tensor) -> Tensor:
    """Flatten all axes of a tensor except the last."""
    return tensor.flatten(0, -2) if tensor.dim() > 2 else tensor


def _save(ctx: Any, plans: Sequence[Plan], inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    data, batch_sizes, resets, operands = inputs
    ctx.operand_count, ctx.result_count = len(operands), state_result_count(plans)
    ctx.save_for_backward(data, batch_sizes, resets, *operands, *without_final_states(plans, output))
    ctx.set_materialize_grads(False)


def _saved_tensors(ctx: Any) -> tuple[Steps, Sequence[Tensor], Sequence[Tensor]]:
    """The steps, the operands of all directions, and the results that the forward pass saved."""
    data, batch_sizes, resets, *rest = ctx.saved_tensors
    return Steps(data, batch_sizes, resets), rest[: ctx.operand_count], rest[ctx.operand_count :]


def _gradients_by_operator(
    steps: Steps,
    operands: Sequence[Tensor],
    flat: Sequence[Tensor],
    plans: str,
    d_results: Sequence[Tensor | None],
    needs_d_data: bool,
) -> tuple[Tensor | None, list[Tensor | None]]:
    """The gradients of the input and of the operands, computed by the differentiable operator `layer_backward`."""
    reached = [k for k, d in enumerate(d_results) if d is not None]
    d_reached = [d for d in d_results if d is not None]
    # The gradient of `layer_backward` does not use the saved results. Without `detach`, autograd would run the backward
    # pass of the layer once more for them.
    flat = [v.detach() for v in flat]
    d_data, *d_operands = torch.ops.glassgate.layer_backward(
        *steps, operands, flat, d_reached, reached, plans, needs_d_data
    )
    differentiable = [has_gradient for plan in layer_plans(plans) for has_gradient in plan.differentiable]
    # An operator cannot return None. A missing gradient is an empty tensor.
    d_existing = [
        d if exists and d.shape == v.shape else None
        for d, exists, v in zip(d_operands, differentiable, operands, strict=True)
    ]
    return d_data if needs_d_data else None, d_existing


def save_layer(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    """Save the tensors of the operator `layer` that `layer_gradient` reads."""
    *tensors, ctx.text, _, _, _ = inputs
    _save(ctx, layer_plans(ctx.text), tuple(tensors), output)


def layer_gradient(ctx: Any, d_flat: Sequence[Tensor | None]) -> tuple[Any, ...]:
    """The gradient of the operator `layer`."""
    d_results = d_flat[: ctx.result_count]
    d_data, d_operands = _gradients_by_operator(*_saved_tensors(ctx), ctx.text, d_results, ctx.needs_input_grad[0])
    return d_data, None, None, d_operands, None, None, None, None


def save_layer_backward(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    """Save the tensors of the operator `layer_backward` that `layer_backward_gradient` reads."""
    data, batch_sizes, resets, operands, flat, d_results, ctx.reached, ctx.text, _ = inputs
    ctx.operand_count, ctx.flat_count = len(operands), len(flat)
    ctx.save_for_backward(batch_sizes, resets, data, *operands, *d_results)
    ctx.set_materialize_grads(False)


def layer_backward_gradient(ctx: Any, dd: Sequence[Tensor | None]) -> tuple[Any, ...]:
    """The gradient of the operator `layer_backward`.

    Let s be the inner product of `dd` and the outputs of `layer_backward`. It is equal to the inner product of
    `d_results` and the tangents of the layer's results in the direction `dd`. The gradient of s with respect to
    `d_results` is therefore these tangents. All other gradients of s are computed by backpropagation through them.
    """
    batch_sizes, resets, *leaves = ctx.saved_tensors
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        leaves = [v.view_as(v) if v.requires_grad else v for v in leaves]
        inputs, d_values = leaves[: ctx.operand_count + 1], leaves[ctx.operand_count + 1 :]
        data, *operands = [v.to(inputs[1].dtype) for v in inputs]
        dd = [None if v is None or v.shape != x.shape else v for v, x in zip(dd, inputs, strict=True)]
        d = [None if v is None else v.to(data.dtype) for v in dd]
        plans, steps = layer_plans(ctx.text), Steps(data, batch_sizes, resets)
        if any(plan.equations.projected for plan in plans):
            # Tangent cells do not support projections, so the reference engine is differentiated twice.
            results = [
                v for r in reference.run(steps, directions_of(plans, operands), True) for v in (*r.states, *r.final)
            ]
            selected = [results[k].to(d.dtype) for k, d in zip(ctx.reached, d_values, strict=True)]
            first = _gradients(selected, inputs, d_values, True)
            pairs = [(v, d_v) for v, d_v in zip(first, dd, strict=True) if v is not None and d_v is not None]
            second = _gradients([v for v, _ in pairs], leaves, [d_v for _, d_v in pairs], create_graph)
        else:
            tangents = _tangents(ctx.text, steps, operands, d)
            selected = [tangents[k].to(d.dtype) for k, d in zip(ctx.reached, d_values, strict=True)]
            second = [*_gradients(selected, inputs, d_values, create_graph)]
            second += selected if create_graph else map(Tensor.detach, selected)
    d_data, *d_rest = second
    d_operands, d_d_results = d_rest[: ctx.operand_count], d_rest[ctx.operand_count :]
    return d_data, None, None, d_operands, [None] * ctx.flat_count, d_d_results, None, None, None


def _tangents(text: str, steps: Steps, operands: Sequence[Tensor], d: Sequence[Tensor | None]) -> list[Tensor]:
    """The tangents of the results of a call, for the tangents `d` of its input and its operands."""
    plans, name = layer_plans(text), text.partition("\n")[0]
    steps, directions = tangent_arguments(steps, directions_of(plans, operands), d[0], d[1:])
    if name == "cpu" and not any(is_tangent(plan.equations) for plan in plans):
        backend = BACKENDS[name]
        compiled = backend.compile(tuple([plan_of(direction, backend.costs) for direction in directions]))
        results = run(compiled, name, steps, operands_of(directions), True, steps.data.dtype)
    else:
        results = [v for r in reference.run(steps, directions, True) for v in (*r.states, *r.final)]
    return values_and_tangents(results, plans)[1]


def _gradients(
    values: Sequence[Tensor], leaves: Sequence[Tensor], d: Sequence[Tensor | None], create_graph: bool
) -> list[Tensor | None]:
    """The gradients of leaves, from the gradients `d` of `values`; None for leaves that do not require a gradient."""
    roots = [(value, d_value) for value, d_value in zip(values, d, strict=True) if value.requires_grad]
    needed = [leaf for leaf in leaves if leaf.requires_grad]
    if not (roots and needed):
        return [None] * len(leaves)
    outputs, d_outputs = zip(*roots, strict=True)
    gradients = iter(torch.autograd.grad(outputs, needed, d_outputs, create_graph=create_graph, materialize_grads=True))
    return [next(gradients) if leaf.requires_grad else None for leaf in leaves]
