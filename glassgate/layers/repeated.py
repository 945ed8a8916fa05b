"""Calls of a form that a layer has had before: what was decided and looked up for that one is not again.

The first call of a form goes the usual way, the second one is prepared: from then on a call is a look at all that may
have changed, and the kernel.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from glassgate.engines import choose
from glassgate.engines.contract import PLAIN, Direction, Steps, is_undisturbed, result_type, terms_asked
from glassgate.engines.memory import computable
from glassgate.layers import short
from glassgate.layers.regularisers import draw

if TYPE_CHECKING:
    from glassgate.layers.stack import Recurrent

_READ = (
    *("cell", "_noisy_cell", "_calm_cell", "_parts", "_edits", "_parameters", "training", "input_size", "hidden_size"),
    *("num_layers", "bias", "batch_first", "bidirectional", "dropout", "proj_size", "merge", "residual", "recompute"),
    *("weight_dropout", "variational_dropout", "learn_initial_state"),
)
"""Attributes that decide what a call does; they may be changed at any time."""
_MOST = 256
"""Forms that a layer prepares."""

_shape, _dtype, _layout = attrgetter("shape"), attrgetter("dtype"), attrgetter("layout")
_on_cpu, _wants_gradient = attrgetter("is_cpu"), attrgetter("requires_grad")


class Repeated:
    """What a layer remembers of its calls. A copy of a layer remembers none."""

    def __init__(self) -> None:
        self._known: _Known | None = None

    def __reduce__(self) -> tuple[type["Repeated"], tuple[()]]:
        return Repeated, ()

    def answer(
        self, layer: "Recurrent", input: Any, hx: Any, resets: Any = None, restart: Any = None, lengths: Any = None
    ) -> tuple[Tensor, Any] | None:
        """Output and final states of a call whose form is prepared; None where it must go the usual way."""
        if type(input) is not Tensor or layer._watchers or not is_undisturbed():
            return None
        if not (restart is None if resets is None else _is_mask(resets)):
            return None
        known = self._known
        if known is None or not known.holds(layer):
            known = self._known = _looked_at(layer)
            if known is None:
                return None
        first, anew = _as_tuple(hx), _as_tuple(restart)
        tensors = input, *first, *anew
        result = result_type(known.dtype)
        if not (PLAIN.issuperset(map(type, tensors)) and known.fit(tensors, result)):
            return None
        counts: list[int] | None = None
        if lengths is not None:
            counts = _counts(lengths, input, layer.batch_first)
            if counts is None:
                return None
            if min(counts) == _steps(input, layer.batch_first):
                counts = None  # all are as long as the input
            elif resets is not None or result is not known.dtype or known.dtype not in _EXACT:
                return None
        learns = torch.is_grad_enabled() and any(map(_wants_gradient, (*tensors, *known.weights)))
        mask = () if resets is None else (resets,)
        shapes = (*map(_shape, (*tensors, *mask)), len(first), len(anew), counts is None)
        form = shapes, learns, choose.setting(), result, terms_asked()
        if result is not known.dtype:
            input, *states = computable(tensors, known.dtype)
            first, anew = tuple(states[: len(first)]), tuple(states[len(first) :])
        call = known.calls.get(form)
        if call is None:
            call = known.prepared(layer, form, (input, hx, resets, restart), learns, counts is not None)
        return call(input, known.weights, first, anew, mask, counts) if call is not None and call.holds() else None


def _as_tuple(states: Any) -> tuple[Any, ...]:
    return () if states is None else states if type(states) is tuple else (states,)


def _steps(input: Tensor, batch_first: bool) -> int:
    return input.shape[1 if batch_first and input.dim() == 3 else 0]


def _counts(lengths: Any, input: Tensor, batch_first: bool) -> list[int] | None:
    """The lengths of a batch as numbers, if they are plain and fit; else None, and the usual way reports the fault."""
    if type(lengths) is Tensor and lengths.dtype is torch.int64 and lengths.dim() == 1 and lengths.is_cpu:
        lengths = lengths.tolist()
    if type(lengths) is not list or input.dim() != 3 or not {int}.issuperset(map(type, lengths)):
        return None
    N, L = input.shape[0 if batch_first else 1], _steps(input, batch_first)
    return lengths if len(lengths) == N > 0 and min(lengths) >= 0 and max(lengths) <= L else None


def _is_mask(resets: Any) -> bool:
    return type(resets) is Tensor and resets.dtype is torch.bool and resets.is_cpu and resets.layout is torch.strided


class _Call(NamedTuple):
    """A prepared call of one form."""

    run: Callable[[Tensor, Sequence[Tensor], list[int] | None], Sequence[Tensor]]
    """Returns the output and the final states for an input; for parameters, states, those of resets and their mask in
    order; and for the lengths of sequences, where they differ. All tensors are contiguous."""
    holds: Callable[[], bool]
    """Whether the cell still means what it did."""
    resting: tuple[Tensor, ...]
    """Zeros, where no states are given."""
    turned: bool
    """Whether sequences and steps change places on the way in and out."""

    def __call__(
        self,
        input: Tensor,
        weights: tuple[Tensor, ...],
        states: tuple[Any, ...],
        anew: tuple[Any, ...],
        mask: tuple[Tensor, ...],
        lengths: list[int] | None,
    ) -> tuple[Tensor, Any]:
        if self.turned:
            input, mask = input.transpose(0, 1), tuple([v.transpose(0, 1) for v in mask])
        given = (*weights, *(states or self.resting), *anew, *mask)
        if not all(map(Tensor.is_contiguous, given)):
            given = tuple([v.contiguous() for v in given])
        output, *final = self.run(input.contiguous(), given, lengths)
        return output.transpose(0, 1) if self.turned else output, tuple(final) if len(final) > 1 else final[0]


class _Known:
    """A layer as it was when its calls were prepared.

    Attributes:
        weights: its parameters.
        dtype: theirs.
        calls: the prepared ones by form; None for a form that goes the usual way.
    """

    def __init__(self, layer: "Recurrent", names: tuple[str, ...], weights: tuple[Tensor, ...]) -> None:
        self.weights, self._names = weights, names
        self._attributes = tuple(map(layer.__dict__.get, _READ))
        self._shapes, self.dtype = [*map(_shape, weights)], weights[0].dtype
        self._seen: set[Any] = set()
        self.calls: dict[Any, _Call | None] = {}

    def holds(self, layer: "Recurrent") -> bool:
        """Whether nothing that decides what a call does has changed."""
        own, weights = layer.__dict__, self.weights
        return (
            all(map(is_, map(own.get, _READ), self._attributes))
            and all(map(is_, map(own["_parameters"].get, self._names), weights))
            and [*map(_shape, weights)] == self._shapes
            and self.fit(weights, self.dtype)
        )

    def fit(self, tensors: Sequence[Tensor], result: torch.dtype) -> bool:
        """Whether these are memory of the type that is computed in, or of the results' type."""
        return (
            {self.dtype, result}.issuperset(map(_dtype, tensors))
            and all(map(_on_cpu, tensors))
            and _STRIDED.issuperset(map(_layout, tensors))
        )

    def prepared(
        self, layer: "Recurrent", form: Any, arguments: tuple[Any, ...], learns: bool, ragged: bool
    ) -> _Call | None:
        """The call of a form that was there before."""
        if form not in self._seen:
            if len(self._seen) > 16 * _MOST:
                self._seen.clear()
            self._seen.add(form)
            return None
        if form in self.calls or len(self.calls) >= _MOST:
            return None
        call = self.calls[form] = _prepared(layer, arguments, learns, ragged)
        return call


