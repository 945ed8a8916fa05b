"""The interface between layers and backends. `registry.py` lists the backends by name."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines import reference
from glassgate.engines.contract import Direction, Reason, Recording, Result, Steps
from glassgate.engines.plan import Plan, TensorPlan, directions_of
from glassgate.engines.symbolic.costs import Costs

T = TypeVar("T")
TensorOrNone = TypeVar("TensorOrNone", Tensor, Tensor | None)


class PackedLengths(NamedTuple):
    """The lengths of packed sequences, as in torch's `PackedSequence`: step t has the next `batch_sizes[t]` rows.

    Attributes:
        batch_sizes: the number of rows of each step, at least 1, not increasing.
        order: a permutation of the sequences, longest first.
    """

    batch_sizes: Sequence[int]
    order: Sequence[int]


class Passes(Protocol):
    """The forward and the backward pass of a layer in a training call, and what derivatives of any order need.

    Tensors have the shapes and dtypes that the layer's caller uses. The visible states are those that a call returns at
    every step: only the output, or all states. They are ordered by direction. A direction's first state is its output.
    """

    @property
    def plans(self) -> tuple[TensorPlan, ...]:
        """One per direction."""

    @property
    def planned(self) -> "PlannedPasses | None":
        """The passes if their tangents are computed by a tangent cell; None if torch computes them."""

    def by_direction(self, values: Sequence[T]) -> Iterator[tuple[Sequence[T], Sequence[T]]]:
        """Yield the items of the visible states and of the final states of each direction.

        Args:
            values: one item per result of `forward`.
        """

    def forward(
        self,
        tensors: Sequence[Tensor],
        resets: Tensor | None,
        ragged: Any = None,
        recordings: Sequence[Recording] | None = None,
    ) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """Run the forward pass.

        Args:
            tensors: the input, then the operands of all directions; contiguous.
            resets: the mask of resets; None without resets.
            ragged: the layout that `PreparedCalls.ragged` returned, or the batch sizes of a single call; None for
                sequences of equal length.
            recordings: one per direction, if the plans record gates. All sequences then have the same length.

        Returns:
            the visible states of all directions, followed by their final states; and the argument `saved` of `backward`
        """

    def backward(
        self,
        tensors: Sequence[Tensor],
        saved: Sequence[Tensor],
        resets: Tensor | None,
        d_visible: Sequence[Tensor | None],
        needed: Sequence[bool],
        ragged: Any = None,
        recordings: Sequence[Recording] | None = None,
        groups: int = 0,
    ) -> list[Tensor | None]:
        """Run the backward pass. Return the gradients of all `tensors`; None for a gradient that is not needed.

        Noise has no gradient, so its gradient is None too.

        Args:
            tensors, resets, ragged, recordings: as in `forward`.
            saved: the second result of `forward`.
            d_visible: the gradients of the visible states and of the final states; None for zero.
            needed: for each of `tensors`, whether its gradient is needed.
            groups: the number of groups of adjacent sequences. The gradients of parameters are summed over each group,
                and have an additional first axis of this length. With 0 groups, they are summed over all sequences.
                Other numbers need plans that record factors, and sequences of equal length.
        """

    def in_torch(self, tensors: Sequence[Tensor], resets: Tensor | None, ragged: Any = None) -> Sequence[Tensor]:
        """The first result of `forward`, computed in torch, so that it can be differentiated to any order."""


class PlannedPasses(ABC):
    """The base class of the passes of a layer whose directions have a `Plan`. `backend` is the backend's name."""

    backend: str
    plans: tuple[Plan, ...]

    @abstractmethod
    def rows(self, tensors: Sequence[TensorOrNone], ragged: Any) -> list[TensorOrNone]:
        """Return the tensors of a call, or their tangents, as rows in the order in which kernels read them.

        The conversion is differentiable. `ragged` is as in `Passes.forward`.
        """

    @abstractmethod
    def restore(self, flat: Sequence[Tensor], data: Tensor, ragged: Any) -> Sequence[Tensor]:
        """Return the results of a call in the shapes of `Passes.forward`. The conversion is differentiable.

        Args:
            flat: every state at every step and every final state of each direction, as rows.
            data: the input.
            ragged: as in `Passes.forward`.
        """

    def batch_sizes(self, ragged: Any) -> Tensor | None:
        """See `Steps.batch_sizes`. `ragged` is as in `Passes.forward`."""
        return None if ragged is None else ragged.batch_sizes

    @property
    def planned(self) -> "PlannedPasses | None":
        """See `Passes`. A tangent cell has no projection."""
        return None if any([plan.equations.projected for plan in self.plans]) else self

    def arguments(self, tensors: Sequence[Tensor], resets: Tensor | None, ragged: Any) -> tuple[Steps, list[Direction]]:
        """The arguments of `Passes.forward` as those of an engine. Tensors may have different dtypes."""
        data, *operands = self.rows([v.to(tensors[1].dtype) for v in tensors], ragged)
        steps = Steps(data, self.batch_sizes(ragged), None if resets is None else resets.flatten())
        return steps, directions_of(self.plans, operands)

    def in_torch(self, tensors: Sequence[Tensor], resets: Tensor | None, ragged: Any = None) -> Sequence[Tensor]:
        """See `Passes`."""
        return self.restore(reference.flat_results(*self.arguments(tensors, resets, ragged)), tensors[0], ragged)


