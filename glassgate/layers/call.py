"""The calls of a layer that have one signature; see `prepared_calls.py`, which prepares and finds them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines.backend import CallPlan, PackedLengths, PreparedCalls, Train
from glassgate.engines.contract import Recording, Result, Steps
from glassgate.engines.memory import to_contiguous
from glassgate.engines.symbolic.conditions import CHANGES
from glassgate.engines.traced_cells import traced_cell
from glassgate.layers.base import BaseLayer
from glassgate.layers.levels import Level, merge_of
from glassgate.layers.observed import Observed, graph_leaf
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
    train: Train
    """Runs the calls that autograd records."""
    calls: PreparedCalls
    """Runs the other calls."""
    cells: Sequence[Cell]
    """The cell of each direction."""
    noise: Sequence[Noise]
    """The noise of each direction. Empty if no direction reads noise."""


class CallOptions(NamedTuple):
    """The properties that the calls of one signature have in common."""

    layout: Layout
    """The layout of the input. Only observed calls use it; their sequences have the same length."""
    default_states: tuple[Tensor, ...]
    """The initial states of a call without `hx`. Empty if the signature has `hx`."""
    visible_count: int
    """How many states of each direction a level returns for all steps, not only for the last."""
    transposed: bool
    """Whether to transpose input and output: the layer is batch-first, and both axes are longer than 1."""
    dtype: torch.dtype | None
    """The dtype of the parameters if the results have another dtype. The input is then converted to this dtype."""
    drop: Callable[[Tensor], Tensor] | None
    """Applies dropout to the input of each level except the first; None without dropout."""
    needs_grad: bool
    """Whether a backward pass follows."""
    returns_states: bool
    """Whether every state at every step is returned."""
    records: bool
    """Whether gates are recorded."""


class _CheckedCell(NamedTuple):
    """A cell whose equations must not change between the calls of one signature."""

    cell: Cell
    plan: CallPlan
    type: type
    """Its class when it was traced."""
    holds: Callable[[Cell], bool]
    """Whether the values that its step reads are unchanged; see `Conditions.function`."""

    @staticmethod
    def of(cell: Cell, plan: CallPlan) -> "_CheckedCell":
        """Return a cell with the conditions of its latest trace."""
        traced = traced_cell(cell)
        return _CheckedCell(cell, plan, traced.type, traced.watch.conditions.function)


class Call:
    """Runs the calls of a layer that have the same signature.

    Args:
        levels: the levels of the stack.
        options: the properties of the calls.
        state_tensors: the number of tensors of initial states and of states after a reset.
    """

    def __init__(self, levels: Sequence[LevelCall], options: CallOptions, state_tensors: int) -> None:
        self._options, self._visible_count, self._drop = options, options.visible_count, options.drop
        self._dtype, self._transposed, self._default_states = options.dtype, options.transposed, options.default_states
        self._needs_grad, self._returns_output = options.needs_grad, not (options.records or options.returns_states)
        self._parts = [part for level_call in levels for part in level_call.level.parts]
        plans = [plan for level in levels for plan in level.calls.plans]
        P, W, S = len(plans), len(plans[0].weights), len(plans[0].cell.state)
        self._is_stack, self._state_count, self._weight_count = P > 1, S, P * W
        self._by_state = [slice(k, None, S) for k in range(S)]
        places = [[*range(p * W, p * W + W), *range(P * W + p, P * (W + state_tensors), P)] for p in range(P)]
        """For each part, the places of its operands among all parameters, then each state of all parts."""
        self._levels = list[tuple[LevelCall, Callable[[Any], Any] | None, int, Callable[[Any], Any] | None, bool]]()
        """Each level, a function that selects its operands, the number of its results before the final states, the
        function that merges its outputs, and whether it has a residual connection."""
        for level_call in levels:
            start, D = level_call.level.start, len(level_call.level.parts)
            select = itemgetter(*chain.from_iterable(places[start : start + D])) if P > 1 else None
            merge, (adds_input, *_) = merge_of(level_call.level), level_call.level.residual
            self._levels.append((level_call, select, D * options.visible_count, merge, adds_input))
        pairs = [pair for v in levels for pair in zip(v.cells, v.calls.plans, strict=True)]
        distinct = {id(cell): (cell, plan) for cell, plan in pairs}
        self._cells = [_CheckedCell.of(cell, plan) for cell, plan in distinct.values()]

    def is_valid(self) -> bool:
        """Whether the cells still have the equations for which the calls were prepared."""
        try:
            for cell, _, cell_type, holds in self._cells:
                if type(cell) is not cell_type or not holds(cell):
                    return self._have_same_equations()
        except CHANGES:
            return self._have_same_equations()
        return True

    def _have_same_equations(self) -> bool:
        """Whether the cells still have the equations of the plans, although their attributes have changed.

        False if a cell has not been traced since its change. The next call without preparation traces this cell.
        """
        self._cells = [_CheckedCell.of(cell, plan) for cell, plan, *_ in self._cells]
        return all([plan.describes(cell) for cell, plan, *_ in self._cells])

    def __call__(
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
            weights: all parameters, in torch's order.
            states, restart_states: the tensors of `hx` and `restart`; empty without these arguments.
            mask: the mask of resets; empty without resets.
            lengths: the lengths of the sequences; None if they are equal.
        """
        if self._dtype is not None:
            input, *rest = to_contiguous((input, *states, *restart_states), self._dtype)
            states, restart_states = tuple(rest[: len(states)]), tuple(rest[len(states) :])
        if self._transposed:
            input, mask = input.transpose(0, 1), tuple([v.transpose(0, 1) for v in mask])
        operands = (*weights, *(states or self._default_states), *restart_states)
        if not all(map(Tensor.is_contiguous, operands)):
            operands = tuple([v.contiguous() for v in operands])
        data, resets = input.contiguous(), mask[0].contiguous() if mask else None
        recordings: Sequence[Recording] = ()
        if self._options.records:
            recordings = [Recording() for _ in self._parts]
        if recordings and self._needs_grad:
            data = graph_leaf(data, recordings[: len(self._levels[0][0].level.parts)])
        # Functions of repeated calls create empty lists by displays, because `list[Tensor]()` takes a microsecond.
        every: list[Sequence[Tensor]] = []
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
            if self._needs_grad:
                flat = train(ragged, own_recordings, [], resets, *tensors)
            else:
                flat = calls.forward(tensors, resets, ragged, own_recordings)[0]
            every.append(flat)
            final += flat[end:]
            data = flat[0] if merge is None else merge(flat[: end : self._visible_count])
            if adds_input:
                data = data + below
        output = data.transpose(0, 1) if self._transposed else data
        of_state: Sequence[Tensor] = final
        if self._is_stack:
            of_state = [*map(torch.stack, map(final.__getitem__, self._by_state))]
        hx = tuple(of_state) if self._state_count > 1 else of_state[0]
        if self._returns_output:
            return output, hx
        results = partial(self._results_by_part, every, final)
        if self._options.records and layer is not None:
            initial = partial(self._by_part, operands[self._weight_count :][: self._state_count])
            steps = Steps(source, None, resets)
            observed = Observed(layer, self._options.layout, steps, initial, results, recordings)
            for watch in layer.glassgate.watchers:
                watch(observed)
        if self._options.returns_states:
            return output, hx, by_name(self._parts, results(), self._restore)
        return output, hx

    def _results_by_part(self, by_level: Sequence[Sequence[Tensor]], final: Sequence[Tensor]) -> list[Result]:
        """Return the results of each part, from the results of each level and the final states of all parts."""
        results, remaining = list[Result](), iter(final)
        for (_, _, end, *_), flat in zip(self._levels, by_level, strict=True):
            visible = iter(flat[:end])
            while states := tuple(islice(visible, self._visible_count)):
                results.append(Result(states, tuple(islice(remaining, self._state_count))))
        return results

    def _by_part(self, states: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
        """Split the states of all parts into one tuple per part."""
        return [*zip(*map(Tensor.unbind, states), strict=True)] if self._is_stack else [tuple(states)]

    def _restore(self, value: Tensor) -> Tensor:
        """Convert a time-major tensor to the axes of the user's input."""
        return value.transpose(0, 1) if self._options.transposed else value


def _with_noise(tensors: Sequence[Tensor], plans: Sequence[CallPlan], noise: Sequence[Noise]) -> tuple[Tensor, ...]:
    """Draw the noise of each direction, and insert it after the other operands of the direction."""
    remaining = iter(tensors)
    complete = [next(remaining)]
    for plan, (fixed, draw) in zip(plans, noise, strict=True):
        complete += islice(remaining, plan.operand_count - len(plan.noise))
        complete += [v.contiguous() for v in {**fixed, **draw()}.values()]
    return tuple(complete)