_STRIDED, _EXACT = frozenset({torch.strided}), frozenset({torch.float32, torch.float64})


def _looked_at(layer: "Recurrent") -> _Known | None:
    """A layer whose calls can be prepared, if it is one."""
    names = tuple([name for part in layer._parts for name in part.names.values()])
    found = [weight for name in names if (weight := layer._parameters.get(name)) is not None]
    weights = tuple([weight for weight in found if type(weight) in PLAIN and weight.is_leaf])
    if len(weights) < len(names):
        return None
    known = _Known(layer, names, weights)
    return known if known.holds(layer) else None


def _prepared(layer: "Recurrent", arguments: tuple[Any, ...], learns: bool, ragged: bool) -> _Call | None:
    """A call like this one, if it is plain enough: on torch, or on kernels without noise between layers."""
    input, hx, resets, restart = arguments
    cell = layer._noisy_cell if layer.training else layer._calm_cell
    if ragged and (cell.noise or layer._edits is not None):
        return None  # their numbers have one value per row of the call
    run = short.torchs(layer, input, hx) if resets is None and not ragged else None
    if run is not None:
        return _Call(run, short.means(cell), short.resting(layer, input) if hx is None else (), False)
    odd = layer.recompute or (layer.learn_initial_state and hx is None)
    if odd or (layer.training and (layer.weight_dropout or (layer.dropout and layer.num_layers > 1))):
        return None
    stacked = len(layer._parts) > 1
    if stacked and (layer.residual or layer.merge != "concat" or not isinstance(layer.hidden_size, int)):
        return None
    if cell.noise and result_type(input.dtype) is not input.dtype:
        return None  # noise is drawn in the type of what the user gives
    steps, layout, initial, anew = layer._arrange(input, hx, None, resets, restart)
    if layout.rows == 0:
        return None
    turned = layout.batch_first and layout.rows > 1 and layout.length > 1
    form = (input.transpose(0, 1) if turned else input).shape[:-1]
    widths = [v.shape[-1] for v in initial[0]]
    own = [(width,) if layout.unbatched else (layout.rows, width) for width in widths]
    shapes = own if stacked else [(1, *shape) for shape in own]
    layers, data, parts = [], steps.data, iter(layer._parts)
    for directions in layer._calls(initial, anew):
        here, ready, draws = steps._replace(data=data), [], []
        for direction in directions:
            part = next(parts)
            draws.append(_drawing(here, direction, part.hidden_size))
            direction = direction._replace(noise=dict.fromkeys(cell.noise, data.new_empty(0)))
            if layer._edits is not None:
                direction = layer._edits.applied(part, direction, layout)
            ready.append(direction)
        call = choose.prepared(here, ready, form, shapes, learns, draws)
        if call is None:
            return None
        layers.append(call)
        data = data[:, :1].expand(-1, len(ready) * widths[0])
    resting = tuple([input.new_zeros(len(layer._parts), *shape) for shape in own]) if hx is None else ()
    stack = _Stack(layers, layer.num_directions, len(layer._parts[0].names), len(shapes), resets is not None)
    return _Call(stack.run if stacked else stack.run_one, layers[0].holds, resting, turned)


