"""Prepared calls: a layer caches one for each call signature.

The signature consists of the shapes and dtypes of the tensors and the options of the call. The first call with a
signature takes the general path: `stack.py` checks its arguments and chooses an engine. The second call prepares the
passes of the layer and runs them. Later calls look up the prepared call and run it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter, is_
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import profiler
from torch.nn.utils.rnn import PackedSequence

from glassgate.cell import Cell
from glassgate.engines import choose
from glassgate.engines.backend import PackedLengths, Signature
from glassgate.engines.contract import PLAIN_TYPES, Direction, Recording, Steps, is_eager, result_type
from glassgate.engines.memory import to_contiguous
from glassgate.engines.torch_names import frame_callback
from glassgate.layers import one_row
from glassgate.layers.base import BaseLayer
from glassgate.layers.calls import arrange_call, checked_weights, current_cell, directions_of_call
from glassgate.layers.levels import by_level
from glassgate.layers.observed import Observed, graph_leaf
from glassgate.layers.prepared_lengths import packed_lengths, padded_lengths
from glassgate.layers.prepared_stack import PreparedStack
from glassgate.layers.regularisers import draw, drop_between_layers
from glassgate.layers.states import by_name
from glassgate.layout import Layout

_MAX_SIGNATURES = 256
"""The maximum number of call signatures for which a layer caches prepared calls."""

_metadata = attrgetter("shape", "dtype", "is_cpu", "layout")
_requires_grad = attrgetter("requires_grad")
_COMPUTED_DTYPES = frozenset({torch.float32, torch.float64})


class PreparedCalls:
    """The prepared calls of a layer. A copy of the layer starts without prepared calls."""

    def __init__(self) -> None:
        self._cache: _CallCache | None = None

    def __reduce__(self) -> tuple[type["PreparedCalls"], tuple[()]]:
        return PreparedCalls, ()

    def forget(self) -> None:
        """Forget all prepared calls, because an attribute of the layer has changed."""
        self._cache = None

    def run(
        self,
        layer: BaseLayer,
        input: Any,
        hx: Any,
        lengths: Any,
        resets: Any,
        restart: Any,
        return_states: bool,
    ) -> Any:
        """Run a call if it is prepared. The arguments are those of `Recurrent.forward`.

        Returns:
            the results of the call, or None if it must take the general path.
        """
        data = input.data if type(input) is PackedSequence else input
        if type(data) is not Tensor or not is_eager():
            return None
        recorded = bool(layer.glassgate.watchers)
        if recorded and callable(frame_callback()):
            return None
        cache, parameters = self._cache, layer._parameters
        if (
            cache is None
            or not all(map(is_, map(parameters.get, cache.names), cache.weights))
            or [*map(_metadata, cache.weights)] != cache.metadata
        ):
            cache = self._cache = _new_cache(layer)
            if cache is None:
                return None
        states = () if hx is None else hx if type(hx) is tuple else (hx,)
        restart_states = () if restart is None else restart if type(restart) is tuple else (restart,)
        mask = () if resets is None else (resets,)
        tensors = data, *states, *restart_states, *mask
        has_lengths = data is not input or lengths is not None
        read_lengths: Sequence[int] | PackedLengths | None = None
        if data is not input:
            read_lengths = None if lengths is not None else packed_lengths(input)
        elif lengths is not None:
            read_lengths = padded_lengths(lengths, input, layer.batch_first)
        if has_lengths and read_lengths is None:
            return None
        for v in tensors:  # torch negates lazily negated tensors when it reads them, and kernels do not
            if type(v) not in PLAIN_TYPES or v.is_neg():
                return None
        needs_grad = torch.is_grad_enabled() and (recorded or any(map(_requires_grad, (*tensors, *cache.weights))))
        ragged = bool(read_lengths)
        counts = len(states), len(restart_states), len(mask)
        try:
            metadata = [*map(_metadata, tensors)]
        except RuntimeError:  # a nested tensor has no shape
            return None
        key = (
            *metadata,
            *counts,
            type(hx),
            type(restart),
            ragged,
            needs_grad,
            return_states,
            recorded,
            layer.training,
            choose.global_setting(),
        )
        if isinstance(read_lengths, PackedLengths):
            # Only the order of magnitude of the number of rows matters: very different sizes use different kernels.
            key = (data.shape[1:], len(data).bit_length(), len(read_lengths.order), *_metadata(data)[1:], *key[1:])
        call = cache.calls.get(key)
        if call is None:
            options = needs_grad, ragged, return_states, recorded
            arguments = _Arguments(input, states, restart_states, mask, hx, restart, *options)
            call = cache.prepare(layer, key, arguments)
        if call is None or not call.is_valid():
            return None
        run: Any = call
        if profiler._is_profiler_enabled:  # torch.compile does not reach this line, so it adds no guard
            run = profiler.record_function(layer.profile_row)(run)
        if isinstance(call, _ObservedCall):
            return run(layer, data, cache.weights, states, restart_states, mask, return_states)
        output, hx = run(data, cache.weights, states, restart_states, mask, read_lengths or None)
        return output if data is input else PackedSequence(output, *input[1:]), hx


class _Arguments(NamedTuple):
    """The arguments and properties of a call. The states are given both as tuples and as the user passed them."""

    input: Any
    """A tensor or a `PackedSequence`."""
    states: tuple[Tensor, ...]
    """The tensors in `hx`; empty if it is None."""
    restart_states: tuple[Tensor, ...]
    """The tensors in `restart`; empty if it is None."""
    mask: tuple[Tensor, ...]
    """The mask of resets; empty without resets."""
    hx: Any
    restart: Any
    needs_grad: bool
    """Whether a backward pass follows."""
    ragged: bool
    """Whether the sequences have different lengths."""
    return_states: bool
    recorded: bool
    """Whether the layer is being recorded."""


class _Call(NamedTuple):
    """A prepared call of one signature, which returns the output and the final states."""

    run: Callable[[Tensor, Sequence[Tensor], Tensor | None, Sequence[int] | PackedLengths | None], Sequence[Tensor]]
    """Takes the input, the list of all parameters and states, the mask of resets, and the lengths if they differ.
    Returns the output and the final states. All tensors are contiguous."""
    is_valid: Callable[[], bool]
    """Returns whether the cell still has the equations for which the call was prepared."""
    default_states: tuple[Tensor, ...]
    """The initial states of a call without `hx`: zeros. Empty if the signature has `hx`."""
    transposed: bool
    """Whether to transpose input and output: the layer is batch-first, and both axes are longer than 1."""
    dtype: torch.dtype | None = None
    """The dtype of the parameters if the results have another dtype. The input is then converted to this dtype."""

    def __call__(
        self,
        input: Tensor,
        weights: tuple[Tensor, ...],
        states: tuple[Tensor, ...],
        restart_states: tuple[Tensor, ...],
        mask: tuple[Tensor, ...],
        lengths: Sequence[int] | PackedLengths | None,
    ) -> tuple[Tensor, Any]:
        if self.dtype is not None:
            input, *rest = to_contiguous((input, *states, *restart_states), self.dtype)
            states, restart_states = tuple(rest[: len(states)]), tuple(rest[len(states) :])
        if self.transposed:
            input, mask = input.transpose(0, 1), tuple([v.transpose(0, 1) for v in mask])
        operands = (*weights, *(states or self.default_states), *restart_states)
        if not all(map(Tensor.is_contiguous, operands)):
            operands = tuple([v.contiguous() for v in operands])
        output, *final = self.run(input.contiguous(), operands, mask[0].contiguous() if mask else None, lengths)
        return output.transpose(0, 1) if self.transposed else output, tuple(final) if len(final) > 1 else final[0]


class _ObservedCall(NamedTuple):
    """A prepared call with `return_states`, or of a layer that is being recorded."""

    stack: PreparedStack
    is_valid: Callable[[], bool]
    """As in `_Call`."""
    layout: Layout
    """The layout of the input; all sequences have the same length."""
    default_states: tuple[Tensor, ...]
    """As in `_Call`."""
    transposed: bool
    """As in `_Call`."""
    records: bool
    """Whether gates are recorded."""
    needs_grad: bool
    """Whether a backward pass follows."""

    def __call__(
        self,
        layer: BaseLayer,
        input: Tensor,
        weights: tuple[Tensor, ...],
        states: tuple[Tensor, ...],
        restart_states: tuple[Tensor, ...],
        mask: tuple[Tensor, ...],
        return_states: bool,
    ) -> Any:
        if self.transposed:
            input, mask = input.transpose(0, 1), tuple([v.transpose(0, 1) for v in mask])
        data, resets = input.contiguous(), mask[0].contiguous() if mask else None
        recordings = [Recording() for _ in layer.glassgate.parts] if self.records else []
        if self.records and self.needs_grad:
            data = graph_leaf(data, recordings[: layer.num_directions])
        states = states or self.default_states
        operands = (*weights, *states, *restart_states)
        if not all(map(Tensor.is_contiguous, operands)):
            operands = tuple([v.contiguous() for v in operands])
        output, final, results = self.stack.run_observed(data, operands, resets, recordings)
        if layer.glassgate.watchers:
            steps = Steps(data, None, resets)
            observed = Observed(layer, self.layout, steps, partial(self.stack.unstack, states), results, recordings)
            for watch in layer.glassgate.watchers:
                watch(observed)
        hx = final if len(final) > 1 else final[0]
        output = self._restore(output)
        if return_states:
            return output, hx, by_name(layer.glassgate.parts, results, self._restore)
        return output, hx

    def _restore(self, value: Tensor) -> Tensor:
        """Convert a time-major tensor to the axes of the user's input."""
        return value.transpose(0, 1) if self.transposed else value


