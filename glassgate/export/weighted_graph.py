"""The graph of one step of a direction with its weights, which the emitters of C and JavaScript divide into loops.

A value that depends only on parameters is an array of numbers. A sum of matrix products and a bias, such as the
pre-activation of a gate, is one value.
"""

from collections import Counter
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from glassgate.engines.axes import PER_ROW
from glassgate.engines.lowering.evaluate import evaluate
from glassgate.engines.lowering.expressions import is_numbered
from glassgate.engines.lowering.forward import Form
from glassgate.engines.lowering.ir import (
    Block,
    Broadcast,
    Contract,
    Elementwise,
    Loop,
    Pass,
    Port,
    Reshape,
    Role,
    Sum,
    Value,
    operands,
)
from glassgate.engines.lowering.step import levels_of
from glassgate.engines.lowering.step_graph import StepGraph
from glassgate.export.lowered import base_extents, lowered_pass
from glassgate.export.network import DirectionSpec


class Product(NamedTuple):
    """The product of a matrix and a vector.

    Attributes:
        vector: the vector.
        matrix: (units, len(vector)), or (heads, units / heads, len(vector) / heads).
        label: the text in comments, for example "W_ih x".
    """

    vector: Value
    matrix: np.ndarray
    label: str


class Affine(NamedTuple):
    """A sum of matrix products and a bias.

    Attributes:
        products: the matrix products, one for each vector.
        bias: one number per unit, or None.
        is_centred: whether means over units are subtracted from the weights and the bias.
    """

    products: tuple[Product, ...]
    bias: np.ndarray | None
    is_centred: bool = False


