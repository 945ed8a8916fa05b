"""Prepared calls: a layer caches one for each call signature.

The first call with a signature takes the general path. The second call prepares the passes of the layer and runs them.
Later calls look up the prepared call and run it.
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
from glassgate.engines.contract import PLAIN, Direction, Recording, Steps, is_eager, result_type
from glassgate.engines.memory import to_contiguous
from glassgate.layers import one_row
from glassgate.layers.base import BaseLayer
from glassgate.layers.calls import arrange_call, current_cell, directions_by_layer
from glassgate.layers.observed import Observed, graph_leaf
from glassgate.layers.prepared_stack import PreparedStack
from glassgate.layers.regularisers import draw
from glassgate.layers.states import by_name
from glassgate.layout import Layout

_MAX_SIGNATURES = 256
"""The maximum number of call signatures that a layer prepares."""

_metadata = attrgetter("shape", "dtype", "is_cpu", "layout")
_requires_grad = attrgetter("requires_grad")
_COMPUTED_DTYPES = frozenset({torch.float32, torch.float64})


class PreparedCalls:
    """The cache of a layer's prepared calls. It is empty in a copy of the layer."""

    def __init__(self) -> None:
        self._known: _LayerCalls | None = None

    def __reduce__(self) -> tuple[type["PreparedCalls"], tuple[()]]:
        return PreparedCalls, ()

    def forget(self) -> None:
        """Empty the cache, because an attribute of the layer has changed."""
        self._known = None

    def run(
        self,
        layer: BaseLayer,
        input: Any,
        hx: Any,
        resets: Any = None,
        restart: Any = None,
        lengths: Any = None,
        return_states: bool = False,
    ) -> Any:
        """The results of a prepared call. None if the call must take the general path."""
        data = input.data if type(input) is PackedSequence else input
        if type(data) is not Tensor or not is_eager():
            return None
        recorded = bool(layer.glassgate.watchers)
        if recorded and callable(torch._C._dynamo.eval_frame.get_eval_frame_callback()):
            return None
        known, parameters = self._known, layer._parameters
        if (
            known is None
            or not all(map(is_, map(parameters.get, known.names), known.weights))
            or [*map(_metadata, known.weights)] != known.metadata
        ):
            known = self._known = _layer_calls(layer)
            if known is None:
                return None
        states = () if hx is None else hx if type(hx) is tuple else (hx,)
        restart_states = () if restart is None else restart if type(restart) is tuple else (restart,)
        mask = () if resets is None else (resets,)
        tensors = data, *states, *restart_states, *mask
        known_lengths: Sequence[int] | PackedLengths | None = None
        if data is not input:
            known_lengths = None if lengths is not None else _packed_lengths(input)
        elif lengths is not None:
            known_lengths = _lengths(lengths, input, layer.batch_first)
        unread_lengths = known_lengths is None and (lengths is not None or data is not input)
        if unread_lengths or not PLAIN.issuperset(map(type, tensors)):
            return None
        needs_grad = torch.is_grad_enabled() and (recorded or any(map(_requires_grad, (*tensors, *known.weights))))
        observed, ragged = (return_states, recorded), bool(known_lengths)
        numbers = len(states), len(restart_states), len(mask)
        key = (
            *map(_metadata, tensors),
            *numbers,
            ragged,
            needs_grad,
            observed,
            layer.training,
            choose.global_setting(),
        )
        if isinstance(known_lengths, PackedLengths):
            # Only the order of magnitude of the number of rows matters: very different sizes use different kernels.
            key = (data.shape[1:], len(data).bit_length(), len(known_lengths.order), *_metadata(data)[1:], *key[1:])
        call = known.calls.get(key)
        if call is None:
            arguments = _Arguments(input, states, restart_states, mask, hx, restart, needs_grad, ragged, *observed)
            call = known.prepare(layer, key, arguments)
        if call is None or not call.is_valid():
            return None
        run: Any = call
        if profiler._is_profiler_enabled:  # torch.compile does not reach this line, so it adds no guard
            run = profiler.record_function(layer.profile_row)(run)
        if isinstance(call, _ObservedCall):
            return run(layer, data, known.weights, states, restart_states, mask, return_states)
        output, hx = run(data, known.weights, states, restart_states, mask, known_lengths or None)
        return output if data is input else PackedSequence(output, *input[1:]), hx


class _Arguments(NamedTuple):
    """The arguments of a call, as the user passed them and as tuples of tensors, and properties of the call."""

    input: Any
    """A tensor or a `PackedSequence`."""
    states: tuple[Tensor, ...]
    restart_states: tuple[Tensor, ...]
    """The states that resets fall back to."""
    mask: tuple[Tensor, ...]
    """The mask of resets, or empty."""
    hx: Any
    restart: Any
    needs_grad: bool
    """Whether a backward pass follows."""
    ragged: bool
    """Whether the sequences have different lengths."""
    every_state: bool
    """Whether every state is returned at every step."""
    recorded: bool


