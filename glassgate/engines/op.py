"""The CPU engine: a layer's kernels as operators that autograd, torch.compile and torch.export know.

One operator runs all directions of a layer forward, another one back; `products.py` has what surrounds their loops.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines import products, reference
from glassgate.engines.call import Direction, Result, Steps
from glassgate.engines.handle import cell_of, handle, untraceable
from glassgate.engines.trace import Trace, trace

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
    if not torch.compiler.is_compiling():
        if torch._C._functorch.peek_interpreter_stack() is not None:
            return "kernels have no rule for vmap, jvp and other transforms of torch.func"
        if torch.autograd.forward_ad._current_level >= 0:
            return "kernels have no forward-mode derivative"
    for direction in directions:
        reason = untraceable(direction.cell, "weight_hr" in direction.weights)
        if reason is not None:
            return reason
    return None


def run(steps: Steps, directions: list[Direction], all_states: bool = False) -> list[Result]:
    """One layer, all of its directions in one call."""
    form, given = _form(directions), _given(directions)
    data, sizes, resets = steps
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        data, *given = [v.to(dtype) if v.dtype == torch.float32 else v for v in (data, *given)]
    save = torch.is_grad_enabled() and (data.requires_grad or any(v.requires_grad for v in given))
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        flat = torch.ops.glassgate.layer(data, sizes, resets, given, form, all_states, save)
    elif save:
        flat = _Layer.apply(sizes, resets, form, data, *given)
    else:
        flat = _forward(data, sizes, resets, given, form, all_states, False)
    results, at = [], 0
    for direction in directions:
        count = len(direction.initial)
        every = count if all_states or save else 1
        states, final = flat[at : at + every], flat[at + every : at + every + count]
        results.append(Result(tuple(states if all_states else states[:1]), tuple(final)))
        at += every + count
    return results


def _form(directions: list[Direction]) -> str:
    """All of a call that is no tensor, as text."""
    return "\n".join(
        "\t".join(("<" if d.reverse else ">", handle(d.cell), ",".join(d.weights), ",".join(d.noise)))
        for d in directions
    )


def _given(directions: list[Direction]) -> list[Tensor]:
    """All tensors of a call beside its data."""
    return [v for d in directions for v in (*d.weights.values(), *d.initial, *d.noise.values())]


class Stepper:
    """One direction, one step at a time, on the kernel: memory and packed weights are made once.

    Args:
        direction: the call; its initial states are the states before the first step.
    """

    def __init__(self, direction: Direction) -> None:
        from glassgate.engines.numba_cpu.step import Step

        given = [v.detach().clone().contiguous() for v in _given([direction])]
        ((plan, own, H),) = _split(_form([direction]), given)
        none = Steps(given[0].new_zeros(0, own.weights["weight_ih"].shape[1]), None, None)
        self._weight, self._bias = products.input_weight(own, plan.trace)
        self._ih = given[0].new_empty(len(own.initial[0]), self._weight.shape[1])
        self._step = Step(_inputs(plan, own, H, none), self._ih)

    @property
    def states(self) -> Sequence[Tensor]:
        """The states after the last step, (N, W) each; writing to them changes the next step."""
        return self._step.states

    def __call__(self, x: Tensor) -> Tensor:
        """One step from x (N, H_in) to the output (N, W), whose memory is used again."""
        if self._bias is None:
            torch.mm(x, self._weight, out=self._ih)
        else:
            torch.addmm(self._bias, x, self._weight, out=self._ih)
        return self._step.run()


class _Plan(NamedTuple):
    """What a form says of one direction."""

    cell: Cell
    trace: Trace
    reverse: bool
    weights: tuple[str, ...]
    noise: tuple[str, ...]

    @property
    def differentiable(self) -> list[bool]:
        """Which of the tensors it takes have a gradient: all but noise."""
        return [True] * (self.given - len(self.noise)) + [False] * len(self.noise)

    @property
    def given(self) -> int:
        """How many tensors the direction takes: parameters, initial states, noise."""
        return len(self.weights) + len(self.cell.state) + len(self.noise)

    def direction(self, given: Sequence[Tensor]) -> Direction:
        """The call of an engine that the tensors were taken from."""
        n, m = len(self.weights), len(self.weights) + len(self.cell.state)
        weights = dict(zip(self.weights, given[:n], strict=True))
        noise = dict(zip(self.noise, given[m:], strict=True))
        return Direction(self.cell, weights, tuple(given[n:m]), self.reverse, noise)

    def kept(self, widths: list[int], H: int) -> dict[str, int]:
        """The buffers that the backward pass reads beside the states, and their widths."""
        rows = [column + 1 for name, column in self.trace.saved if name == "row"]
        columns = {"ih": len(self.trace.ih) * H, "hh": len(self.trace.hh_only) * H, "row": max(rows, default=0)}
        return {name: n for name, n in columns.items() if n} | (
            {"hr": widths[0]} if ("hr", 0) in self.trace.saved else {}
        )


@lru_cache(1024)
def _plans(form: str) -> tuple[_Plan, ...]:
    plans = []
    for line in form.split("\n"):
        way, text, weights, noise = line.split("\t")
        cell, names = cell_of(text), tuple(weights.split(","))
        traced = trace(cell, "weight_hr" in names)
        plans.append(_Plan(cell, traced, way == "<", names, tuple(noise.split(",")) if noise else ()))
    return tuple(plans)


def _split(form: str, given: Sequence[Tensor]) -> Iterator[tuple[_Plan, Direction, int]]:
    """The directions, each with its part of all tensors, and its hidden size."""
    at = 0
    for plan in _plans(form):
        direction = plan.direction(given[at : at + plan.given])
        yield plan, direction, direction.weights["weight_ih"].shape[0] // len(plan.cell.gates)
        at += plan.given


def _inputs(plan: _Plan, direction: Direction, H: int, steps: Steps) -> "kernel.Inputs":
    from glassgate.engines.numba_cpu import kernel

    return kernel.Inputs(
        plan.cell,
        plan.trace,
        H,
        plan.reverse,
        steps.batch_sizes,
        steps.resets,
        direction.weights.get("weight_hh"),
        direction.weights.get("weight_hr"),
        products.hidden_bias(direction, plan.trace),
        products.own_parameters(direction, plan.trace),
        direction.noise,
        direction.initial,
    )


def _without_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """Types are as given: products inside are not cast again."""

    @wraps(function)
    def run_(*args: Any) -> Any:
        if not torch.is_autocast_enabled("cpu"):
            return function(*args)
        with torch.autocast("cpu", enabled=False):
            return function(*args)

    return run_


@_without_autocast
def _forward(
    data: Tensor,
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    given: Sequence[Tensor],
    form: str,
    all_states: bool,
    save: bool,
) -> list[Tensor]:
    """The states after each step and the final ones of each direction; with `save`, what each backward pass reads."""
    from glassgate.engines.numba_cpu import kernel

    dtype, computed = data.dtype, COMPUTED_IN[data.dtype]
    steps = Steps(data.to(computed), batch_sizes, resets)
    calls, results, behind = [], [], []
    for plan, direction, H in _split(form, [v.to(computed).contiguous() for v in given]):
        ih = products.input_product(steps, direction, plan.trace)
        widths = [v.shape[1] for v in direction.initial]
        states = [ih.new_empty(len(ih), n) for n in (widths if all_states or save else widths[:1])]
        final = [torch.empty_like(v) for v in direction.initial]
        kept = {name: ih.new_empty(len(ih), n) for name, n in plan.kept(widths, H).items() if save and name != "ih"}
        unasked = [None] * (len(widths) - len(states))
        buffers = kernel.Kept(ih, [*states, *unasked], final, *map(kept.get, ("hh", "row", "hr")))
        calls.append((_inputs(plan, direction, H, steps), buffers))
        results += [*states, *final]
        behind += [ih, *kept.values()] if save else []
    kernel.forward(calls, save)
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
    for plan, direction, H in _split(form, given):
        widths = [v.shape[1] for v in direction.initial]
        results += [data.new_empty(S, n) for n in (widths if all_states or save else widths[:1])]
        results += [data.new_empty(v.shape) for v in direction.initial]
        if save:
            behind += [data.new_empty(S, n, dtype=COMPUTED_IN[data.dtype]) for n in plan.kept(widths, H).values()]
    return [*results, *behind]


@_without_autocast
def _backward(
    data: Tensor,
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    given: Sequence[Tensor],
    flat: Sequence[Tensor],
    d_results: Sequence[Tensor | None],
    form: str,
    data_too: bool,
) -> list[Tensor]:
    """The gradients of `data` and of each tensor of `given`; empty where there is none.

    Args:
        flat: what `_forward` returned with `save`.
        d_results: the gradients of its states and final states, None for zero.
        data_too: whether that of `data` is wanted.
    """
    from glassgate.engines.numba_cpu import kernel

    dtype, computed = data.dtype, COMPUTED_IN[data.dtype]
    steps = Steps(data.to(computed), batch_sizes, resets)
    behind = iter(flat[len(d_results) :])
    calls, at = [], 0
    for plan, direction, H in _split(form, [v.to(computed).contiguous() for v in given]):
        count = len(plan.cell.state)
        states = [v.to(computed) for v in flat[at : at + count]]
        d = [None if v is None else v.to(computed).contiguous() for v in d_results[at : at + 2 * count]]
        widths, traced = [v.shape[1] for v in states], plan.trace
        kept = {name: next(behind) for name in plan.kept(widths, H)}
        S, N = len(data), len(direction.initial[0])
        columns = Counter(name for name, _ in traced.backward.outputs)
        units = {"d_pre": H, "raw": H, "left": widths[0], "d_hr": widths[0]}
        rows = {name: states[0].new_empty(S, columns[name] * units[name]) for name in units if columns[name]}
        gradients = kernel.Gradients(
            d_states=d[:count],
            d_next=[
                torch.zeros_like(v) if d_v is None else d_v.clone()
                for v, d_v in zip(direction.initial, d[count:], strict=True)
            ],
            d_initial=[torch.zeros_like(v) if resets is not None else v.new_empty(0) for v in direction.initial],
            d_parameter=states[0].new_zeros(N, columns["d_parameter"] * H) if columns["d_parameter"] else None,
            **{name: rows.get(name) for name in units},
        )
        buffers = kernel.Kept(kept["ih"], states, [], *map(kept.get, ("hh", "row", "hr")))
        calls.append((_inputs(plan, direction, H, steps), buffers, gradients, direction))
        at += 2 * count
    kernel.backward([call[:3] for call in calls])
    d_data, d_given = None, []
    for inputs, kept_buffers, gradients, direction in calls:
        loop = products.LoopGradients(
            gradients.d_pre, gradients.left, gradients.raw, gradients.d_hr, gradients.d_parameter
        )
        output = kept_buffers.states[0]
        d_given += products.weight_gradients(steps, direction, inputs.trace, output, loop).values()
        if resets is None:
            d_given += gradients.d_next
        else:
            d_given += [a.add_(b) for a, b in zip(gradients.d_initial, gradients.d_next, strict=True)]
        d_given += [v.new_empty(0) for v in direction.noise.values()]
        if data_too:
            d_data = products.input_gradient(gradients.d_pre, direction, inputs.trace, d_data)
    d = [data.new_empty(0) if d_data is None else d_data, *d_given]
    return d if dtype == computed else [v.to(dtype) for v in d]


def _fake_backward(
    data: Tensor,
    batch_sizes: Tensor | None,
    resets: Tensor | None,
    given: Sequence[Tensor],
    flat: Sequence[Tensor],
    d_results: Sequence[Tensor | None],
    form: str,
    data_too: bool,
) -> list[Tensor]:
    d = [data.new_empty(data.shape if data_too else (0,))]
    for plan, direction, _ in _split(form, given):
        d += [data.new_empty(v.shape) for v in (*direction.weights.values(), *direction.initial)]
        d += [data.new_empty(0) for _ in plan.noise]
    return d


class _Layer(torch.autograd.Function):
    """What the operator is to autograd, without the operator's own way through torch's dispatcher."""

    @staticmethod
    def forward(
        ctx: Any, batch_sizes: Tensor | None, resets: Tensor | None, form: str, data: Tensor, *given: Tensor
    ) -> tuple[Tensor, ...]:
        flat = _forward(data, batch_sizes, resets, given, form, True, True)
        _remember(ctx, (data, batch_sizes, resets, given, form), flat)
        return tuple(flat[: ctx.results])

    @staticmethod
    def backward(ctx: Any, *d_results: Tensor | None) -> tuple[Tensor | None, ...]:
        d_data, d_given = _differentiate(ctx, d_results, ctx.needs_input_grad[3], torch.is_grad_enabled())
        return None, None, None, d_data, *d_given


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    data, batch_sizes, resets, given, form = inputs[:5]
    ctx.form, ctx.given = form, len(given)
    ctx.results = sum(2 * len(plan.cell.state) for plan in _plans(form))
    ctx.save_for_backward(data, batch_sizes, resets, *given, *output)
    ctx.set_materialize_grads(False)


def _differentiate(
    ctx: Any, d_results: Sequence[Tensor | None], data_too: bool, by_operator: bool
) -> tuple[Tensor | None, list[Tensor | None]]:
    data, batch_sizes, resets, *rest = ctx.saved_tensors
    given, flat = rest[: ctx.given], rest[ctx.given :]
    function = torch.ops.glassgate.layer_backward if by_operator else _backward
    d_data, *d_given = function(data, batch_sizes, resets, given, flat, list(d_results), ctx.form, data_too)
    wanted = [known for plan in _plans(ctx.form) for known in plan.differentiable]
    return d_data if data_too else None, [d if known else None for d, known in zip(d_given, wanted, strict=True)]


def _backward_of_operator(ctx: Any, d_flat: Sequence[Tensor | None]) -> tuple[Any, ...]:
    d_data, d_given = _differentiate(ctx, d_flat[: ctx.results], ctx.needs_input_grad[0], True)
    return d_data, None, None, d_given, None, None, None


def _remember_backward(ctx: Any, inputs: tuple[Any, ...], output: Sequence[Tensor]) -> None:
    data, batch_sizes, resets, given, flat, d_results, form, data_too = inputs
    ctx.form, ctx.data_too, ctx.given, ctx.flat = form, data_too, len(given), len(flat)
    ctx.save_for_backward(data, batch_sizes, resets, *given, *d_results)
    ctx.set_materialize_grads(False)


def _backward_twice(ctx: Any, dd: Sequence[Tensor | None]) -> tuple[Any, ...]:
    """The gradient of the gradients, by the reference."""
    data, batch_sizes, resets, *rest = ctx.saved_tensors
    with torch.enable_grad():
        data, *rest = [v if v is None else v.view_as(v) if v.requires_grad else v.detach() for v in (data, *rest)]
        inputs = [v.requires_grad_() for v in (data, *rest[: ctx.given])]
        d_results = rest[ctx.given :]
        directions = [direction for _, direction, _ in _split(ctx.form, inputs[1:])]
        results = reference.run(Steps(data, batch_sizes, resets), directions, all_states=True)
        values = [v for result in results for v in (*result.states, *result.final)]
        reached = [k for k, d in enumerate(d_results) if d is not None]
        d_values = [d_results[k].requires_grad_() for k in reached]
        d = torch.autograd.grad(
            [values[k] for k in reached], inputs, d_values, create_graph=True, materialize_grads=True
        )
        used = [k for k, v in enumerate(dd) if v is not None and d[k].requires_grad and v.shape == d[k].shape]
        second = torch.autograd.grad(
            [d[k] for k in used],
            [*inputs, *d_values],
            [dd[k] for k in used],
            create_graph=True,
            materialize_grads=True,
        )
    dd_results = [None] * len(d_results)
    for k, v in zip(reached, second[len(inputs) :], strict=True):
        dd_results[k] = v
    return second[0], None, None, list(second[1 : len(inputs)]), [None] * ctx.flat, dd_results, None, None


_CALL = "Tensor data, Tensor? batch_sizes, Tensor? resets, Tensor[] given"
_library = torch.library.Library("glassgate", "DEF")
_library.define(
    f"layer({_CALL}, str form, bool all_states, bool save) -> Tensor[]", tags=(torch.Tag.pt2_compliant_tag,)
)
_library.define(
    f"layer_backward({_CALL}, Tensor[] flat, Tensor?[] d_results, str form, bool data_too) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_library.impl("layer", _forward, "CPU")
_library.impl("layer_backward", _backward, "CPU")
torch.library.register_fake("glassgate::layer", _fake_forward, lib=_library)
torch.library.register_fake("glassgate::layer_backward", _fake_backward, lib=_library)
torch.library.register_autograd("glassgate::layer", _backward_of_operator, setup_context=_remember, lib=_library)
torch.library.register_autograd(
    "glassgate::layer_backward", _backward_twice, setup_context=_remember_backward, lib=_library
)
