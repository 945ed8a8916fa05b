"""The calls of a layer that have one signature; `address_call.py` and `tensor_call.py` run them.

`prepared_calls.py` and `frozen.py` prepare and find them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines import processors
from glassgate.engines.backend import CallPlan, PackedLengths, PreparedCalls, Train
from glassgate.engines.contract import Recording, Result, Steps
from glassgate.engines.traced_cells import traced_cell
from glassgate.layers.base import BaseLayer
from glassgate.layers.levels import Level
from glassgate.layers.observed import Observed
from glassgate.layers.states import by_name
from glassgate.layout import Layout


class Noise(NamedTuple):
    """The noise of one direction."""

    fixed: Mapping[str, Tensor]
    """The noise that is the same in all calls, and an empty tensor for all other noise."""
    draw: Callable[[], Mapping[str, Tensor]]
    """Draws the other noise."""


class LevelCall(NamedTuple):
    """One level of a call."""

    level: Level
    train: Train | None
    """Runs the calls that autograd records; None if the weights are fixed."""
    calls: PreparedCalls
    """Runs the other calls."""
    cells: Sequence[Cell] = ()
    """The cell of each direction. Empty if their equations never change."""
    noise: Sequence[Noise] = ()
    """The noise of each direction. Empty if no direction reads noise."""


class CallOptions(NamedTuple):
    """The properties that the calls of one signature have in common."""

    layout: Layout
    """The layout of the input; that of the longest sequences if lengths differ."""
    needs_grad: bool = False
    """Whether a backward pass follows."""
    returns_states: bool = False
    """Whether every state at every step is returned."""
    records: bool = False
    """Whether gates are recorded."""
    dtype: torch.dtype | None = None
    """The dtype of the parameters if the results have another dtype. The input is then converted to this dtype."""
    drop: Callable[[Tensor], Tensor] | None = None
    """Applies dropout to the input of each level except the first; None without dropout."""

    @property
    def all_states(self) -> bool:
        """Whether levels return every state at every step, not only the output."""
        return self.returns_states or self.records


class Call:
    """Runs the calls of a layer that have the same signature. Subclasses define `run`.

    Args:
        levels: the levels of the stack.
        options: the properties of the calls.
        transposed: whether to transpose input and output: the layer is batch-first, and both axes are longer than 1.
        default_states: the initial states of a call without `hx`, with all parts stacked; empty if calls have `hx`.
        new_final: allocate each final state, with all parts stacked.
        has_restart: whether calls have states after a reset.
        fixed_weights: all parameters, in torch's order, if they are the same in all calls; otherwise empty.

    Attributes:
        is_current: returns whether all values that the steps of the cells read are unchanged.
        thread_setting: the `processors.thread_setting` for which the calls are valid; None if they always are.
    """

    is_current: Callable[[], bool]

    def __init__(
        self,
        levels: Sequence[LevelCall],
        options: CallOptions,
        transposed: bool,
        default_states: tuple[Tensor, ...],
        new_final: Sequence[Callable[[], Tensor]],
        has_restart: bool,
        fixed_weights: tuple[Tensor, ...],
    ) -> None:
        self._arguments = levels, options, transposed, default_states, new_final, has_restart, fixed_weights
        self._options, self._drop, self._transposed = options, options.drop, transposed
        depends = any([level.calls.depends_on_threads for level in levels])
        self.thread_setting = processors.thread_setting() if depends else None
        self._records, self._returns_output = options.records, not options.all_states
        self._default_states = default_states
        self._parts = [part for level_call in levels for part in level_call.level.parts]
        self._plans = [plan for level in levels for plan in level.calls.plans]
        self._is_stack, self._state_count = len(self._plans) > 1, len(new_final)
        self._visible_count = self._state_count if options.all_states else 1
        """How many states of each direction a level returns for all steps, not only for the last."""
        pairs = [pair for v in levels for pair in zip(v.cells, v.calls.plans, strict=bool(v.cells))]
        self._cells: Collection[tuple[Cell, CallPlan]] = {id(cell): (cell, plan) for cell, plan in pairs}.values()
        self._watch_cells()

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
        """Run a call. Return the results of `Recurrent.forward`.

        Args:
            layer: the layer; None for a frozen layer, whose prepared calls are not recorded.
            input: the input, or the rows of a packed input.
            weights: all parameters, in torch's order; empty if they are fixed.
            states, restart_states: the tensors of `hx` and `restart`; empty without these arguments.
            mask: the mask of resets; empty without resets.
            lengths: the lengths of the sequences; None if they are equal.
        """
        raise NotImplementedError

    def have_same_equations(self) -> bool:
        """Whether the cells still have the equations of the plans, although their attributes have changed.

        False if a cell has not been traced since its change. The next call without preparation traces this cell.
        """
        self._watch_cells()
        return all([plan.describes(cell) for cell, plan in self._cells])

    def _watch_cells(self) -> None:
        checks = [partial(traced_cell(cell).watch.conditions.hold, cell) for cell, _ in self._cells]
        # One check is called without a function of ours in between.
        self.is_current = checks[0] if len(checks) == 1 else lambda: all([check() for check in checks])

    def _finish(
        self,
        layer: BaseLayer | None,
        results: tuple[Tensor, Any],
        steps: Steps,
        initial: Sequence[Tensor],
        visible_by_level: Sequence[Sequence[Tensor]],
        recordings: Sequence[Recording],
    ) -> Any:
        """Pass a call to the functions that record it, and return its results, with all states if these are returned.

        Args:
            layer: the layer.
            results: the output and the final states.
            steps: the input and the mask of resets.
            initial: the initial states, with all parts stacked.
            visible_by_level: the states of each level at all steps.
            recordings: the recordings of all parts; empty if gates are not recorded.
        """
        output, hx = results
        final = hx if isinstance(hx, tuple) else (hx,)
        results_by_part = partial(self._results_by_part, visible_by_level, final)
        if recordings and layer is not None:
            by_part = partial(self._by_part, initial)
            observed = Observed(layer, self._options.layout, steps, by_part, results_by_part, recordings)
            for watch in layer.glassgate.watchers:
                watch(observed)
        if not self._options.returns_states:
            return results
        return output, hx, by_name(self._parts, results_by_part(), self._restore)

    def _results_by_part(self, by_level: Sequence[Sequence[Tensor]], final: Sequence[Tensor]) -> list[Result]:
        """Return the results of each part, from the visible states of each level and the final states of all parts."""
        visible, own = chain.from_iterable(by_level), self._by_part(final)
        return [Result(tuple(islice(visible, self._visible_count)), states) for states in own]

    def _by_part(self, states: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
        """Split the states of all parts into one tuple per part."""
        return [*zip(*map(Tensor.unbind, states), strict=True)] if self._is_stack else [tuple(states)]

    def _restore(self, value: Tensor) -> Tensor:
        """Convert a time-major tensor to the axes of the user's input."""
        return value.transpose(0, 1) if self._transposed else value
