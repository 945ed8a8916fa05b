"""A layer's pass through time, all of its directions at once: flat tensors in, flat tensors out."""

from collections.abc import Sequence
from itertools import islice

import torch
from torch import Tensor

from glassgate.engines import products
from glassgate.engines.contract import Recording, Steps
from glassgate.engines.memory import COMPUTED_IN, computable, first_rows, unwritten
from glassgate.engines.numba_cpu import passes
from glassgate.engines.numba_cpu.call import Call
from glassgate.engines.numba_cpu.gradients import Backward, Wanted, backward_program
from glassgate.engines.numba_cpu.processor import host
from glassgate.engines.numba_cpu.program import forward_program
from glassgate.engines.numba_cpu.timetable import Timetable, timetable
from glassgate.engines.numba_cpu.workspace import Memory
from glassgate.engines.plan import Plan, by_direction, count_of_results


def forward(
    steps: Steps,
    plans: Sequence[Plan],
    given: Sequence[Tensor],
    all_states: bool,
    save: bool,
    recordings: Sequence[Recording] | None = None,
) -> list[Tensor]:
    """The states after each step and the final ones of each direction; with `save`, what each backward pass reads.

    Args:
        steps: the layer's input.
        plans, given: its directions, see `plan.py`.
        all_states: whether every state is wanted at every step, and not the output alone.
        save: whether there will be a backward pass; that wants every state.
        recordings: one a direction, where the gates are to be shown.
    """
    dtype, S = steps.data.dtype, steps.data.shape[0]
    time, data, given = _computable(steps, plans, given)
    memory, every = Memory(), all_states or save
    calls: list[Call] = []
    results: list[Tensor] = []
    behind: list[Tensor] = []
    for k, (plan, own) in enumerate(by_direction(plans, given)):
        program = forward_program(plan, plan.sizes(own, data), save, every, host())
        call = Call(program, time, memory, data, own, steps.resets)
        stored = list(program.states.items())
        states = {name: unwritten(S, n, time.rows, data) for name, n in (stored if every else stored[:1])}
        final = {name: data.new_empty(time.N, n) for name, n in program.final.items()}
        kept = {name: unwritten(S, n, time.rows, data) for name, n in program.kept.items()} if save else {}
        shown = {f"gate_{name}_rows": unwritten(S, program.sizes.H, time.rows, data) for name in plan.trace.recorded}
        call.point(states | final | kept | shown)
        if recordings:
            recordings[k].values = dict(zip(plan.trace.recorded, shown.values(), strict=True))
        calls.append(call)
        results += [*states.values(), *final.values()]
        behind += kept.values()
    passes.run(calls)
    return [*(results if dtype == data.dtype else [v.to(dtype) for v in results]), *behind]


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
    dtype, S = steps.data.dtype, steps.data.shape[0]
    time, data, computed = _computable(steps, plans, given)
    d_data = unwritten(S, data.shape[1], time.rows, data) if data_too else data.new_empty(0)
    n = count_of_results(plans) // 2
    memory, every, behind = Memory(), iter(flat[:n]), iter(flat[n:])
    reaching: list[_Reaching] = []
    at, weight_at = 0, 0
    for k, (plan, own) in enumerate(by_direction(plans, computed)):
        names = tuple([name for i, name in enumerate(plan.weights, weight_at) if needed is None or needed[i]])
        program = backward_program(plan, plan.sizes(own, data), Wanted(names, data_too, added=k > 0), host())
        call = Call(program, time, memory, data, own, steps.resets)
        count = len(program.states)
        states = computable(list(islice(every, count)), data.dtype)
        kept = {name: next(behind) for name in program.kept}
        call.point(dict(zip(program.states, states, strict=True)) | kept | {"d_data": d_data})
        d = [d_results.get(place) for place in range(at, at + 2 * count)]
        reaching.append(_Reaching(program, call, own, d[:count], d[count:], steps.resets is not None))
        if recordings:
            recordings[k].grad = reaching[-1].shown(S)
        at += 2 * count
        weight_at += plan.given
    passes.run([d.call for d in reaching])
    gradients = [d_data if data_too else None, *(v for d in reaching for v in d.gradients())]
    return gradients if dtype == data.dtype else [v if v is None else v.to(dtype) for v in gradients]


