"""One direction's passes in calls of one form: nothing but addresses is left to be said at a call."""

from array import array
from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from glassgate.engines import processors, products
from glassgate.engines.lowering.batch import batch_layout
from glassgate.engines.memory import empty
from glassgate.engines.numba_cpu.arguments import RESETS, Argument, address, pitch
from glassgate.engines.numba_cpu.backward import Backward, Wanted, backward_plan
from glassgate.engines.numba_cpu.bind import bind_time
from glassgate.engines.numba_cpu.partition import FEW_OPERATIONS, sharing_units
from glassgate.engines.numba_cpu.plan import KernelPlan, are_few, forward_plan
from glassgate.engines.numba_cpu.pool import threads
from glassgate.engines.numba_cpu.processor import host
from glassgate.engines.numba_cpu.tasks import Places
from glassgate.engines.numba_cpu.workspace import MOST_KEPT, aligned, lent
from glassgate.engines.plan import Plan, Sizes

Form = tuple[int, ...]

ENOUGH_FOR_ONE = 6_000_000
"""Instead of `FEW_OPERATIONS`: where nothing else is left of a call, another thread brings less."""


class Pass:
    """A kernel plan's launches for calls with as many steps of all sequences, on as many threads as there are now.

    Args:
        plan: what is to be done.
        steps: how many.
        free: what each call says: addresses of tensors, then the rest.

    Attributes:
        fits: whether this is the way for such calls.
    """

    def __init__(self, plan: KernelPlan, steps: int, free: Sequence[Argument]) -> None:
        N = plan.sizes.N
        time = batch_layout(None, steps * N, N)
        work = time.rows * plan.work
        parts, usually = (processors.worth(work, each) for each in (ENOUGH_FOR_ONE, FEW_OPERATIONS))
        bindings = plan.bindings.copy()
        self._alive = time, bind_time(plan, time, bindings)
        places: Places = {argument: (k, 0) for k, argument in enumerate(free)}
        room = 0
        for argument, size in (*plan.fixed.items(), *((a, size * time.rows) for a, size in plan.by_row.items())):
            places[argument] = len(free), room
            room += aligned(size)
        every = []
        for _ in range(parts):
            every.append(places.copy())
            for argument, size in plan.scratch.items():
                every[-1][argument] = len(free), room
                room += aligned(size)
        rounds = [plan.whole] if parts == 1 else [*plan.rounds_before, plan.loop, *plan.rounds_after]
        shared = [(task, 1 if task.light else parts) for task in rounds]
        self._rounds = [[task.prepared(bindings, every[k], k, of) for k in range(of)] for task, of in shared]
        self._room = room
        self.fits = room <= MOST_KEPT and sharing_units(plan, time, usually) == 1

    def run(self, tensors: Sequence[Tensor], rest: Sequence[int] = ()) -> None:
        """Runs the pass on these tensors."""
        self.run_at([*map(Tensor.data_ptr, tensors), *rest])

    def run_at(self, addresses: Sequence[int]) -> None:
        """Runs the pass on tensors at these addresses."""
        room, _memory = lent(self._room)
        numbers = array("q", [*addresses, room])
        for launches in self._rounds:
            threads.run([launch.filled(numbers) for launch in launches])