def _lengths(lengths: Any, input: Tensor, batch_first: bool) -> list[int] | None:
    """The lengths of a batch, or an empty list if all are equal to L. None if the general path must read them."""
    if type(lengths) is Tensor and lengths.dtype is torch.int64 and lengths.dim() == 1 and lengths.is_cpu:
        lengths = lengths.tolist()
    if type(lengths) is not list or input.dim() != 3 or not {int}.issuperset(map(type, lengths)):
        return None
    N, L = input.shape[:2] if batch_first else input.shape[1::-1]
    if len(lengths) != N or N == 0:
        return None
    least, most = min(lengths), max(lengths)
    return None if least < 0 or most > L else [] if least == L else lengths


def _packed_lengths(input: PackedSequence) -> PackedLengths | None:
    """The lengths of a `PackedSequence`. None if the general path must read or reject them."""
    data, batch_sizes, order, _ = input
    for numbers in (batch_sizes,) if order is None else (batch_sizes, order):
        if type(numbers) is not Tensor or numbers.dtype is not torch.int64 or numbers.dim() != 1 or not numbers.is_cpu:
            return None
    sizes = batch_sizes.tolist()
    if data.dim() != 2 or not sizes or sizes[-1] < 1 or sum(sizes) != len(data) or sizes != sorted(sizes, reverse=True):
        return None
    ranks = [*range(sizes[0])]
    if order is None:
        return PackedLengths(sizes, ranks)
    rows = order.tolist()
    return PackedLengths(sizes, rows) if sorted(rows) == ranks else None


class _Call(NamedTuple):
    """A prepared call of one signature."""

    run: Callable[[Tensor, Sequence[Tensor], Tensor | None, Sequence[int] | PackedLengths | None], Sequence[Tensor]]
    """Takes the input, the parameters and states in order, the mask of resets, and the lengths of the sequences if they
    differ. Returns the output and the final states. All tensors are contiguous."""
    is_valid: Callable[[], bool]
    """Returns whether the cell still has the same equations."""
    default_states: tuple[Tensor, ...]
    """The initial states if a call has none: zeros."""
    transposed: bool
    """Whether to transpose input and output: the layer is batch-first, and both axes are longer than 1."""
    dtype: torch.dtype | None = None
    """The dtype of the parameters, if the results have another dtype."""

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
    """A prepared call that returns every state at every step, or that is recorded."""

    stack: PreparedStack
    is_valid: Callable[[], bool]
    """Returns whether the cells still have the same equations."""
    layout: Layout
    """The layout of the input; all sequences have the same length."""
    default_states: tuple[Tensor, ...]
    """The initial states if a call has none: zeros."""
    transposed: bool
    """Whether to transpose input and output."""
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
        output, final, results = self.stack.observed(data, operands, resets, recordings)
        if layer.glassgate.watchers:
            steps = Steps(data, None, resets)
            observed = Observed(layer, self.layout, steps, partial(self.stack.by_part, states), results, recordings)
            for watch in layer.glassgate.watchers:
                watch(observed)
        hx = final if len(final) > 1 else final[0]
        restored = self._restored(output)
        if return_states:
            return restored, hx, by_name(layer.glassgate.parts, results, self._restored)
        return restored, hx

    def _restored(self, value: Tensor) -> Tensor:
        """A tensor with the axes of the input."""
        return value.transpose(0, 1) if self.transposed else value


class _LayerCalls:
    """A layer's parameters and prepared calls.

    Attributes:
        names, weights, metadata: one per parameter.
        calls: the prepared calls by signature; None for a signature that takes the general path.
    """

    def __init__(self, names: tuple[str, ...], weights: tuple[Tensor, ...]) -> None:
        self.names, self.weights, self.metadata = names, weights, [*map(_metadata, weights)]
        self._seen: set[Any] = set()
        self.calls: dict[Any, _Call | _ObservedCall | None] = {}

    def prepare(self, layer: BaseLayer, key: Any, arguments: _Arguments) -> _Call | _ObservedCall | None:
        """Prepare the call of a signature when it occurs again. None at its first call, or if it cannot be prepared."""
        if key not in self._seen:
            if len(self._seen) > 16 * _MAX_SIGNATURES:
                self._seen.clear()
            self._seen.add(key)
            return None
        if key in self.calls or len(self.calls) >= _MAX_SIGNATURES:
            return None
        fits = _kernels_can_read(arguments, self.weights[0].dtype)
        call = self.calls[key] = _prepared(layer, arguments) if fits else None
        return call


def _kernels_can_read(arguments: _Arguments, dtype: torch.dtype) -> bool:
    """Whether kernels can read these tensors: dense CPU tensors with the dtype of the parameters or of the results."""
    input, states, restart_states, mask, *_ = arguments
    tensors = (input.data if type(input) is PackedSequence else input, *states, *restart_states)
    return (
        {dtype, result_type(dtype)}.issuperset([v.dtype for v in tensors])
        and all([v.is_cpu and v.layout is torch.strided for v in (*tensors, *mask)])
        and all([v.dtype is torch.bool for v in mask])
        and (bool(mask) or not restart_states)
    )


