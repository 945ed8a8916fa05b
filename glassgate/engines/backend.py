"""The interface between layers and backends. `registry.py` lists the backends by name."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from glassgate.cell import Weights
from glassgate.engines.contract import Direction, Reason, Recording, Result, Steps
from glassgate.engines.plan import Plan
from glassgate.engines.symbolic.costs import Costs


class Packed(NamedTuple):
    """The lengths of sequences whose rows are packed: step t holds the next `batch_sizes[t]` rows.

    Attributes:
        batch_sizes: the number of rows of each step, at least 1, not increasing.
        order: a permutation of the sequences, longest first.
    """

    batch_sizes: Sequence[int]
    order: Sequence[int]


class Ragged(Protocol):
    """The layout of sequences of different lengths."""

    @property
    def order(self) -> Tensor:
        """(N,) the sequence at each rank."""

    @property
    def places(self) -> Tensor | None:
        """(rows,) the time-major padded position of each row; None if input and output are packed rows."""

    @property
    def batch_sizes(self) -> Tensor:
        """(L,) as `Steps` have them."""


class PreparedPasses(Protocol):
    """The passes of a layer for one call signature: tensors have the shapes and types that the user sees.

    Attributes:
        plans: one per direction.
        count: the number of visible states in all directions. A visible state has a row per step. They are ordered by
            direction, and each direction's output comes first.
        states: the number of visible states of each direction.
        shapes: the shapes of the input and of the tensors with a row per sequence, by index.
    """

    plans: tuple[Plan, ...]
    count: int
    states: tuple[int, ...]
    shapes: dict[int, tuple[int, ...]]

    def ragged(self, lengths: Sequence[int] | Packed) -> Ragged:
        """The layout of a call whose sequences have these lengths.

        With `Packed`, the input and the visible states are packed rows (S, W), for any number of rows.
        """

    def forward(
        self,
        tensors: Sequence[Tensor],
        resets: Tensor | None,
        lengths: Any = None,
        recordings: Sequence[Recording] | None = None,
    ) -> tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]]:
        """The visible states and the final states of all directions; and `saved` and `tensors` for `backward`.

        Args:
            tensors: the input, then parameters, states and noise of all directions; contiguous.
            resets: their mask, if there is one.
            lengths: the result of `ragged` if lengths differ.
            recordings: one per direction, if the plans record gates; lengths are then equal.
        """

    def backward(
        self,
        tensors: Sequence[Tensor],
        saved: Sequence[Tensor],
        resets: Tensor | None,
        d_visible: Sequence[Tensor | None],
        needed: Sequence[bool],
        lengths: Any = None,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Tensor | None]:
        """The gradients of all `tensors`; None where there is none, or where it is not needed.

        Args:
            tensors, saved: as `forward` has returned them.
            resets, lengths, recordings: as in `forward`.
            d_visible: the gradients of the visible and the final states; None for zero.
            needed: for each of `tensors`, whether its gradient is needed.
        """


class Signature(NamedTuple):
    """The common properties of repeated calls of a layer, besides the types of their tensors.

    Attributes:
        form: the shape of input and output without the last axis, as the user has them.
        states: the shape of each state of a direction, as the user has them.
        save: whether a backward pass follows.
        shared_initial: whether the initial states are the same for every sequence.
        every_state: whether every state is visible at every step, not only the output.
        record: whether gates are recorded.
    """

    form: tuple[int, ...]
    states: Sequence[tuple[int, ...]]
    save: bool
    shared_initial: bool = False
    every_state: bool = False
    record: bool = False


class Compiled(Protocol):
    """A layer's directions, compiled by a backend. A flat list of tensors has the order that `Plan` defines."""

    @property
    def plans(self) -> tuple[Plan, ...]:
        """One per direction."""

    def forward(
        self,
        steps: Steps,
        given: Sequence[Tensor],
        all_states: bool,
        save: bool,
        dtype: torch.dtype,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Tensor]:
        """The results of each direction: states after each step, then final states. With `save`, kept values follow.

        Args:
            steps: the layer's input.
            given: parameters, states and noise of all directions.
            all_states: whether every state is returned at every step, and not only the output.
            save: whether a backward pass follows. Then every state is returned, and after the results of all directions
                the buffers of `Plan.kept`.
            dtype: of the results.
            recordings: one per direction; takes the values of the gates.
        """

    def backward(
        self,
        steps: Steps,
        given: Sequence[Tensor],
        flat: Sequence[Tensor],
        d_results: dict[int, Tensor],
        needs_d_data: bool,
        needed: Sequence[bool] | None = None,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Tensor | None]:
        """The gradients of the input and of each tensor in `given`; None where there is none.

        Args:
            steps, given, recordings: as in `forward`.
            flat: the result of `forward` without the final states.
            d_results: the gradients of some states and final states, by their index in the result of `forward`; the
                others are zero.
            needs_d_data: whether the gradient of the input is needed.
            needed: for each tensor in `given`, whether its gradient is needed; None for all.
        """

    def prepared(
        self,
        given: Sequence[Tensor],
        steps: Steps,
        dtype: torch.dtype,
        signature: Signature,
    ) -> PreparedPasses | None:
        """Passes for repeated calls with this signature; None if the backend has no faster way.

        Args:
            given, steps: of one call; only shapes and types matter.
            dtype: of the results.
            signature: of the calls.
        """


