"""A cell that evaluates traced steps of arrays. Edited cells and cells of saved sessions use this class."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from glassgate.cell import Cell, Named, Noise, Parameter, PreActivations
from glassgate.cell_axes import Declaration
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.evaluate import Evaluation
from glassgate.engines.symbolic.arrays.step import ArrayStep, Local
from glassgate.engines.symbolic.arrays.value import Value
from glassgate.engines.symbolic.evaluate import argument

Sizes = tuple[int, int, int]
"""The input size, the hidden size and the width of the projection of a layer."""


class ArrayCell(Cell):
    """A cell with declared axes whose step evaluates a graph.

    Args:
        declaration: the gates, states and inputs.
        parameters, noise, recurrent, heads: see `Cell`.
        axis_sizes: the sizes of axes that do not follow from the sizes of the layer.
        steps: the step for the sizes of each layer in which the cell runs.

    Example:
        >>> import torch, glassgate as gg
        >>> from glassgate.engines.symbolic.arrays.step import array_step
        >>> cell = gg.cells.RetNet(heads=2, key_size=3)
        >>> again = ArrayCell.like(cell, {(4, 6, 0): array_step(cell, 4, 6)})
        >>> output, (h_n, S_n) = gg.Recurrent(again, 4, 6)(torch.randn(5, 2, 4))
    """

    def __init__(
        self,
        declaration: Declaration,
        parameters: Mapping[str, Parameter],
        noise: Mapping[str, Noise],
        recurrent: bool,
        heads: int,
        axis_sizes: Mapping[str, int],
        steps: Mapping[Sizes, ArrayStep],
    ) -> None:
        self._declared, self._has_axes = declaration, True
        self.gates, self.state = tuple(declaration.gates), tuple(declaration.state)  # type: ignore[misc]
        self.inputs = declaration.inputs  # type: ignore[misc]
        self.parameters, self.noise = parameters, noise
        self.recurrent, self.heads = recurrent, heads  # type: ignore[misc]
        self.axis_sizes, self.steps = axis_sizes, steps

    @staticmethod
    def like(cell: Cell, steps: Mapping[Sizes, ArrayStep], noise: Mapping[str, Noise] | None = None) -> "ArrayCell":
        """The cell with the declarations of another cell.

        Args:
            cell: the other cell.
            steps: the steps.
            noise: additional noise that the steps read.
        """
        declaration = cell.declaration
        assert declaration is not None
        declared = [gate.axes for gate in declaration.gates.values()]
        declared += [state.axes for state in declaration.state.values()]
        declared += [parameter.axes for parameter in cell.parameters.values()]
        declared += declaration.inputs.values()
        names = dict.fromkeys(axis for axes in declared for axis in axes if isinstance(axis, str))
        sizes = {axis: size for axis in names if (size := cell.axis_size(axis)) is not None}
        noise = {**cell.noise, **(noise or {})}
        return ArrayCell(declaration, cell.parameters, noise, cell.recurrent, cell.heads, sizes, steps)

    def axis_size(self, axis: str) -> int | None:
        """The size of an axis; None if it follows from the sizes of the layer."""
        return self.axis_sizes.get(axis)

    def new_state(self, a: PreActivations, s: Named, p: Named, projection: Any = None) -> tuple[Any, ...]:
        """The states after a step, in the order of `state`."""
        step, like = self._step_for(a, s), next(iter(s))
        leaves: dict[ops.Leaf, Tensor] = {}
        for value in step.values:
            if isinstance(value.op, ops.Leaf):
                leaf = argument(value.op, a, s, p)
                if not isinstance(leaf, Tensor):  # the mean of noise
                    leaf = like.new_full((1, *(step.sizes[axis] for axis in value.axes)), leaf)
                leaves[value.op] = leaf[None] if isinstance(value.op, ops.Parameter) else leaf
        output = next(iter(step.state.values()))

        def product(value: Value, u: Tensor) -> Tensor:
            if isinstance(value.op, ops.Projection):
                projected: Tensor = projection(u.expand(len(like), -1))
                return projected
            assert isinstance(value.op, ops.RecurrentHalf)
            full = evaluation.over(value.inputs[0], output).expand(len(like), *(step.sizes[axis] for axis in output))
            result: Tensor = getattr(a.hh(full), value.op.gate)
            return result

        evaluation = Evaluation(step.sizes, leaves, product, like)

        def of(local: Local) -> Tensor:
            axes = tuple([axis for axis in local.dims if axis is not None])
            full = evaluation.over(local.value, axes).expand(len(like), *(step.sizes[axis] for axis in axes))
            return full.reshape(len(like), *(1 if axis is None else step.sizes[axis] for axis in local.dims))

        own = dict(zip(step.state, map(Local, step.states, step.state.values()), strict=True))
        by_value: dict[Value, dict[str, Local]] = {}
        for name, local in {**step.locals, **own}.items():
            by_value.setdefault(local.value, {})[name] = local
        names: dict[str, Tensor] = {}  # `values_by_name` reads the local variables of this function
        for value in step.values:
            evaluation.compute([value])
            for name, local in by_value.get(value, {}).items():
                # All that reads the value reads this tensor, so that its gradient is that of the value.
                names[name] = of(local)
                evaluation.replace(value, names[name], local.dims)
        return tuple([names[name] for name in step.state])

    def values_by_name(self, variables: Mapping[str, Any]) -> Mapping[str, Any]:
        """The named values of the step, from the local variables of `new_state`."""
        names: Mapping[str, Any] = variables.get("names", {})
        return names

    def _step_for(self, a: PreActivations, s: Named) -> ArrayStep:
        """The step for the sizes of the arguments."""
        states, inputs = [v.shape[1:] for v in s], [v.shape[1:] for v in getattr(a, "input", ())]
        for step in self.steps.values():
            declared = [
                [tuple(map(step.sizes.get, axes)) for axes in each.values()] for each in (step.state, step.inputs)
            ]
            if declared == [states, inputs]:
                return step
        raise ValueError(f"this cell was traced for layers of the sizes {[*self.steps]}")
