"""Layers with fixed weights on a GPU, for sessions and streams. A step of a stream is one CUDA graph."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from glassgate.engines.arrays.engine import sizes_of
from glassgate.engines.backend import PreparedCalls, Signature
from glassgate.engines.contract import Direction, Recording, Result, Steps, results_of
from glassgate.engines.fixed_weights import NativeSteps
from glassgate.engines.plan import operands_of, plan_of
from glassgate.engines.triton_gpu.arrays.engine import ENGINE
from glassgate.engines.triton_gpu.costs import COSTS
from glassgate.engines.triton_gpu.graphs import capture
from glassgate.engines.triton_gpu.layer import GPULayer


class GPUFrozenDirections:
    """`FrozenDirections` for a GPU.

    Args:
        directions: the cell and the contiguous weights of each direction, in float32.
    """

    def __init__(self, directions: Sequence[Direction]) -> None:
        self.directions = directions

    @torch.no_grad()
    def run(
        self,
        steps: Sequence[Steps],
        initial: Sequence[tuple[Tensor, ...]],
        restart: Sequence[tuple[Tensor, ...]] | None = None,
        all_states: bool = False,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Result]:
        """See `FrozenDirections.run`. Directions with the same input run together."""
        directions = [
            direction._replace(initial=own, restart=restart[k] if restart else ())
            for k, (direction, own) in enumerate(zip(self.directions, initial, strict=True))
        ]
        share_input = all(own_steps.data is steps[0].data for own_steps in steps)
        groups = [slice(None)] if share_input else [slice(k, k + 1) for k in range(len(directions))]
        return [
            result
            for group in groups
            for result in _run(steps[group][0], directions[group], all_states, recordings and recordings[group])
        ]

    def prepare(self, steps: int, N: int, signature: Signature, has_restart: bool = False) -> PreparedCalls | None:
        """See `FrozenDirections.prepare`."""
        return None

    def stepper(
        self, layers: "Sequence[GPUFrozenDirections]", initial: Sequence[tuple[Tensor, ...]], residual: Sequence[bool]
    ) -> "Stepper":
        """See `FrozenDirections.stepper`."""
        return Stepper(layers, initial, residual)


class Stepper:
    """`engines.fixed_weights.Stepper` as one CUDA graph. The graph reads the input and updates the states in place.

    Args:
        layers, residual: as in `FrozenDirections.stepper`.
        states: the argument `initial` of `FrozenDirections.stepper`.
    """

    def __init__(
        self, layers: Sequence[GPUFrozenDirections], states: Sequence[tuple[Tensor, ...]], residual: Sequence[bool]
    ) -> None:
        self.layers, self.states, self.residual = layers, states, residual
        first = states[0][0]
        with torch.inference_mode(False):  # steps outside inference mode cannot write to an inference tensor
            self.x = first.new_zeros(len(first), sizes_of(layers[0].directions[0]._replace(initial=states[0]))[0])
        self.output = first
        before = [[v.clone() for v in own] for own in states]
        self._step()  # compiles and loads the kernels, which is not allowed during a capture
        for own, values in zip(states, before, strict=True):
            for state, value in zip(own, values, strict=True):
                state.copy_(value)
        self._replay = capture(self._step, first.device)

    def native(self, steps: int) -> NativeSteps | None:
        """See `engines.fixed_weights.Stepper.native`."""
        return None

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Run one step."""
        self.x.copy_(x)
        self._replay()
        return self.output

    @torch.no_grad()
    def _step(self) -> None:
        """Launch one step. A captured graph keeps the memory that the launches allocate."""
        x = self.x
        for layer, states, adds_input in zip(self.layers, self.states, self.residual, strict=True):
            (result,) = layer.run([Steps(x, None, None)], [states])
            for state, value in zip(states, result.final, strict=True):
                state.copy_(value)
            output = result.states[0]
            x = output + x if adds_input else output
        self.output = x


def _run(
    steps: Steps, directions: list[Direction], all_states: bool, recordings: Sequence[Recording] | None
) -> list[Result]:
    """Run directions with the same input. The results have the dtype of the input, even under autocast."""
    if directions[0].cell.declaration is not None:
        with torch.autocast(steps.data.device.type, enabled=False):
            return ENGINE.run(steps, directions, all_states, linear, None, recordings)
    plans = tuple([plan_of(direction, COSTS, recordings is not None) for direction in directions])
    data, operands = steps.data, operands_of(directions)
    with torch.autocast(data.device.type, enabled=False):
        flat = GPULayer(plans).forward(steps, operands, all_states, False, data.dtype, recordings)
    return results_of(directions, flat, all_states, all_states)
