"""A prepared call of a stack of layers; see `prepared_calls.py`."""

from collections.abc import Callable, Sequence
from itertools import islice
from operator import attrgetter

import torch
from torch import Tensor

from glassgate.engines.backend import PackedLengths
from glassgate.engines.choose import PreparedCalls
from glassgate.engines.contract import Recording, Result
from glassgate.layers.merge import merge


class PreparedStack:
    """Runs the prepared calls of several layers one after the other.

    Args:
        layers: the prepared call of each layer.
        D: the number of directions of a layer.
        weight_count: the number of parameters of a direction.
        state_count: the number of states of a direction.
        visible_count: how many of these states a call returns for all steps, not only for the last.
        merge: how the outputs of two directions are combined, as in `Recurrent`.
        residual: whether each layer except the first adds the output of the layer below.
        drop: applies dropout to the input of each layer except the first; None without dropout.
    """

    def __init__(
        self,
        layers: Sequence[PreparedCalls],
        D: int,
        weight_count: int,
        state_count: int,
        visible_count: int,
        merge: str = "concat",
        residual: bool = False,
        drop: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self._layers, self._D, self._merge, self._residual, self._drop = layers, D, merge, residual, drop
        self._weight_count, self._state_count, self._visible_count = weight_count, state_count, visible_count
        self._all_weights_count = weight_count * D * len(layers)

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
        if len(self._layers) > 1 or self._D > 1:
            output, results = self._run(data, operands, mask, None, recordings)
            return output, _stack_final_states(results), results
        tensors = self._layers[0].run(data, operands, mask, None, recordings)
        result = Result(tuple(tensors[: self._visible_count]), tuple(tensors[self._visible_count :]))
        return tensors[0], result.final, [result]

    def unstack(self, states: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
        """Split stacked states into one tuple for each direction of each layer."""
        if len(self._layers) > 1 or self._D > 1:
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
        weights, D, results = iter(operands[: self._all_weights_count]), self._D, list[Result]()
        n = self._visible_count
        for k, layer in enumerate(self._layers):
            layer_operands: list[Tensor] = []
            for _ in range(D):
                layer_operands += islice(weights, self._weight_count)
                layer_operands += next(states_by_direction)
            below = data
            data = (data if self._drop is None or not k else self._drop(data)).to(layer_operands[0].dtype)
            tensors = iter(layer.run(data, layer_operands, mask, lengths, recordings[k * D : (k + 1) * D]))
            visible = [*islice(tensors, n * D)]
            for d in range(D):
                results.append(Result(tuple(visible[n * d : n * d + n]), tuple(islice(tensors, self._state_count))))
            (data,) = merge(self._merge, visible[::n], (below,) if self._residual and k else ())
        return data, results


def _stack_final_states(results: Sequence[Result]) -> tuple[Tensor, ...]:
    """Stack the final states of all directions, (layers * directions, N, width) each."""
    return tuple(map(torch.stack, zip(*map(_final, results), strict=True)))


_final = attrgetter("final")