class _Reaching:
    """The gradients of one direction's tensors.

    Args:
        program: its pass.
        call: what is told where to write.
        own: the tensors.
        d_states, d_final: of its states at every step and of the final ones; None for zero.
        resets: whether there are any.
    """

    def __init__(
        self,
        program: Backward,
        call: Call,
        own: Sequence[Tensor],
        d_states: Sequence[Tensor | None],
        d_final: Sequence[Tensor | None],
        resets: bool,
    ) -> None:
        self.call, self._resets = call, resets
        program, plan = self._program, self._plan = program, program.plan
        n, names = len(plan.weights), plan.cell.state
        initial = own[n : n + len(names)]
        for name, d in zip(names, d_states, strict=True):
            call.read(f"d_{name}", d)
        self._next = [torch.zeros_like(v) if d is None else d.clone() for v, d in zip(initial, d_final, strict=True)]
        self._initial = [torch.zeros_like(v) for v in initial] if resets else self._next
        written = program.written if call.time.rows else ()
        self._weights = {
            name: torch.empty_like(v) if name in written else torch.zeros_like(v)
            for name, v in zip(plan.weights, own, strict=False)
            if name in program.wanted.weights
        }
        self._parameter = initial[0].new_zeros(call.time.N, plan.trace.gradients["d_parameter"] * program.sizes.H)
        call.point({f"d_{name}_values": d for name, d in self._weights.items()})
        call.point({f"d_{name}_next_ranks": d for name, d in zip(names, self._next, strict=True)})
        call.point({f"d_{name}_0_ranks": d for name, d in zip(names, self._initial, strict=True)})
        call.point({"d_parameter_ranks": self._parameter})

    def shown(self, S: int) -> dict[str, Tensor]:
        """Where a recording finds what reaches gates and new states, by name."""
        plan, sizes, time = self._plan, self._program.sizes, self.call.time
        widths = {f"d_gate_{name}": sizes.H for name in plan.trace.recorded}
        widths |= {f"d_new_{name}": width for name, width in plan.of_states(sizes).items()}
        buffers = {name: unwritten(S, width, time.rows, self._next[0]) for name, width in widths.items()}
        self.call.point({f"{name}_rows": buffer for name, buffer in buffers.items()})
        return {name.removeprefix("d_gate_").removeprefix("d_new_"): buffer for name, buffer in buffers.items()}

    def gradients(self) -> list[Tensor | None]:
        """One for each tensor; None where there is none."""
        program, plan = self._program, self._plan
        d = self._weights | products.own_gradients(plan, program.sizes.H, self._weights, self._parameter)
        found = [d.get(name) for name in plan.weights]
        if plan.restarts:
            found += [*self._next, *(self._initial if self._resets else map(torch.zeros_like, self._next))]
        else:
            ways = zip(self._next, self._initial, strict=True)
            found += [a.add_(b) for a, b in ways] if self._resets else self._next
        return [*found, *([None] * len(plan.noise))]


def _computable(
    steps: Steps, plans: Sequence[Plan], given: Sequence[Tensor]
) -> tuple[Timetable, Tensor, Sequence[Tensor]]:
    """Which rows each step has, and all tensors as kernels take them."""
    dtype = COMPUTED_IN[steps.data.dtype]
    N = given[len(plans[0].weights)].shape[0]
    time = timetable(steps.batch_sizes, steps.data.shape[0], N)
    (data,) = computable((first_rows(steps.data, time.rows),), dtype)
    return time, data, computable(given, dtype)
