"""The CPU engine: a layer's kernels as operators that autograd, torch.compile and torch.export know.

One operator runs all directions of a layer forward, another one back.
"""

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from glassgate.engines import operators, products, reference
from glassgate.engines.call import Direction, Recording, Result, Steps, is_transformed
from glassgate.engines.handle import untraceable
from glassgate.engines.memory import computable, computable_direction, first_rows, rows_of, unwritten, used_again
from glassgate.engines.plan import Plan, count_of_results, form_of, given_of, plans, split

if TYPE_CHECKING:
    from glassgate.engines.numba_cpu import kernel

COMPUTED_IN = {
    torch.float32: torch.float32,
    torch.float64: torch.float64,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
}
"""What a kernel computes in, by what it is given."""


def why_not(steps: Steps, directions: list[Direction], all_states: bool = False) -> str | None:
    """What kernels lack for this call, or None."""
    if steps.data.device.type != "cpu":
        return f"kernels run on the CPU, and the input is on {steps.data.device}"
    if steps.data.dtype not in COMPUTED_IN:
        return f"kernels compute in floating point, and the input is {steps.data.dtype}"
    if is_transformed():
        return "kernels have no rule for vmap, jvp and other transforms of torch.func"
    for direction in directions:
        reason = untraceable(direction.cell, "weight_hr" in direction.weights)
        if reason is not None:
            return reason
    return None


def run(
    steps: Steps,
    directions: list[Direction],
    all_states: bool = False,
    recordings: Sequence[Recording] | None = None,
) -> list[Result]:
    """One layer, all of its directions in one call."""
    form, given = form_of(directions, recordings is not None), given_of(directions)
    data, sizes, resets = steps
    asked = directions
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        data, *given = [v.to(dtype) if v.dtype == torch.float32 else v for v in (data, *given)]
        steps, asked = Steps(data, sizes, resets), split(form, given)
    save = torch.is_grad_enabled() and (data.requires_grad or any(v.requires_grad for v in given))
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        flat = operators.layer(data, sizes, resets, given, form, all_states, save)
    elif save:
        flat = _Layer.apply(steps, form, asked, recordings, data, *given)
    else:
        flat = _forward(steps, form, asked, all_states, False, recordings)
    results, at = [], 0
    for direction in directions:
        count = len(direction.initial)
        every = count if all_states or save else 1
        states, final = flat[at : at + every], flat[at + every : at + every + count]
        results.append(Result(tuple(states if all_states else states[:1]), tuple(final)))
        at += every + count
    return results


class Stepper:
    """One direction, one step at a time, on the kernel: memory and packed weights are made once.

    Args:
        direction: the call; its initial states are the states before the first step.
    """

    def __init__(self, direction: Direction) -> None:
        from glassgate.engines.numba_cpu.step import Step

        given = [v.detach().clone().contiguous() for v in given_of([direction])]
        form = form_of([direction])
        (plan,), (own,) = plans(form), split(form, given)
        x = given[0].new_zeros(len(own.initial[0]), own.weights["weight_ih"].shape[1])
        self._step = Step(_inputs(plan, own, Steps(x, None, None)))

    @property
    def states(self) -> Sequence[Tensor]:
        """The states after the last step, (N, W) each; writing to them changes the next step."""
        return self._step.states

    def __call__(self, x: Tensor) -> Tensor:
        """One step from x (N, H_in) to the output (N, W), whose memory is used again."""
        return self._step.run(x.contiguous())


def _inputs(plan: Plan, direction: Direction, steps: Steps, forward: bool = True) -> "kernel.Inputs":
    from glassgate.engines.numba_cpu import kernel

    return kernel.Inputs(
        plan.cell,
        plan.trace,
        plan.hidden_size(direction),
        direction.reverse,
        steps.batch_sizes,
        steps.resets,
        steps.data,
        direction.weights["weight_ih"],
        direction.weights.get("weight_hh"),
        direction.weights.get("weight_hr"),
        products.input_bias(direction, plan.trace) if forward else None,
        products.hidden_bias(direction, plan.trace) if forward else None,
        products.own_parameters(direction, plan.trace),
        direction.noise,
        direction.initial,
        direction.restart,
    )


