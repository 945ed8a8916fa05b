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
from glassgate.engines.contract import PLAIN_TYPES, Direction, Steps, is_eager, result_type
from glassgate.engines.memory import to_contiguous
from glassgate.engines.torch_names import frame_callback
from glassgate.layers.arguments import arrange_call, current_cell, directions_of_call
from glassgate.layers.base import MAX_SIGNATURES, BaseLayer
from glassgate.layers.call import Call, CallOptions, LevelCall, Noise
from glassgate.layers.lengths import packed_lengths, padded_lengths
from glassgate.layers.levels import by_level
from glassgate.layers.regularisers import draw, dropout_between_layers

_metadata = attrgetter("shape", "dtype", "is_cpu", "layout")
_variable_metadata = attrgetter("shape", "dtype", "is_cpu")
"""The metadata that assigning to `data` of a parameter can change."""
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
            or [*map(_variable_metadata, cache.weights)] != cache.metadata
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
        tensors = cache.weights, states, restart_states, mask
        results = run(layer, data, *tensors, read_lengths or None)
        return results if data is input else (PackedSequence(results[0], *input[1:]), results[1])


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


class _CallCache:
    """The prepared calls of a layer for its current parameters.

    Attributes:
        names, weights, metadata: the name, the tensor, and the shape, dtype and device of each parameter.
        calls: the prepared calls by signature; None for a signature that takes the general path.
    """

    def __init__(self, names: tuple[str, ...], weights: tuple[Tensor, ...]) -> None:
        self.names, self.weights, self.metadata = names, weights, [*map(_variable_metadata, weights)]
        self._seen_keys: set[Any] = set()
        self.calls: dict[Any, Call | None] = {}

    def prepare(self, layer: BaseLayer, key: Any, arguments: _Arguments) -> Call | None:
        """Prepare a call when its signature occurs for the second time.

        Returns:
            the prepared call. None at the first call with the signature, or if calls like this one are not prepared.
        """
        if key not in self._seen_keys:
            if len(self._seen_keys) > 16 * MAX_SIGNATURES:
                self._seen_keys.clear()
            self._seen_keys.add(key)
            return None
        if key in self.calls or len(self.calls) >= MAX_SIGNATURES:
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


def _prepare(layer: BaseLayer, arguments: _Arguments) -> Call | None:
    """Prepare the calls with this signature. None if they need the general path."""
    input, states, restart_states, mask, hx, restart, needs_grad, _, return_states, recorded = arguments
    all_states, cell, dtype = return_states or recorded, current_cell(layer), layer.weight_ih_l0.dtype
    casts = result_type(dtype) is not dtype
    if _needs_general_path(layer, arguments, cell, dtype):
        return None
    parts, edits = layer.glassgate.parts, layer.glassgate.edits  # a part is one direction of one layer
    if casts:
        input, *rest = to_contiguous((input, *states, *restart_states), dtype)
        cast_states = tuple(rest[: len(states)]), tuple(rest[len(states) :])
        hx, restart = [None if not v else v if len(v) > 1 else v[0] for v in cast_states]
    resets = mask[0] if mask else None
    steps, layout, initial_by_part, restart_by_part = arrange_call(layer, input, hx, None, resets, restart)
    if layout.rows == 0:
        return None
    transposed = layout.batch_first and layout.rows > 1 and layout.length > 1
    is_packed = type(input) is PackedSequence
    leading = steps.data.shape[:1] if is_packed else (input.transpose(0, 1) if transposed else input).shape[:-1]
    forms = [*parts[0].forms.values()]
    state_shapes = [form.shape if layout.unbatched else (layout.rows, *form.shape) for form in forms]
    user_shapes = state_shapes if len(parts) > 1 else [(1, *shape) for shape in state_shapes]
    signature = Signature(tuple(leading), user_shapes, needs_grad, hx is None, all_states, recorded)
    levels, data = [], steps.data
    for level, directions in by_level(
        layer.glassgate.levels, directions_of_call(layer, initial_by_part, restart_by_part)
    ):
        level_steps, prepared, noise = steps._replace(data=data), [], []
        for part, direction in zip(level.parts, directions, strict=True):
            draw = _noise_source(level_steps, direction, part.hidden_size)
            direction = direction._replace(noise=dict.fromkeys(cell.noise, data.new_empty(0)))
            prepared.append(direction if edits is None else edits.apply(part, direction, layout))
            noise.append(Noise(prepared[-1].noise, draw))
        chosen = choose.prepare(level_steps, prepared, signature)
        if chosen is None:
            return None
        cells = [direction.cell for direction in prepared]
        levels.append(LevelCall(level, *chosen, cells, noise if any([own.fixed for own in noise]) else ()))
        # Only the shape of the next level's input is used, so the outputs need not be computed.
        data = data[:, :1].expand(-1, level.widths[0])
    dropout = layer.dropout if layer.training else 0.0
    drop = dropout_between_layers(dropout, layer.variational_dropout, layout.rows)
    default_states: tuple[Tensor, ...] = ()
    if hx is None:
        pairs = zip(state_shapes, forms, strict=True)
        default_states = tuple([steps.data.new_full((len(parts), *shape), form.start) for shape, form in pairs])
    cast_dtype = dtype if casts else None
    visible_count = len(forms) if all_states else 1
    options = CallOptions(
        layout, default_states, visible_count, transposed, cast_dtype, drop, needs_grad, return_states, recorded
    )
    return Call(levels, options, len(forms) + len(restart_states))


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
