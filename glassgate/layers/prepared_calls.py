"""Prepared calls: a layer caches one for each call signature.

The signature consists of the shapes and dtypes of the tensors and the options of the call. The first call with a
signature takes the general path: `stack.py` checks its arguments and chooses an engine. The second call prepares the
passes of the layer and runs them. Later calls look up the prepared call and run it.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter, is_
from typing import Any

import torch
from torch import Tensor
from torch.autograd import profiler
from torch.nn.utils.rnn import PackedSequence

from glassgate.cell import Cell
from glassgate.engines import choose, processors
from glassgate.engines.backend import Signature
from glassgate.engines.contract import PLAIN_TYPES, Direction, Steps, is_eager, result_type
from glassgate.engines.memory import allocator, to_contiguous
from glassgate.engines.torch_names import frame_callback
from glassgate.layers import opacus_rule
from glassgate.layers.address_call import AddressCall
from glassgate.layers.arguments import arrange_call, current_cell, directions_of_call
from glassgate.layers.base import MAX_SIGNATURES, BaseLayer
from glassgate.layers.call import Call, CallOptions, LevelCall, Noise
from glassgate.layers.levels import Level, by_level
from glassgate.layers.regularisers import draw, dropout_between_layers
from glassgate.layers.signature import Arguments, read_arguments
from glassgate.layers.states import States
from glassgate.layers.tensor_call import TensorCall

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
        if not is_eager():
            return None
        if "opacus" in sys.modules:
            opacus_rule.check_call(layer, lengths, resets, restart, return_states)
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
        arguments = read_arguments(input, hx, lengths, resets, restart, layer.batch_first)
        if arguments is None:
            return None
        data, states, restart_states, mask, read_lengths, key = arguments
        needs_grad = torch.is_grad_enabled() and (
            recorded or any(map(_requires_grad, (data, *states, *restart_states, *cache.weights)))
        )
        key = key, needs_grad, return_states, recorded, layer.training, choose.global_setting()
        call = cache.calls.get(key)
        if call is not None and call.thread_setting is not None:
            setting = processors.thread_setting()
            if setting != call.thread_setting:
                key = key, setting
                call = cache.calls.get(key)
        if call is None:
            call = cache.prepare(
                layer, key, Arguments(input, hx, restart, *arguments), needs_grad, return_states, recorded
            )
        if call is None or not (call.is_current() or call.have_same_equations()):
            return None
        run: Any = call.run
        if profiler._is_profiler_enabled:  # torch.compile does not reach this line, so it adds no guard
            run = profiler.record_function(layer.profile_row)(run)
        results = run(layer, data, cache.weights, states, restart_states, mask, read_lengths)
        return results if data is input else (PackedSequence(results[0], *input[1:]), results[1])


def can_prepare(levels: Sequence[Level], arguments: Arguments, all_states: bool) -> bool:
    """Whether `prepare_call` supports the merging of directions, the states and the lengths of a call."""
    forms = {tuple(part.forms.values()) for level in levels for part in level.parts}
    is_merged = all([len(level.parts) == 1 or level.merge != "none" for level in levels])
    # With different lengths, the kernels reorder rows, but not the mask of resets and the states of all steps.
    return is_merged and len(forms) == 1 and (arguments.lengths is None or not (arguments.mask or all_states))


def prepare_call(
    levels: Sequence[Level],
    arguments: Arguments,
    initial: States,
    options: CallOptions,
    prepare_levels: Callable[[Signature], Iterable[LevelCall | None]],
    fixed_weights: tuple[Tensor, ...] = (),
) -> "Call | None":
    """Prepare the calls with one signature. None if the engine does not prepare them.

    Args:
        levels: the levels of the stack.
        arguments: the arguments of one of these calls, for which `can_prepare` is true.
        initial: the initial states of each part in this call.
        options: the properties of the calls.
        prepare_levels: yields the levels of the calls with a signature; None for a level that is not prepared.
        fixed_weights: as in `Call`.
    """
    parts, layout = [part for level in levels for part in level.parts], options.layout
    shares_states = not arguments.states
    if layout.rows == 0:
        return None
    transposed = layout.batch_first and layout.rows > 1 and layout.length > 1
    leading = (arguments.data.transpose(0, 1) if transposed else arguments.data).shape[:-1]
    batch = () if layout.unbatched else (layout.rows,)
    stacked = [(len(parts), *batch, *form.shape) for form in parts[0].forms.values()]
    shapes = [shape[1:] for shape in stacked] if len(parts) > 1 else stacked
    signature = Signature(
        tuple(leading), shapes, options.needs_grad, shares_states, options.all_states, options.records
    )
    prepared = list[LevelCall]()
    for level_call in prepare_levels(signature):
        if level_call is None:
            return None
        prepared.append(level_call)
    default_states: tuple[Tensor, ...] = ()
    if shares_states:
        by_state = zip(zip(*initial, strict=True), stacked, strict=True)
        default_states = tuple([torch.stack(states).view(shape) for states, shape in by_state])
    new_final = [allocator(shape, initial[0][0].dtype) for shape in stacked]
    takes_addresses = (
        not options.needs_grad
        and options.dtype is None
        and arguments.lengths is None
        and all([level.calls.by_address is not None and not level.noise for level in prepared])
    )
    kind, has_restart = AddressCall if takes_addresses else TensorCall, bool(arguments.restart_states)
    return kind(prepared, options, transposed, default_states, new_final, has_restart, fixed_weights)


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

    def prepare(self, layer: BaseLayer, key: Any, arguments: Arguments, *options: bool) -> Call | None:
        """Prepare a call when its signature occurs for the second time.

        Args:
            layer, key, arguments: the layer, and the signature and the arguments of the call.
            options: the last arguments of `_prepare`.

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
        call = self.calls[key] = _prepare(layer, arguments, *options)
        return call


