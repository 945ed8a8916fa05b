"""A layer in eval mode as a discrete dynamical system in float64: a flat state vector and the map of one step."""

import copy
import operator
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassgate.dynamics.linearize import Linearization, StateDerivative
from glassgate.engines.contract import Direction
from glassgate.engines.reference_step import advance, linear
from glassgate.engines.symbolic.values import NotTraceable
from glassgate.engines.traced_cells import current_equations
from glassgate.layers.arguments import arrange_call, directions_of_call
from glassgate.layers.levels import Level, combine, walk
from glassgate.layers.stack import Recurrent
from glassgate.shapes import ShapeError
from glassgate.user_warning import warn_user

MAX_ELEMENTS = 2**24
"""The maximum number of elements of all Jacobians in memory: 128 MiB of float64."""


class Slot(NamedTuple):
    """The columns of the flat state that hold one state of one layer."""

    layer: int
    state: str
    columns: slice

    @property
    def label(self) -> str:
        """For example "layer0.c"."""
        return f"layer{self.layer}.{self.state}"


def copy_layer(operation: str, layer: Recurrent) -> Recurrent:
    """Copy a layer to the CPU, in float64, in eval mode and without gradients.

    Raises:
        TypeError: `layer` is not a recurrent layer of this package.
    """
    if not isinstance(layer, Recurrent):
        raise TypeError(
            f"{operation}: layer must be a glassgate layer such as gg.LSTM, got {type(layer).__name__}; "
            "gg.convert(model) replaces the layers of torch.nn"
        )
    return copy.deepcopy(layer).to(device="cpu", dtype=torch.float64).eval().requires_grad_(False)


def convert_inputs(operation: str, layer: Recurrent, inputs: Tensor) -> Tensor:
    """Convert the inputs of a layer, (L, N, H_in), to float64 on the CPU.

    Raises:
        ShapeError: the inputs have another shape.
    """
    if inputs.dim() != 3 or inputs.shape[2] != layer.input_size:
        raise ShapeError(
            f"{operation}: inputs must be (L, N, H_in) with H_in = {layer.input_size}, got {tuple(inputs.shape)}"
        )
    return inputs.detach().to("cpu", torch.float64)


