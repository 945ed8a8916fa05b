"""Prints one step over named axes as loops on single numbers. A dialect and a table of statements decide the text."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from glassgate.engines.lowering.expressions import CONDITION, EQUALITY, PRODUCT, SUM, Dialect, Expression
from glassgate.engines.lowering.nests import Axes, Nest
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.value import Value
from glassgate.engines.symbolic.operations import MASKS
from glassgate.engines.symbolic.values import topological_order
from glassgate.export.nests import Nests
from glassgate.export.places import Place, Position, linear, strides_of
from glassgate.export.weighted_step import WeightedStep


class Statements(NamedTuple):
    """The statements of a language.

    Attributes:
        loop: the head of a loop, from the variable and the number of iterations.
        number, mask: the definition of a number or a truth value, from the variable and the expression.
        variable: the definition of a number that changes.
        array: the definition of an array of numbers, from the variable and the length.
        quotient: the quotient of two integers.
        indent: the indentation of the lines in a loop.
    """

    loop: str
    number: str
    mask: str
    variable: str
    array: str
    quotient: str
    indent: str = "    "


class Loops(ABC):
    """Prints the nests of a step. A subclass decides where matrices, constants and results are.

    Args:
        step: the step.
        dialect: the expressions of the language.
        statements: the statements of the language.

    Attributes:
        names: the names of variables.
        places: the places of leaves and, once a nest has stored them, of other values.
        targets: the place to which each result is written, by name.
        variables: the variables of values without axes, once they are computed.
    """

    def __init__(self, step: WeightedStep, dialect: Dialect, statements: Statements) -> None:
        self.step, self.dialect, self.statements = step, dialect, statements
        self.nests, self.names = Nests(step), dialect.names()
        self.numbers = {value: k for k, value in enumerate(topological_order(step.states.values()))}
        self.indices: dict[str, str] = {}
        self.places: dict[Value, Place] = {}
        self.targets: dict[str, Place] = {}
        self.variables: dict[Value, str] = {}

    def lines(self) -> Iterator[str]:
        """The lines of the step."""
        self.indices = {axis: self.names.new(axis.replace("'", "_")) for axis in self.step.sizes}
        for nest in self.nests.all:
            yield from self.printer(nest).lines()

    def printer(self, nest: Nest) -> "NestPrinter":
        """The printer of a nest."""
        return NestPrinter(self, nest)

    def name_of(self, value: Value) -> str:
        """The author's name of a value, or a number with a letter."""
        return value.name or f"v{self.numbers[value]}"

    def allocate(self, value: Value) -> str:
        """A line that defines the array of a stored value."""
        array = self.names.new(f"all_{self.name_of(value)}")
        axes = next(iter(self.step.state.values())) if value in self.step.vectors else self.nests.order(value.axes)
        axes = axes if {*axes} == {*value.axes} else self.nests.order(value.axes)
        self.places[value] = Place(array, strides_of(axes, self.step.sizes))
        return self.statements.array.format(array, self.step.count(axes))

    @abstractmethod
    def products(self, values: Sequence[Value]) -> Iterator[str]:
        """Lines that compute matrix products before a nest reads their sums."""

    @abstractmethod
    def sum_at(self, value: Value, at: Position) -> Expression:
        """The expression of an element of a sum of matrix products."""

    @abstractmethod
    def store_constant(self, value: Value, axes: Axes, numbers: np.ndarray) -> Place:
        """Add a constant to the weights, with its elements in the order of these axes. Return its place."""

    def place_of_constant(self, value: Value, order: Sequence[str]) -> Place:
        """The place of a constant. Its elements are in the order of the loops that read it first."""
        if value not in self.places:
            axes = tuple(axis for axis in order if axis in value.axes) if {*value.axes} <= {*order} else value.axes
            numbers = np.broadcast_to(self.step.constants[value], [self.step.sizes[axis] for axis in value.axes])
            numbers = numbers.transpose([value.axes.index(axis) for axis in axes])
            self.places[value] = self.store_constant(value, axes, numbers.reshape(-1))
        return self.places[value]


