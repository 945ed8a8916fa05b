"""Builds the nodes of an ONNX graph by calls such as `op("Add", a, b)`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir


class Operators(ir.tape.Tape):
    """Collects the nodes of one graph: of a model, or of the body of a loop.

    Args:
        scope: the prefix of the names of all values. The names in nested graphs must be unique.
    """

    def __init__(self, scope: str = "") -> None:
        super().__init__()
        self.scope = scope
        self._names: set[str] = set()

    def __call__(self, kind: str, *inputs: ir.Value | None, name: str | None = None, **attributes: Any) -> ir.Value:
        """Add a node with one output, and return the output.

        Args:
            kind: the name of the operator.
            inputs: the input values; None for an omitted input.
            name: the name of the output.
            attributes: the attributes of the operator.
        """
        value = self.op(kind, _without_trailing(inputs), attributes)
        value.name = self.unique(name or kind.lower())
        return value

    def several(self, kind: str, outputs: int, *inputs: ir.Value | None, **attributes: Any) -> Sequence[ir.Value]:
        """Add a node with several outputs, and return the outputs."""
        values = self.op_multi_out(kind, _without_trailing(inputs), attributes, num_outputs=outputs)
        for value in values:
            value.name = self.unique(kind.lower())
        return values

    def unique(self, name: str) -> str:
        """The name with the prefix of this scope, and with a number if it is already used."""
        full, number = f"{self.scope}{name}", 1
        while full in self._names:
            number += 1
            full = f"{self.scope}{name}_{number}"
        self._names.add(full)
        return full

    def input(self, name: str, dtype: ir.DataType, shape: Sequence[int | str]) -> ir.Value:
        """A new input for the graph. A string in its shape is the name of a dynamic extent."""
        return ir.val(self.unique(name), dtype, shape)

    def graph(self, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], name: str) -> ir.Graph:
        """A graph of all nodes so far."""
        return ir.Graph(inputs, outputs, nodes=self.nodes, initializers=self.initializers, name=name)

    def constant(self, value: Any, name: str | None = None) -> ir.Value:
        """Add a constant: an array, or integers as int64."""
        array = np.asarray(value, dtype=None if isinstance(value, np.ndarray | np.generic) else np.int64)
        return self("Constant", name=name, value=ir.tensor(array))

    def concat(self, values: Sequence[ir.Value], axis: int) -> ir.Value:
        """Concatenate values. A single value is returned unchanged."""
        return values[0] if len(values) == 1 else self("Concat", *values, axis=axis)

    def rows(self, value: ir.Value, start: int, stop: int) -> ir.Value:
        """Slice the first axis from `start` to `stop`."""
        return self("Slice", value, self.constant([start]), self.constant([stop]), self.constant([0]))

    def unsqueeze(self, value: ir.Value, *axes: int, name: str | None = None) -> ir.Value:
        """Insert axes of extent 1."""
        return self("Unsqueeze", value, self.constant(list(axes)), name=name)

    def squeeze(self, value: ir.Value, *axes: int, name: str | None = None) -> ir.Value:
        """Remove axes of extent 1."""
        return self("Squeeze", value, self.constant(list(axes)), name=name)


def _without_trailing(inputs: Sequence[ir.Value | None]) -> list[ir.Value | None]:
    """The inputs without omitted ones at the end."""
    inputs = list(inputs)
    while inputs and inputs[-1] is None:
        inputs.pop()
    return inputs