class _CallCache:
    """The prepared calls of a layer for its current parameters.

    Attributes:
        names, weights, metadata: the name, the tensor, and the shape, dtype, device and layout of each parameter.
        calls: the prepared calls by signature; None for a signature that takes the general path.
    """

    def __init__(self, names: tuple[str, ...], weights: tuple[Tensor, ...]) -> None:
        self.names, self.weights, self.metadata = names, weights, [*map(_metadata, weights)]
        self._seen_keys: set[Any] = set()
        self.calls: dict[Any, _Call | _ObservedCall | None] = {}

    def prepare(self, layer: BaseLayer, key: Any, arguments: _Arguments) -> _Call | _ObservedCall | None:
        """Prepare a call when its signature occurs for the second time.

        Returns:
            the prepared call. None at the first call with the signature, or if calls like this one are not prepared.
        """
        if key not in self._seen_keys:
            if len(self._seen_keys) > 16 * _MAX_SIGNATURES:
                self._seen_keys.clear()
            self._seen_keys.add(key)
            return None
        if key in self.calls or len(self.calls) >= _MAX_SIGNATURES:
            return None
        is_readable = _kernels_can_read(arguments, self.weights[0].dtype)
        call = self.calls[key] = _prepare(layer, arguments) if is_readable else None
        return call