class NestPrinter:
    """Prints one nest."""

    def __init__(self, loops: Loops, nest: Nest) -> None:
        self.loops, self.nest, self.nests, self.sizes = loops, nest, loops.nests, loops.step.sizes
        self.dialect, self.statements, self.sums = loops.dialect, loops.statements, loops.step.sums
        self.axes = self.nests.loops(nest)
        self.at: Position = {axis: Expression(loops.indices[axis]) for axis in nest.axes}
        self.roots, self.inside = self.nests.roots_of(nest), self.nests.inside(nest)
        self.variables = dict(loops.variables)
        self.totals: dict[Value, str] = {}
        """The variables of reductions whose loops are innermost."""
        self.written = {store.value: loops.targets[store.memory.name] for store in nest.stores}
        """The place to which a value is written as a result, from which other nests also read it."""
        self.complete: set[Value] = set()
        """The sums of matrix products that are in memory before the loops."""

    def lines(self) -> Iterator[str]:
        """The lines of the nest."""
        loops, values = self.loops, (*self.nest.reductions, *self.nest.kept)
        yield from self.products()
        self.totals = {v: self.new_name(v) for v in self.nest.reductions if {*self.axes[: len(v.axes)]} == {*v.axes}}
        yield from self.allocations()
        for value in self.nest.reductions:
            if value not in self.totals:
                yield from self._clear(value)
        yield from self._block(0)
        loops.variables |= {v: self.totals.get(v) or self.variables[v] for v in values if not v.axes}

    def products(self) -> Iterator[str]:
        """The lines that compute matrix products before the nest."""
        values = [value for value in self.inside if value in self.sums]
        yield from self.loops.products(values)
        self.complete = {value for value in values if value in self.loops.places}

    def allocations(self) -> Iterator[str]:
        """The lines that define the arrays of values that the nest stores for others."""
        kept = [value for value in self.nest.kept if value.axes and value not in self.complete]
        self.loops.places |= {value: self.written[value] for value in kept if value in self.written}
        for value in (*self.nest.reductions, *self.nest.kept):
            if value.axes and value not in self.loops.places:
                yield self.loops.allocate(value)

    def new_name(self, value: Value) -> str:
        """A new variable for a value."""
        return self.loops.names.new(self.loops.name_of(value))

    def _start(self, value: Value) -> str:
        return self.dialect.number(0.0 if isinstance(value.op, ops.Sum) else float("-inf")).text

    def _clear(self, value: Value) -> Iterator[str]:
        index, count = self.loops.indices[value.axes[0]], self.loops.step.count(value.axes)
        yield self.statements.loop.format(index, count)
        yield f"{self.statements.indent}{self.loops.places[value].array}[{index}] = {self._start(value)};"
        yield "}"

    def _block(self, depth: int) -> Iterator[str]:
        """The lines of the loops from a depth on."""
        axes = self.axes
        here = [value for value in self.totals if len(value.axes) == depth]
        if depth == len(axes):
            body = [*self.innermost()]
        else:
            body = [f"{self.statements.indent}{line}" for line in self._block(depth + 1)]
            head = self.statements.loop.format(self.loops.indices[axes[depth]], self.sizes[axes[depth]])
            body = [head, *body, "}"] if body else []
        yield from (self.statements.variable.format(self.totals[value], self._start(value)) for value in here)
        yield from body
        for value in here:
            if value.axes:
                yield f"{self.loops.places[value].element(self.at).text} = {self.totals[value]};"

    def innermost(self) -> Iterator[str]:
        """The lines inside all loops."""
        yield from self.definitions()
        yield from map(self.accumulate, self.nest.reductions)
        for value in self.nest.kept:
            if self.nests.is_moved(value):
                assert isinstance(value.op, ops.CumulativeSum)
                yield self._cumulate(value, value.op)
            elif value.axes and value not in self.written and value in self.variables:
                yield self.write(self.loops.places[value], value)
        for store in self.nest.stores:
            yield self.write(self.loops.targets[store.memory.name], store.value)

    def definitions(self) -> Iterator[str]:
        """The lines that compute values with a name or several readers."""
        own = {*self.nest.reductions, *self.nest.kept}
        uses = Counter(self.roots)
        uses += Counter(arg for value in self.inside if value not in self.sums for arg in value.inputs)
        for value in self.inside:
            if value not in self.complete and (value in own or uses[value] > 1 or value.name is not None):
                name = self.new_name(value)
                yield self.definition(value, name, self.expression(value))
                self.variables[value] = name

    def definition(self, value: Value, name: str, expression: Expression) -> str:
        """The definition of a variable."""
        return (self.statements.mask if value.op in MASKS else self.statements.number).format(name, expression.text)

    def write(self, place: Place, value: Value) -> str:
        """The line that writes a value to a place, as a one or a zero if it is a truth value."""
        expression = self.read(value, self.at)
        if value.op in MASKS:
            expression = self.dialect.apply("where", [expression, self.dialect.number(1.0), self.dialect.number(0.0)])
        return f"{place.element(self.at).text} = {expression.text};"

    def accumulate(self, value: Value) -> str:
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
        number = self.loops.step.number(value)
        if number is not None:
            truth = self.dialect.number(number)
            return self.dialect.apply("ne", [truth, self.dialect.number(0.0)]) if self.is_mask(value) else truth
        if value in self.variables:
            return Expression(self.variables[value])
        if self.nests.is_view(value):
            return self._view(value, at)
        if value in self.loops.step.constants:
            self.loops.place_of_constant(value, self.axes)
        if value in self.loops.places:
            return self.element(value, at)
        return self.expression(value)

    def is_mask(self, value: Value) -> bool:
        """Whether a value is a truth value."""
        return value.op in MASKS or (
            value in self.loops.step.constants and self.loops.step.constants[value].dtype == bool
        )

    def element(self, value: Value, at: Position) -> Expression:
        """The expression of an element in memory."""
        element = self.loops.places[value].element(at)
        return Expression(f"{element.text} != 0", EQUALITY) if self.is_mask(value) else element

    def expression(self, value: Value) -> Expression:
        """The expression of a value that a nest computes."""
        if value in self.sums:
            return self.loops.sum_at(value, self.at)
        assert isinstance(value.op, str)
        return self.dialect.apply(value.op, [self.read(arg, self.at) for arg in value.args])

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
