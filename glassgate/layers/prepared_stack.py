"""The prepared calls of a stack of layers."""

from collections.abc import Sequence
from itertools import islice

import torch
from torch import Tensor

from glassgate.engines.backend import PackedLengths
from glassgate.engines.choose import Prepared
from glassgate.engines.contract import Recording, Result


class PreparedStack:
    """The prepared calls of several layers, run one after the other.

    Args:
        layers: the call of each layer.
        D: the number of directions of a layer.
        weights: the number of parameters of a direction.
        states: the number of states of a direction.
        visible: the number of states of a direction that a call returns at every step.
    """

    def __init__(self, layers: Sequence[Prepared], D: int, weights: int, states: int, visible: int) -> None:
        self._layers, self._D, self._weights, self._states, self._visible = layers, D, weights, states, visible
        self._all_weights = weights * D * len(layers)

    def run(
        self,
        data: Tensor,
        operands: Sequence[Tensor],
        mask: Tensor | None,
        lengths: Sequence[int] | PackedLengths | None,
    ) -> Sequence[Tensor]:
        """The output and the final states, (layers * directions, N, W) for each state.

        Args:
            data: the input of the first layer.
            operands: the parameters of all directions, then each initial and restart state as one tensor of this shape.
            mask: the mask of resets; None without resets.
            lengths: the lengths of the sequences, if they differ.
        """
        output, results = self._run(data, operands, mask, lengths)
        return output, *_stacked(results)

    def observed(
        self, data: Tensor, operands: Sequence[Tensor], mask: Tensor | None, recordings: Sequence[Recording]
    ) -> tuple[Tensor, tuple[Tensor, ...], list[Result]]:
        """The output, the final states in the user's shape, and the results of each direction.

        Args:
            data, operands, mask: as in `run`.
            recordings: one per direction of each layer, which the call fills with the gates; or empty.
        """
        if len(self._layers) > 1 or self._D > 1:
            output, results = self._run(data, operands, mask, None, recordings)
            return output, _stacked(results), results
        tensors = self._layers[0].run(data, operands, mask, None, recordings)
        result = Result(tuple(tensors[: self._visible]), tuple(tensors[self._visible :]))
        return tensors[0], result.final, [result]

    def by_part(self, states: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
        """States of all parts as one tuple per part; a part is a direction of a layer."""
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
        """The output of the last layer, and the results of each direction of each layer."""
        initial = zip(*[v.unbind(0) for v in operands[self._all_weights :]], strict=True)
        at, D, visible, results = 0, self._D, self._visible, list[Result]()
        for k, layer in enumerate(self._layers):
            own: list[Tensor] = []
            for _ in range(D):
                own += operands[at : at + self._weights]
                own += next(initial)
                at += self._weights
            tensors = iter(layer.run(data.to(own[0].dtype), own, mask, lengths, recordings[k * D : (k + 1) * D]))
            states = [tuple(islice(tensors, visible)) for _ in range(D)]
            results += [Result(of_direction, tuple(islice(tensors, self._states))) for of_direction in states]
            data = states[0][0] if D == 1 else torch.cat([of_direction[0] for of_direction in states], -1)
        return data, results


def _stacked(results: Sequence[Result]) -> tuple[Tensor, ...]:
    """The final states of all parts, in the user's shape."""
    return tuple([torch.stack(of_state) for of_state in zip(*[result.final for result in results], strict=True)])
