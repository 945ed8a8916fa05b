"""`Observed`: the data of a call that recordings read."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from glassgate.engines.contract import Recording, Result, Steps
from glassgate.layers.states import States
from glassgate.layout import Layout

LayerType = TypeVar("LayerType")


class Observed(Generic[LayerType]):
    """One call of a layer: its input, its results, and the gates of each direction.

    "Each direction" means each direction of each layer of the stack. The tensors of a call are (S, width), with
    one row per step of each sequence. In a call prepared for one signature they are (L, N, width), and `steps`,
    `initial` and `results` reshape them to rows.

    Args:
        layer: the layer.
        layout: the layout of the input.
        steps: the input of the first layer.
        initial: a function that returns the initial states of each direction.
        results: a function that returns the results of each direction.
        recordings: the gates of each direction; empty if gates are not recorded.

    Attributes:
        layer, layout, recordings: the arguments.
        source: the input as a tensor of the autograd graph, not reshaped.
        batch_sizes: the number of sequences at each step; None if it is the same at all steps.
    """

    def __init__(
        self,
        layer: LayerType,
        layout: Layout,
        steps: Steps,
        initial: Callable[[], States],
        results: Callable[[], Sequence[Result]],
        recordings: Sequence[Recording],
    ) -> None:
        self.layer, self.layout, self.recordings = layer, layout, recordings
        self.source, self.batch_sizes, self._resets = steps
        self._initial, self._results = initial, results

    @cached_property
    def steps(self) -> Steps:
        """The input of the first layer, (S, H_in)."""
        resets = self._resets
        return Steps(_flatten_rows(self.source), self.batch_sizes, None if resets is None else resets.reshape(-1))

    @cached_property
    def initial(self) -> States:
        """The initial states of each direction, (N, width)."""
        return [tuple(map(_flatten_rows, states)) for states in self._initial()]

    @cached_property
    def results(self) -> list[Result]:
        """For each direction, the states at all steps, (S, width), and the final states, (N, width)."""
        return [Result(*[tuple(map(_flatten_rows, tensors)) for tensors in result]) for result in self.in_graph]

    @cached_property
    def in_graph(self) -> Sequence[Result]:
        """The results of each direction as tensors of the autograd graph, not reshaped."""
        return self._results()

    def input_gradient(self, target: Tensor) -> Tensor | None:
        """Return the gradient (S, H_in) of a scalar with respect to the input; None if the input does not affect it."""
        skipped = [recording.skips_input for recording in self.recordings]
        for recording in self.recordings:
            recording.skips_input = False
        try:
            (gradient,) = torch.autograd.grad(target, self.source, retain_graph=True, allow_unused=True)
        finally:
            for recording, skips in zip(self.recordings, skipped, strict=True):
                recording.skips_input = skips
        return None if gradient is None else _flatten_rows(gradient)


Watcher = Callable[[Observed[Any]], None]
"""A function that receives each call of the layer that it watches."""


def graph_leaf(data: Tensor, recordings: Sequence[Recording]) -> Tensor:
    """Return the input of a recorded call as a tensor that requires a gradient, so that it is in the autograd graph.

    If the user's input requires no gradient, backward passes skip its gradient, except in `Observed.input_gradient`.

    Args:
        data: the input.
        recordings: the recordings of the first layer.
    """
    if data.requires_grad:
        return data
    for recording in recordings:
        recording.skips_input = True
    return data.detach().requires_grad_()


def _flatten_rows(tensor: Tensor) -> Tensor:
    """Flatten all axes except the last."""
    return tensor if tensor.dim() == 2 else tensor.reshape(-1, tensor.shape[-1])