def _kernels_can_read(arguments: _Arguments, dtype: torch.dtype) -> bool:
    """Return whether all tensors are dense CPU tensors of a suitable dtype, and `restart` comes with `resets`."""
    input, states, restart_states, mask, *_ = arguments
    tensors = (input.data if type(input) is PackedSequence else input, *states, *restart_states)
    return (
        {dtype, result_type(dtype)}.issuperset([v.dtype for v in tensors])
        and all([v.is_cpu and v.layout is torch.strided for v in (*tensors, *mask)])
        and all([v.dtype is torch.bool for v in mask])
        and (bool(mask) or not restart_states)
    )


def _new_cache(layer: BaseLayer) -> _CallCache | None:
    """Return an empty cache for the parameters of a layer. None if they are not plain CPU tensors of one dtype."""
    names = tuple([name for part in layer.glassgate.parts for name in part.names.values()])
    present = [weight for name in names if (weight := layer._parameters.get(name)) is not None]
    weights = tuple([v for v in present if type(v) in PLAIN_TYPES and v.is_leaf and not v.is_neg()])
    if len(weights) < len(names):
        return None
    is_supported = {(v.dtype, v.is_cpu, v.layout) for v in weights} == {(weights[0].dtype, True, torch.strided)}
    return _CallCache(names, weights) if is_supported else None


