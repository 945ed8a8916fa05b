"""The values of one step of a direction with its weights, for the C and JavaScript emitters.

`unit_loops.py` divides them into phases. Here, a phase is a loop over units. Examples of operations that need all
units of an earlier value are the product with the reset state of a GRU (`gg.cells.GRUv3`) and the mean over all units.

A lowered pass has values with several axes. Here, each value is a vector with one number per unit, or a single number.
A lowered value with a gate axis becomes one value per gate.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from glassgate.engines.axes import FEATURES, PER_ROW, PROJECTED, UNITS, Axis
from glassgate.engines.lowering.evaluate import evaluate
from glassgate.engines.lowering.expressions import is_numbered
from glassgate.engines.lowering.forward import Form
from glassgate.engines.lowering.ir import (
    Block,
    Broadcast,
    Contract,
    Elementwise,
    Line,
    Loop,
    Pass,
    Port,
    Reshape,
    Role,
    Stack,
    Sum,
    Take,
    Value,
    operands,
)
from glassgate.engines.lowering.step import levels_of
from glassgate.engines.lowering.step_graph import row_axis
from glassgate.engines.symbolic.operations import MASKS
from glassgate.export.lowered import base_extents, lowered_pass
from glassgate.export.network import DirectionSpec


@dataclass(eq=False)
class StepValue:
    """A value that a step reads or computes: a vector, or one number.

    Attributes:
        name: the name in the source of the cell, or a number with a letter: v1, v2. Emitters make the names unique.
        axis: the axis of the vector. `PER_ROW` is the axis of a single number.
    """

    name: str
    axis: Axis

    @property
    def is_scalar(self) -> bool:
        """Whether the value is one number for all units."""
        return self.axis == PER_ROW

    @property
    def is_mask(self) -> bool:
        """Whether the value consists of truth values."""
        return False

    @property
    def is_named(self) -> bool:
        """Whether the value has a name in the source of the cell. Other values are numbered: v1, v2."""
        return not is_numbered(self.name)


@dataclass(eq=False)
class Input(StepValue):
    """The input x, a state before the step, or numbers that the caller passes, such as noise."""


@dataclass(eq=False)
class Constant(StepValue):
    """A value that depends only on the parameters of the cell.

    Attributes:
        numbers: one number per unit, or a single number.
    """

    numbers: np.ndarray

    @property
    def is_mask(self) -> bool:
        """Whether the value consists of truth values."""
        return self.numbers.dtype == bool


@dataclass(eq=False)
class Product:
    """The product of a matrix and a vector.

    Attributes:
        vector: the vector.
        matrix: (units, len(vector)), or (heads, units / heads, len(vector) / heads).
        label: the text in comments, for example "W_ih x".
    """

    vector: StepValue
    matrix: np.ndarray
    label: str


@dataclass(eq=False)
class Affine(StepValue):
    """A sum of matrix products and a bias, such as the pre-activation of a gate.

    Attributes:
        bias: one number per unit, or None.
        products: the matrix products, one for each vector.
        is_centred: whether means over units are subtracted from the weights and the bias.
    """

    bias: np.ndarray | None
    products: list[Product]
    is_centred: bool = False


@dataclass(eq=False)
class Pointwise(StepValue):
    """An elementwise operation.

    Attributes:
        op: the name in `symbolic.operations.OPERATIONS`.
        args: the arguments.
    """

    op: str
    args: tuple[StepValue | float, ...]

    @property
    def is_mask(self) -> bool:
        """Whether the value consists of truth values."""
        return self.op in MASKS


@dataclass(eq=False)
class SumOverUnits(StepValue):
    """The sum of a vector over all units."""

    x: StepValue


class Step:
    """One step of a direction, derived from its lowered forward pass and its weights.

    Args:
        spec: the direction.
        observed: whether the gates are also results.

    Attributes:
        input: the input x.
        states: the states before the step, by name.
        noise: the noise that the equations read, by name.
        new_states: the states after the step, by name.
        gates: the gates by name; empty unless `observed`.
        values: all values that the results need, in topological order.
    """

    def __init__(self, spec: DirectionSpec, observed: bool = False) -> None:
        form = Form(reverse=spec.reverse, bias="bias_ih" in spec.weights)
        self.spec, self.program = spec, lowered_pass(spec.equations, form, gates=observed)
        sizes = base_extents(spec.equations, spec.hidden_size, spec.output_size, spec.input_size)
        self._constants = _evaluated_constants(self.program, spec, sizes)
        self._lines = {line.result: line for line in (*self.program.before, *self.program.loop.body)}
        self._sequences = {read.at: read.sequence for read in self.program.loop.reads}
        self._converted: dict[tuple[Value, int | None], StepValue] = {}
        self.input = Input("x", FEATURES)
        self.states = {name: Input(f"{name}_prev", axis) for name, axis in spec.equations.axes.items()}
        carries = dict(zip(spec.equations.state, self.program.loop.carries, strict=True))
        for name, carry in carries.items():
            self._converted[carry.before, None] = self.states[name]
        self.noise = {
            port.name: Input(port.name, row_axis(self.program.axes, lowered))
            for port, lowered in self.program.inputs.items()
            if port.role is Role.NOISE
        }
        for name, noise in self.noise.items():
            self._converted[self.program.inputs[Port(Role.NOISE, name)], None] = noise
        new_states = {name: self._value_of(carry.next, None) for name, carry in carries.items()}
        written = {write.sequence: write.value for write in self.program.loop.writes}
        gates = {
            port.name: self._value_of(written[sequence], None)
            for port, sequence in self.program.outputs.items()
            if observed and port.role is Role.GATE
        }
        fused = _fuse_affine({**gates, **new_states})
        self.gates = {name: fused[name] for name in gates}
        self.set_new_states({name: fused[name] for name in new_states})

    def set_new_states(self, new_states: dict[str, StepValue]) -> None:
        """Set the states after the step, and the values that they need."""
        self.new_states = new_states
        self.values = topologically_sorted([*self.gates.values(), *new_states.values()])

    def _value_of(self, lowered: Value, gate: int | None) -> StepValue:
        """The value that replaces a lowered value, or one gate of it."""
        key = lowered, gate
        if key not in self._converted:
            self._converted[key] = self._convert(lowered, gate)
        return self._converted[key]

    def _convert(self, lowered: Value, gate: int | None) -> StepValue:
        if lowered in self._constants:
            numbers = self._constants[lowered]
            numbers = numbers if gate is None else numbers[gate]
            return Constant(lowered.name, row_axis(self.program.axes, lowered), numbers.reshape(-1))
        if lowered in self._sequences:
            return self._value_of(self._sequences[lowered], gate)
        if lowered not in self._lines:
            assert lowered is self.program.inputs[Port(Role.DATA)]
            return self.input
        gate_axes = [axis for axis in lowered.type.axes if self.program.axes[axis].labels]
        suffix = f"_{self.program.axes[gate_axes[0]].labels[gate]}" if gate_axes and gate is not None else ""
        operation = self._lines[lowered].operation
        match operation:
            case Block(x, _, index):
                return self._value_of(x, index)
            case Take(x, _, indices, _):
                assert gate is not None
                return self._value_of(x, indices[gate])
            case Stack(parts, _):
                assert gate is not None
                return self._value_of(parts[gate], None)
            case Reshape(x, _) | Broadcast(x, _):
                return self._value_of(x, gate)
            case Sum(x, _):
                return SumOverUnits(lowered.name, PER_ROW, self._value_of(x, gate))
            case Contract(a, b, _):
                return self._matrix_product(lowered, a, b, gate, suffix)
            case Elementwise(op, lowered_args):
                args = tuple(
                    self._value_of(arg, gate if self._has_gates(arg) else None) if isinstance(arg, Value) else arg
                    for arg in lowered_args
                )
                return Pointwise(lowered.name + suffix, row_axis(self.program.axes, lowered), op, args)
        raise AssertionError(f"a forward pass has no {type(operation).__name__}")

    def _has_gates(self, lowered: Value) -> bool:
        return any(self.program.axes[axis].labels for axis in lowered.type.axes)

    def _matrix_product(self, lowered: Value, a: Value, b: Value, gate: int | None, suffix: str) -> Affine:
        vector, weight = self._value_of(a, None), self._constants[b]
        matrix = weight if gate is None else weight[gate]
        weight_name = "W_hr" if gate is None else "W_ih" if vector is self.input else "W_hh"
        axis = PROJECTED if gate is None else UNITS
        product = Product(vector, matrix, f"{weight_name} {vector.name}")
        return Affine(lowered.name + suffix, axis, None, [product])


def _evaluated_constants(program: Pass, spec: DirectionSpec, sizes: Mapping[str, int]) -> dict[Value, np.ndarray]:
    """Evaluate all lowered values that depend only on parameters. The results have no axes T and N."""
    weights = {port: value for port, value in program.inputs.items() if port.role is Role.WEIGHT}
    constants: dict[Value, Line | None] = dict.fromkeys(weights.values())
    lines = []
    for line in (*program.before, *program.loop.body):
        if all(value in constants for value in operands(line.operation)):
            constants[line.result] = line
            lines.append(line)
    outputs = {Port(Role.KEPT, str(k)): value for k, value in enumerate(constants)}
    no_steps = Loop(program.loop.axis, False, None, (), (), (), ())
    constant_pass = replace(program, inputs=weights, before=tuple(lines), loop=no_steps, after=(), outputs=outputs)
    evaluated = evaluate(constant_pass, {port: spec.weights[port.name] for port in weights}, {**sizes, "T": 0, "N": 1})
    numbers = {}
    for port, value in outputs.items():
        axes = [k for k, axis in enumerate(value.type.axes) if axis in ("T", "N")]
        numbers[value] = evaluated[port].numpy().squeeze(tuple(axes)) if axes else evaluated[port].numpy()
    return numbers


def _fuse_affine(results: Mapping[str, StepValue]) -> dict[str, StepValue]:
    """Merge each sum of matrix products and constants into one `Affine`.

    Args:
        results: the new states and the gates, by name.

    Returns:
        the results by name.
    """
    values = topologically_sorted(results.values())
    level = levels_of(values, operands_of, needs_all_units)
    uses = Counter(operand for value in values for operand in operands_of(value)) + Counter(results.values())
    replaced: dict[StepValue, StepValue] = {}

    def current(value: StepValue) -> StepValue:
        return replaced.get(value, value)

    for value in values:
        match value:
            case Pointwise(op="add", args=(StepValue() as a, StepValue() as b)):
                a, b = current(a), current(b)
                affine = [arg for arg in (a, b) if isinstance(arg, Affine) and uses[arg] <= 1]
                constants = [arg for arg in (a, b) if isinstance(arg, Constant) and not arg.is_scalar]
                if affine and len(affine) + len(constants) == 2 and all(level[arg] == level[value] for arg in affine):
                    biases = [arg.bias for arg in affine if arg.bias is not None] + [arg.numbers for arg in constants]
                    bias = sum(biases[1:], biases[0]) if biases else None
                    products = [product for arg in affine for product in arg.products]
                    merged = Affine(value.name, value.axis, bias, products)
                    uses[merged], level[merged] = uses[value], level[value]
                    replaced[value] = merged
    for value in values:
        target = current(value)
        match target:
            case Pointwise():
                target.args = tuple(current(arg) if isinstance(arg, StepValue) else arg for arg in target.args)
            case SumOverUnits():
                target.x = current(target.x)
            case Affine():
                target.products = [replace(product, vector=current(product.vector)) for product in target.products]
    return {name: current(value) for name, value in results.items()}


def needs_all_units(value: StepValue, operand: StepValue) -> bool:
    """Whether a value reads all units of an operand. Products with inputs of the step can start at once."""
    return isinstance(value, SumOverUnits) or (isinstance(value, Affine) and not isinstance(operand, Input))


def operands_of(value: StepValue) -> Iterator[StepValue]:
    """The values that a value is computed from."""
    match value:
        case Pointwise(args=args):
            yield from (arg for arg in args if isinstance(arg, StepValue))
        case SumOverUnits(x=x):
            yield x
        case Affine(products=products):
            yield from (product.vector for product in products)


def topologically_sorted(results: Iterable[StepValue]) -> list[StepValue]:
    """All values that the results need, each after its operands."""
    visited: dict[StepValue, None] = {}

    def visit(value: StepValue) -> None:
        if value not in visited:
            for operand in operands_of(value):
                visit(operand)
            visited[value] = None

    for result in results:
        visit(result)
    return list(visited)
