"""One step of a cell in plain torch: the values that a step reads, with their axes, and the new states.

`reference.py` repeats it over time. In engines, every state is flat, (N, width); a step sees its axes.
"""

from collections.abc import Mapping, Sequence
from math import prod

import torch
from torch import Tensor
from torch.nn.functional import linear

from glassgate.cell import Cell, Named, PreActivations, RecurrentTerm, Weights
from glassgate.cell_axes import Shape
from glassgate.cell_shapes import Shapes, shapes_from_weights


class Step:
    """The step of a cell with its parameters.

    Args:
        cell: the cell with the equations.
        weights: the parameters of the cell.
        hidden_size: the number of units.
        detach_recurrent: whether to block gradients through the recurrent matrix products. Gradients then flow from a
            state to the next only where the step reads the state directly, such as c in `f * c` of an LSTM.

    Attributes:
        shapes: the shapes of the cell's values within a row; None for a cell with one number per unit everywhere.
        state_shapes: the shape of each state within a row; None for a state that the step reads as it is stored.
        parameters: the extra parameters of the cell, as a step reads them.
    """

    def __init__(self, cell: Cell, weights: Weights, hidden_size: int, detach_recurrent: bool = False) -> None:
        self.cell, self.weights, self._detach, self.hidden_size = cell, weights, detach_recurrent, hidden_size
        self.shapes: Shapes | None = None
        if cell.declaration is not None:
            self.shapes = shapes_from_weights(cell, weights, hidden_size)
        # No `functools.cached_property`: torch.compile does not support its lock.
        self.state_shapes = self._shapes_of_states()
        self.parameters = Named(cell.parameters, [self._parameter(name) for name in cell.parameters])

    def _shapes_of_states(self) -> tuple[Shape | None, ...]:
        if self.shapes is None:
            return (None,) * len(self.cell.state)
        return tuple([None if len(shape) == 1 else shape for shape in self.shapes.state.values()])

    def with_axes(self, states: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Flat states (..., width) with the axes that a step reads."""
        return tuple([_unflatten(v, shape) for v, shape in zip(states, self.state_shapes, strict=True)])

    def flat(self, states: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The inverse of `with_axes`."""
        return tuple([_flatten(v, shape) for v, shape in zip(states, self.state_shapes, strict=True)])

    def gates(self, rows: Tensor, half: str = "x") -> Named:
        """The rows (..., rows) of the pre-activations by gate, with the axes of each gate.

        Args:
            rows: the product of `weight_ih` or `weight_hh`.
            half: "x" for `weight_ih`, "h" for `weight_hh`.
        """
        if self.shapes is None:
            return Named(self.cell.gates, rows.chunk(len(self.cell.gates), -1))
        names = self.shapes.declaration.gates_that_read(half)
        return self._blocks(rows, {name: self.shapes.gates[name] for name in names})

    def input(self, x: Tensor | None) -> Named | None:
        """The blocks of the input (..., H_in) by name; None for a cell that reads only gates."""
        if self.shapes is None or not self.shapes.inputs or x is None:
            return None
        return self._blocks(x, self.shapes.inputs)

    def _blocks(self, rows: Tensor, shapes: Mapping[str, Shape]) -> Named:
        blocks = rows.split([*map(prod, shapes.values())], -1)
        return Named(shapes, [_unflatten(v, shape) for v, shape in zip(blocks, shapes.values(), strict=True)])

    def gated_features(self, x: Tensor) -> Tensor:
        """The columns of the input that the gates multiply."""
        return x if self.shapes is None or not self.shapes.inputs else x[..., : self.shapes.features]

    def _parameter(self, name: str) -> Tensor | Named:
        if not self.cell.parameters[name].per_gate:
            return self.weights[name]
        if self.shapes is None:
            return self.gates(self.weights[name])
        return self._blocks(self.weights[name], self.shapes.gates)

    def noise(self, drawn: Mapping[str, Tensor]) -> Named:
        """The random numbers that a step reads: the drawn ones, or the mean of each."""
        values: dict[str, Tensor | float] = {name: noise.mean for name, noise in self.cell.noise.items()}
        for name, value in drawn.items():
            noise = self.cell.noise[name]
            shape = self._shape_of(noise.state or self.cell.state[0]) if noise.shape is None else noise.shape
            values[name] = _unflatten(value, shape)
        return Named(values, values.values())

    def _shape_of(self, state: str) -> Shape | None:
        return self.state_shapes[self.cell.state.index(state)]

    def _product(self, u: Tensor) -> Named:
        """The recurrent term of each gate, `W_hh u + b_hh`."""
        u, weight, bias = _flatten(u, self.state_shapes[0]), self.weights["weight_hh"], self.weights.get("bias_hh")
        u = u.detach() if self._detach else u
        heads = self.cell.heads
        if self.shapes is None or heads == 1:
            return self.gates(recurrent_product(u, weight, bias, heads, self.hidden_size), "h")
        counts = self.shapes.rows("h")
        blocks = [recurrent_product(u, w, None, heads, n) for w, n in zip(weight.split(counts), counts, strict=True)]
        rows = torch.cat(blocks, -1)
        return self.gates(rows if bias is None else rows + bias, "h")

    def __call__(
        self,
        ih: Named,
        states: tuple[Tensor, ...],
        drawn: Mapping[str, Tensor],
        input: Named | None,
        multiplied: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Return the states after a step. All values have their axes.

        Args:
            ih: the input term of each gate; see `gates`.
            states: the states before the step.
            drawn: the random numbers by name, flat. The default of each is its mean.
            input: see `input`.
            multiplied: the output before the step, which `weight_hh` multiplies, if it has fewer rows than `states`.
        """
        cell, weights = self.cell, self.weights
        hh = RecurrentTerm(self._product, states[0] if multiplied is None else multiplied) if cell.recurrent else None
        reads = {}
        if self.shapes is not None and cell.recurrent:
            reads = {name: gate.reads for name, gate in self.shapes.declaration.gates.items() if gate.reads != "xh"}
        a = PreActivations(ih, hh, self.noise(drawn), reads=reads, input=input)
        return cell.new_state(
            a, Named(cell.state, states), self.parameters, self._projection if "weight_hr" in weights else None
        )

    def _projection(self, h: Tensor) -> Tensor:
        return linear(h, self.weights["weight_hr"])


def _unflatten(value: Tensor, shape: Shape | None) -> Tensor:
    """Split the last axis into several; into none for the shape (). None leaves the value as it is."""
    return value if shape is None or len(shape) == 1 else value.view(*value.shape[:-1], *shape)


def _flatten(value: Tensor, shape: Shape | None) -> Tensor:
    """The inverse of `_unflatten`."""
    if shape is None or len(shape) == 1:
        return value
    return value.flatten(-len(shape)) if shape else value.unsqueeze(-1)


def advance(
    cell: Cell,
    weights: Weights,
    ih: Tensor,
    state: tuple[Tensor, ...],
    noise: dict[str, Tensor] | None = None,
    detach_recurrent: bool = False,
    x: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Return the states after one step.

    Leading axes of `ih` and `state` broadcast. The recurrent matrix products are computed before broadcasting.

    Args:
        cell: the cell with the equations.
        weights: the parameters of the cell.
        ih: `W_ih x + b_ih`, the contribution of the input to the pre-activations, (..., rows of `weight_ih`).
        state: the states before the step, (..., width).
        noise: the cell's random numbers by name. The default is the mean of each.
        detach_recurrent: see `Step`.
        x: the input, (..., H_in), for a cell that declares `inputs`.
    """
    step = Step(cell, weights, hidden_size(cell, weights, ih.shape[-1], state[0].shape[-1]), detach_recurrent)
    output = step.with_axes(state)[0]
    if ih.shape[:-1] != state[0].shape[:-1]:
        rows = torch.broadcast_shapes(ih.shape[:-1], state[0].shape[:-1])
        state = tuple(v.expand(*rows, -1) for v in state)
    return step.flat(step(step.gates(ih), step.with_axes(state), noise or {}, step.input(x), output))


def hidden_size(cell: Cell, weights: Weights, rows: int, output_size: int) -> int:
    """The number of units of a layer, from its parameters, the rows of `weight_ih` and the width of its output."""
    if cell.declaration is None:
        return rows // len(cell.gates)
    return weights["weight_hr"].shape[1] if "weight_hr" in weights else output_size


def recurrent_product(u: Tensor, weight: Tensor, bias: Tensor | None, heads: int, units: int | None = None) -> Tensor:
    """Return `W_hh u + b_hh`. With several heads, the units of head k of each gate read only block k of `u`.

    Args:
        u: the vector, (..., H_out).
        weight: `weight_hh`, (gates * H_cell, H_out / heads).
        bias: `bias_hh`, or None.
        heads: the number of heads, which is also the number of blocks of `u`.
        units: H_cell; None if it equals H_out, which is the case without a projection.
    """
    if heads == 1:
        return linear(u, weight, bias)
    blocks = weight.unflatten(0, (-1, heads, (units or u.shape[-1]) // heads))
    out = torch.einsum("...ki,gkoi->...gko", u.unflatten(-1, (heads, -1)), blocks).flatten(-3)
    return out if bias is None else out + bias