def _new_cache(layer: BaseLayer) -> _CallCache | None:
    """Return an empty cache for the parameters of a layer. None if they are not plain tensors of one kind."""
    names = tuple([name for part in layer.glassgate.parts for name in part.names.values()])
    present = [weight for name in names if (weight := layer._parameters.get(name)) is not None]
    weights = tuple([v for v in present if type(v) in PLAIN_TYPES and v.is_leaf and not v.is_neg()])
    if len(weights) < len(names):
        return None
    first = weights[0]
    is_supported = {(v.dtype, v.device, v.layout) for v in weights} == {(first.dtype, first.device, torch.strided)}
    return _CallCache(names, weights) if is_supported else None


def _prepare(
    layer: BaseLayer, arguments: Arguments, needs_grad: bool, return_states: bool, recorded: bool
) -> Call | None:
    """Prepare the calls with this signature. None if they need the general path.

    Args:
        layer, arguments: the layer, and the arguments of a call.
        needs_grad, recorded: whether a backward pass follows, and whether gates are recorded.
        return_states: as in `Recurrent.forward`.
    """
    cell, dtype, all_states = current_cell(layer), layer.weight_ih_l0.dtype, return_states or recorded
    casts = result_type(dtype) is not dtype
    if _needs_general_path(layer, arguments, cell, dtype, all_states):
        return None
    input, hx, restart, _, states, restart_states, mask, *_ = arguments
    if casts:
        input, *rest = to_contiguous((input, *states, *restart_states), dtype)
        cast_states = tuple(rest[: len(states)]), tuple(rest[len(states) :])
        hx, restart = [None if not v else v if len(v) > 1 else v[0] for v in cast_states]
    steps, layout, initial, restart_by_part = arrange_call(layer, input, hx, None, mask[0] if mask else None, restart)
    directions_by_part = directions_of_call(layer, initial, restart_by_part)
    edits = layer.glassgate.edits

    def prepare_levels(signature: Signature) -> Iterator[LevelCall | None]:
        data = steps.data
        for level, directions in by_level(layer.glassgate.levels, directions_by_part):
            level_steps, prepared, noise = steps._replace(data=data), [], []
            for part, direction in zip(level.parts, directions, strict=True):
                draw = _noise_source(level_steps, direction, part.hidden_size)
                direction = direction._replace(noise=dict.fromkeys(cell.noise, data.new_empty(0)))
                prepared.append(direction if edits is None else edits.apply(part, direction, layout))
                noise.append(Noise(prepared[-1].noise, draw))
            chosen = choose.prepare(level_steps, prepared, signature)
            cells = [direction.cell for direction in prepared]
            yield chosen and LevelCall(level, *chosen, cells, noise if any([own.fixed for own in noise]) else ())
            # Only the shape of the next level's input is used, so the outputs need not be computed.
            data = data[:, :1].expand(-1, level.widths[0])

    dropout = layer.dropout if layer.training else 0.0
    drop = dropout_between_layers(dropout, layer.variational_dropout, layout.rows)
    options = CallOptions(layout, needs_grad, return_states, recorded, dtype if casts else None, drop)
    return prepare_call(layer.glassgate.levels, arguments, initial, options, prepare_levels)


def _needs_general_path(
    layer: BaseLayer, arguments: Arguments, cell: Cell, dtype: torch.dtype, all_states: bool
) -> bool:
    """Return whether a call uses a feature that prepared calls do not support."""
    ragged = arguments.lengths is not None
    casts = result_type(dtype) is not dtype
    is_computed_dtype = not casts and dtype in _COMPUTED_DTYPES
    return bool(
        not arguments.are_readable(dtype, result_type(dtype))
        or not can_prepare(layer.glassgate.levels, arguments, all_states)
        # With different lengths, the kernels reorder the rows of the input and the states, in the dtype of the
        # computation. They cannot reorder the rows of noise and edits.
        or (ragged and (not is_computed_dtype or cell.noise or layer.glassgate.edits is not None))
        or (all_states and not is_computed_dtype)
        or (cell.noise and casts)  # noise must be drawn in the dtype of the user's input
        or (layer.learn_initial_state and arguments.hx is None)
        or layer.recompute
        or (layer.training and layer.weight_dropout)
        # With different lengths, the general path draws masks in the kernels' order of rows.
        or (layer.training and layer.dropout and layer.num_layers > 1 and ragged)
    )


def _noise_source(steps: Steps, direction: Direction, hidden_size: int) -> Callable[[], dict[str, Tensor]]:
    """Return a function that draws the noise of a direction. It stores the shapes of this call, but not the tensors."""
    data, *initial = [v.new_empty(1, 1).expand(v.shape) for v in (steps.data, *direction.initial)]
    return partial(draw, direction.cell, steps._replace(data=data, resets=None), tuple(initial), hidden_size)