class PreparedPasses:
    """The pass forward and, where it is for training, the one back; tensors are contiguous and of the forms given here.

    Args:
        plan: the direction.
        sizes: of its tensors.
        steps: how many.
        dtype: of all tensors but these:
        result: of the output and the final states.
        form: the axes of the output but for the last one.
        final: the form of each initial and final state.
        save: whether there will be a pass back.
        resets: whether a mask of them is given, (rows,) bool, behind the states.
    """

    def __init__(
        self,
        plan: Plan,
        sizes: Sizes,
        steps: int,
        dtype: torch.dtype,
        result: torch.dtype,
        form: Sequence[int],
        final: Sequence[Form],
        save: bool,
        resets: bool,
    ) -> None:
        self.plan, self.resets, self._sizes, self._steps = plan, resets, sizes, steps
        self._dtype, self._result = dtype, result
        rounded = sizes.terms > 0 and result is torch.bfloat16
        rows = steps * sizes.N
        kernel = forward_plan(plan, sizes, save, save, rounded, are_few(rows, sizes), host())
        others = list(plan.of_states(sizes).values())[1:] if save else []
        self._written = [(*form, sizes.P), *((rows, width) for width in others), *final]
        self._written += [(rows, width) for width in plan.kept(sizes).values()] if save else []
        self._states, self._all = 1 + len(others), 1 + len(others) + len(final)
        self._forward = Pass(kernel, steps, _free(kernel, resets))
        least = kernel.tensors.least(rows)[-len(self._written) :]
        assert all(has >= needs for has, needs in zip(map(prod, self._written), least, strict=True)), (
            "room for what it writes"
        )
        self._types = [result if rounded else dtype, *[dtype] * (len(self._written) - 1)]
        self._back: dict[tuple[bool, ...], _Back] = {}

    @property
    def fits(self) -> bool:
        """Whether this is the way for such calls."""
        return self._forward.fits

    def forward(self, data: Tensor, given: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """The states at every step (the output alone where nothing is saved), the final ones, and what is kept.

        Args:
            data: the input.
            given: parameters, states, the mask of resets if there is one, and noise, in the plan's order.
        """
        written = list(map(empty, self._written, self._types))
        self._forward.run((data, *given, *written))
        states, final = written[: self._states], written[self._states : self._all]
        if self._result is not self._dtype:
            states[0], final = states[0].to(self._result), [v.to(self._result) for v in final]
        return states, final, written[self._all :]

    def backward(
        self,
        saved: Sequence[Tensor],
        d_output: Tensor | None,
        d_final: Sequence[Tensor | None],
        needed: tuple[bool, ...],
    ) -> list[Tensor | None]:
        """The gradients of data and of each tensor given; None where there is none, or where it is not needed.

        Args:
            saved: data, what was given, the states at every step and what was kept.
            d_output, d_final: the gradients of the output and of the final states; None for zero.
            needed: whether those of data and of each parameter are wanted.
        """
        back = self._back.get(needed)
        if back is None:
            back = self._back[needed] = _Back(self.plan, self._sizes, self._steps, needed, self.resets)
        if self._result is not self._dtype:
            output = 1 + self.plan.given + self.resets
            saved = [v.to(self._dtype) if k == output else v for k, v in enumerate(saved)]
            d_output, *d_final = [d if d is None else d.to(self._dtype) for d in (d_output, *d_final)]
        return back.run(saved, d_output, d_final)


def _free(kernel: KernelPlan, resets: bool) -> list[Argument]:
    """The addresses that a call says, in the order of its tensors."""
    addresses = [*kernel.tensors.addresses]
    if resets:
        addresses.insert(1 + len(kernel.plan.weights) + kernel.plan.states, RESETS)
    return addresses


class _Back:
    """The pass back for some of the gradients."""

    def __init__(self, plan: Plan, sizes: Sizes, steps: int, needed: tuple[bool, ...], resets: bool) -> None:
        data_too, *others = needed
        wanted = tuple([name for name, need in zip(plan.weights, others, strict=True) if need])
        kernel: Backward = backward_plan(plan, sizes, Wanted(wanted, data_too, added=False), host())
        free = _free(kernel, resets)
        for buffer in kernel.d_states:
            free += [address(buffer), pitch(buffer)]
        self._plan, self._kernel, self._data_too, self._resets = plan, kernel, data_too, resets
        self._at = {name: 1 + k for k, name in enumerate(plan.weights)}
        self._initial = slice(1 + len(plan.weights), 1 + len(plan.weights) + len(plan.cell.state))
        self._nothing = [kernel.nothing.data_ptr(), 0]
        self._rows = [kernel.d_states[0].width(sizes) * sizes.bytes, *self._nothing * (len(kernel.d_states) - 1)]
        self._parameter = sizes.N, plan.trace.gradients["d_parameter"] * sizes.H
        self._pass = Pass(kernel, steps, free)

    def run(
        self, saved: Sequence[Tensor], d_output: Tensor | None, d_final: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        kernel, plan, data = self._kernel, self._plan, saved[0]
        weights = {
            name: (torch.empty_like if name in kernel.written else torch.zeros_like)(saved[self._at[name]])
            for name in kernel.d_weights
        }
        initial = saved[self._initial]
        before = [torch.zeros_like(v) if d is None else _copied(d) for v, d in zip(initial, d_final, strict=True)]
        anew = [torch.zeros_like(v) for v in initial] if self._resets else before
        parameter = data.new_zeros(self._parameter)
        d_data = empty(data.shape, data.dtype) if self._data_too else None
        written = [*weights.values(), *before, *anew, parameter, *([d_data] if d_data is not None else [])]
        if d_output is None:
            self._pass.run((*saved, *written), self._nothing * len(kernel.d_states))
        else:
            rows = d_output.contiguous()
            self._pass.run((*saved, *written, rows), self._rows)
        d = weights | products.own_gradients(plan, kernel.sizes.H, weights, parameter)
        if plan.restarts:
            before += anew
        elif self._resets:
            before = [a.add_(b) for a, b in zip(before, anew, strict=True)]
        return [d_data, *map(d.get, plan.weights), *before, *[None] * (self._resets + len(plan.noise))]


def _copied(d: Tensor) -> Tensor:
    """Memory of its own, without gaps."""
    return d.clone(memory_format=torch.contiguous_format)
