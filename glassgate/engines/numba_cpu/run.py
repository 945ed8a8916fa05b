"""A layer's pass through time, all of its directions at once: flat tensors in, flat tensors out."""

from collections.abc import Sequence
from itertools import islice

import torch
from torch import Tensor

from glassgate.engines import products
from glassgate.engines.contract import Recording, Steps, terms_asked
from glassgate.engines.lowering.batch import BatchLayout, batch_layout
from glassgate.engines.memory import COMPUTED_IN, computable, first_rows, unwritten
from glassgate.engines.numba_cpu import partition
from glassgate.engines.numba_cpu.amx import pays
from glassgate.engines.numba_cpu.backward import Backward, Wanted, backward_plan
from glassgate.engines.numba_cpu.bind import Call
from glassgate.engines.numba_cpu.plan import are_few, forward_plan
from glassgate.engines.numba_cpu.processor import host
from glassgate.engines.numba_cpu.workspace import Workspace
from glassgate.engines.plan import Plan, by_direction, count_of_results


def forward(
    steps: Steps,
    plans: Sequence[Plan],
    given: Sequence[Tensor],
    all_states: bool,
    save: bool,
    dtype: torch.dtype,
    recordings: Sequence[Recording] | None = None,
) -> list[Tensor]:
    """The states after each step and the final ones of each direction; with `save`, what each backward pass reads.

    Args:
        steps: the layer's input.
        plans, given: its directions, see `plan.py`.
        all_states: whether every state is wanted at every step, and not the output alone.
        save: whether there will be a backward pass; that wants every state, those that nobody else does as computed.
        dtype: of the results.
        recordings: one per direction, where the gates are to be shown.
    """
    S = steps.data.shape[0]
    workspace, every = Workspace(), all_states or save
    terms = terms_of(dtype, plans, given)
    rounded = terms > 0 and dtype is torch.bfloat16
    time, data, given = _computable(steps, plans, given)
    calls: list[Call] = []
    results: list[tuple[Tensor, bool]] = []
    behind: list[Tensor] = []
    for k, (plan, own) in enumerate(by_direction(plans, given)):
        sizes = plan.sizes(own, data, terms)
        kernel = forward_plan(plan, sizes, save, every, rounded, are_few(time.rows, sizes), host())
        widths = list(plan.of_states(kernel.sizes).values())
        states = [unwritten(S, n, time.rows, data) for n in widths[kernel.whole_states]]
        if rounded:
            states.insert(0, unwritten(S, widths[0], time.rows, data, dtype))
        final = [data.new_empty(time.N, n) for n in widths]
        kept = [unwritten(S, n, time.rows, data) for n in plan.kept(kernel.sizes).values()] if save else []
        call = Call(kernel, time, workspace, [data, *own, *states, *final, *kept], steps.resets)
        if recordings:
            shown = [unwritten(S, kernel.sizes.H, time.rows, data) for _ in plan.trace.recorded]
            call.bind(kernel.recorded, shown)
            recordings[k].values = dict(zip(plan.trace.recorded, shown, strict=True))
        calls.append(call)
        results += [(v, n == 0 or all_states) for n, v in enumerate(states)] + [(v, True) for v in final]
        behind += kept
    partition.run(calls)
    if dtype == data.dtype:
        return [*[v for v, _ in results], *behind]
    return [*[v.to(dtype) if seen else v for v, seen in results], *behind]