class Frozen(Protocol):
    """One layer, its one or two directions, with fixed weights."""

    def run(
        self,
        steps: Sequence[Steps],
        initial: Sequence[tuple[Tensor, ...]],
        restart: Sequence[tuple[Tensor, ...]] | None = None,
        all_states: bool = False,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Result]:
        """Sequences of any lengths. Each argument has one entry per direction; their steps differ in the data only."""

    def passes(self, steps: int, N: int) -> "Sequence[PackedPass] | None":
        """Each direction's precompiled pass for sequences of equal length, or None if `run` must be used."""

    def stepper(self, layers: Sequence[Any], initial: Sequence[tuple[Tensor, ...]], residual: bool) -> "Stepper":
        """A stack of such layers of one direction, one step at a time; arguments as in `frozen.stepper`."""


class Native(NamedTuple):
    """Some steps of a stack of layers as one native call.

    Attributes:
        call: runs the steps; its argument is the address of their inputs, (steps, N, H_in), contiguous.
        output: where it writes the outputs, (steps, N, W).
        alive: the memory that it uses.
    """

    call: Callable[[int], None]
    output: Tensor
    alive: object


class Stepper(Protocol):
    """A stack of layers that advances step by step."""

    def native(self, steps: int) -> "Native | None":
        """Native code for so many steps on the same states; None if there is none."""

    @property
    def states(self) -> Sequence[Sequence[Tensor]]:
        """Each layer's states after the last step, (N, W) each; writing to them changes the next step."""

    def __call__(self, x: Tensor) -> Tensor:
        """One step from x (N, H_in), contiguous, to the output (N, W), whose memory later steps reuse."""


class PackedPass(Protocol):
    """The pass of one direction with fixed weights, for sequences of equal length."""

    def run(self, data: int, others: Sequence[int]) -> None:
        """Run it.

        Args:
            data: the address of the input.
            others: the addresses of the initial states, of the output and of the final states.
        """


@runtime_checkable
class Freezer(Protocol):
    """A backend that also packs fixed weights once, for sessions and streams."""

    def freeze(self, directions: Sequence[Direction], precision: str, scales: Sequence[Weights]) -> Frozen | Reason:
        """A layer with fixed weights, or why the backend does not support this precision.

        Args:
            directions, precision, scales: as in `frozen.frozen`.
        """


class Backend(Protocol):
    """Runs lowered layers on some device.

    Attributes:
        costs: of its operations and memory; they decide which values training keeps.
    """

    costs: Costs

    def why_not(self, steps: Steps, directions: Sequence[Direction]) -> Reason | None:
        """Why the backend cannot run a call; None if it can. The equations of the cells are checked elsewhere."""

    def compile(self, plans: tuple[Plan, ...]) -> Compiled:
        """The directions of one layer, ready to run."""

    def saved_type(self, buffer: str, dtype: torch.dtype) -> torch.dtype:
        """The type of a buffer of `Plan.kept` in a call with results of type `dtype`."""

    def explain(self, steps: Steps, directions: Sequence[Direction]) -> str | None:
        """One more line for `gg.explain`, e.g. the instructions that multiply; None if there is nothing to add."""
