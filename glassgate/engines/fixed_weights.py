"""The interface between backends and layers with fixed weights: sessions, streams and calls of single steps."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from glassgate.cell import Weights
from glassgate.engines.backend import PreparedCalls, Signature
from glassgate.engines.contract import Direction, Reason, Recording, Result, Steps

LARGEST_INT8 = 127
"""The largest integer of a quantised matrix. The range is symmetric: -128 does not occur."""


class FrozenDirections(Protocol):
    """A layer of one or two directions with fixed weights."""

    def run(
        self,
        steps: Sequence[Steps],
        initial: Sequence[tuple[Tensor, ...]],
        restart: Sequence[tuple[Tensor, ...]] | None = None,
        all_states: bool = False,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Result]:
        """Run sequences of any lengths. Each list has one item per direction, so directions may read different data."""

    def prepare(self, steps: int, N: int, signature: Signature, has_restart: bool = False) -> PreparedCalls | None:
        """Prepare calls of N sequences of at most this many steps; None if only `run` can run them.

        The weights among the tensors of a call must be those of the layer. With `has_restart`, calls have states after
        a reset.
        """

    def stepper(
        self, layers: Sequence[Any], initial: Sequence[tuple[Tensor, ...]], residual: Sequence[bool]
    ) -> "Stepper":
        """Combine one-directional layers of this class into a stack that runs step by step.

        Args:
            layers: the layers, from the first to the last.
            initial: the states of each layer before the first step. The steps overwrite them.
            residual: for each layer, whether its input is added to its output.
        """


class NativeSteps(NamedTuple):
    """A fixed number of steps of a stack of layers as one native call.

    Attributes:
        call: runs the steps. Its argument is the address of their contiguous inputs, (steps, N, H_in). It raises
            RuntimeError for low addresses, which tensors without memory have.
        run: does the same for any address, more slowly.
        output: the memory of the outputs, (steps, N, W).
        owner: the object that owns the memory that `call` uses.
    """

    call: Callable[[int], None]
    run: Callable[[int], None]
    output: Tensor
    owner: object


class Stepper(Protocol):
    """A stack of layers that advances step by step."""

    def native(self, steps: int) -> "NativeSteps | None":
        """One native call that runs this many steps from the current states; None if the engine has no such call."""

    @property
    def states(self) -> Sequence[Sequence[Tensor]]:
        """The states of each layer after the last step, (N, W) each. Writing to them changes the next step."""

    def __call__(self, x: Tensor) -> Tensor:
        """Run one step on x (N, H_in), contiguous, and return the output (N, W), which the next step overwrites."""


@runtime_checkable
class Freezer(Protocol):
    """A backend that can pack fixed weights once, for sessions and streams."""

    def freeze(
        self, directions: Sequence[Direction], precision: str, scales: Sequence[Weights]
    ) -> FrozenDirections | Reason:
        """Return a layer with fixed weights, or the reason why the backend does not support this precision.

        Args:
            directions, precision, scales: as in `frozen.freeze`.
        """
