"""`Recurrent`, the layer that runs any cell: it handles depth, directions and options, and calls the engines."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.autograd import profiler
from torch.nn.utils.rnn import PackedSequence

from glassgate import init as schemes
from glassgate.cell import Cell
from glassgate.cell_checks import check_memory
from glassgate.display import Drawable
from glassgate.engines import choose
from glassgate.engines.contract import Direction, Recording, Result, Steps
from glassgate.layers import opacus_rule, segments, states
from glassgate.layers.arguments import arrange_call, directions_of_call
from glassgate.layers.base import Internals
from glassgate.layers.frozen import freeze_layer
from glassgate.layers.levels import Level, walk
from glassgate.layers.observed import Observed, graph_leaf
from glassgate.layers.options import (
    DERIVED,
    STRUCTURAL,
    checked_option,
    restructure,
    structure_of,
    unused_option_warnings,
)
from glassgate.layers.parts import HiddenSizes
from glassgate.layers.prepared_calls import PreparedCalls
from glassgate.layers.regularisers import dropout_between_layers, with_noise
from glassgate.layers.states import State, States
from glassgate.layers.stream import Stream
from glassgate.layers.symbolic_call import symbolic_call
from glassgate.layers.torch_interface import (
    COMPUTED,
    REPLACEABLE,
    TorchInterface,
    replaced_methods,
    run_with_replaced_methods,
)
from glassgate.layout import Layout
from glassgate.user_warning import warn_user


class Recurrent(Drawable, TorchInterface):
    """A stack of recurrent layers that runs any cell over sequences, in one or two directions.

    Args:
        cell: the equations of a step.
        input_size: the number of features of the input, H_in.
        hidden_size: the number of units, H_cell. A pair `(forward, reverse)` has one size per direction. A list has one
            size or pair per layer.
        num_layers: the number of layers.
        bias: whether the layers have `bias_ih` and `bias_hh`.
        batch_first: whether input and output are (N, L, H) instead of (L, N, H).
        dropout: the rate of dropout on the output of each layer except the last, in training.
        bidirectional: whether each layer has a second direction, which runs from the last step to the first.
        proj_size: the width of the projection `W_hr h` of every output; 0 for no projection.
        device, dtype: the device and dtype of the parameters.
        merge: how the outputs of the two directions are combined: "concat", "sum", "mean" or "none". With "none", each
            direction reads the output of the same direction in the layer below, and the output of the stack is the pair
            (forward, reverse).
        residual: whether each layer except the first adds the output of the layer below to its own output, if the two
            have the same width.
        zoneout: the probability that a unit keeps its old value at a step in training, and the weight of the old value
            in eval mode. One number for all states, a tuple with one per state, or a dict by the name of the state.
        recurrent_dropout: the rate of dropout inside the recurrence, in training.
        recurrent_dropout_on: "update" drops entries of the update of the state, with a new mask at each step. "state"
            drops entries of h before its matrix product, with one mask per sequence.
        weight_dropout: the rate of dropout on the entries of `weight_hh`, in training, with one mask per call (Merity
            et al. 2017, arXiv:1708.02182). The parameter itself does not change. The cell must have recurrent weights.
        variational_dropout: whether `dropout` uses one mask for all steps of a sequence.
        learn_initial_state: whether the initial states are parameters, which start at zero. Calls without `hx` use
            them.
        recompute: whether training stores the states of only about every sqrt(L)-th step. The backward pass computes
            the others again. This takes less memory and one more forward pass, and gives the same gradients.
        init: one scheme of `gg.init`, or several. They are applied in order, after torch's uniform initialisation.

    Shapes, with D = 2 if bidirectional else 1 and H_out = proj_size or hidden_size:
        input: (L, N, H_in), (N, L, H_in) if batch_first, (L, H_in) unbatched, or a PackedSequence.
        hx: (num_layers * D, N, H_out). For a cell with several states, a tuple: the first state as above, the others
            (num_layers * D, N, H_cell). If hidden sizes differ between layers or directions, each tensor is replaced by
            a tuple of num_layers * D tensors (N, H). For unbatched input, these shapes have no N.
        output: like the input, with D * H_out features for "concat" and H_out otherwise. Zero at padded positions.
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
        self.proj_size, self.merge, self.residual = proj_size, merge, residual
        self.cell, self.input_size, self.hidden_size, self.num_layers = cell, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, dropout, bidirectional
        self.zoneout, self.weight_dropout, self.variational_dropout = zoneout, weight_dropout, variational_dropout
        self.recurrent_dropout, self.recurrent_dropout_on = recurrent_dropout, recurrent_dropout_on
        self.learn_initial_state, self.recompute, self.init = learn_initial_state, recompute, init
        structure = structure_of(self)
        for warning in unused_option_warnings(self):
            warn_user(f"{name}: {warning}")
        self.output_size = structure.levels[-1].widths[0]
        methods = replaced_methods(type(self))
        self.glassgate = Internals(name, self._default_cell, structure, methods, PreparedCalls())
        check_memory(name, cell, structure.parameter_shapes, device, dtype)
        for parameter, shape in structure.parameter_shapes.items():
            self.register_parameter(parameter, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self.reset_parameters()
        opacus_rule.register(type(self))

    def __setattr__(self, name: str, value: Any) -> None:
        layer = type(self).__name__
        if name in _RESERVED and isinstance(value, nn.Module):
            raise TypeError(
                f"{layer}: `{name}` is an attribute of {layer}; give this {type(value).__name__} another name"
            )
        if name in COMPUTED:
            raise AttributeError(f"{layer}: {name} is computed from the parameters of the layer; replace a parameter")
        is_complete = "glassgate" in self.__dict__
        if name in DERIVED and isinstance(getattr(type(self), name, None), property):
            if is_complete and value != getattr(self, name):
                raise AttributeError(f"{layer}: {name} is {getattr(self, name)!r}; for {value!r}, {DERIVED[name]}")
            return
        value = checked_option(self, name, value) if name in _DEFAULTS else value
        previous: Any = getattr(self, name, None) if is_complete else None
        super().__setattr__(name, value)
        if not is_complete:
            return
        if name in STRUCTURAL:
            try:
                restructure(self, name, previous)
            except (AttributeError, TypeError, ValueError):
                super().__setattr__(name, previous)
                raise
        elif name in _DEFAULTS:
            self.glassgate.prepared_calls.forget()
        elif name in REPLACEABLE:
            self.glassgate.replaced_methods |= {name}

    def reset_parameters(self) -> None:
        """Initialise all parameters again."""
        schemes.initialise(self, self.init)
        with torch.no_grad():
            for part in self.glassgate.parts if self.learn_initial_state else ():
                for name, form in part.forms.items():
                    getattr(self, f"{name}_0{part.suffix}").fill_(form.start)

    __prepare_scriptable__ = choose.refuse_scripting

    def extra_repr(self) -> str:
        """Return the arguments that differ from their defaults, for the repr of the layer."""
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
        """Run the layer over whole sequences.

        Args:
            input: the sequences, in one of the shapes in the docstring of the class.
            hx: the initial states. The default is zero, or the learned initial states.
            lengths: the number of steps of each sequence: (N,) integers from 0 to L, on any device.
            resets: a mask with the shape of the input without features, (L, N). Where it is true, the states of the
                sequence are set to its initial states before the step is computed, in both directions.
            restart: the states after a reset, with the shapes of hx. The default is the initial states. Pass zeros if
                hx continues an episode of an earlier call and each reset begins a new episode.
            return_states: whether to also return every state at every step.

        Returns:
            The output and the final states, in the shapes in the docstring of the class. With return_states also a dict
            with keys such as "layer0.forward.c" and values (L, N, H), batch-first or packed like the output.

        Raises:
            ShapeError: a shape does not match. It is a RuntimeError, a ValueError and an IndexError, because `torch.nn`
                raises one or another.
            TypeError: an argument has the wrong type.
        """
        internals = self.glassgate
        if internals.replaced_methods:
            options = lengths, resets, restart, return_states
            return run_with_replaced_methods(self, lambda input, hx: _run(self, input, hx, *options), input, hx)
        results = internals.prepared_calls.run(self, input, hx, lengths, resets, restart, return_states)
        return _run_unprepared(self, input, hx, lengths, resets, restart, return_states) if results is None else results

    def stream(self, batch_size: int = 1) -> Stream:
        """Return a stream, which runs the layer one step or one block of steps at a time; see `Stream`.

        The stream copies the weights. Its steps build no autograd graph and allocate no memory.

        Args:
            batch_size: the number of sequences.

        Raises:
            ValueError: the layer is bidirectional.
        """
        return Stream(partial(freeze_layer, self), batch_size)


LayerCall = Observed[Recurrent]
"""A call of a `Recurrent`, for recordings."""


def changed_options(layer: Recurrent) -> dict[str, Any]:
    """Return the options of a layer that differ from their defaults, except device, dtype and init."""
    excluded = ("self", "cell", "input_size", "hidden_size", "device", "dtype", "init")
    options = {name: default for name, default in _DEFAULTS.items() if name not in excluded}
    return {name: value for name, default in options.items() if (value := getattr(layer, name)) != default}


_DEFAULTS = {name: parameter.default for name, parameter in inspect.signature(Recurrent.__init__).parameters.items()}
"""The arguments of `Recurrent` and their defaults. Setting one of these attributes empties `PreparedCalls`."""

_RESERVED = {*_DEFAULTS, "num_directions", "output_size", "glassgate"}
"""Attributes that a subclass must not replace by a module, because the layer reads them in each call."""


def _run(layer: Recurrent, *arguments: Any) -> Any:
    """Run a call after the replaced methods of the layer. The arguments are those of `Recurrent.forward`."""
    results = layer.glassgate.prepared_calls.run(layer, *arguments)
    return _run_unprepared(layer, *arguments) if results is None else results


def _run_unprepared(layer: Recurrent, input: Any, hx: Any, *options: Any) -> Any:
    """Run a call for which `prepared_calls.py` has no prepared call."""
    if isinstance(input, fx.Proxy):
        names = "lengths", "resets", "restart", "return_states"
        return symbolic_call(layer, (input, hx), dict(zip(names, options, strict=True)))
    run = partial(_run_general, layer)
    if not torch.compiler.is_compiling() and profiler._is_profiler_enabled:
        run = profiler.record_function(layer.profile_row)(run)
    return run(input, hx, *options)


def _run_general(
    layer: Recurrent,
    input: Tensor | PackedSequence,
    hx: State | None,
    lengths: Tensor | Sequence[int] | None,
    resets: Tensor | None,
    restart: State | None,
    return_states: bool,
) -> Any:
    """Run a call on the general path, which checks its arguments and chooses an engine."""
    opacus_rule.check_call(layer, lengths, resets, restart, return_states)
    steps, layout, initial, restart_states = arrange_call(layer, input, hx, lengths, resets, restart)
    recordings = [Recording() for _ in layer.glassgate.parts] if layer.glassgate.watchers else []
    if recordings and torch.is_grad_enabled():
        steps = steps._replace(data=graph_leaf(steps.data, recordings[: layer.num_directions]))
    outputs, results = _run_stack(layer, steps, layout, initial, restart_states, return_states, recordings)
    for watch in layer.glassgate.watchers:
        watch(Observed(layer, layout, steps, lambda: initial, lambda: results, recordings))
    return states.user_results(layer.glassgate.parts, outputs, results, layout, return_states)


def _run_stack(
    layer: Recurrent,
    steps: Steps,
    layout: Layout,
    initial: States,
    restart_states: States | None = None,
    all_states: bool = False,
    recordings: Sequence[Recording] = (),
) -> tuple[list[Tensor], list[Result]]:
    """Run all layers. Return the outputs of the last layer, and the result of each layer and direction."""
    results: list[Result] = []
    internals, training = layer.glassgate, layer.training
    dropout, weight_dropout = (layer.dropout, layer.weight_dropout) if training else (0.0, 0.0)
    drop = dropout_between_layers(dropout, layer.variational_dropout, layout.rows, steps.batch_sizes)
    all_directions = directions_of_call(layer, initial, restart_states)

    def run_level(level: Level, inputs: list[Tensor]) -> list[Tensor]:
        if level.depth and drop is not None:
            inputs = [drop(v) for v in inputs]
        own = slice(level.start, level.start + len(level.parts))
        directions = [
            with_noise(direction, steps, part.hidden_size, weight_dropout)
            for part, direction in zip(level.parts, all_directions[own], strict=True)
        ]
        if internals.edits is not None:
            parts = zip(level.parts, directions, strict=True)
            directions = [internals.edits.apply(part, direction, layout) for part, direction in parts]
        if len(inputs) == 1:
            new = _run_layer(layer, steps._replace(data=inputs[0]), directions, all_states, recordings[own])
        else:
            new = []
            for d, (v, direction) in enumerate(zip(inputs, directions, strict=True)):
                own_steps, own_recordings = steps._replace(data=v), recordings[own][d : d + 1]
                new += _run_layer(layer, own_steps, [direction], all_states, own_recordings)
        results.extend(new)
        return [result.states[0] for result in new]

    return walk(internals.levels, steps.data, run_level), results


def _run_layer(
    layer: Recurrent, steps: Steps, directions: list[Direction], all_states: bool, recordings: Sequence[Recording]
) -> list[Result]:
    """Run the directions of one layer that have the same input."""
    if layer.recompute and not recordings and torch.is_grad_enabled():
        return segments.run(steps, directions, all_states)
    return choose.run(steps, directions, all_states, recordings or None)
