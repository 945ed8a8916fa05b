"""A layer with fixed weights: `Recurrent.forward` without gradients, noise, or access to the module."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from glassgate.cell import Cell, Weights
from glassgate.engines.backend import FrozenDirections, PackedPass, Stepper
from glassgate.engines.contract import Direction, Recording, Result, Steps, is_eager
from glassgate.engines.frozen import MATRICES, freeze, quantise_matrices
from glassgate.engines.memory import COMPUTE_DTYPE, allocator
from glassgate.engines.symbolic.graph_cell import GraphCell
from glassgate.engines.traced_cells import current_equations, why_not_traceable
from glassgate.layers import states
from glassgate.layers.base import BaseLayer
from glassgate.layers.calls import checked_weights, default_states
from glassgate.layers.merge import merge
from glassgate.layers.spec import OPTIONS, Spec
from glassgate.layers.states import State, States
from glassgate.layers.stream import Stream
from glassgate.layout import Layout, arrange
from glassgate.shapes import check_like, check_parameters, check_shape

STRUCTURE = (*(option for option in OPTIONS if option != "hidden_size"), "num_directions", "output_size")
"""Attributes of `Recurrent` that a frozen layer has too, in addition to `hidden_size`."""
_MAX_SIGNATURES = 256
"""The maximum number of call signatures that a layer prepares."""


class FrozenLayer(nn.Module):
    """A layer whose weights were copied and packed. It is called like a `Recurrent`, and several threads may call it.

    Args:
        spec: the structure of the layer.
        cell: the equations of the layer.
        weights: the weights of each part, copied by the caller, in the dtype of the computation or int8.
        learned: the learned initial states (W,) of each part; empty if they are not learned.
        precision: one of `engines.frozen.PRECISIONS`.
        scales: for each part, the scales of its int8 matrices by name.

    Attributes:
        packed: each layer with packed weights.
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
        directions = [
            Direction(cell, of_part, initial, part.direction == 1)
            for part, of_part, initial in zip(spec.parts, weights, self.default_states(1), strict=True)
        ]
        D = spec.num_directions
        self.packed: list[FrozenDirections] = [
            freeze(directions[k : k + D], precision, self.scales[k : k + D]) for k in range(0, len(directions), D)
        ]
        self._prepared: dict[Any, _PreparedCall | None] = {}
        self.training = False

    def __getattr__(self, name: str) -> Any:
        # Models read the structure of a layer, such as `num_directions`.
        if name in STRUCTURE:
            return getattr(self.spec, name)
        return super().__getattr__(name)

    @property
    def hidden_size(self) -> int | Sequence[tuple[int, ...]]:
        """The hidden size. If sizes differ, a tuple of sizes for each layer."""
        sizes = {size for of_layer in self.spec.hidden_size for size in of_layer}
        return sizes.pop() if len(sizes) == 1 else self.spec.hidden_size

    def extra_repr(self) -> str:
        """The layer's class and its precision."""
        return f"{self.spec.name}, precision={self.precision!r}"

    def train(self, mode: bool = True) -> "FrozenLayer":
        """Does nothing: the layer is always in eval mode."""
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
            call = self._prepared_call(input, hx)
            if call is not None:
                return call(cast(Tensor, input), hx)
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
        """The results of a call that is not prepared."""
        spec = self.spec
        steps, layout = arrange(spec.name, input, spec.input_size, spec.batch_first, lengths, resets)
        check_like(spec.name, "input", steps.data, spec.dtype, self._device, "the layer")
        initial = self.default_states(layout.rows) if hx is None else self._checked_states(hx, steps.data, layout, "hx")
        states.check_restart(spec.name, restart, resets)
        fallback = None if restart is None else self._checked_states(restart, steps.data, layout, "restart")
        steps = steps._replace(data=steps.data.to(self.computed_in))
        outputs, results = self._run(steps, initial, fallback, return_states, recordings)
        outputs = [v.to(spec.dtype) for v in outputs]
        results = [Result(*[tuple([v.to(spec.dtype) for v in part]) for part in result]) for result in results]
        return states.returned(spec.parts, outputs, results, layout, return_states)

    def _run(
        self,
        steps: Steps,
        initial: States,
        restart: States | None,
        all_states: bool,
        recordings: Sequence[Recording] | None,
    ) -> tuple[list[Tensor], list[Result]]:
        """The outputs of the last layer, and the result of each direction of each layer."""
        D, data = self.spec.num_directions, [steps.data]
        results: list[Result] = []
        for k, layer in enumerate(self.packed):
            at = slice(k * D, k * D + D)
            inputs = [steps._replace(data=v) for v in (data * D if len(data) == 1 else data)]
            results += layer.run(
                inputs, initial[at], restart and restart[at], all_states, recordings and recordings[at]
            )
            outputs = [result.states[0] for result in results[-D:]]
            data = merge(self.spec.merge, outputs, data if self.spec.residual and k else ())
        return data, results

    def __deepcopy__(self, memo: dict[int, Any]) -> "FrozenLayer":
        """The layer itself, because it never changes."""
        return self

    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the layer by name, as `from_tensors` expects them."""
        tensors: dict[str, Tensor] = {}
        for part, weights, learned, scales in zip(
            self.spec.parts, self.weights, self.learned, self.scales, strict=True
        ):
            tensors |= {part.names[name]: v for name, v in weights.items()}
            tensors |= {f"{part.names[name]}.scale": v for name, v in scales.items()}
            tensors |= {f"{state}_0{part.suffix}": v for state, v in zip(part.widths, learned, strict=False)}
        return tensors

    @staticmethod
    def from_tensors(spec: Spec, cell: Cell, tensors: Mapping[str, Tensor], precision: str) -> "FrozenLayer":
        """The layer with these tensors.

        Raises:
            KeyError: a tensor is missing.
            ShapeError: a tensor has the wrong shape, dtype or device.
        """
        weights, learned, all_scales = [], [], []
        dtype, device = torch.float64 if precision == "float64" else torch.float32, torch.device("cpu")
        for part in spec.parts:
            of_part = {name: tensors[full] for name, full in part.names.items()}
            integers = {name for name, v in of_part.items() if v.dtype is torch.int8 and precision == "int8"}
            scales = {name: tensors[f"{part.names[name]}.scale"] for name in integers & {*MATRICES}}
            for name, v in of_part.items():
                check_shape(spec.name, part.names[name], v, "a matrix or vector", part.shapes[name])
                if name not in scales:
                    check_like(spec.name, part.names[name], v, dtype, device, "the session")
            for name, v in scales.items():
                check_shape(spec.name, f"{part.names[name]}.scale", v, "(rows,)", part.shapes[name][:1])
                check_like(spec.name, f"{part.names[name]}.scale", v, dtype, device, "the session")
            names = {f"{state}_0{part.suffix}": (width,) for state, width in part.widths.items()}
            initial = {name: tensors[name] for name in names if name in tensors}
            if initial:
                check_parameters(spec.name, initial, names, dtype, device, part.suffix)
            weights.append(of_part)
            learned.append(list(initial.values()))
            all_scales.append(scales)
        return FrozenLayer(spec, cell, weights, learned, precision, all_scales)

    def stream(self, batch_size: int = 1) -> Stream:
        """A stream, which processes sequences one step at a time; see `Stream`.

        Args:
            batch_size: the number of sequences.

        Raises:
            ValueError: the layer is bidirectional.
        """
        return Stream(self.spec, batch_size, self.stepper)

    def default_states(self, rows: int) -> States:
        """The initial states of each part if a call has none: zero, or the learned ones."""
        initial = []
        for part, learned in zip(self.spec.parts, self.learned, strict=True):
            one_row = learned or [
                torch.zeros(width, dtype=self.computed_in, device=self._device) for width in part.widths.values()
            ]
            initial.append(tuple([v.expand(rows, -1) for v in one_row]))
        return initial

    def stepper(self, batch_size: int) -> tuple[Stepper, States]:
        """A stepper, which advances the layer by one step, and its initial states."""
        initial = [tuple([v.contiguous() for v in part]) for part in self.default_states(batch_size)]
        copies = [tuple([v.clone() for v in part]) for part in initial]
        return self.packed[0].stepper(self.packed, copies, self.spec.residual), initial

    def _checked_states(self, hx: State, data: Tensor, layout: Layout, argument: str) -> States:
        """The states of a call, checked, in the dtype of the computation."""
        checked = states.from_hx(self.spec.name, self.spec.parts, hx, data, layout, argument)
        return [tuple([v.to(self.computed_in) for v in part]) for part in checked]

    def _prepared_call(self, input: Any, hx: Any) -> "_PreparedCall | None":
        """The prepared call for these arguments, if they are plain CPU tensors; None if there is none."""
        states = () if hx is None else hx if type(hx) is tuple else (hx,)
        for v in (input, *states):
            if type(v) is not Tensor or v.dtype is not self.computed_in or not v.is_cpu:
                return None
        if not is_eager():
            raise RuntimeError(
                f"{self.spec.name}: a session cannot be traced, compiled or transformed; use the module that it was "
                "made from"
            )
        key = input.shape, *[v.shape for v in states]
        call = self._prepared.get(key, _NOT_PREPARED)
        if call is _NOT_PREPARED:
            call = _PreparedCall.of(self, input, states)
            if len(self._prepared) >= _MAX_SIGNATURES:
                self._prepared.clear()
            self._prepared[key] = call
        return call

    @property
    def _device(self) -> torch.device:
        return self.weights[0]["weight_ih"].device


class _PreparedCall:
    """A prepared call of one signature: sequences of equal length, and layers whose parts have equal widths.

    Args:
        layers: the passes of each layer, one per direction.
        shape: the time-major shape of the output of one direction.
        final: the shape of each final state of all parts.
        default_states: the initial states if a call has none, in these shapes.
        transposed: whether input and output are batch-first.
    """

    def __init__(
        self,
        layers: Sequence[Sequence[PackedPass]],
        shape: tuple[int, ...],
        final: Sequence[tuple[int, ...]],
        default_states: tuple[Tensor, ...],
        transposed: bool,
    ) -> None:
        self._layers, self._default_states, self._transposed = layers, default_states, transposed
        self._default_states_at = [v.data_ptr() for v in default_states]
        self._new_output = allocator(shape, default_states[0].dtype)
        self._new_final = [allocator(form, default_states[0].dtype) for form in final]
        self._bytes = [v.nbytes // final[0][0] for v in default_states]

    @staticmethod
    def of(layer: FrozenLayer, input: Tensor, states: tuple[Tensor, ...]) -> "_PreparedCall | None":
        """Prepare calls with these arguments. None if they need the general path, which also reports errors."""
        spec = layer.spec
        widths = {tuple(part.widths.values()) for part in spec.parts}
        if len(widths) > 1 or spec.dtype != layer.computed_in or spec.residual or spec.merge != "concat":
            return None
        if input.dim() not in (2, 3) or input.shape[-1] != spec.input_size or 0 in input.shape:
            return None
        transposed = spec.batch_first and input.dim() == 3
        shape = input.shape[1::-1] if transposed else input.shape[:-1]
        N, parts, (widths_of_states,) = shape[1] if len(shape) > 1 else 1, len(spec.parts), widths
        final = [(parts, *shape[1:], width) for width in widths_of_states]
        if states and [tuple(v.shape) for v in states] != final:
            return None
        layers = [passes for each in layer.packed if (passes := each.passes(shape[0], N)) is not None]
        if len(layers) < len(layer.packed):
            return None
        by_state = zip(*layer.default_states(N), strict=True)
        default_states = tuple([torch.stack(v).view(shaped) for v, shaped in zip(by_state, final, strict=True)])
        return _PreparedCall(layers, (*shape, widths_of_states[0]), final, default_states, transposed)

    def __call__(self, input: Tensor, hx: Any) -> tuple[Tensor, Any]:
        x = input.transpose(0, 1) if self._transposed else input
        x = x if x.is_contiguous() else x.contiguous()
        initial_at = self._default_states_at
        if hx is not None:
            states = [v if v.is_contiguous() else v.contiguous() for v in (hx if type(hx) is tuple else (hx,))]
            initial_at = [v.data_ptr() for v in states]
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
        return x.transpose(0, 1) if self._transposed else x, tuple(final) if len(final) > 1 else final[0]


_NOT_PREPARED: Any = object()
"""Marks a signature that has not occurred yet."""


def freeze_layer(
    layer: BaseLayer, precision: str | None = None, keep: Callable[[str], bool] = lambda name: False
) -> FrozenLayer:
    """A copy of a layer, in eval mode, whose weights no longer change.

    Args:
        layer: the layer, in training or eval mode.
        precision: one of `engines.frozen.PRECISIONS`. The default is the dtype of the layer.
        keep: takes the name of a parameter, and returns whether its matrix stays in float32 if the precision is int8.

    Raises:
        ValueError: the layer is being edited.
        EngineError: the processor or the cell does not support the precision.
    """
    internals = layer.glassgate
    if internals.edits is not None:
        raise ValueError(
            f"{internals.class_name}: streams and sessions do not support edits; leave the `with gg.edit(...)` block "
            "first"
        )
    originals = checked_weights(layer)
    layer_dtype = originals[0]["weight_ih"].dtype
    if precision is None:
        dtype = COMPUTE_DTYPE.get(layer_dtype, layer_dtype)
    else:
        dtype = torch.float64 if precision == "float64" else torch.float32
    spec = Spec.of(layer, layer_dtype)
    learned: list[list[Tensor]] = [[] for _ in internals.parts]
    if layer.learn_initial_state:
        initial = default_states(layer, originals[0]["weight_ih"], 1)
        learned = [[_copied(v[0], dtype) for v in states] for states in initial]
    weights = [{name: _copied(v, dtype) for name, v in weights.items()} for weights in originals]
    scales: list[Weights] = []
    if precision == "int8":
        quantised_parts = [
            quantise_matrices(of_part, lambda name, part=part: keep(part.names[name]))  # type: ignore[misc]
            for of_part, part in zip(weights, internals.parts, strict=True)
        ]
        weights, scales = [integers for integers, _ in quantised_parts], [of_part for _, of_part in quantised_parts]
    cell, projected = internals.eval_cell, bool(layer.proj_size)
    cell = deepcopy(cell) if why_not_traceable(cell, projected) else GraphCell(current_equations(cell, projected))
    return FrozenLayer(spec, cell, weights, learned, precision or str(dtype).removeprefix("torch."), scales)


def _copied(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A contiguous copy."""
    return tensor.detach().to(dtype, copy=True, memory_format=torch.contiguous_format)
