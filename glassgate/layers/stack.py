"""The layer of any cell: it combines depth, directions, merging and initial states, and calls the engines."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.autograd import profiler
from torch.nn.utils.rnn import PackedSequence

from glassgate import init as schemes
from glassgate.cell import Cell, check_cell
from glassgate.display import Drawable
from glassgate.engines import choose
from glassgate.engines.contract import Direction, Recording, Result, Steps
from glassgate.layers import one_row, opacus_rule, segments, states
from glassgate.layers.base import BaseLayer, Internals
from glassgate.layers.calls import arrange_call, directions_by_layer
from glassgate.layers.frozen import freeze_layer
from glassgate.layers.merge import merge
from glassgate.layers.observed import Observed, graph_leaf
from glassgate.layers.parts import HiddenSizes, check_sizes, output_size, parts_of, sizes_by_layer
from glassgate.layers.regularisers import between_layers, regularised, with_noise, without_noise
from glassgate.layers.repeated import PreparedCalls
from glassgate.layers.states import State, States
from glassgate.layers.stream import Stream
from glassgate.layers.symbolic_call import symbolic_call
from glassgate.layout import Layout
from glassgate.shapes import check_choice, check_flag, check_rate, check_size
from glassgate.user_warning import warn_user

_FLAGS = (
    "bias", "batch_first", "bidirectional", "residual", "variational_dropout", "learn_initial_state", "recompute",
)  # fmt: skip


class Recurrent(Drawable, BaseLayer):
    """A recurrent layer, or a stack of layers, that runs any cell over sequences, in one or two directions.

    Args:
        cell: the equations of a step.
        input_size: features of the input, H_in.
        hidden_size: units, H_cell; `(forward, backward)` for a size per direction; a list for one entry per layer.
        num_layers: the number of layers.
        bias: whether there are `bias_ih` and `bias_hh`.
        batch_first: whether input and output are (N, L, H) instead of (L, N, H).
        dropout: probability of zeroing an output between two layers, while training.
        bidirectional: whether there is a second direction, which runs from the last step to the first.
        proj_size: width of the projection `W_hr h` of every output; 0 for none.
        device, dtype: the device and dtype of the parameters.
        merge: how the outputs of two directions are combined: "concat", "sum", "mean" or "none". With "none", each
            direction reads the output of the same direction in the layer below, and the output of the layer is the
            pair (forward, backward).
        residual: whether the input of a layer, except the first, is added to its output if their widths are equal.
        zoneout: probability that a unit keeps its old value at a step: one for all states, a tuple with one per state,
            or a dict by state.
        recurrent_dropout: rate of dropout inside the recurrence, while training.
        recurrent_dropout_on: "update" drops entries of the update, with a new mask at each step; "state" drops entries
            of h before its matrix product, with one mask per sequence.
        weight_dropout: rate of dropping entries of `weight_hh` while training, with one mask per call (Merity et al.
            2017, arXiv:1708.02182); the parameter itself does not change. The cell must have recurrent weights.
        variational_dropout: whether `dropout` uses one mask for all steps of a sequence.
        learn_initial_state: whether the initial states are parameters, initialised to zero; they are used if
            `hx` is not given.
        recompute: whether training stores only the states of about every sqrt(L)-th step, and computes the others again
            in the backward pass. It takes less memory and a second forward pass, and gives the same gradients.
        init: a scheme of `gg.init`, or several, applied in order after torch's uniform initialisation.

    Shapes, with D = 2 if bidirectional else 1 and H_out = proj_size or hidden_size:
        input: (L, N, H_in), (N, L, H_in) if batch_first, (L, H_in) unbatched, or a PackedSequence.
        hx: (num_layers * D, N, H_out). For a cell with several states, a tuple: the first state as above, the others
            (num_layers * D, N, H_cell). If hidden sizes differ between layers or directions, each tensor becomes a
            tuple of num_layers * D tensors (N, H).
        output: like the input, with D * H_out features for "concat". Zero at padded positions.
        h_n: like hx; the states after the last step of each sequence.
    """

    def __init__(
        self,
        cell: Cell,
        input_size: int,
        hidden_size: HiddenSizes,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        merge: str = "concat",
        residual: bool = False,
        zoneout: float | tuple[float, ...] | Mapping[str, float] = 0.0,
        recurrent_dropout: float = 0.0,
        recurrent_dropout_on: str = "update",
        weight_dropout: float = 0.0,
        variational_dropout: bool = False,
        learn_initial_state: bool = False,
        recompute: bool = False,
        init: Callable[[nn.Module], None] | Sequence[Callable[[nn.Module], None]] = (),
    ) -> None:
        super().__init__()
        name = type(self).__name__
        check_cell(name, cell)
        check_size(name, "input_size", input_size)
        check_size(name, "num_layers", num_layers)
        check_rate(name, "dropout", dropout)
        if isinstance(bidirectional, int):
            bidirectional = bool(bidirectional)  # `torch.nn` accepts 0 and 1
        check_choice(name, "recurrent_dropout_on", recurrent_dropout_on, ("update", "state"))
        check_choice(name, "merge", merge, ("concat", "sum", "mean", "none"))
        cell = cell.projected() if proj_size else cell
        self.cell, self.input_size, self.hidden_size, self.num_layers = cell, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        self.proj_size, self.merge, self.residual = proj_size, merge, residual
        self.zoneout, self.weight_dropout, self.variational_dropout = zoneout, weight_dropout, variational_dropout
        self.recurrent_dropout, self.recurrent_dropout_on = recurrent_dropout, recurrent_dropout_on
        self.learn_initial_state, self.recompute, self.init = learn_initial_state, recompute, init
        self.num_directions = 2 if bidirectional else 1
        for flag in _FLAGS:
            check_flag(name, flag, getattr(self, flag))
        training_cell = regularised(name, cell, zoneout, recurrent_dropout, recurrent_dropout_on, weight_dropout)
        hidden_sizes = sizes_by_layer(name, hidden_size, num_layers, self.num_directions)
        check_sizes(name, cell, hidden_sizes, proj_size, merge, bidirectional)
        for reason in _unused_options(self):
            warn_user(f"{name}: {reason}")
        parts = tuple(parts_of(cell, input_size, hidden_sizes, proj_size, bias, merge))
        self.output_size = output_size(parts, merge)
        cells = training_cell, without_noise(training_cell)
        self.glassgate = Internals(name, self._default_cell, *cells, hidden_sizes, parts, PreparedCalls())
        shapes = {part.names[weight]: shape for part in parts for weight, shape in part.shapes.items()}
        for parameter, shape in (shapes | _initial_state_shapes(self)).items():
            self.register_parameter(parameter, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self.reset_parameters()
        opacus_rule.register(type(self))

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _RESERVED and isinstance(value, nn.Module):
            layer, module = type(self).__name__, type(value).__name__
            raise TypeError(f"{layer}: `{name}` is an attribute of {layer}; give this {module} another name")
        super().__setattr__(name, value)
        if name in _DEFAULTS and "glassgate" in self.__dict__:
            self.glassgate.prepared_calls.forget()

    def reset_parameters(self) -> None:
        """Initialises all parameters again."""
        schemes.initialise(self, self.init)
        with torch.no_grad():
            for name in _initial_state_shapes(self):
                getattr(self, name).zero_()

    __prepare_scriptable__ = choose.refuse_scripting

    def flatten_parameters(self) -> None:
        """Does nothing: parameters need no contiguous block of memory. It exists for code written for `torch.nn`."""

    def extra_repr(self) -> str:
        """The arguments that differ from their defaults."""
        sizes = f"{self.input_size}, {self.hidden_size}"
        default_cell = self.glassgate.default_cell
        parts = [sizes, self.cell.repr_in_layer(default_cell)] if default_cell else [repr(self.cell), sizes]
        return ", ".join([part for part in parts if part] + [f"{k}={v!r}" for k, v in changed_options(self).items()])

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: State | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        resets: Tensor | None = None,
        restart: State | None = None,
        return_states: bool = False,
    ) -> Any:
        """Runs whole sequences.

        Args:
            input: (L, N, H_in), or another of the shapes in the description of the class.
            hx: the initial states. The default is zero, or the learned initial states.
            lengths: the number of steps of each sequence: (N,) integers from 0 to L, on any device.
            resets: a mask with the shape of the input without features, (L, N). Where it is true, the state of that
                sequence is set to its initial state before that step is computed, in both directions.
            restart: the states after a reset, if they are not the initial states; shapes as for hx. For example, hx
                continues an episode, and a reset begins the next episode with zeros.
            return_states: whether to also return every state at every step.

        Returns:
            The output and the final states, with the shapes in the description of the class. With return_states also
            a dict with keys like "layer0.forward.c" and values (L, N, H), batch-first or packed like the output.

        Raises:
            ShapeError: a shape does not match. It is both a RuntimeError and a ValueError, because `torch.nn` raises
                one or the other.
            TypeError: an argument has the wrong type.
        """
        results = self.glassgate.prepared_calls.run(self, input, hx, resets, restart, lengths, return_states)
        if results is not None:
            return results
        if isinstance(input, fx.Proxy):
            options = {"lengths": lengths, "resets": resets, "restart": restart, "return_states": return_states}
            return symbolic_call(self, (input, hx), options)
        run = partial(_run_general, self)
        if not torch.compiler.is_compiling() and profiler._is_profiler_enabled:
            run = profiler.record_function(self.profile_row)(run)
        return run(input, hx, lengths, resets, restart, return_states)

    def stream(self, batch_size: int = 1) -> Stream:
        """A stream, which runs a step or a block of steps at a time. Steps build no graph and allocate no memory.

        Args:
            batch_size: the number of sequences.

        Raises:
            ValueError: the layer is bidirectional.
        """
        return freeze_layer(self).stream(batch_size)


LayerCall = Observed[Recurrent]
"""A call of a layer, as recordings see it."""


def changed_options(layer: Recurrent) -> dict[str, Any]:
    """The options of a layer that differ from their defaults, except device, dtype and init."""
    others = ("self", "cell", "input_size", "hidden_size", "device", "dtype", "init")
    options = {name: default for name, default in _DEFAULTS.items() if name not in others}
    return {name: value for name, default in options.items() if (value := getattr(layer, name)) != default}


_DEFAULTS = {name: parameter.default for name, parameter in inspect.signature(Recurrent.__init__).parameters.items()}
"""The arguments of `Recurrent` and their defaults. Prepared calls depend on them."""

_RESERVED = {*_DEFAULTS, "num_directions", "output_size", "glassgate"}
"""Attributes that a subclass must not replace by a module, because the layer reads them in each call."""


def _unused_options(layer: Recurrent) -> Iterator[str]:
    """Yield the reason for each option that has no effect because of another option."""
    if layer.dropout and layer.num_layers == 1:
        yield f"dropout acts between layers, so dropout={layer.dropout} does nothing with num_layers=1"
    if layer.residual and layer.num_layers == 1:
        yield "the first layer has no residual connection, so residual=True does nothing with num_layers=1"
    if layer.merge != "concat" and not layer.bidirectional:
        yield f"merge combines two directions, so merge={layer.merge!r} does nothing with bidirectional=False"
    if layer.variational_dropout and not layer.dropout:
        yield "variational_dropout keeps the mask of dropout for a sequence, so it does nothing with dropout=0.0"
    if layer.recurrent_dropout_on != "update" and not layer.recurrent_dropout:
        on = f"recurrent_dropout_on={layer.recurrent_dropout_on!r}"
        yield f"{on} does nothing with recurrent_dropout=0.0, the default"


def _initial_state_shapes(layer: Recurrent) -> dict[str, tuple[int]]:
    """The shapes of the learned initial states by the names of their parameters."""
    parts = layer.glassgate.parts if layer.learn_initial_state else ()
    return {f"{state}_0{part.suffix}": (width,) for part in parts for state, width in part.widths.items()}


def _run_general(
    layer: Recurrent,
    input: Tensor | PackedSequence,
    hx: State | None,
    lengths: Tensor | Sequence[int] | None,
    resets: Tensor | None,
    restart: State | None,
    return_states: bool,
) -> Any:
    """The results of a call for which `repeated.py` has no prepared kernels."""
    if resets is None and restart is None and lengths is None and not return_states:
        of_one_row = one_row.computed(layer, input, hx)
        if of_one_row is not None:
            return of_one_row
    steps, layout, initial, restart_states = arrange_call(layer, input, hx, lengths, resets, restart)
    recordings = [Recording() for _ in layer.glassgate.parts] if layer.glassgate.watchers else []
    if recordings and torch.is_grad_enabled():
        steps = steps._replace(data=graph_leaf(steps.data, recordings[: layer.num_directions]))
    outputs, results = _run_stack(layer, steps, layout, initial, restart_states, return_states, recordings)
    for watch in layer.glassgate.watchers:
        watch(Observed(layer, layout, steps, lambda: initial, results, recordings))
    return states.returned(layer.glassgate.parts, outputs, results, layout, return_states)


def _run_stack(
    layer: Recurrent,
    steps: Steps,
    layout: Layout,
    initial: States,
    restart_states: States | None = None,
    all_states: bool = False,
    recordings: Sequence[Recording] = (),
) -> tuple[list[Tensor], list[Result]]:
    """The outputs of the last layer, and the result of each layer and direction."""
    results: list[Result] = []
    D, rows, data = layer.num_directions, layout.rows, [steps.data]
    dropout, weight_dropout = (layer.dropout, layer.weight_dropout) if layer.training else (0.0, 0.0)
    for depth, directions in enumerate(directions_by_layer(layer, initial, restart_states)):
        at = slice(depth * D, depth * D + D)
        inputs = [between_layers(steps, v, rows, dropout, layer.variational_dropout) for v in data] if depth else data
        sizes = layer.glassgate.hidden_sizes[depth]
        directions = [with_noise(d, steps, size, weight_dropout) for d, size in zip(directions, sizes, strict=True)]
        if layer.glassgate.edits is not None:
            parts = zip(layer.glassgate.parts[at], directions, strict=True)
            directions = [layer.glassgate.edits.applied(part, direction, layout) for part, direction in parts]
        if len(inputs) == 1:
            results += _run_layer(layer, steps._replace(data=inputs[0]), directions, all_states, recordings[at])
        else:
            for k, (v, direction) in enumerate(zip(inputs, directions, strict=True)):
                own = recordings[at][k : k + 1]
                results += _run_layer(layer, steps._replace(data=v), [direction], all_states, own)
        data = merge(
            layer.merge, [result.states[0] for result in results[at]], data if layer.residual and depth else ()
        )
    return data, results


def _run_layer(
    layer: Recurrent, steps: Steps, directions: list[Direction], all_states: bool, recordings: Sequence[Recording]
) -> list[Result]:
    if layer.recompute and not recordings and torch.is_grad_enabled():
        return segments.run(steps, directions, all_states)
    return choose.run(steps, directions, all_states, recordings or None)
