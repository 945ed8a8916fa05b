"""The calls of a layer that have one signature; see `prepared_calls.py`, which prepares and finds them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassgate.cell import Cell
from glassgate.engines.backend import PackedLengths, PreparedPasses
from glassgate.engines.contract import Recording, Result, Steps
from glassgate.engines.memory import to_contiguous
from glassgate.engines.plan import Plan
from glassgate.engines.torch_op.autograd import PreparedCall, PreparedFunction
from glassgate.engines.traced_cells import traced_cell
from glassgate.layers.base import BaseLayer
from glassgate.layers.levels import Level, combine
from glassgate.layers.observed import Observed, graph_leaf
from glassgate.layers.states import by_name
from glassgate.layout import Layout


class Noise(NamedTuple):
    """The noise of one direction."""

    fixed: Mapping[str, Tensor]
    """The noise that is the same in all calls, and an empty tensor for all other noise."""
    draw: Callable[[], Mapping[str, Tensor]]
    """Draws the other noise."""


class LevelCall:
    """One level of a call.

    Args:
        level: the level.
        backend: the name of the backend that has prepared the passes.
        passes: the passes of all directions of the level.
        cells: the cell of each direction.
        noise: the noise of each direction. Empty if no direction reads noise.
        saves: whether a backward pass follows.
    """

    def __init__(
        self,
        level: Level,
        backend: str,
        passes: PreparedPasses,
        cells: Sequence[Cell],
        noise: Sequence[Noise],
        saves: bool,
    ) -> None:
        self.level, self.passes, self.cells = level, passes, cells
        self._backend, self._noise, self._saves = backend, noise, saves

    def run(
        self,
        tensors: tuple[Tensor, ...],
        resets: Tensor | None,
        lengths: Sequence[int] | PackedLengths | None,
        recordings: Sequence[Recording] = (),
    ) -> Sequence[Tensor]:
        """Run the level. Return the requested states at every step, then the final states; see `PreparedPasses`.

        Args:
            tensors: the input, then the parameters, initial states and restart states of each direction, contiguous.
            resets: the mask of resets; None without resets.
            lengths: the lengths of the sequences; None if they are equal.
            recordings: one per direction; empty if gates are not recorded.
        """
        passes = self.passes
        if self._noise:
            tensors = _with_noise(tensors, passes.plans, self._noise)
        ragged = None if lengths is None else passes.ragged(lengths)
        if self._saves:
            call = PreparedCall(passes, self._backend, ragged, recordings)
            results: tuple[Tensor, ...] = PreparedFunction.apply(call, resets, *tensors)
            return results
        return passes.forward(tensors, resets, ragged, recordings)[0]


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


class Call:
    """Runs the calls of a layer that have the same signature.

    Args:
        levels: the levels of the stack.
        options: the properties of the calls.
        state_tensors: the number of tensors of initial states and of states after a reset.
    """

    def __init__(self, levels: Sequence[LevelCall], options: CallOptions, state_tensors: int) -> None:
        self._levels, self._options = levels, options
        self._dtype, self._transposed, self._default_states = options.dtype, options.transposed, options.default_states
        plans = [plan for level in levels for plan in level.passes.plans]
        P, W, S = len(plans), len(plans[0].weights), len(plans[0].cell.state)
        self._is_stack, self._state_count, self._weight_count = P > 1, S, P * W
        self._is_simple = P == 1 and not (options.records or options.returns_states)
        places = [[*range(p * W, p * W + W), *range(P * W + p, P * (W + state_tensors), P)] for p in range(P)]
        """For each part, the places of its operands among all parameters, then each state of all parts."""
        by_level = [places[v.level.start : v.level.start + len(v.level.parts)] for v in levels]
        self._select = [itemgetter(*chain.from_iterable(own)) for own in by_level]
        pairs = [pair for v in levels for pair in zip(v.cells, v.passes.plans, strict=True)]
        distinct = {id(cell): (cell, plan) for cell, plan in pairs}
        self._cells = [(cell, plan, traced_cell(cell)) for cell, plan in distinct.values()]

    def is_valid(self) -> bool:
        """Whether the cells still have the equations for which the calls were prepared."""
        for cell, _, traced in self._cells:
            if type(cell) is not traced.type or not traced.watch.conditions.hold(cell):
                return self._have_same_equations()
        return True

    def _have_same_equations(self) -> bool:
        """Whether the cells still have the equations of the plans, although their attributes have changed.

        False if a cell has not been traced since its change. The next call without preparation traces this cell.
        """
        self._cells = [(cell, plan, traced_cell(cell)) for cell, plan, _ in self._cells]
        return all([traced.cached.get(plan.equations.projected) is plan.equations for _, plan, traced in self._cells])

    def __call__(
        self,
        layer: BaseLayer,
        input: Tensor,
        weights: tuple[Tensor, ...],
        states: tuple[Tensor, ...],
        restart_states: tuple[Tensor, ...],
        mask: tuple[Tensor, ...],
        lengths: Sequence[int] | PackedLengths | None,
    ) -> Any:
        """Run a call. Return the results of `Recurrent.forward`.

        Args:
            layer: the layer.
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
        if self._is_simple:
            output, *states_after = self._levels[0].run((data, *operands), resets, lengths)
            output = output.transpose(0, 1) if self._transposed else output
            return output, tuple(states_after) if len(states_after) > 1 else states_after[0]
        _, _, n, *_, needs_grad, returns_states, records = options = self._options
        recordings = [Recording() for _ in layer.glassgate.parts] if records else []
        if recordings and needs_grad:
            data = graph_leaf(data, recordings[: layer.num_directions])
        if self._is_stack:
            output, results = self._run_stack(data, operands, resets, lengths, recordings)
            final = tuple(map(torch.stack, zip(*map(_final, results), strict=True)))
        else:
            flat = self._levels[0].run((data, *operands), resets, lengths, recordings)
            output, final = flat[0], tuple(flat[n:])
            results = [Result(tuple(flat[:n]), final)]
        hx = final if len(final) > 1 else final[0]
        if records:
            initial = partial(self._by_part, operands[self._weight_count :][: self._state_count])
            observed = Observed(layer, options.layout, Steps(data, None, resets), initial, results, recordings)
            for watch in layer.glassgate.watchers:
                watch(observed)
        output = self._restore(output)
        if returns_states:
            return output, hx, by_name(layer.glassgate.parts, results, self._restore)
        return output, hx

    def _run_stack(
        self,
        data: Tensor,
        operands: tuple[Tensor, ...],
        resets: Tensor | None,
        lengths: Sequence[int] | PackedLengths | None,
        recordings: Sequence[Recording],
    ) -> tuple[Tensor, list[Result]]:
        """Return the output of the last level, and the results of each direction of each level."""
        n, drop, results = self._options.visible_count, self._options.drop, list[Result]()
        weights, states = operands[: self._weight_count], operands[self._weight_count :]
        by_part = (*weights, *chain.from_iterable(map(Tensor.unbind, states)))
        for call, select in zip(self._levels, self._select, strict=True):
            own, level, below = select(by_part), call.level, data
            if level.depth:
                data = (data if drop is None else drop(data)).to(own[0].dtype)
            D = len(level.parts)
            flat = call.run((data, *own), resets, lengths, recordings[level.start : level.start + D])
            (data,) = combine(level, (below,), flat[: n * D : n])
            every, last = iter(flat), iter(flat[n * D :])
            for _ in level.parts:
                results.append(Result(tuple(islice(every, n)), tuple(islice(last, self._state_count))))
        return data, results

    def _by_part(self, states: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
        """Split the states of all parts into one tuple per part."""
        return [*zip(*map(Tensor.unbind, states), strict=True)] if self._is_stack else [tuple(states)]

    def _restore(self, value: Tensor) -> Tensor:
        """Convert a time-major tensor to the axes of the user's input."""
        return value.transpose(0, 1) if self._options.transposed else value


def _with_noise(tensors: Sequence[Tensor], plans: Sequence[Plan], noise: Sequence[Noise]) -> tuple[Tensor, ...]:
    """Draw the noise of each direction, and insert it after the other operands of the direction."""
    remaining = iter(tensors)
    complete = [next(remaining)]
    for plan, (fixed, draw) in zip(plans, noise, strict=True):
        complete += islice(remaining, plan.operand_count - len(plan.noise))
        complete += [v.contiguous() for v in {**fixed, **draw()}.values()]
    return tuple(complete)


_final = attrgetter("final")