class CallPlan(Protocol):
    """The static part of the calls of one direction that have one signature. `Plan` is one."""

    @property
    def cell(self) -> Cell:
        """The cell, or its equations as a cell."""

    @property
    def weights(self) -> tuple[str, ...]:
        """The names of the parameters, in the order of the operands."""

    @property
    def noise(self) -> tuple[str, ...]:
        """The names of the noise, in the order of the operands."""

    @property
    def operand_count(self) -> int:
        """The number of operands of the direction."""

    def describes(self, cell: Cell) -> bool:
        """Whether a cell still has the equations of the plan. False if it has not been traced since its change."""


class PreparedCalls(Protocol):
    """The calls of a layer with one signature."""

    @property
    def plans(self) -> Sequence[CallPlan]:
        """One per direction."""

    @property
    def depends_on_threads(self) -> bool:
        """Whether the calls are only valid for the `processors.thread_setting` for which they were prepared."""

    def forward(
        self, tensors: Sequence[Tensor], resets: Tensor | None, ragged: Any, recordings: Sequence[Recording] | None
    ) -> Sequence[Sequence[Tensor]]:
        """Run a call without a backward pass. The arguments and the first result are those of `Passes.forward`."""

    @property
    def by_address(self) -> Callable[..., Sequence[Tensor]] | None:
        """A function that runs a call without a backward pass in less time; None if calls need tensors.

        All sequences have the same length. The function returns the visible states. Its arguments are the address of
        the input, the addresses of the operands of all directions, the addresses of memory for the final states of all
        directions, the address of the mask of resets or 0, and one recording per direction, or none. The caller has
        checked that these are addresses of memory.
        """

    def ragged(self, lengths: Sequence[int] | PackedLengths) -> Any:
        """The layout of a call whose sequences have these lengths, for `forward`.

        With `PackedLengths`, the input and the visible states are packed rows (S, W), and S may differ between calls.
        """


class PreparedPasses(Passes, PreparedCalls, Protocol):
    """The passes of all calls with one signature."""

    @property
    def plans(self) -> tuple[Plan, ...]:
        """One per direction."""


class Signature(NamedTuple):
    """The properties that calls must have in common to use the same `PreparedPasses`, besides the dtypes.

    Attributes:
        leading_shape: the shape of the layer's input and output without the last axis.
        state_shapes: the shape of each state of a direction, as the caller of the layer passes it.
        save: whether a backward pass follows.
        shared_initial: whether all sequences have the same initial states.
        all_states: whether every state is visible, not only the output.
        record: whether gates are recorded.
        backend: the name of the backend that prepares the calls. Its engine sets it.
    """

    leading_shape: tuple[int, ...]
    state_shapes: Sequence[tuple[int, ...]]
    save: bool
    shared_initial: bool = False
    all_states: bool = False
    record: bool = False
    backend: str = ""


class CompiledLayer(Protocol):
    """The directions of a layer, compiled by a backend.

    An operand is a tensor of a call other than the input. `Plan` defines the order of operands and results.
    """

    @property
    def plans(self) -> tuple[Plan, ...]:
        """One per direction."""

    def forward(
        self,
        steps: Steps,
        operands: Sequence[Tensor],
        all_states: bool,
        save: bool,
        dtype: torch.dtype,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Tensor]:
        """Run the forward pass. Return for each direction its states at every step, then its final states.

        Args:
            steps: the input of the layer.
            operands: the parameters, states and noise of all directions.
            all_states: whether to return every state at every step, not only the output.
            save: whether a backward pass follows. Every state is then returned, and the returned list ends with
                the buffers of `Plan.kept_widths`.
            dtype: the dtype of the results.
            recordings: one per direction, to be filled with the values of the gates.
        """

    def backward(
        self,
        steps: Steps,
        operands: Sequence[Tensor],
        flat: Sequence[Tensor],
        d_results: dict[int, Tensor],
        needs_d_data: bool,
        needed: Sequence[bool] | None = None,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Tensor | None]:
        """Run the backward pass. Return the gradients of the input and of each operand; None for missing gradients.

        A gradient is missing if it is not needed, or if the operand is noise.

        Args:
            steps, operands, recordings: as in `forward`.
            flat: the results of `forward` without the final states.
            d_results: the gradients of states and final states, by their index in the results of `forward`. A missing
                gradient is zero.
            needs_d_data: whether the gradient of the input is needed.
            needed: for each operand, whether its gradient is needed; None for all.
        """

    def prepare(
        self,
        operands: Sequence[Tensor],
        steps: Steps,
        dtype: torch.dtype,
        signature: Signature,
    ) -> PreparedPasses | None:
        """Prepare calls with this signature. Return None if the backend does not prepare calls.

        Args:
            operands, steps: the arguments of one call; only their shapes and dtypes are used.
            dtype: the dtype of the results.
            signature: the signature of the calls.
        """


