"""Prints one step over named axes as loops on single numbers. A dialect and a table of statements decide the text."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

import numpy as np

from glassgate.engines.lowering.expressions import CONDITION, EQUALITY, PRODUCT, SUM, Dialect, Expression, Names
from glassgate.engines.lowering.nests import Axes, Nest
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.value import Value
from glassgate.engines.symbolic.operations import MASKS
from glassgate.export.array_graph import ArrayGraph
from glassgate.export.array_nests import Nests
from glassgate.export.array_places import Place, Position, linear, strides_of


class Statements(NamedTuple):
    """The statements of a language.

    Attributes:
        loop: the head of a loop, from the variable and the number of iterations.
        number, mask: the definition of a number or a truth value, from the variable and the expression.
        variable: the definition of a number that changes.
        array: the definition of an array of numbers, from the variable and the length.
        quotient: the quotient of two integers.
    """

    loop: str
    number: str
    mask: str
    variable: str
    array: str
    quotient: str


@dataclass
class Loops:
    """Prints the nests of a step.

    Args:
        graph: the step.
        dialect: the expressions of the language.
        statements: the statements of the language.
        places: the places of the leaves.
        targets: the place to which each new state is written, by name.
        constants: the name of the array with constants.
        names: the names of variables.

    Attributes:
        arrays: the constants in the order in which they are stored, each with its elements in order.
        buffers: the number of elements of each buffer, by its variable.
    """

    graph: ArrayGraph
    dialect: Dialect
    statements: Statements
    places: dict[Value, Place]
    targets: Mapping[str, Place]
    constants: str
    names: Names
    offset: int = 0
    arrays: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.nests = Nests(self.graph)
        self.numbers = {value: k for k, value in enumerate(self.graph.values)}
        self.variables: dict[Value, str] = {}
        """The variables of values without axes."""
        self.indices = {axis: self.names.new(axis.replace("'", "_")) for axis in self.graph.sizes}

    def lines(self) -> Iterator[str]:
        """The lines of the step."""
        for nest in self.nests.all:
            yield from _Printer(self, nest).lines()

    def name(self, value: Value) -> str:
        """A new variable for a value."""
        return self.names.new(value.name or f"v{self.numbers[value]}")

    def allocate(self, value: Value) -> str:
        """A line that defines the array of a stored value."""
        array = self.names.new(f"all_{value.name or f'v{self.numbers[value]}'}")
        axes = self.nests.order(value.axes)
        self.places[value] = Place(array, strides_of(axes, self.graph.sizes))
        return self.statements.array.format(array, prod(self.graph.sizes[axis] for axis in axes))

    def place_of_constant(self, value: Value, order: Sequence[str]) -> Place:
        """The place of a constant. Its elements are in the order of the loops that read it first."""
        if value not in self.places:
            axes = [axis for axis in order if axis in value.axes] if {*value.axes} <= {*order} else [*value.axes]
            numbers = self.graph.constants[value]
            numbers = np.broadcast_to(numbers, [self.graph.sizes[axis] for axis in value.axes])
            numbers = numbers.transpose([value.axes.index(axis) for axis in axes])
            base = str(self.offset) if self.offset else ""
            self.places[value] = Place(self.constants, strides_of(axes, self.graph.sizes), base)
            self.arrays.append(numbers.reshape(-1))
            self.offset += numbers.size
        return self.places[value]


class _Printer:
    """Prints one nest."""

    def __init__(self, loops: Loops, nest: Nest) -> None:
        self.loops, self.nest, self.nests, self.sizes = loops, nest, loops.nests, loops.graph.sizes
        self.dialect, self.statements = loops.dialect, loops.statements
        self.axes = self.nests.loops(nest)
        self.at: Position = {axis: Expression(loops.indices[axis]) for axis in nest.axes}
        self.own = {*nest.reductions, *nest.kept}
        self.roots = [arg for value in nest.reductions for arg in value.inputs]
        self.roots += [value for value in nest.kept if not self.nests.is_moved(value)]
        self.roots += [store.value for store in nest.stores]
        self.variables = dict(loops.variables)
        self.totals: dict[Value, str] = {}
        """The variables of reductions whose loops are innermost."""

    def lines(self) -> Iterator[str]:
        """The lines of the nest."""
        loops, values = self.loops, (*self.nest.reductions, *self.nest.kept)
        self.totals = {v: loops.name(v) for v in self.nest.reductions if {*self.axes[: len(v.axes)]} == {*v.axes}}
        yield from (loops.allocate(value) for value in values if value.axes)
        for value in self.nest.reductions:
            if value not in self.totals:
                yield from self._clear(value)
        yield from self._block(0)
        loops.variables |= {v: self.totals.get(v) or self.variables[v] for v in values if not v.axes}

    def _start(self, value: Value) -> str:
        return self.dialect.number(0.0 if isinstance(value.op, ops.Sum) else float("-inf")).text

    def _clear(self, value: Value) -> Iterator[str]:
        index, count = self.loops.indices[value.axes[0]], prod(self.sizes[axis] for axis in value.axes)
        yield self.statements.loop.format(index, count)
        yield f"    {self.loops.places[value].array}[{index}] = {self._start(value)};"
        yield "}"

    def _block(self, depth: int) -> Iterator[str]:
        """The lines of the loops from a depth on."""
        axes = self.axes
        here = [value for value in self.totals if len(value.axes) == depth]
        yield from (self.statements.variable.format(self.totals[value], self._start(value)) for value in here)
        if depth == len(axes):
            yield from self._innermost()
        else:
            yield self.statements.loop.format(self.loops.indices[axes[depth]], self.sizes[axes[depth]])
            yield from (f"    {line}" for line in self._block(depth + 1))
            yield "}"
        for value in here:
            if value.axes:
                yield f"{self.loops.places[value].element(self.at).text} = {self.totals[value]};"

    def _innermost(self) -> Iterator[str]:
        inside = self._inside()
        uses = Counter(arg for value in inside for arg in value.inputs) + Counter(self.roots)
        for value in inside:
            if value in self.own or (uses[value] > 1 or value.name is not None):
                name, is_mask = self.loops.name(value), value.op in MASKS
                text = self._expression(value).text
                yield (self.statements.mask if is_mask else self.statements.number).format(name, text)
                self.variables[value] = name
        yield from map(self._accumulate, self.nest.reductions)
        for value in self.nest.kept:
            if self.nests.is_moved(value):
                assert isinstance(value.op, ops.CumulativeSum)
                yield self._cumulate(value, value.op)
            elif value.axes:
                yield f"{self.loops.places[value].element(self.at).text} = {self._number(value).text};"
        for store in self.nest.stores:
            target = self.loops.targets[store.memory.name]
            yield f"{target.element(self.at).text} = {self.read(store.value, self.at).text};"

    def _inside(self) -> list[Value]:
        """The values that the nest computes, each after its inputs."""
        inside, pending = set[Value](), [*self.roots]
        while pending:
            value = pending.pop()
            is_read = value in self.nests.stored and value not in self.own
            if self.nests.is_computed(value) and not is_read and value not in inside:
                inside.add(value)
                pending += value.inputs
        return sorted(inside, key=lambda value: value.serial)

    def _accumulate(self, value: Value) -> str:
        """The line that adds to a reduction."""
        place = self.totals.get(value) or self.loops.places[value].element(self.at).text
        number = self.read(value.inputs[0], self.at)
        if isinstance(value.op, ops.Sum):
            return f"{place} += {number.text};"
        return f"{place} = {self.dialect.apply('maximum', [Expression(place), number]).text};"

    def _cumulate(self, value: Value, op: ops.CumulativeSum) -> str:
        """The line that writes an element of a cumulative sum."""
        (x,), axis, reverse = value.inputs, op.axis, op.reverse
        place, index = self.loops.places[value], self.at[axis]
        at: Position = self.at
        if reverse:
            at = {**at, axis: Expression(f"{self.sizes[axis] - 1} - {index.text}", SUM)}
        step = f"{index.text} + 1" if reverse else f"{index.text} - 1"
        if reverse:
            step = f"{self.sizes[axis]} - {index.text}"
        before = place.element({**self.at, axis: Expression(step, SUM)}).text
        number = self.read(x, at).as_operand(SUM)
        zero = self.dialect.number(0.0).text
        return f"{place.element(at).text} = ({index.text} > 0 ? {before} : {zero}) + {number};"

    def read(self, value: Value | float, at: Position) -> Expression:
        """The expression of a value at a position."""
        if not isinstance(value, Value):
            return self.dialect.number(float(value))
        if isinstance(value.op, ops.Constant):
            return self.dialect.number(value.op.number)
        if value in self.variables:
            return Expression(self.variables[value])
        if value in self.loops.graph.constants:
            return self._constant(value, at)
        if self.nests.is_view(value):
            return self._view(value, at)
        if value in self.loops.places:
            element = self.loops.places[value].element(at)
            return Expression(f"{element.text} != 0", EQUALITY) if value.op in MASKS else element
        return self._expression(value)

    def _number(self, value: Value) -> Expression:
        """The expression of a value that is stored: of ones and zeros for a mask."""
        text = self.read(value, self.at)
        if value.op not in MASKS:
            return text
        return self.dialect.apply("where", [text, self.dialect.number(1.0), self.dialect.number(0.0)])

    def _expression(self, value: Value) -> Expression:
        assert isinstance(value.op, str)
        return self.dialect.apply(value.op, [self.read(arg, self.at) for arg in value.args])

    def _constant(self, value: Value, at: Position) -> Expression:
        numbers = self.loops.graph.constants[value]
        if numbers.dtype == bool and numbers.size == 1:
            truth = self.dialect.number(float(numbers.item()))
            return self.dialect.apply("ne", [truth, self.dialect.number(0.0)])
        if numbers.size == 1:
            return self.dialect.number(float(numbers.item()))
        element = self.loops.place_of_constant(value, self.axes).element(at)
        return Expression(f"{element.text} != 0", EQUALITY) if numbers.dtype == bool else element

    def _view(self, value: Value, at: Position) -> Expression:
        """An element of a part of an axis, of merged axes, or of a concatenation."""
        match value.op:
            case ops.Gather(indices):
                (x,), moved = value.inputs, dict[str, Expression]()
                for axis, each in zip(x.axes, indices, strict=True):
                    position = linear(at, dict(each.terms), each.offset)
                    if each.modulus is not None:
                        position = Expression(f"{position.as_operand(PRODUCT)} % {each.modulus}", PRODUCT)
                    moved[axis] = position
                return self.read(x, moved)
            case ops.Merge(axes, into):
                return self.read(value.inputs[0], {**at, **self._divided(at[into], axes)})
            case ops.Concatenate(axis, parts):
                return self._part(value, axis, parts, at)
        raise AssertionError(f"{value.op} is not a view")

    def _part(self, value: Value, axis: str, parts: Axes, at: Position) -> Expression:
        """An element of a concatenation."""
        start, choices = 0, []
        for part_value, part in zip(value.inputs, parts, strict=True):
            index = at[axis] if not start else Expression(f"{at[axis].as_operand(SUM)} - {start}", SUM)
            start += self.sizes[part]
            choices.append((start, self.read(part_value, {**at, part: index})))
        *earlier, (_, last) = choices
        for end, element in reversed(earlier):
            text = f"{at[axis].as_operand(SUM)} < {end} ? {element.as_operand(CONDITION + 1)}"
            last = Expression(f"{text} : {last.as_operand(CONDITION + 1)}", CONDITION)
        return last if last.precedence > CONDITION else Expression(f"({last.text})")

    def _divided(self, index: Expression, axes: Axes) -> Position:
        """The indices along axes that are merged into one."""
        indices, inner = {}, strides_of(axes, self.sizes)
        for k, axis in enumerate(axes):
            part = index
            if inner[axis] > 1:
                text = self.statements.quotient.format(part.as_operand(PRODUCT), inner[axis])
                part = Expression(text, PRODUCT)
            if k:
                part = Expression(f"{part.as_operand(PRODUCT)} % {self.sizes[axis]}", PRODUCT)
            indices[axis] = part
        return indices
