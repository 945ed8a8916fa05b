"""Calls that pass tensors to autograd and kernels; see `call.py`."""

from collections.abc import Callable, Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from glassgate.engines.backend import CallPlan, PackedLengths
from glassgate.engines.contract import Recording, Steps
from glassgate.engines.memory import to_contiguous
from glassgate.layers.base import BaseLayer
from glassgate.layers.call import Call, LevelCall, Noise
from glassgate.layers.levels import merge_of
from glassgate.layers.observed import graph_leaf


class TensorCall(Call):
    """Calls that pass tensors to autograd and kernels, one per part and state."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        levels, options, _, _, new_final, has_restart, self._fixed_weights = arguments
        self._dtype, self._needs_grad = options.dtype, options.needs_grad
        P, S, W = len(self._parts), len(new_final), len(self._plans[0].weights)
        self._weight_count, self._by_state = P * W, [slice(k, None, S) for k in range(S)]
        places = [[*range(p * W, p * W + W), *range(P * W + p, P * (W + S + S * has_restart), P)] for p in range(P)]
        """For each part, the places of its operands among all parameters, then each state of all parts."""
        self._levels = list[tuple[LevelCall, Callable[[Any], Any] | None, int, Callable[[Any], Any] | None, bool]]()
        """Each level, a function that selects its operands, the number of its results before the final states, the
        function that merges its outputs, and whether it has a residual connection."""
        for level_call in levels:
            start, D = level_call.level.start, len(level_call.level.parts)
            select = itemgetter(*chain.from_iterable(places[start : start + D])) if P > 1 else None
            merge, (adds_input, *_) = merge_of(level_call.level), level_call.level.residual
            self._levels.append((level_call, select, D * self._visible_count, merge, adds_input))

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
        if self._dtype is not None:
            input, *rest = to_contiguous((input, *states, *restart_states), self._dtype)
            states, restart_states = tuple(rest[: len(states)]), tuple(rest[len(states) :])
        if self._transposed:
            input, mask = input.transpose(0, 1), tuple([v.transpose(0, 1) for v in mask])
        operands = (*self._fixed_weights, *weights, *(states or self._default_states), *restart_states)
        if not all(map(Tensor.is_contiguous, operands)):
            operands = tuple([v.contiguous() for v in operands])
        data, resets = input.contiguous(), mask[0].contiguous() if mask else None
        recordings: Sequence[Recording] = ()
        if self._records:
            recordings = [Recording() for _ in self._parts]
            if self._needs_grad:
                data = graph_leaf(data, recordings[: len(self._levels[0][0].level.parts)])
        # Functions of repeated calls create empty lists by displays, because `list[Tensor]()` takes a microsecond.
        visible_by_level: list[Sequence[Tensor]] = []
        final: list[Tensor] = []
        source, by_part = data, operands
        if self._is_stack:
            states_by_part = chain.from_iterable(map(Tensor.unbind, operands[self._weight_count :]))
            by_part = *operands[: self._weight_count], *states_by_part
        for (level, train, calls, _, noise), select, end, merge, adds_input in self._levels:
            if select is None:
                tensors = (data, *by_part)
            else:
                below, own = data, select(by_part)
                if level.depth:  # in the dtype of the states, because the first weight may be quantised
                    data = (data if self._drop is None else self._drop(data)).to(own[-1].dtype)
                tensors = (data, *own)
            if noise:
                tensors = _with_noise(tensors, calls.plans, noise)
            ragged = None if lengths is None else calls.ragged(lengths)
            own_recordings = recordings and recordings[level.start : level.start + len(level.parts)]
            flat: Sequence[Tensor]
            if train is not None and self._needs_grad:
                flat = train(ragged, own_recordings, [], resets, *tensors)
            else:
                flat = calls.forward(tensors, resets, ragged, own_recordings)[0]
            visible_by_level.append(flat[:end])
            final += flat[end:]
            data = flat[0] if merge is None else merge(flat[: end : self._visible_count])
            if adds_input:
                data = data + below
        output = data.transpose(0, 1) if self._transposed else data
        of_state: Sequence[Tensor] = final
        if self._is_stack:
            of_state = [*map(torch.stack, map(final.__getitem__, self._by_state))]
        results = output, tuple(of_state) if self._state_count > 1 else of_state[0]
        if self._returns_output:
            return results
        initial = operands[self._weight_count :][: self._state_count]
        return self._finish(layer, results, Steps(source, None, resets), initial, visible_by_level, recordings)


def _with_noise(tensors: Sequence[Tensor], plans: Sequence[CallPlan], noise: Sequence[Noise]) -> tuple[Tensor, ...]:
    """Draw the noise of each direction, and insert it after the other operands of the direction."""
    remaining = iter(tensors)
    complete = [next(remaining)]
    for plan, (fixed, draw) in zip(plans, noise, strict=True):
        complete += islice(remaining, plan.operand_count - len(plan.noise))
        complete += [v.contiguous() for v in {**fixed, **draw()}.values()]
    return tuple(complete)