class WeightedGraph(StepGraph):
    """The graph of one step with the weights of a direction.

    Args:
        spec: the direction.
        observed: whether the gates are also results.

    Attributes:
        x: the input.
        states: the states before the step, by name.
        noise: the noise that the equations read, by name.
        new_states: the states after the step, by name.
        gates: the gates by name; empty unless `observed`.
        constants: the values that depend only on parameters: an array without the axes of steps and sequences.
        affine: the values that are sums of matrix products.
        aliases: values that equal others, with these.
    """

    def __init__(self, spec: DirectionSpec, observed: bool = False) -> None:
        form = Form(reverse=spec.reverse, bias="bias_ih" in spec.weights)
        program = lowered_pass(spec.equations, form, gates=observed)
        super().__init__(program)
        self.aliases: dict[Value, Value] = {}
        self.constants = _evaluated_constants(program, spec)
        self.affine: dict[Value, Affine] = {}
        self.x = program.inputs[Port(Role.DATA)]
        carries = dict(zip(spec.equations.state, program.loop.carries, strict=True))
        self.states = {name: carry.before for name, carry in carries.items()}
        read = {sequence: at for at, sequence in self.sequences.items()}
        noise = {port.name: value for port, value in program.inputs.items() if port.role is Role.NOISE}
        self.noise = {name: read.get(value, value) for name, value in noise.items()}
        self.inputs = {self.x, *self.states.values(), *self.noise.values()}
        written = {write.sequence: write.value for write in program.loop.writes}
        gates = {port.name: written[v] for port, v in program.outputs.items() if observed and port.role is Role.GATE}
        self.gates = {name: self.origin(value) for name, value in gates.items()}
        self.new_states = {name: self.origin(carry.next) for name, carry in carries.items()}
        self._find_products()
        self._merge_products()

    @property
    def results(self) -> dict[str, Value]:
        """The gates and the new states, by name."""
        return {**self.gates, **self.new_states}

    @property
    def values(self) -> list[Value]:
        """All values on which the results depend, each after its operands."""
        return self.with_operands(self.results.values())

    def origin(self, value: Value) -> Value:
        """The value before operations that only change axes, or an equal one. A constant is a value of its own."""
        while value not in self.constants:
            operation = self.operations.get(value)
            if value in self.aliases:
                value = self.aliases[value]
            elif isinstance(operation, Reshape | Broadcast):
                value = operation.x
            else:
                break
        return value

    def operands(self, value: Value) -> tuple[Value, ...]:
        """The values from which a step computes a value; none for a constant."""
        if value in self.affine:
            return tuple(dict.fromkeys(self.origin(product.vector) for product in self.affine[value].products))
        return () if value in self.constants else super().operands(value)

    def is_computed(self, value: Value) -> bool:
        """Whether a step computes a value."""
        return value in self.affine or (value not in self.constants and super().is_computed(value))

    def is_sum(self, value: Value) -> bool:
        """Whether a value is a sum over units."""
        return isinstance(self.operations.get(value), Sum) and value not in self.constants

    def needs_all_units(self, value: Value, operand: Value) -> bool:
        """Whether a value reads all units of an operand. Inputs of the step are complete."""
        return self.is_sum(value) or (value in self.affine and operand not in self.inputs)

    def is_single(self, value: Value) -> bool:
        """Whether a value is one number for all units."""
        return self.axis_of(value) == PER_ROW

    def number(self, value: Value) -> float | None:
        """The number that a value consists of; None for other values."""
        return float(self.constants[value].item()) if value in self.constants and self.is_single(value) else None

    def name_of(self, value: Value) -> str:
        """The name of a value in generated code, which is a number with a letter if the source has no name for it."""
        return self.names.get(value) or self.names_of_gates.get(value) or value.name

    def is_named(self, value: Value) -> bool:
        """Whether a value has a name in the source of the cell."""
        return not is_numbered(self.name_of(value))

    @property
    def weight_count(self) -> int:
        """The number of weights that a step reads."""
        sums = [self.affine[value] for value in self.values if value in self.affine]
        return sum(product.matrix.size for affine in sums for product in affine.products)

    def replaced(
        self, affine: Mapping[Value, Affine], constants: Mapping[Value, np.ndarray], aliases: Mapping[Value, Value]
    ) -> "WeightedGraph":
        """The graph with other definitions of some values."""
        graph = copy(self)
        graph.affine, graph.constants = {**self.affine, **affine}, {**self.constants, **constants}
        graph.aliases, graph._operands = {**self.aliases, **aliases}, {}
        graph.gates = {name: graph.origin(value) for name, value in self.gates.items()}
        graph.new_states = {name: graph.origin(value) for name, value in self.new_states.items()}
        return graph

    def has_gates(self, value: Value) -> bool:
        """Whether a value has an axis of gates."""
        return any(self.axes[axis].labels for axis in value.type.axes)

    def _find_products(self) -> None:
        """Find the matrix product of each gate, of a projection, and of the input."""
        for value, operation in self.operations.items():
            source, gate = (operation.x, operation.at) if isinstance(operation, Block) else (value, None)
            source = self.origin(source)
            definition, bias = self.operations.get(self.sequences.get(source, source)), None
            if source in self.sequences and isinstance(definition, Elementwise):  # the input term W_ih x + bias
                products, added = (arg for arg in definition.args if isinstance(arg, Value))
                definition, bias = self.operations[products], self.constants[added][gate].reshape(-1)
            if isinstance(definition, Contract) and self.has_gates(definition.b) == (gate is not None):
                vector, weight = self.origin(definition.a), self.constants[definition.b]
                name = "W_hr" if gate is None else "W_ih" if vector is self.x else "W_hh"
                matrix = weight if gate is None else weight[gate]
                self.affine[value] = Affine((Product(vector, matrix, f"{name} {vector.name}"),), bias)

    def _merge_products(self) -> None:
        """Merge each sum of matrix products and constants into one value."""
        values = self.values
        level = levels_of(values, self.operands, self.needs_all_units)
        uses = Counter(arg for value in values for arg in self.operands(value)) + Counter(self.results.values())
        for value in values:
            operation = self.operations.get(value)
            if not isinstance(operation, Elementwise) or operation.op != "add" or value in self.constants:
                continue
            terms = [self.origin(arg) for arg in operation.args if isinstance(arg, Value)]
            affine = [self.affine[term] for term in terms if term in self.affine and uses[term] <= 1]
            constants = [self.constants[v].reshape(-1) for v in terms if v in self.constants and not self.is_single(v)]
            is_merged = affine and len(terms) == 2 == len(affine) + len(constants)
            if is_merged and all(level[term] == level[value] for term in terms if term in self.affine):
                biases = [*(term.bias for term in affine if term.bias is not None), *constants]
                bias = sum(biases[1:], biases[0]) if biases else None
                self.affine[value] = Affine(tuple(product for term in affine for product in term.products), bias)


def _evaluated_constants(program: Pass, spec: DirectionSpec) -> dict[Value, np.ndarray]:
    """Evaluate all values that depend only on parameters. The results have no axes T and N."""
    sizes = base_extents(spec.equations, spec.hidden_size, spec.output_size, spec.input_size)
    weights = {port: value for port, value in program.inputs.items() if port.role is Role.WEIGHT}
    constants, lines = dict.fromkeys(weights.values()), []
    for line in (*program.before, *program.loop.body):
        if all(value in constants for value in operands(line.operation)):
            constants[line.result] = None
            lines.append(line)
    outputs = {Port(Role.KEPT, number=k): value for k, value in enumerate(constants)}
    no_steps = Loop(program.loop.axis, False, None, (), (), (), ())
    constant_pass = replace(program, inputs=weights, before=tuple(lines), loop=no_steps, after=(), outputs=outputs)
    evaluated = evaluate(constant_pass, {port: spec.weights[port.name] for port in weights}, {**sizes, "T": 0, "N": 1})
    numbers = {}
    for port, value in outputs.items():
        axes = [k for k, axis in enumerate(value.type.axes) if axis in ("T", "N")]
        numbers[value] = evaluated[port].numpy().squeeze(tuple(axes)) if axes else evaluated[port].numpy()
    return numbers
