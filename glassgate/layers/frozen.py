"""A layer with fixed weights: `Recurrent.forward` without gradients, noise, or access to the module."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from glassgate.cell import Cell, Weights
from glassgate.engines.backend import Frozen, PackedPass, Stepper
from glassgate.engines.contract import Direction, Recording, Result, Steps, is_undisturbed
from glassgate.engines.frozen import MATRICES, frozen, quantised, stepper
from glassgate.engines.meaning import current_equations, untraceable
from glassgate.engines.memory import COMPUTED_IN, allocator
from glassgate.engines.symbolic.graph_cell import GraphCell
from glassgate.layers import states
from glassgate.layers.merge import merge
from glassgate.layers.spec import OPTIONS, Spec
from glassgate.layers.states import State, States
from glassgate.layers.stream import Stream
from glassgate.layout import Layout, arrange
from glassgate.shapes import check_like, check_parameters, check_shape

if TYPE_CHECKING:
    from glassgate.layers.stack import Recurrent

STRUCTURE = (*OPTIONS[:1], *OPTIONS[2:], "num_directions", "output_size")
"""Attributes of `Recurrent` that a frozen layer has too, in addition to `hidden_size`."""
MOST_FORMS = 256
"""Forms of calls that a layer prepares."""


class FrozenLayer(nn.Module):
    """A layer whose weights were copied and packed. It is called as a `Recurrent`, and may be called by many threads.

    Args:
        spec: the layer.
        cell: its equations.
        weights: of each part, copied by the caller, in the type that is computed in, or int8.
        learned: of each part, the initial states (W,) if they are learned; else empty.
        precision: one of `engines.frozen.PRECISIONS`.
        scales: of each part, those of the matrices of int8 by name.
    """

    def __init__(
        self,
        spec: Spec,
        cell: Cell,
        weights: Sequence[Weights],
        learned: Sequence[Sequence[Tensor]],
        precision: str,
        scales: Sequence[Weights] = (),
    ) -> None:
        super().__init__()
        self.scales = scales or [{} for _ in weights]
        self.spec, self.cell, self.weights, self.learned, self.precision = spec, cell, weights, learned, precision
        self.computed_in = torch.float32 if precision == "int8" else weights[0]["weight_ih"].dtype
        one = self.resting(1)
        directions = [
            Direction(cell, own, first, part.direction == 1)
            for part, own, first in zip(spec.parts, weights, one, strict=True)
        ]
        D = spec.num_directions
        self._layers: list[Frozen] = [
            frozen(directions[k : k + D], precision, self.scales[k : k + D]) for k in range(0, len(directions), D)
        ]
        self._forms: dict[Any, _Form | None] = {}
        self.training = False

    def __getattr__(self, name: str) -> Any:
        # Models read the structure of their layers, such as `num_directions`.
        if name in STRUCTURE:
            return getattr(self.spec, name)
        return super().__getattr__(name)

    @property
    def hidden_size(self) -> int | Sequence[tuple[int, ...]]:
        """The hidden size; where sizes differ, those of each layer."""
        sizes = {size for of_layer in self.spec.hidden_size for size in of_layer}
        return sizes.pop() if len(sizes) == 1 else self.spec.hidden_size

    def extra_repr(self) -> str:
        """The layer's class and its precision."""
        return f"{self.spec.name}, precision={self.precision!r}"

    def train(self, mode: bool = True) -> "FrozenLayer":
        """Does nothing: it always evaluates."""
        return self

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: State | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        resets: Tensor | None = None,
        restart: State | None = None,
        return_states: bool = False,
        recordings: Sequence[Recording] | None = None,
    ) -> Any:
        """Runs whole sequences; arguments and results are those of `Recurrent.forward`.

        Args:
            recordings: one per part, filled with the gates.
        """
        if lengths is None and resets is None and restart is None and not return_states and recordings is None:
            form = self._form(input, hx)
            if form is not None:
                return form(cast(Tensor, input), hx)
        return self._general(input, hx, lengths, resets, restart, return_states, recordings)

    @torch.no_grad()
    def _general(
        self,
        input: Tensor | PackedSequence,
        hx: State | None,
        lengths: Tensor | Sequence[int] | None,
        resets: Tensor | None,
        restart: State | None,
        return_states: bool,
        recordings: Sequence[Recording] | None,
    ) -> Any:
        """Any call."""
        spec = self.spec
        steps, layout = arrange(spec.name, input, spec.input_size, spec.batch_first, lengths, resets)
        check_like(spec.name, "input", steps.data, spec.dtype, self._device, "the layer")
        first = self.resting(layout.rows) if hx is None else self._given(hx, steps.data, layout, "hx")
        if restart is not None and resets is None:
            raise TypeError(f"{spec.name}: restart gives the states that resets fall back to; pass resets too")
        again = None if restart is None else self._given(restart, steps.data, layout, "restart")
        steps = steps._replace(data=steps.data.to(self.computed_in))
        outputs, results = self._run(steps, first, again, return_states, recordings)
        outputs = [v.to(spec.dtype) for v in outputs]
        results = [Result(*[tuple([v.to(spec.dtype) for v in own]) for own in result]) for result in results]
        return states.returned(spec.parts, outputs, results, layout, return_states)

    def _run(
        self,
        steps: Steps,
        initial: States,
        restart: States | None,
        all_states: bool,
        recordings: Sequence[Recording] | None,
    ) -> tuple[list[Tensor], list[Result]]:
        """The outputs of the last layer and every direction's result."""
        D, data = self.spec.num_directions, [steps.data]
        every: list[Result] = []
        for k, layer in enumerate(self._layers):
            own = slice(k * D, k * D + D)
            inputs = [steps._replace(data=v) for v in (data * D if len(data) == 1 else data)]
            every += layer.run(
                inputs, initial[own], restart and restart[own], all_states, recordings and recordings[own]
            )
            below, data = data, merge(self.spec.merge, [result.states[0] for result in every[-D:]])
            if self.spec.residual and k > 0:
                data = [v + u if v.shape == u.shape else v for v, u in zip(data, below, strict=True)]
        return data, every

    def __deepcopy__(self, memo: dict[int, Any]) -> "FrozenLayer":
        """Itself: it never changes."""
        return self

    def tensors(self) -> dict[str, Tensor]:
        """All of its numbers by name, as `from_tensors` takes them."""
        found: dict[str, Tensor] = {}
        every = zip(self.spec.parts, self.weights, self.learned, self.scales, strict=True)
        for part, weights, learned, scales in every:
            found |= {part.names[name]: v for name, v in weights.items()}
            found |= {f"{part.names[name]}.scale": v for name, v in scales.items()}
            found |= {f"{state}_0{part.suffix}": v for state, v in zip(part.widths, learned, strict=False)}
        return found

    @staticmethod
    def from_tensors(spec: Spec, cell: Cell, tensors: Mapping[str, Tensor], precision: str) -> "FrozenLayer":
        """The layer with these numbers.

        Raises:
            KeyError: one is missing.
            ShapeError: one does not fit.
        """
        weights, learned, every_scale = [], [], []
        dtype, device = torch.float64 if precision == "float64" else torch.float32, torch.device("cpu")
        for part in spec.parts:
            own = {name: tensors[full] for name, full in part.names.items()}
            integers = {name for name, v in own.items() if v.dtype is torch.int8 and precision == "int8"}
            scales = {name: tensors[f"{part.names[name]}.scale"] for name in integers & {*MATRICES}}
            for name, v in own.items():
                check_shape(spec.name, part.names[name], v, "a matrix or vector", part.shapes[name])
                if name not in scales:
                    check_like(spec.name, name, v, dtype, device, "the session")
            for name, v in scales.items():
                check_shape(spec.name, f"{name}.scale", v, "(rows,)", part.shapes[name][:1])
                check_like(spec.name, f"{name}.scale", v, dtype, device, "the session")
            names = {f"{state}_0{part.suffix}": (width,) for state, width in part.widths.items()}
            first = {name: tensors[name] for name in names if name in tensors}
            if first:
                check_parameters(spec.name, first, names, dtype, device, part.suffix)
            weights.append(own)
            learned.append(list(first.values()))
            every_scale.append(scales)
        return FrozenLayer(spec, cell, weights, learned, precision, every_scale)

    def stream(self, batch_size: int = 1) -> Stream:
        """Sequences that advance one step at a time; see `Stream`.

        Args:
            batch_size: how many side by side.

        Raises:
            ValueError: the layer is bidirectional.
        """
        return Stream(self, batch_size)

    def resting(self, rows: int) -> States:
        """The states that sequences start from, for each part: zero, or the learned ones."""
        initial = []
        for part, learned in zip(self.spec.parts, self.learned, strict=True):
            rest = learned or [
                torch.zeros(width, dtype=self.computed_in, device=self._device) for width in part.widths.values()
            ]
            initial.append(tuple([v.expand(rows, -1) for v in rest]))
        return initial

    def stepper(self, batch_size: int) -> tuple[Stepper, States]:
        """A stepper, which advances the layer by one step, and the states that it starts from."""
        first = [tuple([v.contiguous() for v in own]) for own in self.resting(batch_size)]
        copies = [tuple([v.clone() for v in own]) for own in first]
        return stepper(self._layers, copies, self.spec.residual), first

    def _given(self, hx: State, data: Tensor, layout: Layout, called: str) -> States:
        """States that the caller passed, checked, in the type that is computed in."""
        found = states.from_hx(self.spec.name, self.spec.parts, hx, data, layout, called)
        return [tuple([v.to(self.computed_in) for v in own]) for own in found]

    def _form(self, input: Any, hx: Any) -> "_Form | None":
        """The prepared form of such calls, if they are plain: tensors on the CPU, sequences of equal length."""
        given = () if hx is None else hx if type(hx) is tuple else (hx,)
        for v in (input, *given):
            if type(v) is not Tensor or v.dtype is not self.computed_in or not v.is_cpu:
                return None
        if not is_undisturbed():
            raise RuntimeError(
                f"{self.spec.name}: a session cannot be traced, compiled or transformed; use the module that it was "
                "made from"
            )
        key = input.shape, *[v.shape for v in given]
        form = self._forms.get(key, _NEW)
        if form is _NEW:
            form = _Form.of(self, input, given)
            if len(self._forms) >= MOST_FORMS:
                self._forms.clear()
            self._forms[key] = form
        return form

    @property
    def _device(self) -> torch.device:
        return self.weights[0]["weight_ih"].device


