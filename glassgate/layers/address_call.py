"""Calls that pass the addresses of their tensors to kernels; see `call.py`."""

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain
from operator import add, call, itemgetter
from typing import Any

from torch import Tensor

from glassgate.engines.backend import PackedLengths
from glassgate.engines.contract import Recording, Steps
from glassgate.engines.memory import LOW_ADDRESS
from glassgate.layers.base import BaseLayer
from glassgate.layers.call import Call
from glassgate.layers.levels import merge_of
from glassgate.layers.tensor_call import TensorCall


class AddressCall(Call):
    """Calls without a backward pass, whose sequences have the same length. They pass addresses to kernels.

    Kernels write the final states of all parts to one tensor per state.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        levels, _, _, default_states, self._new_final, has_restart, fixed_weights = arguments
        P, S, W = len(self._parts), self._state_count, sum([len(v.weights) for v in self._plans])
        self._bytes = [new().nbytes for new in self._new_final] * (1 + has_restart)
        self._bytes_per_part = [size // P for size in self._bytes]
        self._weights = [*map(Tensor.data_ptr, fixed_weights)]
        starts = [*map(Tensor.data_ptr, default_states)]
        self._default = self._split(starts) if self._is_stack else starts
        self._fixed = self._weights + self._default
        self._levels = list[tuple[Any, ...]]()
        """For each level, the function that runs it (see `PreparedCalls.by_address`), the functions that select its
        operands and its final states, its parts, the function that merges its outputs, and whether its input is added.
        """
        for level, _, calls, _, _ in levels:
            parts = slice(level.start, level.start + len(level.parts))
            selects: tuple[Callable[[Any], Any] | None, ...] = None, None
            if P > 1:
                own, end = range(level.start, level.start + len(level.parts)), W + P * len(self._bytes)
                operands = [[*range(W // P * p, W // P * (p + 1)), *range(W + p, end, P)] for p in own]
                final = [k for p in own for k in range(p, P * S, P)]
                # With one index, the function must return a list, too.
                select_final = itemgetter(*final) if len(final) > 1 else itemgetter(slice(final[0], final[0] + 1))
                selects = itemgetter(*chain(*operands)), select_final
            self._levels.append((calls.by_address, *selects, parts, merge_of(level), level.residual[0]))

    def run(
        self,
        layer: BaseLayer | None,
        input: Tensor,
        weights: tuple[Tensor, ...],
        states: tuple[Tensor, ...],
        restart_states: tuple[Tensor, ...],
        mask: tuple[Tensor, ...],
        lengths: Sequence[int] | PackedLengths | None,
    ) -> Any:
        """See `Call`."""
        data = (input.transpose(0, 1) if self._transposed else input).contiguous()
        operands, address, resets, reset_address = self._fixed, data.data_ptr(), None, 0
        lowest = address
        if mask:
            resets = (mask[0].transpose(0, 1) if self._transposed else mask[0]).contiguous()
            reset_address = resets.data_ptr()
            lowest = min(address, reset_address)
        if weights or states or restart_states:
            given = (*weights, *states, *restart_states)
            if not all(map(Tensor.is_contiguous, given)):
                given = tuple([v.contiguous() for v in given])
            operands, n = [*map(Tensor.data_ptr, given)], len(weights)
            lowest = min(lowest, *operands)
            if self._is_stack:
                operands[n:] = self._split(operands[n:])
            operands[n:n] = self._default
            operands = self._weights + operands
        if lowest < LOW_ADDRESS:
            return self._with_tensors.run(layer, input, weights, states, restart_states, mask, lengths)
        final = [*map(call, self._new_final)]
        final_addresses = [*map(Tensor.data_ptr, final)]
        if self._is_stack:
            final_addresses = self._split(final_addresses)
        recordings = [Recording() for _ in self._parts] if self._records else ()
        source = data
        visible_by_level: list[Sequence[Tensor]] = []
        for run, select, select_final, parts, merge, adds_input in self._levels:
            below = data
            if select is None:
                visible = run(address, operands, final_addresses, reset_address, recordings)
            else:
                if visible_by_level:
                    data = data if self._drop is None else self._drop(data)
                    address = data.data_ptr()
                own, own_final = select(operands), select_final(final_addresses)
                visible = run(address, own, own_final, reset_address, recordings and recordings[parts])
            visible_by_level.append(visible)
            data = visible[0] if merge is None else merge(visible[:: self._visible_count])
            if adds_input:
                data = data + below
        output = data.transpose(0, 1) if self._transposed else data
        results = output, tuple(final) if self._state_count > 1 else final[0]
        if self._returns_output:
            return results
        steps, initial = Steps(source, None, resets), states or self._default_states
        return self._finish(layer, results, steps, initial, visible_by_level, recordings)

    def _split(self, starts: list[int]) -> list[int]:
        """Return the address of each part of each state, from the addresses of states with all parts stacked."""
        return [*chain.from_iterable(map(range, starts, map(add, starts, self._bytes), self._bytes_per_part))]

    @cached_property
    def _with_tensors(self) -> "TensorCall":
        """The same calls with tensors, for tensors that may have no memory. Kernels check these."""
        return TensorCall(*self._arguments)