def backward(
    steps: Steps,
    plans: Sequence[Plan],
    given: Sequence[Tensor],
    flat: Sequence[Tensor],
    d_results: dict[int, Tensor],
    data_too: bool,
    needed: Sequence[bool] | None = None,
    recordings: Sequence[Recording] | None = None,
) -> list[Tensor | None]:
    """The gradients of the input and of each tensor of `given`; None where there is none.

    Args:
        steps, plans, given: as in `forward`.
        flat: what that returned with `save`, without the final states.
        d_results: the gradients of some of its states and final states, by place; the others are zero.
        data_too: whether that of the input is wanted.
        needed: of which tensors of `given` it is, where not of all.
        recordings: as in `forward`.
    """
    terms, S = terms_of(flat[0].dtype, plans, given), steps.data.shape[0]
    time, data, computed = _computable(steps, plans, given)
    d_data = unwritten(S, data.shape[1], time.rows, data) if data_too else data.new_empty(0)
    n = count_of_results(plans) // 2
    workspace, every, behind = Workspace(), iter(flat[:n]), iter(flat[n:])
    calls: list[Call] = []
    reaching: list[_Gradients] = []
    reached: list[dict[str, Tensor]] = []
    at, weight_at = 0, 0
    for k, (plan, own) in enumerate(by_direction(plans, computed)):
        names = tuple([name for i, name in enumerate(plan.weights, weight_at) if needed is None or needed[i]])
        sizes = plan.sizes(own, data, terms)
        kernel = backward_plan(plan, sizes, Wanted(names, data_too, added=k > 0), host())
        count = len(kernel.states)
        states = computable(list(islice(every, count)), data.dtype)
        kept = list(islice(behind, len(kernel.kept)))
        d = [d_results.get(place) for place in range(at, at + 2 * count)]
        gradients_of = _Gradients(kernel, time, own, d[count:], steps.resets is not None)
        tensors = [data, *own, *states, *kept, *gradients_of.memory, *([d_data] if data_too else [])]
        call = Call(kernel, time, workspace, tensors, steps.resets)
        for buffer, d_state in zip(kernel.d_states, d[:count], strict=True):
            call.bind_rows(buffer, d_state)
        if recordings:
            grad = {name: unwritten(S, width, time.rows, data) for name, width in kernel.d_recorded.items()}
            call.bind(kernel.d_recorded_memory, list(grad.values()))
            reached.append(grad)
        at += 2 * count
        weight_at += plan.given
        calls.append(call)
        reaching.append(gradients_of)
    partition.run(calls)
    for recording, grad in zip(recordings or (), reached, strict=True):
        recording.add(grad)
    gradients = [d_data if data_too else None, *(v for d in reaching for v in d.by_tensor())]
    if computed is given and steps.data.dtype == data.dtype:
        return gradients
    return [v if v is None else v.to(of.dtype) for v, of in zip(gradients, (steps.data, *given), strict=True)]


class _Gradients:
    """The gradients of one direction's tensors.

    Args:
        kernel: its pass.
        time: which rows each step has.
        own: the tensors.
        d_final: of the final states; None for zero.
        resets: whether there are any.
    """

    def __init__(
        self,
        kernel: Backward,
        time: BatchLayout,
        own: Sequence[Tensor],
        d_final: Sequence[Tensor | None],
        resets: bool,
    ) -> None:
        plan = kernel.plan
        self._kernel, self._plan, self._resets = kernel, plan, resets
        n = len(plan.weights)
        initial = own[n : n + len(plan.cell.state)]
        self._next = [torch.zeros_like(v) if d is None else d.clone() for v, d in zip(initial, d_final, strict=True)]
        self._initial = [torch.zeros_like(v) for v in initial] if resets else self._next
        written = kernel.written if time.rows else ()
        self._weights = {
            name: torch.empty_like(v) if name in written else torch.zeros_like(v)
            for name, v in zip(plan.weights, own, strict=False)
            if name in kernel.d_weights
        }
        self._parameter = initial[0].new_zeros(time.N, plan.trace.gradients["d_parameter"] * kernel.sizes.H)

    @property
    def memory(self) -> list[Tensor]:
        """Where the pass writes."""
        return [*self._weights.values(), *self._next, *self._initial, self._parameter]

    def by_tensor(self) -> list[Tensor | None]:
        """One for each tensor; None where there is none."""
        kernel, plan = self._kernel, self._plan
        d = self._weights | products.own_gradients(plan, kernel.sizes.H, self._weights, self._parameter)
        found = [d.get(name) for name in plan.weights]
        if plan.restarts:
            found += [*self._next, *(self._initial if self._resets else map(torch.zeros_like, self._next))]
        else:
            ways = zip(self._next, self._initial, strict=True)
            found += [a.add_(b) for a, b in ways] if self._resets else self._next
        return [*found, *([None] * len(plan.noise))]


def terms_of(dtype: torch.dtype, plans: Sequence[Plan], given: Sequence[Tensor]) -> int:
    """`Sizes.terms` of a call: those that are wanted, where they are fast."""
    terms = terms_wanted(dtype, given)
    return terms if terms and pays(terms, _sequences(plans, given)) else 0


def terms_wanted(dtype: torch.dtype, given: Sequence[Tensor]) -> int:
    """1 for results of bfloat16, and for those of float32 as torch's switches ask for."""
    of_results = {torch.bfloat16: 1, torch.float32: terms_asked()}
    return of_results.get(dtype, 0) if given[0].dtype is torch.float32 else 0


def _sequences(plans: Sequence[Plan], given: Sequence[Tensor]) -> int:
    """How many a batch has."""
    return given[len(plans[0].weights)].shape[0]


def _computable(
    steps: Steps, plans: Sequence[Plan], given: Sequence[Tensor]
) -> tuple[BatchLayout, Tensor, Sequence[Tensor]]:
    """Which rows each step has, and all tensors as kernels take them."""
    dtype = COMPUTED_IN[steps.data.dtype]
    time = batch_layout(steps.batch_sizes, steps.data.shape[0], _sequences(plans, given))
    (data,) = computable((first_rows(steps.data, time.rows),), dtype)
    return time, data, computable(given, dtype)