class Network:
    """A layer as the map (state, input) -> next state.

    The flat state has S numbers per row: the states of the first layer in the order of `cell.state`, then those of the
    second layer, and so on. The last axis of a state with several axes varies fastest. A cell has a graph if its `step`
    can be traced. Without a graph, derivatives are slower. Those of cells that declare axes are computed by autograd,
    in one batched backward pass.

    Args:
        operation: the name of the analysis, for error messages.
        layer: a `gg.Recurrent` or a subclass such as `gg.LSTM`, of one direction. Its weights are copied to float64.
        needs_graph: whether to raise an error if a cell has no graph.

    Raises:
        TypeError: `layer` is not a recurrent layer of this package.
        ValueError: the layer has two directions.
        NotTraceable: a cell has no graph, and the analysis needs one.
    """

    def __init__(self, operation: str, layer: Recurrent, needs_graph: bool = False) -> None:
        self.operation, self.layer = operation, copy_layer(operation, layer)
        if layer.bidirectional:
            raise ValueError(
                f"{operation}: a bidirectional layer is not a map from one state to the next and has no fixed points, "
                "since its reverse direction starts at the end; use a layer with bidirectional=False, or analyse each "
                "direction of gg.dynamics.separate(layer, inputs)"
            )
        self._directions = self._initial_directions()
        self.slots = tuple(self._slots())
        self.size = self.slots[-1].columns.stop
        self._declares_axes = self.layer.cell.declaration is not None
        self._linearizations = None if self._declares_axes else self._linearize_layers(needs_graph)

    def _initial_directions(self) -> list[Direction]:
        """The cell in eval mode, the weights and the initial states of each layer."""
        step_input = self.layer.weight_ih_l0.new_zeros(1, self.layer.input_size)
        _, _, initial, _ = arrange_call(self.layer, step_input.unsqueeze(0))
        return directions_of_call(self.layer, initial)

    def _slots(self) -> Iterator[Slot]:
        at = 0
        for layer, direction in enumerate(self._directions):
            for name, state in zip(direction.cell.state, direction.initial, strict=True):
                yield Slot(layer, name, slice(at, at + state.shape[1]))
                at += state.shape[1]

    def _linearize_layers(self, needs_graph: bool) -> list[Linearization] | None:
        """The linearization of the step of each layer. None if a cell has no graph."""
        try:
            graphs = [current_equations(d.cell, "weight_hr" in d.weights) for d in self._directions]
        except NotTraceable as error:
            if needs_graph:
                raise
            warn_user(
                f"{self.operation}: this cell has no graph, so derivatives are computed by autograd, one backward pass "
                f"per state variable, which is slow. {error}"
            )
            return None
        return [Linearization(graph, d.weights) for graph, d in zip(graphs, self._directions, strict=True)]

    @property
    def initial(self) -> Tensor:
        """(S,): the flat initial state, which is the same for all sequences."""
        return torch.cat([state[0] for direction in self._directions for state in direction.initial])

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each column of the flat state, such as "layer0.c"."""
        return tuple(slot.label for slot in self.slots for _ in range(slot.columns.stop - slot.columns.start))

    def slots_of(self, layer: int) -> list[Slot]:
        """The slots of one layer."""
        return [slot for slot in self.slots if slot.layer == layer]

    def flatten(self, states: Any, name: str = "states") -> Tensor:
        """Convert states to flat states (B, S).

        Args:
            states: flat (B, S) or in the form of `hx`: (num_layers, B, H), or a tuple of these.
            name: the name of the argument, for error messages.

        Raises:
            ShapeError: the states have neither form.
        """
        if isinstance(states, Tensor) and states.dim() <= 2 and states.shape[-1] == self.size:
            return torch.atleast_2d(states.detach().double())
        names = self._directions[0].cell.state
        values = states if isinstance(states, tuple | list) else (states,)
        by_label: dict[str, Tensor] = {}
        for state, by_layer in zip(names, values, strict=False):
            forms = [part.forms[state].shape for part in self.layer.glassgate.parts]
            for layer, (value, shape) in enumerate(zip(by_layer, forms, strict=False)):
                rows = torch.as_tensor(value).detach().double()
                if len(shape) != 1 and rows.shape[1:] == shape:
                    rows = rows.reshape(len(rows), -1)
                by_label[f"layer{layer}.{state}"] = torch.atleast_2d(rows)
        widths = {slot.label: slot.columns.stop - slot.columns.start for slot in self.slots}
        if by_label.keys() != widths.keys() or any(
            v.shape[-1] != widths[k] or v.dim() != 2 for k, v in by_label.items()
        ):
            shapes = ", ".join(str(tuple(v.shape)) for v in values if isinstance(v, Tensor))
            raise ShapeError(
                f"{self.operation}: {name} must be (B, S) with S = {self.size}, the states {', '.join(widths)} side by "
                f"side, or in the form of hx, got {shapes}"
            )
        return torch.cat([by_label[label] for label in widths], 1)

    def expand_input(self, input: Tensor, rows: int) -> Tensor:
        """Expand an input (H_in,) or (B, H_in) to one input per row, (B, H_in).

        Raises:
            ShapeError: the input has another shape.
        """
        width = self.layer.input_size
        input = torch.as_tensor(input).detach().to("cpu", torch.float64)
        if input.shape not in ((width,), (1, width), (rows, width)):
            raise ShapeError(
                f"{self.operation}: input must be (H_in,) or (B, H_in) = {(rows, width)}, got {tuple(input.shape)}"
            )
        return input.expand(rows, width)

    def step(self, states: Tensor, input: Tensor) -> Tensor:
        """Advance flat states (B, S) by one step with inputs (B, H_in). Return the new flat states (B, S)."""
        new: list[Tensor] = []

        def run_level(level: Level, inputs: list[Tensor]) -> tuple[Tensor, ...]:
            cell, weights, *_ = self._directions[level.depth]
            before = tuple(states[:, slot.columns] for slot in self.slots_of(level.depth))
            (x,) = inputs
            features = x[..., : weights["weight_ih"].shape[1]]  # a step may read more of the input itself
            ih = linear(features, weights["weight_ih"], weights.get("bias_ih"))
            after = advance(cell, weights, ih, before, x=x)
            new.extend(after)
            return after[:1]

        walk(self.layer.glassgate.levels, input, run_level)
        return torch.cat(new, 1)

    def jacobian(self, states: Tensor, input: Tensor) -> Tensor:
        """(B, S, S): the derivative of the next state (rows) with respect to the current state (columns)."""
        return self.linearize(states, input)[1]

    def linearize(self, states: Tensor, input: Tensor) -> tuple[Tensor, Tensor]:
        """The next states, (B, S), and their Jacobian, (B, S, S)."""
        if self._linearizations is None:
            return self._linearize_by_autograd(states, input)
        new, parts = self._linearize_by_graph(self._linearizations, states, input)
        return new, parts["total"]

    def step_with_differences(self, states: Tensor, input: Tensor, differences: Tensor) -> tuple[Tensor, Tensor]:
        """The next states, (B, S), and the product of their Jacobian with small differences (B, S, K)."""
        if self._linearizations is None:
            new, jacobian = self.linearize(states, input)
            return new, jacobian @ differences
        new, parts = self._linearize_by_graph(self._linearizations, states, input, differences=differences)
        return new, parts["total"]

    def jacobian_by_gate(self, states: Tensor, input: Tensor) -> dict[str, Tensor]:
        """The Jacobian, under "total", and its parts.

        The part of a gate contains the paths on which this gate is the last one. "direct" contains the paths without a
        gate.

        Raises:
            ValueError: a cell has no graph, so its gates are unknown.
        """
        if self._linearizations is None:
            raise ValueError(f"{self.operation}: the parts of gates need a cell that has a graph; see gg.check(cell)")
        return self._linearize_by_graph(self._linearizations, states, input, by_gate=True)[1]

    def _linearize_by_graph(
        self,
        layers: Sequence[Linearization],
        states: Tensor,
        input: Tensor,
        by_gate: bool = False,
        differences: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The next states, and their Jacobian under "total". With `by_gate`, also its parts, as in `jacobian_by_gate`.

        With `differences` (B, S, K), each Jacobian is multiplied by them.
        """
        size = self.size if differences is None else differences.shape[2]
        next_states, by_slot = list[Tensor](), list[dict[str, Tensor]]()  # one entry per slot
        below, d_below = input, None
        for level, linearization in zip(self.layer.glassgate.levels, layers, strict=True):
            slots = self.slots_of(level.depth)
            before = [states[:, slot.columns] for slot in slots]
            d_before = [self._initial_derivative(slot, states, differences) for slot in slots]
            new, d_new = linearization.run(below, d_below, before, d_before, size, by_gate)
            parts = [dict(zip(d_new, of_slot, strict=True)) for of_slot in zip(*d_new.values(), strict=True)]
            totals = [{"total": reduce(operator.add, of_slot.values())} for of_slot in parts]
            d_output = totals[0]["total"]
            (below,) = combine(level, [below], [new[0]])
            d_below = d_output if d_below is None else combine(level, [d_below], [d_output])[0]
            next_states += new
            by_slot += [total | part for total, part in zip(totals, parts, strict=True)]
        labels = dict.fromkeys(label for of_slot in by_slot for label in of_slot)
        return torch.cat(next_states, 1), {label: self._all_rows(label, by_slot) for label in labels}

    @staticmethod
    def _initial_derivative(slot: Slot, states: Tensor, differences: Tensor | None) -> StateDerivative:
        """The derivative of a state before the step: the identity, or the rows of `differences` that belong to it."""
        if differences is None:
            return StateDerivative({slot.columns.start: torch.ones_like(states[:1, slot.columns])})
        return StateDerivative({}, differences[:, slot.columns])

    @staticmethod
    def _all_rows(label: str, by_slot: Sequence[dict[str, Tensor]]) -> Tensor:
        """One part of the Jacobian, (B, S, S): the rows of all slots. They are zero for a slot without this part."""
        blocks = [of_slot[label] if label in of_slot else torch.zeros_like(of_slot["total"]) for of_slot in by_slot]
        return torch.cat(blocks, 1) if len(blocks) > 1 else blocks[0].contiguous()

    def _linearize_by_autograd(self, states: Tensor, input: Tensor) -> tuple[Tensor, Tensor]:
        states = states.detach().requires_grad_()
        new = self.step(states, input)
        if self._declares_axes:
            identity = torch.eye(self.size, dtype=states.dtype).unsqueeze(1).expand(-1, len(states), -1)
            (rows_first,) = torch.autograd.grad(new, states, identity, is_grads_batched=True, materialize_grads=True)
            return new.detach(), rows_first.transpose(0, 1)
        rows = [
            torch.autograd.grad(new[:, k].sum(), states, retain_graph=True, materialize_grads=True)[0]
            for k in range(self.size)
        ]
        return new.detach(), torch.stack(rows, 1)

    def chunks(self, rows: int) -> Iterator[slice]:
        """Slices of rows whose Jacobians fit into memory together."""
        size = max(1, MAX_ELEMENTS // self.size**2)
        return (slice(at, at + size) for at in range(0, rows, size))

    def run(self, inputs: Tensor, hx: Any = None) -> Tensor:
        """Run the layer on its kernels.

        Args:
            inputs: (L, N, H_in), also for a batch-first layer.
            hx: initial states, flat or as in `Recurrent.forward`.

        Returns:
            (L + 1, N, S): the flat states before the first step and after each step.

        Raises:
            ShapeError: the inputs have another shape.
        """
        inputs = convert_inputs(self.operation, self.layer, inputs)
        rows = inputs.shape[1]
        start = self.initial.expand(rows, -1) if hx is None else self.flatten(hx, "hx").expand(rows, -1)
        forms, by_name = [part.forms for part in self.layer.glassgate.parts], dict[str, list[Tensor]]()
        for layer, name, columns in self.slots:
            state = start[:, columns].reshape(rows, *forms[layer][name].shape)
            by_name.setdefault(name, []).append(state.contiguous())
        hx = tuple(torch.stack(v) if len({s.shape for s in v}) == 1 else tuple(v) for v in by_name.values())
        self.layer.batch_first = False
        with torch.no_grad():
            _, _, visited = self.layer(inputs, hx if len(hx) > 1 else hx[0], return_states=True)
        after = [visited[f"layer{slot.layer}.forward.{slot.state}"].flatten(2) for slot in self.slots]
        return torch.cat([start.unsqueeze(0), torch.cat(after, -1)])