def _layer_calls(layer: BaseLayer) -> _LayerCalls | None:
    """An empty cache for the parameters of a layer. None if they are not plain CPU tensors of one dtype."""
    names = tuple([name for part in layer.glassgate.parts for name in part.names.values()])
    present = [weight for name in names if (weight := layer._parameters.get(name)) is not None]
    weights = tuple([weight for weight in present if type(weight) in PLAIN and weight.is_leaf])
    if len(weights) < len(names):
        return None
    plain = {(v.dtype, v.is_cpu, v.layout) for v in weights} == {(weights[0].dtype, True, torch.strided)}
    return _LayerCalls(names, weights) if plain else None


def _prepared(layer: BaseLayer, arguments: _Arguments) -> _Call | _ObservedCall | None:
    """Prepare calls with the signature of this one, on torch or on kernels. None if a feature is unsupported."""
    input, states, restart_states, mask, hx, restart, needs_grad, ragged, every_state, recorded = arguments
    shown = every_state or recorded
    cell = current_cell(layer)
    run = one_row.torch_function(layer, input, hx) if not (mask or ragged or shown) else None
    if run is not None:
        return _Call(run, one_row.same_equations(cell), one_row.zero_states(layer, input) if hx is None else (), False)
    dtype = layer.weight_ih_l0.dtype
    casts = result_type(dtype) is not dtype
    if _needs_general_path(layer, arguments, cell, dtype):
        return None
    parts, edits = layer.glassgate.parts, layer.glassgate.edits
    packed, stacked = type(input) is PackedSequence, len(parts) > 1
    if casts:
        input, *rest = to_contiguous((input, *states, *restart_states), dtype)
        cast = tuple(rest[: len(states)]), tuple(rest[len(states) :])
        hx, restart = [None if not v else v if len(v) > 1 else v[0] for v in cast]
    steps, layout, initial, fallback = arrange_call(layer, input, hx, None, mask[0] if mask else None, restart)
    if layout.rows == 0:
        return None
    transposed = layout.batch_first and layout.rows > 1 and layout.length > 1
    leading = steps.data.shape[:1] if packed else (input.transpose(0, 1) if transposed else input).shape[:-1]
    widths = [v.shape[-1] for v in initial[0]]
    state_shapes = [(width,) if layout.unbatched else (layout.rows, width) for width in widths]
    shapes = state_shapes if stacked else [(1, *shape) for shape in state_shapes]
    signature = Signature(tuple(leading), shapes, needs_grad, hx is None, shown, recorded)
    layers, data, remaining_parts = [], steps.data, iter(parts)
    for directions in directions_by_layer(layer, initial, fallback):
        own_steps, ready, draws = steps._replace(data=data), [], []
        for direction in directions:
            part = next(remaining_parts)
            draws.append(_noise_source(own_steps, direction, part.hidden_size))
            direction = direction._replace(noise=dict.fromkeys(cell.noise, data.new_empty(0)))
            if edits is not None:
                direction = edits.applied(part, direction, layout)
            ready.append(direction)
        call = choose.prepare(own_steps, ready, signature, draws)
        if call is None:
            return None
        layers.append(call)
        data = data[:, :1].expand(-1, len(ready) * widths[0])
    zeros = steps.data.new_zeros
    default_states = () if hx is not None else tuple([zeros(len(parts), *shape) for shape in state_shapes])
    visible = len(shapes) if shown else 1
    stack = PreparedStack(layers, layer.num_directions, len(parts[0].names), len(shapes), visible)
    if shown:
        return _ObservedCall(stack, layers[0].is_valid, layout, default_states, transposed, recorded, needs_grad)
    run = stack.run if stacked else layers[0].run
    return _Call(run, layers[0].is_valid, default_states, transposed, dtype if casts else None)


def _needs_general_path(layer: BaseLayer, arguments: _Arguments, cell: Cell, dtype: torch.dtype) -> bool:
    """Whether a call uses a feature that prepared calls do not support."""
    ragged, shown = arguments.ragged, arguments.every_state or arguments.recorded
    casts = result_type(dtype) is not dtype
    computed = not casts and dtype in _COMPUTED_DTYPES
    draws_masks = layer.training and (layer.weight_dropout or (layer.dropout and layer.num_layers > 1))
    stacked = len(layer.glassgate.parts) > 1
    return bool(
        # With different lengths, the kernels reorder the rows of input and states in their own dtype, and they cannot
        # reorder the numbers per row of resets, noise and edits.
        (ragged and (arguments.mask or not computed or cell.noise or layer.glassgate.edits is not None))
        or (shown and (ragged or not computed))
        or (cell.noise and casts)  # noise must be drawn in the dtype of the user's input
        or (layer.learn_initial_state and arguments.hx is None)
        or layer.recompute
        or draws_masks
        or (stacked and (layer.residual or layer.merge != "concat" or not isinstance(layer.hidden_size, int)))
    )


def _noise_source(steps: Steps, direction: Direction, hidden_size: int) -> Callable[[], dict[str, Tensor]]:
    """A function that draws the noise of a direction. It keeps the shapes of this call, but not its tensors."""
    data, *initial = [v.new_empty(1, 1).expand(v.shape) for v in (steps.data, *direction.initial)]
    return partial(draw, direction.cell, steps._replace(data=data, resets=None), tuple(initial), hidden_size)