InputProduct = Callable[[Tensor, Tensor, Tensor | None], Tensor]
RunPasses = Callable[..., tuple[Tensor, ...]]
"""Runs passes in autograd. Its arguments are the passes, then those of `Train`; its result is that of `Train`."""
Train = Callable[..., Sequence[Tensor]]
"""Runs a prepared call that autograd records. Its arguments are `ragged`, `recordings`, an empty list for the tensors
that the backward pass reads, `resets`, then the tensors; see `Passes.forward`, whose first result it returns."""


class PreparedArrayCalls(PreparedCalls, Protocol):
    """The calls with one signature of a layer whose cell declares axes."""

    def train(
        self,
        ragged: Any,
        recordings: Sequence[Recording] | None,
        saved: list[Tensor],
        resets: Tensor | None,
        *tensors: Tensor,
    ) -> Sequence[Tensor]:
        """See `Train`."""


class ArrayKernels(Protocol):
    """Kernels of cells that declare axes: an optional attribute `array_kernels` of a backend. They need no plan."""

    def parse(
        self, text: str, dtype: torch.dtype, all_states: bool, save: bool
    ) -> tuple[Any, Callable[[Sequence[Tensor]], list[Tensor]]]:
        """The passes of a direction, from the text of an operator, and a function that returns their tensors."""

    def why_not(self, steps: Steps, directions: Sequence[Direction], all_states: bool) -> Reason | None:
        """Why the kernels cannot run a call that the backend can run; None if they can."""

    def run(
        self,
        steps: Steps,
        directions: Sequence[Direction],
        all_states: bool,
        product: InputProduct,
        run_passes: RunPasses | None = None,
        recordings: Sequence[Recording] | None = None,
    ) -> list[Result]:
        """Run all directions of a layer. The caller has checked `why_not`.

        Args:
            steps, directions, all_states: as for engines.
            product: computes x W^T + b from x (S, features), W (rows, features) and b (rows,) or None.
            run_passes: runs the recurrence of a direction if a backward pass or a transform needs it; None if neither
                does.
            recordings: one per direction; `all_states` is then true.
        """

    def multiplies_faster(self, rows: int, products: int) -> bool:
        """Whether a kernel computes the product of the input in less time than torch.

        Args:
            rows: the number of rows of the input.
            products: the number of multiplications.
        """

    def prepare(
        self,
        steps: Steps,
        directions: Sequence[Direction],
        signature: Signature,
        products: Sequence[InputProduct],
        run_passes: RunPasses | None = None,
    ) -> "PreparedArrayCalls | None":
        """Prepare the calls with this signature. Return None if the kernels do not prepare such calls.

        Args:
            steps, directions: the arguments of one of these calls.
            signature: the signature of the calls.
            products: for each direction, a function like `product` of `run`.
            run_passes: as in `run`.
        """


class Backend(Protocol):
    """Compiles and runs layers on a type of device.

    Attributes:
        costs: the costs of operations and memory accesses. They determine which values the forward pass keeps for the
            backward pass.
    """

    costs: Costs

    def why_not(self, steps: Steps, directions: Sequence[Direction]) -> Reason | None:
        """Why the backend cannot run a call; None if it can. `KernelEngine.why_not` also checks the equations."""

    def compile(self, plans: tuple[Plan, ...]) -> CompiledLayer:
        """The directions of one layer, ready to run."""

    def saved_type(self, buffer: str, dtype: torch.dtype) -> torch.dtype:
        """The dtype of a buffer of `Plan.kept_widths` in a call with results of type `dtype`."""

    def explain(self, steps: Steps, directions: Sequence[Direction]) -> str | None:
        """A detail for `gg.explain`, such as the instructions that compute matrix products; None if there is none."""
