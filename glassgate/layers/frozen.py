"""`FrozenLayer`: a layer with fixed weights in eval mode, for streams and inference sessions.

Its weights are packed: copied into blocks in the order in which kernels read them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from glassgate.cell import Cell, Weights
from glassgate.engines.backend import Signature
from glassgate.engines.contract import Direction, Recording, Result, Steps, is_eager
from glassgate.engines.fixed_weights import FrozenDirections, Stepper
from glassgate.engines.frozen import LOOP_MATRICES, MATRICES, freeze, quantise_matrices
from glassgate.engines.memory import COMPUTE_DTYPE
from glassgate.engines.symbolic.arrays.cell import ArrayCell
from glassgate.engines.symbolic.graph_cell import GraphCell
from glassgate.engines.traced_cells import current_equations, traced_array_step, why_not_traceable
from glassgate.layers import states
from glassgate.layers.address_call import AddressCall
from glassgate.layers.arguments import checked_weights, default_states
from glassgate.layers.base import MAX_SIGNATURES, BaseLayer
from glassgate.layers.call import Call, CallOptions, LevelCall
from glassgate.layers.levels import Level, by_level, walk
from glassgate.layers.parts import sizes_of
from glassgate.layers.prepared_calls import can_prepare, prepare_call
from glassgate.layers.signature import Arguments, read_arguments
from glassgate.layers.spec import OPTIONS, Spec
from glassgate.layers.states import State, States
from glassgate.layers.stream import Stream
from glassgate.layout import Layout, arrange
from glassgate.shapes import check_like, check_parameters, check_shape

STRUCTURE = (*(option for option in OPTIONS if option != "hidden_size"), "num_directions", "output_size")
"""The attributes that a frozen layer has in common with `Recurrent`, besides `hidden_size`."""


class FrozenLayer(nn.Module):
    """A copy of a layer with packed weights. Call it like a `Recurrent`. Several threads may call it at once.

    Args:
        spec: the structure of the layer.
        cell: the equations of the layer.
        weights: for each part (direction of a layer), weights in `compute_dtype` or int8. They must not change later.
        learned: the learned initial states of each part, (width,) each; empty if the layer has none.
        precision: one of `engines.frozen.PRECISIONS`.
        scales: for each part, the scales of its int8 matrices by name.

    Attributes:
        compute_dtype: the dtype of the computation.
        packed: the layers of the stack, with packed weights.
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
        self.compute_dtype = torch.float32 if precision == "int8" else weights[0]["weight_ih"].dtype
        directions = [
            Direction(cell, part_weights, initial, part.direction == 1)
            for part, part_weights, initial in zip(spec.parts, weights, self.default_states(1), strict=True)
        ]
        pairs = list(zip(directions, self.scales, strict=True))
        self.packed: list[FrozenDirections] = [
            freeze([direction for direction, _ in own], precision, [scales for _, scales in own])
            for _, own in by_level(spec.levels, pairs)
        ]
        self._flat_weights = tuple([v for part_weights in weights for v in part_weights.values()])
        self._prepared: dict[Any, Call | _ConvertedCall | None] = {}
        """The prepared calls by signature; None for a signature that takes the general path."""
        self.training = False

    def __getattr__(self, name: str) -> Any:
        # Models read attributes of their layers, such as `num_directions`.
        if name in STRUCTURE:
            return getattr(self.spec, name)
        return super().__getattr__(name)

    @property
    def hidden_size(self) -> int | Sequence[tuple[int, ...]]:
        """The hidden size. If sizes differ, a tuple for each layer, with one size per direction."""
        sizes = {size for layer_sizes in self.spec.hidden_size for size in layer_sizes}
        return sizes.pop() if len(sizes) == 1 else self.spec.hidden_size

    def extra_repr(self) -> str:
        """Return the class of the original layer and the precision, for the repr."""
        return f"{self.spec.name}, precision={self.precision!r}"

    def train(self, mode: bool = True) -> "FrozenLayer":
        """Do nothing: the layer is always in eval mode."""
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
        """Run whole sequences, with the arguments and results of `Recurrent.forward`.

        Args:
            recordings: one per part, to be filled with the gates.
        """
        arguments = None if recordings else read_arguments(input, hx, lengths, resets, restart, self.spec.batch_first)
        if arguments is None:
            return self._run_general(input, hx, lengths, resets, restart, return_states, recordings)
        data, given_states, restart_states, mask, read_lengths, key = arguments
        if not is_eager() and data.is_cpu:
            raise RuntimeError(
                f"{self.spec.name}: a session cannot be traced, compiled or transformed; use the module that it was "
                "made from"
            )
        key = key, return_states
        call = self._prepared.get(key)
        if isinstance(call, AddressCall):
            return call.run(None, data, (), given_states, restart_states, mask, None)
        if call is not None:
            with torch.no_grad():
                results = call.run(None, data, (), given_states, restart_states, mask, read_lengths)
            return results if data is input else (PackedSequence(results[0], *input[1:]), results[1])
        results = self._run_general(input, hx, lengths, resets, restart, return_states, None)
        if key not in self._prepared:
            if len(self._prepared) >= MAX_SIGNATURES:
                self._prepared.clear()
            self._prepared[key] = self._prepare(Arguments(input, hx, restart, *arguments), return_states)
        return results

    @torch.no_grad()
    def _run_general(
        self,
        input: Tensor | PackedSequence,
        hx: State | None,
        lengths: Tensor | Sequence[int] | None,
        resets: Tensor | None,
        restart: State | None,
        return_states: bool,
        recordings: Sequence[Recording] | None,
    ) -> Any:
        """Run a call that is not prepared."""
        spec = self.spec
        steps, layout = arrange(spec.name, input, spec.input_size, spec.batch_first, lengths, resets)
        check_like(spec.name, "input", steps.data, spec.dtype, self._device, "the layer")
        initial = self.default_states(layout.rows) if hx is None else self._checked_states(hx, steps.data, layout, "hx")
        states.check_restart(spec.name, restart, resets)
        restart_states = None if restart is None else self._checked_states(restart, steps.data, layout, "restart")
        steps = steps._replace(data=steps.data.to(self.compute_dtype))
        outputs, results = self._run(steps, initial, restart_states, return_states, recordings)
        outputs = [v.to(spec.dtype) for v in outputs]
        results = [Result(*[tuple([v.to(spec.dtype) for v in part]) for part in result]) for result in results]
        return states.user_results(spec.parts, outputs, results, layout, return_states)

    def _run(
        self,
        steps: Steps,
        initial: States,
        restart: States | None,
        all_states: bool,
        recordings: Sequence[Recording] | None,
    ) -> tuple[list[Tensor], list[Result]]:
        """Run all layers. Return the outputs of the last layer, and the result of each direction of each layer."""
        results: list[Result] = []

        def run_level(level: Level, inputs: list[Tensor]) -> list[Tensor]:
            own = slice(level.start, level.start + len(level.parts))
            inputs = inputs * len(level.parts) if len(inputs) == 1 else inputs
            own_steps = [steps._replace(data=v) for v in inputs]
            rest = restart and restart[own], all_states, recordings and recordings[own]
            new = self.packed[level.depth].run(own_steps, initial[own], *rest)
            results.extend(new)
            return [result.states[0] for result in new]

        return walk(self.spec.levels, steps.data, run_level), results

    def __deepcopy__(self, memo: dict[int, Any]) -> "FrozenLayer":
        """Return the layer itself, because it never changes."""
        return self

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors of the layer by name, as `from_tensors` expects them."""
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
        """Create a layer from its tensors.

        Args:
            spec, cell, precision: as in the constructor.
            tensors: the tensors by name, as `tensors` returns them.

        Raises:
            KeyError: a tensor is missing.
            ShapeError: a tensor has the wrong shape, dtype or device.
        """
        weights, learned, all_scales = [], [], []
        dtype, device = torch.float64 if precision == "float64" else torch.float32, torch.device("cpu")
        for part in spec.parts:
            part_weights = {name: tensors[full_name] for name, full_name in part.names.items()}
            int8_names = {name for name, v in part_weights.items() if v.dtype is torch.int8 and precision == "int8"}
            scales = {name: tensors[f"{part.names[name]}.scale"] for name in int8_names & {*MATRICES}}
            for name, v in part_weights.items():
                letters = "(rows, columns)" if len(part.shapes[name]) > 1 else "(rows,)"
                check_shape(spec.name, part.names[name], v, letters, part.shapes[name])
                if name not in scales:
                    check_like(spec.name, part.names[name], v, dtype, device, "the session")
            for name, v in scales.items():
                check_shape(spec.name, f"{part.names[name]}.scale", v, "(rows,)", part.shapes[name][:1])
                check_like(spec.name, f"{part.names[name]}.scale", v, dtype, device, "the session")
            state_shapes = {f"{state}_0{part.suffix}": (width,) for state, width in part.widths.items()}
            initial = {name: tensors[name] for name in state_shapes if name in tensors}
            if initial:
                check_parameters(spec.name, initial, state_shapes, dtype, device, part.suffix)
            weights.append(part_weights)
            learned.append(list(initial.values()))
            all_scales.append(scales)
        return FrozenLayer(spec, cell, weights, learned, precision, all_scales)

    def stream(self, batch_size: int = 1) -> Stream:
        """Return a stream, which runs the layer one step or one block of steps at a time; see `Stream`.

        Args:
            batch_size: the number of sequences.

        Raises:
            ValueError: the layer is bidirectional.
        """
        return Stream(lambda: self, batch_size)

    def default_states(self, rows: int) -> States:
        """Return the initial states of each part for a call without `hx`: declared or learned ones.

        Args:
            rows: the number of sequences.
        """
        initial = []
        for part, learned in zip(self.spec.parts, self.learned, strict=True):
            vectors = learned or [
                torch.full((prod(form.shape),), form.start, dtype=self.compute_dtype, device=self._device)
                for form in part.forms.values()
            ]
            initial.append(tuple([v.expand(rows, -1) for v in vectors]))
        return initial

    def stepper(self, batch_size: int) -> tuple[Stepper, States]:
        """Return a pair: a `Stepper`, which advances the layer by one step, and the initial states."""
        initial = [tuple([v.contiguous() for v in part]) for part in self.default_states(batch_size)]
        copies = [tuple([v.clone() for v in part]) for part in initial]
        residual = [any(level.residual) for level in self.spec.levels]
        return self.packed[0].stepper(self.packed, copies, residual), initial

    def _checked_states(self, hx: State, data: Tensor, layout: Layout, argument: str) -> States:
        """Check the states of a call and convert them to the dtype of the computation."""
        checked = states.from_hx(self.spec.name, self.spec.parts, hx, data, layout, argument)
        return [tuple([v.to(self.compute_dtype) for v in part]) for part in checked]

    def _prepare(self, arguments: Arguments, return_states: bool) -> "Call | _ConvertedCall | None":
        """Prepare the calls like one that has run; None if they must take the general path."""
        spec = self.spec
        if not (arguments.are_readable(spec.dtype) and can_prepare(spec.levels, arguments, return_states)):
            return None
        _, layout = arrange(spec.name, arguments.input, spec.input_size, spec.batch_first)
        has_restart = bool(arguments.restart_states)

        def prepare_levels(signature: Signature) -> Iterator[LevelCall | None]:
            for level, directions in zip(spec.levels, self.packed, strict=True):
                calls = directions.prepare(layout.length, layout.rows, signature, has_restart)
                yield None if calls is None else LevelCall(level, None, calls)

        initial, options = self.default_states(layout.rows), CallOptions(layout, returns_states=return_states)
        call = prepare_call(spec.levels, arguments, initial, options, prepare_levels, self._flat_weights)
        if call is None or spec.dtype == self.compute_dtype:
            return call
        return _ConvertedCall(call, self.compute_dtype, spec.dtype)

    @property
    def _device(self) -> torch.device:
        return self.weights[0]["weight_ih"].device


class _ConvertedCall(NamedTuple):
    """Prepared calls of a layer whose tensors have another dtype than the computation."""

    call: Call
    compute_dtype: torch.dtype
    dtype: torch.dtype
    """The dtype of input, output and states."""

    def run(
        self,
        layer: None,
        input: Tensor,
        weights: tuple[Tensor, ...],
        states: tuple[Tensor, ...],
        restart_states: tuple[Tensor, ...],
        *others: Any,
    ) -> tuple[Any, ...]:
        """See `Call.run`."""
        states, restart_states = (tuple([v.to(self.compute_dtype) for v in own]) for own in (states, restart_states))
        input = input.to(self.compute_dtype)
        output, hx, *rest = self.call.run(layer, input, weights, states, restart_states, *others)
        final = tuple([v.to(self.dtype) for v in hx]) if isinstance(hx, tuple) else hx.to(self.dtype)
        by_name = [{name: v.to(self.dtype) for name, v in own.items()} for own in rest]
        return output.to(self.dtype), final, *by_name


def freeze_layer(
    layer: BaseLayer, precision: str | None = None, keep: Callable[[str], bool] = lambda name: False
) -> FrozenLayer:
    """Copy and pack the weights of a layer.

    Args:
        layer: the layer, in training or eval mode.
        precision: one of `engines.frozen.PRECISIONS`. The default is the dtype of the layer, or float32 if that is
            float16 or bfloat16.
        keep: for int8, takes the name of a parameter and returns whether it stays in float32.

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
        learned = [[_copy(v[0], dtype) for v in part_states] for part_states in initial]
    weights = [{name: _copy(v, dtype) for name, v in weights.items()} for weights in originals]
    scales: list[Weights] = []
    cell, is_projected = internals.eval_cell, bool(layer.proj_size)
    if precision == "int8":
        # The loop over time of a cell that declares axes multiplies in float32.
        in_loop = set() if cell.declaration is None else LOOP_MATRICES
        quantised_parts = [
            quantise_matrices(part_weights, lambda name, part=part: name in in_loop or keep(part.names[name]))  # type: ignore[misc]
            for part_weights, part in zip(weights, internals.parts, strict=True)
        ]
        weights, scales = [integers for integers, _ in quantised_parts], [scales for _, scales in quantised_parts]
    if cell.declaration is not None:
        steps = {sizes: traced_array_step(cell, *sizes) for part in internals.parts for sizes in [sizes_of(cell, part)]}
        traced = {sizes: step for sizes, step in steps.items() if not isinstance(step, str)}
        cell = ArrayCell.like(cell, traced) if len(traced) == len(steps) else deepcopy(cell)
    elif why_not_traceable(cell, is_projected):
        cell = deepcopy(cell)
    else:
        cell = GraphCell(current_equations(cell, is_projected))
    return FrozenLayer(spec, cell, weights, learned, precision or str(dtype).removeprefix("torch."), scales)


def _copy(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a contiguous copy."""
    return tensor.detach().to(dtype, copy=True, memory_format=torch.contiguous_format)
