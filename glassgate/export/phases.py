"""One step of a direction in phases of matrix products and pointwise operations, for the C and JavaScript emitters.

A new phase starts where an operation needs all units of an earlier value, such as the product with the reset state of a
GRU or the mean of a row. Every value here is one number for each unit. A value with a gate axis becomes one value per
gate.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from glassgate.engines.axes import FEATURES, PER_ROW, PROJECTED, UNITS, Axis
from glassgate.engines.lowering.evaluate import evaluate
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
from glassgate.export.lowered import extents, lowered
from glassgate.export.network import DirectionSpec

Numbers = np.ndarray
Phase = tuple[int, Axis]
"""The level, and the axis of the units that are computed together."""


@dataclass(eq=False)
class Item:
    """A value of a step.

    Attributes:
        name: the name in the emitted code.
        axis: the axis of its numbers.
        level: the number of the phase in which the value is computed.
    """

    name: str
    axis: Axis
    level: int

    @property
    def phase(self) -> Phase:
        """The phase that computes the value."""
        return self.level, self.axis

    @property
    def is_per_row(self) -> bool:
        """Whether it is one number for all units."""
        return self.axis == PER_ROW

    @property
    def is_named(self) -> bool:
        """Whether the author of the cell gave it its name."""
        return not re.fullmatch(r"v\d+", self.name)


@dataclass(eq=False)
class State(Item):
    """A state before the step, the input, or numbers that the caller passes, such as noise."""


@dataclass(eq=False)
class Constant(Item):
    """Constants of the layer: one per unit, or a single one."""

    values: Numbers


@dataclass(eq=False)
class Product:
    """A matrix times a vector.

    Attributes:
        left: the vector.
        matrix: (units, len(left)), or (heads, units / heads, len(left) / heads).
        label: the text in comments, for example "W_ih x".
    """

    left: Item
    matrix: Numbers
    label: str


@dataclass(eq=False)
class Affine(Item):
    """A sum of matrix products and a bias, such as the pre-activation of a gate.

    Attributes:
        bias: one number per unit, or None.
        products: the matrix products, with different vectors.
        is_centred: whether means over units are subtracted from weights and bias.
    """

    bias: Numbers | None
    products: list[Product]
    is_centred: bool = False


@dataclass(eq=False)
class Pointwise(Item):
    """An elementwise operation of `symbolic.operations.OPERATIONS`."""

    op: str
    args: tuple[Item | float, ...]


@dataclass(eq=False)
class SumOverUnits(Item):
    """The sum over all units."""

    x: Item


class Step:
    """One step of a direction, from its lowered pass and its weights.

    Args:
        spec: the direction.
        reserved: names that a value must not have.
        observed: whether the values of the gates are also results.

    Attributes:
        input: the input x.
        states: the states before the step, by name.
        noise: the noise that the equations read, by name.
        new: the states after the step, by name.
        gates: the gates by name; empty unless observed.
        items: all values that the results need, in topological order.
    """

    def __init__(self, spec: DirectionSpec, reserved: Collection[str] = (), observed: bool = False) -> None:
        form = Form(reverse=spec.reverse, bias="bias_ih" in spec.weights)
        self.spec, self.program = spec, lowered(spec.equations, form, gates=observed)
        base = extents(spec.equations, spec.hidden_size, spec.output_size, spec.input_size)
        self.extent = {axis: self.program.axes.extent(axis, base | {"T": 1, "N": 1}) for axis in self.program.axes}
        self._fixed = _fixed_values(self.program, spec, base)
        self._lines = {line.result: line for line in (*self.program.before, *self.program.loop.body)}
        self._reads = {read.at: read.sequence for read in self.program.loop.reads}
        self._known: dict[tuple[Value, int | None], Item] = {}
        self._reserved, self._names = reserved, set[str]()
        self.input = State("x", FEATURES, 0)
        self.states = {name: State(f"{name}_prev", axis, 0) for name, axis in spec.equations.axes.items()}
        carries = dict(zip(spec.equations.state, self.program.loop.carries, strict=True))
        for name, carry in carries.items():
            self._known[carry.before, None] = self.states[name]
        inputs = self.program.inputs.items()
        self.noise = {
            port.name: State(port.name, self._axis(value), 0) for port, value in inputs if port.role is Role.NOISE
        }
        for name, item in self.noise.items():
            self._known[self.program.inputs[Port(Role.NOISE, name)], None] = item
        new = {name: self._at(carry.next, None) for name, carry in carries.items()}
        written = {write.sequence: write.value for write in self.program.loop.writes}
        outputs = self.program.outputs.items()
        gates = {
            port.name: self._at(written[value], None) for port, value in outputs if observed and port.role is Role.GATE
        }
        self.items, fused = _fuse_affine({**gates, **new})
        self.new, self.gates = ({name: fused[name] for name in names} for names in (new, gates))

    @property
    def phases(self) -> list[Phase]:
        """All phases in order."""
        return sorted(
            {each.phase for each in self.items if isinstance(each, Affine | Pointwise) and not each.is_per_row}
        )

    def stored_in(self, result: str) -> Phase:
        """The phase that stores a new state or a gate."""
        item = self.new[result] if result in self.new else self.gates[result]
        axis = self.states[result].axis if result in self.states else UNITS
        phases = [phase for phase in self.phases if phase[1] == axis]
        return item.phase if item.phase in phases else phases[-1]

    @property
    def uses(self) -> Counter[Item]:
        """The number of items that read each value, except matrix products."""
        return Counter(arg for item in self.items if not isinstance(item, Affine) for arg in inputs(item))

    @property
    def crossing(self) -> set[Item]:
        """The values that a later phase or a matrix product reads."""
        crossing: set[Item] = set()
        for item in self.items:
            match item:
                case Affine(products=products):
                    crossing |= {product.left for product in products if not isinstance(product.left, State)}
                case Pointwise(args=args):
                    wide = [arg for arg in args if isinstance(arg, Affine | Pointwise) and not arg.is_per_row]
                    crossing |= {arg for arg in wide if arg.phase != item.phase}
        return crossing

    def _name(self, base: str) -> str:
        """A unique name that starts with `base`."""
        base = f"{base}_" if base in self._reserved else base
        name, number = base, 1
        while name in self._names:
            number += 1
            name = f"{base}{number}"
        self._names.add(name)
        return name

    def _axis(self, value: Value) -> Axis:
        """The axis of the numbers of a value, also if the pass divides it by heads."""
        axes = self.program.axes
        own = [name for name in value.type.axes if name not in ("T", "N") and not axes[name].labels]
        factors = tuple(factor for name in own for factor in axes.factors(name))
        among = (axis for axis in (UNITS, PROJECTED) if axis.name in axes)
        return next((axis for axis in among if axes.factors(axis.name) == factors), PER_ROW)

    def _at(self, value: Value, gate: int | None) -> Item:
        """The item of a value, or of one gate of it."""
        key = value, gate
        if key not in self._known:
            self._known[key] = self._item_of(value, gate)
        return self._known[key]

    def _item_of(self, value: Value, gate: int | None) -> Item:
        if value in self._fixed:
            numbers = self._fixed[value]
            numbers = numbers if gate is None else numbers[gate]
            return Constant(value.name, self._axis(value), 0, numbers.reshape(-1))
        if value in self._reads:
            return self._at(self._reads[value], gate)
        if value not in self._lines:
            assert value is self.program.inputs[Port(Role.DATA)]
            return self.input
        gates = [axis for axis in value.type.axes if self.program.axes[axis].labels]
        label = f"_{self.program.axes[gates[0]].labels[gate]}" if gates and gate is not None else ""
        operation = self._lines[value].operation
        match operation:
            case Block(x, _, index):
                return self._at(x, index)
            case Take(x, _, indices, _):
                assert gate is not None
                return self._at(x, indices[gate])
            case Stack(values, _):
                assert gate is not None
                return self._at(values[gate], None)
            case Reshape(x, _) | Broadcast(x, _):
                return self._at(x, gate)
            case Sum(x, _):
                summed = self._at(x, gate)
                return SumOverUnits(self._name(value.name), PER_ROW, summed.level + 1, summed)
            case Contract(a, b, _):
                return self._product(value, a, b, gate, label)
            case Elementwise(op, args):
                items = tuple(
                    self._at(arg, gate if self._has_gates(arg) else None) if isinstance(arg, Value) else arg
                    for arg in args
                )
                level = max((item.level for item in items if isinstance(item, Item)), default=0)
                return Pointwise(self._name(value.name + label), self._axis(value), level, op, items)
        raise AssertionError(f"a forward pass has no {type(operation).__name__}")

    def _has_gates(self, value: Value) -> bool:
        return any(self.program.axes[axis].labels for axis in value.type.axes)

    def _product(self, value: Value, a: Value, b: Value, gate: int | None, label: str) -> Affine:
        left, weight = self._at(a, None), self._fixed[b]
        matrix = weight if gate is None else weight[gate]
        letter = "W_hr" if gate is None else "W_ih" if left is self.input else "W_hh"
        level = 0 if isinstance(left, State) else left.level + 1
        axis = PROJECTED if gate is None else UNITS
        product = Product(left, matrix, f"{letter} {left.name}")
        return Affine(self._name(value.name + label), axis, level, None, [product])


def _fixed_values(program: Pass, spec: DirectionSpec, base: Mapping[str, int]) -> dict[Value, Numbers]:
    """All values that depend only on weights, without axes of steps and sequences."""
    weights = {port: value for port, value in program.inputs.items() if port.role is Role.WEIGHT}
    fixed: dict[Value, Line | None] = dict.fromkeys(weights.values())
    lines = []
    for line in (*program.before, *program.loop.body):
        if all(value in fixed for value in operands(line.operation)):
            fixed[line.result] = line
            lines.append(line)
    outputs = {Port(Role.KEPT, str(k)): value for k, value in enumerate(fixed)}
    empty = Loop(program.loop.axis, False, None, (), (), (), ())
    only = replace(program, inputs=weights, before=tuple(lines), loop=empty, after=(), outputs=outputs)
    evaluated = evaluate(only, {port: spec.weights[port.name] for port in weights}, {**base, "T": 0, "N": 1})
    numbers = {}
    for port, value in outputs.items():
        axes = [k for k, axis in enumerate(value.type.axes) if axis in ("T", "N")]
        numbers[value] = evaluated[port].numpy().squeeze(tuple(axes)) if axes else evaluated[port].numpy()
    return numbers


def _fuse_affine(new: Mapping[str, Item]) -> tuple[list[Item], dict[str, Item]]:
    """All values in topological order. Sums of matrix products and constants become one `Affine`."""
    order = ordered(new.values())
    users = Counter(arg for item in order for arg in inputs(item)) + Counter(new.values())
    replaced: dict[Item, Item] = {}

    def current(item: Item) -> Item:
        return replaced.get(item, item)

    for item in order:
        match item:
            case Pointwise(op="add", args=(Item() as a, Item() as b)):
                a, b = current(a), current(b)
                parts = [part for part in (a, b) if isinstance(part, Affine) and users[part] <= 1]
                fixed = [part for part in (a, b) if isinstance(part, Constant) and not part.is_per_row]
                level = max(a.level, b.level)
                if parts and len(parts) + len(fixed) == 2 and all(part.level == level for part in parts):
                    biases = [part.bias for part in parts if part.bias is not None] + [part.values for part in fixed]
                    bias = sum(biases[1:], biases[0]) if biases else None
                    products = [product for part in parts for product in part.products]
                    merged = Affine(item.name, item.axis, level, bias, products)
                    users[merged] = users[item]
                    replaced[item] = merged
    for item in order:
        target = current(item)
        match target:
            case Pointwise():
                target.args = tuple(current(arg) if isinstance(arg, Item) else arg for arg in target.args)
            case SumOverUnits():
                target.x = current(target.x)
            case Affine():
                target.products = [replace(product, left=current(product.left)) for product in target.products]
    results = {name: current(item) for name, item in new.items()}
    return ordered(results.values()), results


def inputs(item: Item) -> Iterator[Item]:
    """The values that a value reads."""
    match item:
        case Pointwise(args=args):
            yield from (arg for arg in args if isinstance(arg, Item))
        case SumOverUnits(x=x):
            yield x
        case Affine(products=products):
            yield from (product.left for product in products)


def ordered(results: Iterable[Item]) -> list[Item]:
    """The values that the results need, in topological order."""
    done: dict[Item, None] = {}

    def visit(item: Item) -> None:
        if item not in done:
            for each in inputs(item):
                visit(each)
            done[item] = None

    for result in results:
        visit(result)
    return list(done)