def _without_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """Types are as given: products inside are not cast again."""

    @wraps(function)
    def run_(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_autocast_enabled("cpu"):
            return function(*args, **kwargs)
        with torch.autocast("cpu", enabled=False):
            return function(*args, **kwargs)

    return run_


def _forward_of_operator(
    data: Tensor,
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    given: Sequence[Tensor],
    form: str,
    all_states: bool,
    save: bool,
) -> list[Tensor]:
    return _forward(Steps(data, batch_sizes, resets), form, split(form, given), all_states, save)


@_without_autocast
def _forward(
    steps: Steps,
    form: str,
    directions: Sequence[Direction],
    all_states: bool,
    save: bool,
    recordings: Sequence[Recording] | None = None,
) -> list[Tensor]:
    """The states after each step and the final ones of each direction; with `save`, what each backward pass reads."""
    from glassgate.engines.numba_cpu import kernel

    data, dtype, computed = steps.data, steps.data.dtype, COMPUTED_IN[steps.data.dtype]
    S, rows = data.shape[0], rows_of(data, steps.batch_sizes)
    if rows != S or dtype != computed or not data.is_contiguous():
        steps = steps._replace(data=first_rows(data, rows).to(computed).contiguous())
    calls: list[tuple[kernel.Inputs, kernel.Kept]] = []
    outputs: list[list[Tensor]] = []
    behind: list[Tensor] = []
    for plan, given in zip(plans(form), directions, strict=True):
        direction, H = computable_direction(plan, given, computed), plan.hidden_size(given)
        widths = [v.shape[1] for v in direction.initial]
        buffer_widths = plan.kept(widths, H)
        if save:
            kept = {name: unwritten(S, n, rows, steps.data) for name, n in buffer_widths.items()}
        else:
            kept = {"ih": used_again(len(calls), S, buffer_widths["ih"], steps.data)}
        states = [steps.data.new_empty(S, n) for n in (widths if all_states or save else widths[:1])]
        unasked = [None] * (len(widths) - len(states))
        shown = {f"gate_{name}": steps.data.new_empty(S, H) for name in plan.trace.recorded}
        buffers = kernel.Kept(kept["ih"], [*states, *unasked], kept.get("hh"), kept.get("row"), kept.get("hr"), shown)
        calls.append((_inputs(plan, direction, steps), buffers))
        outputs.append(states)
        behind += kept.values() if save else ()
    final = kernel.forward(calls, save)
    results = [v for pair in zip(outputs, final, strict=True) for of_direction in pair for v in of_direction]
    for recording, (_, buffers) in zip(recordings or (), calls, strict=False):
        recording.values = {name.removeprefix("gate_"): value for name, value in buffers.recorded.items()}
    return [*(results if dtype == computed else [v.to(dtype) for v in results]), *behind]


def _fake_forward(
    data: Tensor,
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    given: Sequence[Tensor],
    form: str,
    all_states: bool,
    save: bool,
) -> list[Tensor]:
    S, results, behind = data.shape[0], [], []
    for plan, direction in zip(plans(form), split(form, given), strict=True):
        widths = [v.shape[1] for v in direction.initial]
        results += [data.new_empty(S, n) for n in (widths if all_states or save else widths[:1])]
        results += [data.new_empty(v.shape) for v in direction.initial]
        if save:
            behind += [
                data.new_empty(S, n, dtype=COMPUTED_IN[data.dtype])
                for n in plan.kept(widths, plan.hidden_size(direction)).values()
            ]
    return [*results, *behind]


@_without_autocast
def _backward(
    data: Tensor,
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    given: Sequence[Tensor],
    flat: Sequence[Tensor],
    d_results: Sequence[Tensor],
    reached: Sequence[int],
    form: str,
    data_too: bool,
    needed: Sequence[bool] | None = None,
    recordings: Sequence[Recording] | None = None,
) -> list[Tensor]:
    """The gradients of `data` and of each tensor of `given`; empty where there is none.

    Args:
        flat: what `_forward` returned with `save`.
        d_results: the gradients of some of its states and final states.
        reached: which; the others are zero.
        data_too: whether that of `data` is wanted.
        needed: of which tensors of `given` it is, where not of all.
    """
    from glassgate.engines.numba_cpu import kernel

    dtype, computed = data.dtype, COMPUTED_IN[data.dtype]
    rows = rows_of(data, batch_sizes)
    steps = Steps(first_rows(data, rows).to(computed).contiguous(), batch_sizes, resets)
    behind = iter(flat[count_of_results(form) :])
    d_result = dict(zip(reached, computable(d_results, computed), strict=True))
    d_data = steps.data.new_empty(data.shape if data_too else 0)
    if rows < len(data):
        d_data[rows:].zero_()
    calls: list[tuple[kernel.Inputs, kernel.Kept, kernel.Gradients]] = []
    wanted: list[kernel.Wanted] = []
    at, weight_at = 0, 0
    for plan, direction in zip(plans(form), split(form, computable(given, computed)), strict=True):
        H = plan.hidden_size(direction)
        count = len(plan.cell.state)
        states = computable(flat[at : at + count], computed)
        d = [d_result.get(k) for k in range(at, at + 2 * count)]
        kept = {name: next(behind) for name in plan.kept([v.shape[1] for v in states], H)}
        buffers = kernel.Kept(kept["ih"], states, kept.get("hh"), kept.get("row"), kept.get("hr"))
        gradients = _gradients(plan, direction, H, (len(data), rows), d[:count], d[count:], resets is not None)
        calls.append((_inputs(plan, direction, steps, forward=False), buffers, gradients))
        names = [name for k, name in enumerate(direction.weights, weight_at) if needed is None or needed[k]]
        d_weights = {name: products.gradient_of(name, direction, plan.trace, rows) for name in names}
        wanted.append(kernel.Wanted(d_weights, first_rows(d_data, rows) if data_too else None, added=at > 0))
        at += 2 * count
        weight_at += plan.given
    kernel.backward(calls, wanted)
    for recording, (_, _, gradients) in zip(recordings or (), calls, strict=False):
        shown = gradients.recorded.items()
        recording.grad = {name.removeprefix("d_gate_").removeprefix("d_new_"): v for name, v in shown}
    d_given: list[Tensor] = []
    for direction, (inputs, _, gradients), (d_weights, _, _) in zip(split(form, given), calls, wanted, strict=True):
        d_weights |= products.own_gradients(d_weights, direction, inputs.trace, gradients.d_parameter)
        d_given += [d_weights.get(name, weight.new_empty(0)) for name, weight in direction.weights.items()]
        if resets is None:
            d_given += [*gradients.d_next, *(torch.zeros_like(v) for v in direction.restart)]
        elif direction.restart:
            d_given += [*gradients.d_next, *gradients.d_initial]
        else:
            d_given += [a.add_(b) for a, b in zip(gradients.d_initial, gradients.d_next, strict=True)]
        d_given += [v.new_empty(0) for v in direction.noise.values()]
    return [d_data, *d_given] if dtype == computed else [v.to(dtype) for v in (d_data, *d_given)]


def _gradients(
    plan: Plan,
    direction: Direction,
    H: int,
    lengths: tuple[int, int],
    d_states: Sequence[Tensor | None],
    d_final: Sequence[Tensor | None],
    resets: bool,
) -> "kernel.Gradients":
    """The buffers of a backward loop."""
    from glassgate.engines.numba_cpu import kernel

    (S, rows), initial, out = lengths, direction.initial, direction.initial[0].shape[1]
    columns = plan.trace.gradients
    d_next = [torch.zeros_like(v) if d is None else d.clone() for v, d in zip(initial, d_final, strict=True)]

    def buffer(name: str, width: int) -> Tensor | None:
        return initial[0].new_empty(rows, columns[name] * width) if columns[name] else None

    parameter = None
    if columns["d_parameter"]:
        parameter = initial[0].new_zeros(len(initial[0]), columns["d_parameter"] * H)
    return kernel.Gradients(
        d_states=d_states,
        d_next=d_next,
        d_initial=[torch.zeros_like(v) for v in initial] if resets else d_next,
        d_pre=kernel.columns_apart(initial[0], rows, columns["d_pre"] * H),
        d_parameter=parameter,
        left=buffer("left", out),
        raw=buffer("raw", H),
        d_hr=buffer("d_hr", out),
        recorded=_shown_gradients(plan, direction, H, S) if f"d_new_{plan.cell.state[0]}" in columns else {},
    )


def _shown_gradients(plan: Plan, direction: Direction, H: int, S: int) -> dict[str, Tensor]:
    """Where a recording finds what reached its gates and the new states."""
    widths = {f"d_gate_{name}": H for name in plan.trace.recorded}
    widths |= {f"d_new_{name}": v.shape[1] for name, v in zip(plan.cell.state, direction.initial, strict=True)}
    columns = plan.trace.gradients
    return {name: direction.initial[0].new_empty(S, width) for name, width in widths.items() if columns[name]}


def _fake_backward(
    data: Tensor,
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    given: Sequence[Tensor],
    flat: Sequence[Tensor],
    d_results: Sequence[Tensor],
    reached: Sequence[int],
    form: str,
    data_too: bool,
) -> list[Tensor]:
    d = [data.new_empty(data.shape if data_too else (0,))]
    for plan, direction in zip(plans(form), split(form, given), strict=True):
        d += [data.new_empty(v.shape) for v in (*direction.weights.values(), *direction.initial, *direction.restart)]
        d += [data.new_empty(0) for _ in plan.noise]
    return d


class _Layer(torch.autograd.Function):
    """What the operator is to autograd, without the operator's own way through torch's dispatcher."""

    @staticmethod
    def forward(
        ctx: Any,
        steps: Steps,
        form: str,
        directions: Sequence[Direction],
        recordings: Sequence[Recording] | None,
        data: Tensor,
        *given: Tensor,
    ) -> tuple[Tensor, ...]:
        flat = _forward(steps, form, directions, True, True, recordings)
        ctx.recordings = recordings
        _remember(ctx, (*steps, given, form), flat)
        return tuple(flat[: ctx.results])

    @staticmethod
    def backward(ctx: Any, *d_results: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            d_data, d_given = _differentiate(ctx, d_results, ctx.needs_input_grad[4], _by_operator)
        else:
            backward = partial(_backward, needed=ctx.needs_input_grad[5:], recordings=ctx.recordings)
            d_data, d_given = _differentiate(ctx, d_results, ctx.needs_input_grad[4], backward)
        return None, None, None, None, d_data, *d_given


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    data, batch_sizes, resets, given, form = inputs[:5]
    ctx.form, ctx.given = form, len(given)
    ctx.results = count_of_results(form)
    ctx.save_for_backward(data, batch_sizes, resets, *given, *output)
    ctx.set_materialize_grads(False)


def _differentiate(
    ctx: Any, d_results: Sequence[Tensor | None], data_too: bool, backward: Callable[..., list[Tensor]]
) -> tuple[Tensor | None, list[Tensor | None]]:
    data, batch_sizes, resets, *rest = ctx.saved_tensors
    given, flat = rest[: ctx.given], rest[ctx.given :]
    reached = [k for k, d in enumerate(d_results) if d is not None]
    d_reached = [d for d in d_results if d is not None]
    d_data, *d_given = backward(data, batch_sizes, resets, given, flat, d_reached, reached, ctx.form, data_too)
    known = [is_known for plan in plans(ctx.form) for is_known in plan.differentiable]
    d_wanted = [d if k and d.shape == v.shape else None for d, k, v in zip(d_given, known, given, strict=True)]
    return d_data if data_too else None, d_wanted


def _by_operator(*args: Any) -> list[Tensor]:
    """The gradients in a form that has gradients itself."""
    d: list[Tensor] = operators.layer_backward(*args)
    return d


def _backward_of_operator(ctx: Any, d_flat: Sequence[Tensor | None]) -> tuple[Any, ...]:
    d_data, d_given = _differentiate(ctx, d_flat[: ctx.results], ctx.needs_input_grad[0], _by_operator)
    return d_data, None, None, d_given, None, None, None


def _remember_backward(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    data, batch_sizes, resets, given, flat, d_results, ctx.reached, ctx.form, _ = inputs
    ctx.given, ctx.flat = len(given), len(flat)
    ctx.save_for_backward(batch_sizes, resets, data, *given, *d_results)
    ctx.set_materialize_grads(False)


def _backward_twice(ctx: Any, dd: Sequence[Tensor | None]) -> tuple[Any, ...]:
    """The gradient of the gradients, by the reference."""
    batch_sizes, resets, *leaves = ctx.saved_tensors
    with torch.enable_grad():
        leaves = [v.view_as(v) if v.requires_grad else v.detach().requires_grad_() for v in leaves]
        data, *given = inputs = leaves[: ctx.given + 1]
        results = reference.run(Steps(data, batch_sizes, resets), split(ctx.form, given), all_states=True)
        values = [v for result in results for v in (*result.states, *result.final)]
        d = _gradient([values[k] for k in ctx.reached], inputs, leaves[len(inputs) :])
        used = [k for k, v in enumerate(dd) if v is not None and d[k].requires_grad and v.shape == d[k].shape]
        second = _gradient([d[k] for k in used], leaves, [dd[k] for k in used])
    d_data, *d_rest = second
    return d_data, None, None, d_rest[: ctx.given], [None] * ctx.flat, d_rest[ctx.given :], None, None, None


def _gradient(values: Sequence[Tensor], leaves: Sequence[Tensor], d: Sequence[Tensor | None]) -> list[Tensor]:
    return list(torch.autograd.grad(values, leaves, d, create_graph=True, materialize_grads=True))
