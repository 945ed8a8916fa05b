"""What a layer's kernels are to autograd: a function for calls in Python, and the gradients of the operators."""

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassgate.engines import reference
from glassgate.engines.backend import Compiled, PreparedPasses, Ragged
from glassgate.engines.contract import Recording, Steps
from glassgate.engines.plan import Plan, count_of_results, given_of, plan_of, split, without_final
from glassgate.engines.registry import BACKENDS
from glassgate.engines.symbolic.tangent import is_tangent
from glassgate.engines.torch_op.operators import plans_from, readable_gradients, text_of
from glassgate.engines.torch_op.tangents import tangent_call, values_and_tangents


class Layer(torch.autograd.Function):
    """What the operator is to autograd, without the operator's own way through torch's dispatcher."""

    @staticmethod
    def forward(
        ctx: Any,
        compiled: Compiled,
        backend: str,
        steps: Steps,
        recordings: Sequence[Recording] | None,
        all_states: bool,
        dtype: torch.dtype,
        data: Tensor,
        *given: Tensor,
    ) -> tuple[Tensor, ...]:
        flat = compiled.forward(steps, given, all_states, True, dtype, recordings)
        ctx.compiled, ctx.backend, ctx.recordings = compiled, backend, recordings
        _remember(ctx, compiled.plans, (*steps, given), flat)
        return tuple(flat[: ctx.results])

    @staticmethod
    def backward(ctx: Any, *d_results: Tensor | None) -> tuple[Tensor | None, ...]:
        _check_gradients(d_results)
        if torch.is_grad_enabled():
            text = text_of(ctx.backend, [plan.text for plan in ctx.compiled.plans])
            d_data, d_given = _by_operator(*_remembered(ctx), text, d_results, ctx.needs_input_grad[6])
        else:
            steps, given, flat = _remembered(ctx)
            needs_d_data, *needed = _needed(ctx.needs_input_grad[6:], ctx.recordings)
            d = readable_gradients(steps, d_results)
            d_data, *d_given = ctx.compiled.backward(steps, given, flat, d, needs_d_data, needed, ctx.recordings)
        return None, None, None, None, None, None, d_data, *d_given


class PreparedCall(NamedTuple):
    """The arguments of a prepared call that have no gradient.

    Attributes:
        passes: the layer's, for this signature.
        backend: its name.
        lengths: the layout if lengths differ or rows are packed.
        recordings: one per direction, if gates are recorded.
    """

    passes: PreparedPasses
    backend: str
    lengths: Ragged | None
    recordings: Sequence[Recording] | None


