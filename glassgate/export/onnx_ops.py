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

    def constant(self, value: Any) -> ir.Value:
        """Add a constant: an array, or integers as int64."""
        array = np.asarray(value, dtype=None if isinstance(value, np.ndarray | np.generic) else np.int64)
        return self("Constant", value=ir.tensor(array))

    def concat(self, values: Sequence[ir.Value], axis: int) -> ir.Value:
        """Concatenate values. A single value is returned unchanged."""
        return values[0] if len(values) == 1 else self("Concat", *values, axis=axis)

    def rows(self, value: ir.Value, start: int, stop: int) -> ir.Value:
        """Slice the first axis from `start` to `stop`."""
        return self("Slice", value, self.constant([start]), self.constant([stop]), self.constant([0]))

    def unsqueeze(self, value: ir.Value, *axes: int) -> ir.Value:
        """Insert axes of extent 1."""
        return self("Unsqueeze", value, self.constant(list(axes)))

    def squeeze(self, value: ir.Value, *axes: int) -> ir.Value:
        """Remove axes of extent 1."""
        return self("Squeeze", value, self.constant(list(axes)))

    def is_active(self, steps: ir.Value, lengths: ir.Value) -> ir.Value:
        """Whether each sequence has each step, (L, N), from the number of steps (1,) and the lengths (N,)."""
        first, after, distance = self.constant(np.int64(0)), self("Squeeze", steps), self.constant(np.int64(1))
        numbers = self("Range", first, after, distance)
        lengths = self("Cast", lengths, to=ir.DataType.INT64)
        return self("Less", self.unsqueeze(numbers, 1), self.unsqueeze(lengths, 0))

    def scan(
        self,
        body: "Operators",
        inputs: Sequence[ir.Value],
        results: Sequence[tuple[ir.Value, ir.DataType, Sequence[int | str]]],
        initial: Sequence[ir.Value],
        sequences: Sequence[ir.Value],
        reverse: bool,
    ) -> Sequence[ir.Value]:
        """Add a loop over steps. Return the final states and the sequences of the other results.

        Args:
            body: the nodes of a step.
            inputs: the inputs of a step: the states, and an element of each sequence.
            results: the states after a step and other values, each with its dtype and shape.
            initial: the states before the first step.
            sequences: the sequences.
            reverse: whether the loop runs from the last step to the first.
        """
        outputs = []
        for value, dtype, shape in results:
            # Each output of a body must be a separate value, not an input of the body or the same value twice.
            output = body("Identity", value)
            output.dtype, output.shape = dtype, ir.Shape(shape)
            outputs.append(output)
        return self.several(
            "Scan",
            len(outputs),
            *initial,
            *sequences,
            body=ir.Graph(inputs, outputs, nodes=body.nodes, initializers=body.initializers, name="step"),
            num_scan_inputs=len(sequences),
            scan_input_directions=[int(reverse)] * len(sequences),
            scan_output_directions=[int(reverse)] * (len(outputs) - len(initial)),
        )


def _without_trailing(inputs: Sequence[ir.Value | None]) -> list[ir.Value | None]:
    """The inputs without omitted ones at the end."""
    inputs = list(inputs)
    while inputs and inputs[-1] is None:
        inputs.pop()
    return inputs