def _prepare(layer: BaseLayer, arguments: _Arguments) -> _Call | _ObservedCall | None:
    """Prepare calls with this signature, on torch or on kernels. None if they need the general path."""
    input, states, restart_states, mask, hx, restart, needs_grad, ragged, return_states, recorded = arguments
    all_states = return_states or recorded
    cell = current_cell(layer)
    run = one_row.torch_function(layer, input, hx) if not (mask or ragged or all_states) else None
    if run is not None:
        checked_weights(layer)
        zero_states = one_row.zero_states(layer, input) if hx is None else ()
        return _Call(run, one_row.equations_check(cell), zero_states, False)
    dtype = layer.weight_ih_l0.dtype
    casts = result_type(dtype) is not dtype
    if _needs_general_path(layer, arguments, cell, dtype):
        return None
    parts, edits = layer.glassgate.parts, layer.glassgate.edits  # a part is one direction of one layer
    is_packed, is_stack = type(input) is PackedSequence, len(parts) > 1
    if casts:
        input, *rest = to_contiguous((input, *states, *restart_states), dtype)
        cast_states = tuple(rest[: len(states)]), tuple(rest[len(states) :])
        hx, restart = [None if not v else v if len(v) > 1 else v[0] for v in cast_states]
    resets = mask[0] if mask else None
    steps, layout, initial_by_part, restart_by_part = arrange_call(layer, input, hx, None, resets, restart)
    if layout.rows == 0:
        return None
    transposed = layout.batch_first and layout.rows > 1 and layout.length > 1
    leading = steps.data.shape[:1] if is_packed else (input.transpose(0, 1) if transposed else input).shape[:-1]
    widths = [v.shape[-1] for v in initial_by_part[0]]
    state_shapes = [(width,) if layout.unbatched else (layout.rows, width) for width in widths]
    user_shapes = state_shapes if is_stack else [(1, *shape) for shape in state_shapes]
    signature = Signature(tuple(leading), user_shapes, needs_grad, hx is None, all_states, recorded)
    calls, data, levels = [], steps.data, layer.glassgate.levels
    for level, directions in by_level(levels, directions_of_call(layer, initial_by_part, restart_by_part)):
        layer_steps, prepared_directions, draws = steps._replace(data=data), [], []
        for part, direction in zip(level.parts, directions, strict=True):
            draws.append(_noise_source(layer_steps, direction, part.hidden_size))
            direction = direction._replace(noise=dict.fromkeys(cell.noise, data.new_empty(0)))
            if edits is not None:
                direction = edits.apply(part, direction, layout)
            prepared_directions.append(direction)
        call = choose.prepare(layer_steps, prepared_directions, signature, draws)
        if call is None:
            return None
        calls.append(call)
        # Only the shape of the next layer's input is used, so the outputs need not be computed.
        data = data[:, :1].expand(-1, level.widths[0])
    zeros = steps.data.new_zeros
    default_states = () if hx is not None else tuple([zeros(len(parts), *shape) for shape in state_shapes])
    visible_count = len(widths) if all_states else 1
    drop = None
    if layer.training and layer.dropout:
        variational = layer.variational_dropout
        drop = partial(drop_between_layers, None, sequences=layout.rows, rate=layer.dropout, variational=variational)
    stack = PreparedStack(levels, calls, len(parts[0].names), len(widths), visible_count, drop)
    if all_states:
        return _ObservedCall(stack, calls[0].is_valid, layout, default_states, transposed, recorded, needs_grad)
    run = stack.run if is_stack else calls[0].run
    return _Call(run, calls[0].is_valid, default_states, transposed, dtype if casts else None)


def _needs_general_path(layer: BaseLayer, arguments: _Arguments, cell: Cell, dtype: torch.dtype) -> bool:
    """Return whether a call uses a feature that prepared calls do not support."""
    ragged, all_states = arguments.ragged, arguments.return_states or arguments.recorded
    casts = result_type(dtype) is not dtype
    is_computed_dtype = not casts and dtype in _COMPUTED_DTYPES
    is_stack = len(layer.glassgate.parts) > 1
    return bool(
        # With different lengths, the kernels reorder the rows of the input and the states, in the dtype of the
        # computation. They cannot reorder the rows of resets, noise and edits.
        (ragged and (arguments.mask or not is_computed_dtype or cell.noise or layer.glassgate.edits is not None))
        or (all_states and (ragged or not is_computed_dtype))
        or (cell.noise and casts)  # noise must be drawn in the dtype of the user's input
        or (layer.learn_initial_state and arguments.hx is None)
        or layer.recompute
        or (layer.training and layer.weight_dropout)
        # With different lengths, the general path draws masks in the kernels' order of rows.
        or (layer.training and layer.dropout and layer.num_layers > 1 and ragged)
        or (is_stack and (layer.merge == "none" or not isinstance(layer.hidden_size, int)))
    )


def _noise_source(steps: Steps, direction: Direction, hidden_size: int) -> Callable[[], dict[str, Tensor]]:
    """Return a function that draws the noise of a direction. It stores the shapes of this call, but not the tensors."""
    data, *initial = [v.new_empty(1, 1).expand(v.shape) for v in (steps.data, *direction.initial)]
    return partial(draw, direction.cell, steps._replace(data=data, resets=None), tuple(initial), hidden_size)