class PreparedLayer(torch.autograd.Function):
    """A call of one layer whose passes are prepared: tensors come and go in the shapes that the user sees."""

    @staticmethod
    def forward(
        ctx: Any,
        call: PreparedCall,
        resets: Tensor | None,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        passes, _, lengths, recordings = call
        visible, saved, inside = passes.forward(tensors, resets, lengths, recordings)
        ctx.call, ctx.count = call, len(tensors)
        ctx.save_for_backward(resets, *tensors, *(() if lengths is None else inside), *saved)
        ctx.set_materialize_grads(False)
        return tuple(visible)

    @staticmethod
    def backward(ctx: Any, *d_visible: Tensor | None) -> tuple[Tensor | None, ...]:
        _check_gradients(d_visible)
        passes, backend, lengths, recordings = ctx.call
        n, (resets, *saved) = ctx.count, ctx.saved_tensors
        tensors = saved[:n]
        inside, saved = (tensors, saved[n:]) if lengths is None else (saved[n : 2 * n], saved[2 * n :])
        needed = ctx.needs_input_grad[2:]
        if not torch.is_grad_enabled():
            needed = _needed(needed, recordings)
            return None, None, *passes.backward(inside, saved, resets, d_visible, needed, lengths, recordings)
        rows = _rows(passes, lengths)
        data, *given = [_selected(v, rows.get(k)) for k, v in enumerate(tensors)]
        steps = Steps(
            data, None if lengths is None else lengths.batch_sizes, None if resets is None else resets.flatten()
        )
        saved = [_flat(v)[: len(data)] for v in saved]
        order = None if lengths is None else lengths.order
        d_flat = [
            None if d is None else _selected(d, rows.get(0) if k < passes.count else order)
            for k, d in enumerate(d_visible)
        ]
        d_results, d_states, d_final = list[Tensor | None](), iter(d_flat[: passes.count]), iter(d_flat[passes.count :])
        for plan, count in zip(passes.plans, passes.states, strict=True):
            states = len(plan.equations.state)
            d_results += [*islice(d_states, count), *[None] * (states - count), *islice(d_final, states)]
        text = text_of(backend, [plan.text for plan in passes.plans])
        d_data, d_given = _by_operator(steps, given, saved, text, d_results, needed[0])
        d = [
            None if d is None else _placed(d, v, rows.get(k))
            for k, (d, v) in enumerate(zip((d_data, *d_given), tensors, strict=True))
        ]
        return None, None, *d


def _needed(needed: tuple[bool, ...], recordings: Sequence[Recording] | None) -> tuple[bool, ...]:
    """Whether each gradient is needed, the first one that of the input."""
    return (False, *needed[1:]) if recordings and recordings[0].skips_input else needed


def _rows(passes: PreparedPasses, lengths: Ragged | None) -> dict[int, Tensor | None]:
    """For the input and each initial state, where sequences differ in length, the caller's place of each row."""
    if lengths is None:
        return {}
    order, places = lengths.order, lengths.places
    return {k: order if k else places for k in passes.shapes}


def _selected(tensor: Tensor, rows: Tensor | None) -> Tensor:
    """The tensor as rows, or some of its rows."""
    return _flat(tensor) if rows is None else _flat(tensor)[rows]


def _placed(d: Tensor, like: Tensor, rows: Tensor | None) -> Tensor:
    """A gradient of `_selected` in the shape of the tensor."""
    if rows is not None:
        d = d.new_zeros(_flat(like).shape).index_copy(0, rows, d)
    return d.view_as(like)


def _flat(tensor: Tensor) -> Tensor:
    """As rows."""
    return tensor.flatten(0, -2) if tensor.dim() > 2 else tensor


def _check_gradients(d_results: Sequence[Tensor | None]) -> None:
    if any([d is not None and _is_batched(d) for d in d_results]):
        raise RuntimeError(
            "kernels have no gradient for a batch of gradients (is_grads_batched, torch.func.vmap of a backward "
            'pass): run the forward pass inside `with glassgate.engine("reference")`'
        )


def _is_batched(d: Tensor) -> bool:
    """Whether it represents a batch of gradients."""
    return torch._C._functorch.is_functorch_wrapped_tensor(d) or torch._C._functorch.is_legacy_batchedtensor(d)


def _remember(ctx: Any, plans: Sequence[Plan], inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    data, batch_sizes, resets, given = inputs
    ctx.given, ctx.results = len(given), count_of_results(plans)
    ctx.save_for_backward(data, batch_sizes, resets, *given, *without_final(plans, output))
    ctx.set_materialize_grads(False)


def _remembered(ctx: Any) -> tuple[Steps, Sequence[Tensor], Sequence[Tensor]]:
    """The steps, the tensors of all directions, and the values that the forward pass kept."""
    data, batch_sizes, resets, *rest = ctx.saved_tensors
    return Steps(data, batch_sizes, resets), rest[: ctx.given], rest[ctx.given :]


def _by_operator(
    steps: Steps,
    given: Sequence[Tensor],
    flat: Sequence[Tensor],
    plans: str,
    d_results: Sequence[Tensor | None],
    needs_d_data: bool,
) -> tuple[Tensor | None, list[Tensor | None]]:
    """The gradients in a form that has gradients itself."""
    reached = [k for k, d in enumerate(d_results) if d is not None]
    d_reached = [d for d in d_results if d is not None]
    d_data, *d_given = torch.ops.glassgate.layer_backward(*steps, given, flat, d_reached, reached, plans, needs_d_data)
    has = [has for plan in plans_from(plans) for has in plan.differentiable]
    # An operator returns a tensor for each; a missing gradient is an empty one.
    found = [d if is_one and d.shape == v.shape else None for d, is_one, v in zip(d_given, has, given, strict=True)]
    return d_data if needs_d_data else None, found


def remember(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    """What `layer` keeps for `layer_gradient`."""
    *tensors, ctx.text, _, _, _ = inputs
    _remember(ctx, plans_from(ctx.text), tuple(tensors), output)


def layer_gradient(ctx: Any, d_flat: Sequence[Tensor | None]) -> tuple[Any, ...]:
    """The gradient of the operator `layer`."""
    d_data, d_given = _by_operator(*_remembered(ctx), ctx.text, d_flat[: ctx.results], ctx.needs_input_grad[0])
    return d_data, None, None, d_given, None, None, None, None


def remember_backward(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    """What `layer_backward` keeps for `layer_backward_gradient`."""
    data, batch_sizes, resets, given, flat, d_results, ctx.reached, ctx.text, _ = inputs
    ctx.given, ctx.flat = len(given), len(flat)
    ctx.save_for_backward(batch_sizes, resets, data, *given, *d_results)
    ctx.set_materialize_grads(False)


def layer_backward_gradient(ctx: Any, dd: Sequence[Tensor | None]) -> tuple[Any, ...]:
    """The gradient of the gradients.

    The sum of `dd` times the gradients equals the sum of `d_results` times the tangents of the results along `dd`. The
    gradients with respect to `d_results` are therefore these tangents, and the others are gradients of the tangents.
    """
    batch_sizes, resets, *leaves = ctx.saved_tensors
    with torch.enable_grad():
        leaves = [v.view_as(v) if v.requires_grad else v.detach().requires_grad_() for v in leaves]
        inputs, d_values = leaves[: ctx.given + 1], leaves[ctx.given + 1 :]
        data, *given = [v.to(inputs[1].dtype) for v in inputs]
        d = [None if v is None or v.shape != of.shape else v.to(data.dtype) for v, of in zip(dd, inputs, strict=True)]
        plans, steps = plans_from(ctx.text), Steps(data, batch_sizes, resets)
        if any(plan.equations.projected for plan in plans):
            results = [v for r in reference.run(steps, split(plans, given), True) for v in (*r.states, *r.final)]
            reached = [results[k].to(d.dtype) for k, d in zip(ctx.reached, d_values, strict=True)]
            first = _gradient(reached, inputs, d_values)
            used = [k for k, v in enumerate(d) if v is not None and first[k].requires_grad]
            second = _gradient([first[k] for k in used], leaves, [dd[k] for k in used])
        else:
            tangents = _tangents(ctx.text, steps, given, d)
            reached = [tangents[k].to(d.dtype) for k, d in zip(ctx.reached, d_values, strict=True)]
            second = [*_gradient(reached, inputs, d_values), *reached]
    d_data, *d_rest = second
    return d_data, None, None, d_rest[: ctx.given], [None] * ctx.flat, d_rest[ctx.given :], None, None, None


def _tangents(text: str, steps: Steps, given: Sequence[Tensor], d: Sequence[Tensor | None]) -> list[Tensor]:
    """The tangents of the results of a call, for the tangents `d` of its input and of its other tensors."""
    plans, name = plans_from(text), text.partition("\n")[0]
    steps, directions = tangent_call(steps, split(plans, given), d[0], d[1:])
    if name == "cpu" and not any(is_tangent(plan.equations) for plan in plans):
        own = BACKENDS[name]
        compiled = own.compile(tuple([plan_of(direction, own.costs) for direction in directions]))
        dtype = steps.data.dtype
        found = Layer.apply(compiled, name, steps, None, True, dtype, steps.data, *given_of(directions))
    else:
        found = [v for r in reference.run(steps, directions, True) for v in (*r.states, *r.final)]
    return values_and_tangents(found, plans)[1]


def _gradient(values: Sequence[Tensor], leaves: Sequence[Tensor], d: Sequence[Tensor | None]) -> list[Tensor]:
    return list(torch.autograd.grad(values, leaves, d, create_graph=True, materialize_grads=True))
