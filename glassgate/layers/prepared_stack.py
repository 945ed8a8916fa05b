"""A prepared call of a stack of layers; see `prepared_calls.py`."""

from collections.abc import Callable, Sequence
from itertools import islice
from operator import attrgetter

import torch
from torch import Tensor

from glassgate.engines.backend import PackedLengths
from glassgate.engines.choose import PreparedCalls
from glassgate.engines.contract import Recording, Result
from glassgate.layers.levels import Level, combine


class PreparedStack:
    """Runs the prepared calls of several layers one after the other.

    Args:
        levels: the levels of the stack.
        calls: the prepared call of each level.
        weight_count: the number of parameters of a direction.
        state_count: the number of states of a direction.
        visible_count: how many of these states a call returns for all steps, not only for the last.
        drop: applies dropout to the input of each layer except the first; None without dropout.
    """

    def __init__(
        self,
        levels: Sequence[Level],
        calls: Sequence[PreparedCalls],
        weight_count: int,
        state_count: int,
        visible_count: int,
        drop: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self._levels, self._calls, self._drop = levels, calls, drop
        self._weight_count, self._state_count, self._visible_count = weight_count, state_count, visible_count
        self._all_weights_count = weight_count * (levels[-1].start + len(levels[-1].parts))

    def run(
        self,
        data: Tensor,
        operands: Sequence[Tensor],
        mask: Tensor | None,
        lengths: Sequence[int] | PackedLengths | None,
    ) -> Sequence[Tensor]:
        """Run a call. Return the output and the final states, (layers * directions, N, width) each.

        Args:
            data: the input of the first layer.
            operands: the parameters of all directions, then the initial states and the states after a reset. Each of
                these states is one tensor (layers * directions, N, width).
            mask: the mask of resets; None without resets.
            lengths: the lengths of the sequences, if they differ.
        """
        output, results = self._run(data, operands, mask, lengths)
        return output, *_stack_final_states(results)

    def run_observed(
        self, data: Tensor, operands: Sequence[Tensor], mask: Tensor | None, recordings: Sequence[Recording]
    ) -> tuple[Tensor, tuple[Tensor, ...], list[Result]]:
        """Run a call. Return the output, the final states as in `run`, and the results of each direction.

        Args:
            data, operands, mask: as in `run`.
            recordings: one per direction of each layer, to be filled with the gates; or empty.
        """
        if self._levels[-1].start or len(self._levels[0].parts) > 1:
            output, results = self._run(data, operands, mask, None, recordings)
            return output, _stack_final_states(results), results
        tensors = self._calls[0].run(data, operands, mask, None, recordings)
        result = Result(tuple(tensors[: self._visible_count]), tuple(tensors[self._visible_count :]))
        return tensors[0], result.final, [result]

    def unstack(self, states: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
        """Split stacked states into one tuple for each direction of each layer."""
        if self._levels[-1].start or len(self._levels[0].parts) > 1:
            return [*zip(*[v.unbind(0) for v in states], strict=True)]
        return [tuple(states)]

    def _run(
        self,
        data: Tensor,
        operands: Sequence[Tensor],
        mask: Tensor | None,
        lengths: Sequence[int] | PackedLengths | None,
        recordings: Sequence[Recording] = (),
    ) -> tuple[Tensor, list[Result]]:
        """Return the output of the last layer, and the results of each direction of each layer."""
        states_by_direction = zip(*map(Tensor.unbind, operands[self._all_weights_count :]), strict=True)
        weights, results = iter(operands[: self._all_weights_count]), list[Result]()
        n = self._visible_count
        for level, call in zip(self._levels, self._calls, strict=True):
            D, layer_operands = len(level.parts), list[Tensor]()
            for _ in range(D):
                layer_operands += islice(weights, self._weight_count)
                layer_operands += next(states_by_direction)
            below = data
            data = (data if self._drop is None or not level.depth else self._drop(data)).to(layer_operands[0].dtype)
            own_recordings = recordings[level.start : level.start + D]
            tensors = iter(call.run(data, layer_operands, mask, lengths, own_recordings))
            visible = [*islice(tensors, n * D)]
            for d in range(D):
                results.append(Result(tuple(visible[n * d : n * d + n]), tuple(islice(tensors, self._state_count))))
            (data,) = combine(level, (below,), visible[::n])
        return data, results


def _stack_final_states(results: Sequence[Result]) -> tuple[Tensor, ...]:
    """Stack the final states of all directions, (layers * directions, N, width) each."""
    return tuple(map(torch.stack, zip(*map(_final, results), strict=True)))


_final = attrgetter("final")