def _drawing(steps: Steps, direction: Direction, hidden_size: int) -> Callable[[], dict[str, Tensor]]:
    """What draws a direction's noise for calls like this one, without keeping its numbers."""
    data, *initial = [v.new_empty(1, 1).expand(v.shape) for v in (steps.data, *direction.initial)]
    return partial(draw, direction.cell, steps._replace(data=data, resets=None), tuple(initial), hidden_size)


class _Stack:
    """Layers of prepared calls, one after the other.

    Args:
        layers: each one's call.
        D: directions of each.
        weights: how many a direction has.
        states: how many a direction has.
        masked: whether there are resets.
    """

    def __init__(self, layers: Sequence[choose.Prepared], D: int, weights: int, states: int, masked: bool) -> None:
        self._layers, self._D, self._weights, self._states, self._masked = layers, D, weights, states, masked
        self._all_weights = weights * D * len(layers)

    def run_one(self, data: Tensor, given: Sequence[Tensor], lengths: list[int] | None) -> Sequence[Tensor]:
        """A layer in one direction."""
        mask = given[-1] if self._masked else None
        return self._layers[0].run(data, (given[:-1] if self._masked else given,), mask, lengths)

    def run(self, data: Tensor, given: Sequence[Tensor], lengths: list[int] | None) -> Sequence[Tensor]:
        """Any number of layers and directions."""
        behind, D = len(given) - self._masked, self._D
        states, mask = given[self._all_weights : behind], given[-1] if self._masked else None
        initial = zip(*[v.unbind(0) for v in states], strict=True)
        final, at = [], 0
        for layer in self._layers:
            own = []
            for _ in range(D):
                own.append((*given[at : at + self._weights], *next(initial)))
                at += self._weights
            found = layer.run(data.to(given[0].dtype), own, mask, lengths)
            data = found[0] if D == 1 else torch.cat([*found[:D]], -1)
            final += [found[D + d * self._states : D + (d + 1) * self._states] for d in range(D)]
        return data, *[torch.stack(of_state) for of_state in zip(*final, strict=True)]