class _Form:
    """Calls of one form: sequences of equal length, layers whose parts have equal widths.

    Args:
        layers: each layer's passes, one per direction.
        shape: of the output of one direction, time-major.
        final: the shape of each state for all parts.
        resting: the states to start from if none are given, in these shapes.
        turned: whether input and output are batch-first.
    """

    def __init__(
        self,
        layers: Sequence[Sequence[PackedPass]],
        shape: tuple[int, ...],
        final: Sequence[tuple[int, ...]],
        resting: tuple[Tensor, ...],
        turned: bool,
    ) -> None:
        self._layers, self._resting, self._turned = layers, resting, turned
        self._resting_at = [v.data_ptr() for v in resting]
        self._new_output = allocator(shape, resting[0].dtype)
        self._new_final = [allocator(form, resting[0].dtype) for form in final]
        self._bytes = [v.nbytes // final[0][0] for v in resting]

    @staticmethod
    def of(layer: FrozenLayer, input: Tensor, given: tuple[Tensor, ...]) -> "_Form | None":
        """The form of such calls; None if they need the general path, which also reports what does not fit."""
        spec = layer.spec
        widths = {tuple(part.widths.values()) for part in spec.parts}
        if len(widths) > 1 or spec.dtype != layer.computed_in or spec.residual or spec.merge != "concat":
            return None
        if input.dim() not in (2, 3) or input.shape[-1] != spec.input_size or 0 in input.shape:
            return None
        turned = spec.batch_first and input.dim() == 3
        shape = input.shape[1::-1] if turned else input.shape[:-1]
        N, parts, (own,) = shape[1] if len(shape) > 1 else 1, len(spec.parts), widths
        final = [(parts, *shape[1:], width) for width in own]
        if given and [tuple(v.shape) for v in given] != final:
            return None
        every = [each.passes(shape[0], N) for each in layer._layers]
        layers = [passes for passes in every if passes is not None]
        if len(layers) < len(every):
            return None
        by_state = zip(*layer.resting(N), strict=True)
        resting = tuple([torch.stack(v).view(form) for v, form in zip(by_state, final, strict=True)])
        return _Form(layers, (*shape, own[0]), final, resting, turned)

    def __call__(self, input: Tensor, hx: Any) -> tuple[Tensor, Any]:
        x = input.transpose(0, 1) if self._turned else input
        x = x if x.is_contiguous() else x.contiguous()
        initial_at = self._resting_at
        if hx is not None:
            given = [v if v.is_contiguous() else v.contiguous() for v in (hx if type(hx) is tuple else (hx,))]
            initial_at = [v.data_ptr() for v in given]
        final = [new() for new in self._new_final]
        final_at, part = [v.data_ptr() for v in final], 0
        for passes in self._layers:
            outputs = []
            for each in passes:
                if part:
                    initial_at = [at + size for at, size in zip(initial_at, self._bytes, strict=True)]
                    final_at = [at + size for at, size in zip(final_at, self._bytes, strict=True)]
                outputs.append(output := self._new_output())
                each.run(x.data_ptr(), (*initial_at, output.data_ptr(), *final_at))
                part += 1
            x = output if len(outputs) == 1 else torch.cat(outputs, -1)
        return x.transpose(0, 1) if self._turned else x, tuple(final) if len(final) > 1 else final[0]


_NEW: Any = object()
"""Stands for a form that was not called before."""


def freeze_layer(
    layer: "Recurrent", precision: str | None = None, keep: Callable[[str], bool] = lambda name: False
) -> FrozenLayer:
    """A copy of a layer, in eval mode, whose weights no longer change.

    Args:
        layer: the layer; it may be in training mode, whose noise is left out.
        precision: one of `engines.frozen.PRECISIONS`; the layer's own type if not given.
        keep: which matrices stay in float32 if the precision is int8, by the names of their parameters.

    Raises:
        ValueError: the layer is being edited.
        EngineError: the processor or the cell does not support the precision.
    """
    if layer._edits is not None:
        raise ValueError(
            f"{layer._name}: streams and sessions have no edits; leave the `with gg.edit(...)` block first"
        )
    every = layer.checked_weights()
    own = every[0]["weight_ih"].dtype
    dtype = (
        COMPUTED_IN.get(own, own) if precision is None else torch.float64 if precision == "float64" else torch.float32
    )
    spec = Spec.of(layer, own)
    learned: list[list[Tensor]] = [[] for _ in layer._parts]
    if layer.learn_initial_state:
        learned = [[_copied(v[0], dtype) for v in states] for states in layer._resting_states(every[0]["weight_ih"], 1)]
    weights = [{name: _copied(v, dtype) for name, v in weights.items()} for weights in every]
    scales: list[Weights] = []
    if precision == "int8":
        found = [
            quantised(own, lambda name, part=part: keep(part.names[name]))  # type: ignore[misc]
            for own, part in zip(weights, layer._parts, strict=True)
        ]
        weights, scales = [own for own, _ in found], [own for _, own in found]
    cell, projected = layer._eval_cell, bool(layer.proj_size)
    cell = deepcopy(cell) if untraceable(cell, projected) else GraphCell(current_equations(cell, projected))
    return FrozenLayer(spec, cell, weights, learned, precision or str(dtype).removeprefix("torch."), scales)


def _copied(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Memory of its own, without gaps."""
    return tensor.detach().to(dtype, copy=True, memory_format=torch.contiguous_format)
