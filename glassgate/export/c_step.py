"""The C function that computes one step of a direction, and its packed weights."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from math import prod
from typing import NamedTuple

import numpy as np
import torch

from glassgate.engines.lowering.expressions import SIGNS_AND_ARITHMETIC, Expression
from glassgate.engines.lowering.nests import Axes, Nest
from glassgate.engines.symbolic import ops
from glassgate.engines.symbolic.arrays.value import Value
from glassgate.export.c_dialect import lanes_dialect, scalar_dialect
from glassgate.export.c_means import move_means_into_weights
from glassgate.export.loops import Loops, NestPrinter, Statements
from glassgate.export.network import DirectionSpec
from glassgate.export.places import PackedWeights, Place, Position, strides_of
from glassgate.export.weighted_step import Product, Terms, WeightedStep, input_places, weighted_step

C_STATEMENTS = Statements(
    loop="for (int {0} = 0; {0} < {1}; {0}++) {{",
    number="const real {} = {};",
    mask="const int {} = {};",
    variable="real {} = {};",
    array="real {}[{}];",
    quotient="{} / {}",
)


class StepFunction(Loops):
    """The C function that computes one step of a direction.

    Matrix products are loops over blocks of units on `lanes`, the vector registers of `support.c`. If all values of a
    step have one axis or none, the pointwise operations follow in the same loops. Otherwise they are loops on single
    numbers.

    Args:
        spec: the direction.
        block: the number of units in a block.
        name: the name of the function; dots become underscores.

    Attributes:
        name: the name of the function.
        state_sizes: the padded size of the array of each state, by name.
        packed: the weights.
        text: the function.
    """

    def __init__(self, spec: DirectionSpec, block: int, name: str) -> None:
        self.spec, self.name, self.double = spec, name.replace(".", "_"), spec.dtype == torch.float64
        self.packed, self.lanes = PackedWeights(block), lanes_dialect(self.double)
        super().__init__(move_means_into_weights(weighted_step(spec)), scalar_dialect(self.double), C_STATEMENTS)
        self.is_flat = _is_flat(self.step)
        self.state_sizes = {name: self.packed.padded(n) if self.is_flat else n for name, n in spec.widths.items()}
        self.sum_names: dict[Value, str] = {}
        """The variables that accumulate matrix products."""
        self.text = "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        spec, step, names = self.spec, self.step, self.names
        arrays = {name: names.new(f"state_{name}") for name in spec.widths}
        self.places |= input_places(spec, step, "x")
        states = {leaf: arrays[leaf.op.name] for leaf in step.values if isinstance(leaf.op, ops.State)}
        self.places |= {leaf: Place(array, strides_of(leaf.axes, step.sizes)) for leaf, array in states.items()}
        buffers: dict[str, str] = {}
        for name, axes in step.state.items():
            if not self.nests.can_replace(name, self.is_flat and self.state_sizes[name] == self.packed.block):
                buffers[name] = names.new(f"new_{name}")
            self.targets[name] = Place(buffers.get(name, arrays[name]), strides_of(axes, step.sizes))
        body = [*self.lines()]
        parameters = "".join(f", real *{array}" for array in arrays.values())
        yield f"/* {spec.label}: one step, {spec.input_size} -> {spec.output_size}. */"
        yield f"static void {self.name}(const real *W, const real *x{parameters}) {{"
        text = "\n".join([*body, *(arrays[name] for name in buffers)])
        unused = [name for name in ("W", "x", *arrays.values()) if not re.search(rf"\b{name}\b", text)]
        yield from (f"    (void){name};" for name in unused)
        yield from (f"    ALIGNED real {buffer}[{self.state_sizes[name]}];" for name, buffer in buffers.items())
        yield from (f"    {line}" for line in body)
        yield from (f"    memcpy({arrays[name]}, {buffer}, sizeof {buffer});" for name, buffer in buffers.items())
        yield "}"

    def printer(self, nest: Nest) -> NestPrinter:
        """The printer of a nest: on `lanes`, or on single numbers."""
        return _BlockPrinter(self, nest) if self.is_flat and nest.axes else NestPrinter(self, nest)

    def allocate(self, value: Value) -> str:
        """A line that defines the array of a stored value."""
        line = super().allocate(value)
        if not self.is_flat:
            return line
        return f"ALIGNED real {self.places[value].array}[{self.packed.padded(self.step.count(value.axes))}];"

    def store_constant(self, value: Value, axes: Axes, numbers: np.ndarray) -> Place:
        """Add a constant to the weights, and return its place."""
        return Place("W", strides_of(axes, self.step.sizes), self.packed.add(numbers))

    def lines(self) -> Iterator[str]:
        """The lines of the step."""
        if not self.is_flat:
            yield from self._products_of_leaves()
        yield from super().lines()

    def _products_of_leaves(self) -> Iterator[str]:
        """Lines that compute all matrix products of the input and of states, together if they have the same vectors."""
        groups: dict[tuple[Value, ...], list[Value]] = {}
        for value in self.step.values:
            is_first = value in self.step.sums and all(isinstance(vector.op, ops.Leaf) for vector in value.inputs)
            if is_first and all(product.matrix.ndim == 2 for product in self.step.sums[value].products):
                groups.setdefault(value.inputs, []).append(value)
        for vectors, values in groups.items():
            terms = [self.step.sums[value] for value in values]
            matrices = [np.concatenate([each.products[k].matrix for each in terms]) for k in range(len(vectors))]
            products = [p._replace(matrix=m) for p, m in zip(terms[0].products, matrices, strict=True)]
            biases = [np.zeros(len(t.products[0].matrix)) if t.bias is None else t.bias for t in terms]
            bias = None if all(each.bias is None for each in terms) else np.concatenate(biases)
            name, starts = (
                self.name_of(values[0]) if len(values) == 1 else "gates",
                accumulate(map(len, biases), initial=0),
            )
            yield from self._array_of_sums(name, vectors, Terms(tuple(products), bias), values, starts)

    def _array_of_sums(
        self, name: str, vectors: tuple[Value, ...], terms: Terms, values: Sequence[Value], starts: Iterable[int]
    ) -> Iterator[str]:
        """Lines that compute an array of sums of matrix products, in which each value begins at a start."""
        array, units = self.names.new(name), prod(terms.products[0].matrix.shape[:-1])
        for value, start in zip(values, starts, strict=False):
            self.places[value] = Place(array, strides_of(value.axes, self.step.sizes), str(start) if start else "")
        total = Sum(self.names.new(f"{array}_sum"), vectors, terms)
        yield f"ALIGNED real {array}[{self.packed.padded(units)}];"
        yield from self.block_loop([total], [], units, [f"store({array} + at, {total.name}[part]);"])

    def products(self, values: Sequence[Value]) -> Iterator[str]:
        """Lines that compute matrix products before loops on single numbers."""
        for value in values:
            if value not in self.places:
                yield from self._array_of_sums(self.name_of(value), value.inputs, self.step.sums[value], [value], [0])

    def sum_of(self, value: Value) -> "Sum":
        """A sum of matrix products with a new variable."""
        name = self.names.new(f"{self.name_of(value)}_sum")
        self.sum_names[value] = name
        return Sum(name, value.inputs, self.step.sums[value])

    def sum_at(self, value: Value, at: Position) -> Expression:
        """The expression of a register of a sum of matrix products."""
        return Expression(f"{self.sum_names[value]}[part]")

    def block_loop(
        self, sums: Sequence["Sum"], constants: Sequence[np.ndarray], units: int, body: Sequence[str]
    ) -> Iterator[str]:
        """The lines of a loop over blocks of units. Adds its weights to `packed`.

        Args:
            sums: the sums of matrix products that it computes.
            constants: vectors whose numbers follow the weights of a block.
            units: the number of units.
            body: the lines for one register of units, after the matrix products.
        """
        rows: list[np.ndarray] = []
        products = [*self._matrix_products(sums, units, rows)] if sums else []
        rows += map(self.packed.blocks_of, constants)
        yield f"for (int u = 0; u < {self.packed.padded(units)}; u += BLOCK) {{"
        if rows:
            part = np.stack(rows, 1)
            offset = self.packed.add(part)
            yield f"    const real *w = W{f' + {offset}' if offset else ''} + u * {part.shape[1]};"
        yield from (f"    {line}" for line in products)
        yield "    UNROLL for (int part = 0; part < ROWS; part++) {"
        if re.search(r"\bat\b", "\n".join(body)):
            yield "        const int at = u + part * LANES;"
        yield from (f"        {line}" for line in body)
        yield "    }"
        yield "}"

    def _matrix_products(self, sums: Sequence["Sum"], units: int, rows: list[np.ndarray]) -> Iterator[str]:
        """Lines that compute the matrix products of one block together.

        Args:
            sums: the sums of matrix products.
            units: the number of units.
            rows: the rows of the packed weights, to which each bias and each column of a matrix is appended as a row.
        """
        starts = {name: "broadcast(0)" for name, *_ in sums}
        readers: dict[Value, list[tuple[str, np.ndarray]]] = {}
        for name, vectors, (products, bias, is_centred) in sums:
            words = [f"{p.weight} {self.name_of(v)}" for v, p in zip(vectors, products, strict=True)]
            if bias is not None:
                starts[name] = f"load(w + {len(rows)} * BLOCK + part * LANES)"
                rows.append(self.packed.blocks_of(bias))
                words.append("bias")
            note = ", minus a mean (in the weights)" if is_centred else ""
            yield f"lanes {name}[ROWS]; /* {' + '.join(words)}{note} */"
            for vector, product in zip(vectors, products, strict=True):
                readers.setdefault(vector, []).append((name, self._matrix(product, units)))
        yield "for (int part = 0; part < ROWS; part++) {"
        yield from (f"    {name}[part] = {start};" for name, start in starts.items())
        yield "}"
        if rows:
            yield f"w += {len(rows)} * BLOCK;"
        for vector, own in readers.items():
            place, columns = self.places[vector], own[0][1].shape[1]
            source = f"({place.array} + {place.base})" if place.base else place.array
            if columns != self.step.count(vector.axes):  # a unit reads only its own head
                source = f"({source} + u / {units // self.spec.heads} * {columns})"
            yield f"for (int k = 0; k < {columns}; k++, w += {len(own)} * BLOCK)"
            yield "    for (int part = 0; part < ROWS; part++) {"
            for k, (name, _) in enumerate(own):
                yield f"        {name}[part] += {source}[k] * load(w + {k} * BLOCK + part * LANES);"
            yield "    }"
            rows += [self.packed.blocks_of(matrix[:, k]) for k in range(columns) for _, matrix in own]

    def _matrix(self, product: Product, units: int) -> np.ndarray:
        """The matrix of a product in two dimensions.

        With several heads, each row contains only the columns of its head: (units, columns of a head). If a block would
        contain units of two heads, the matrix is block-diagonal instead: (units, all columns).
        """
        matrix = product.matrix
        if matrix.ndim == 2:
            return matrix
        heads, rows, columns = matrix.shape
        if rows % self.packed.block == 0:
            return matrix.reshape(heads * rows, columns)
        return torch.block_diag(*map(torch.from_numpy, matrix)).numpy()


class Sum(NamedTuple):
    """A sum of matrix products in a loop over blocks.

    Attributes:
        name: the variable that accumulates it.
        vectors: the vectors that its matrices multiply.
        terms: its matrices and its bias.
    """

    name: str
    vectors: tuple[Value, ...]
    terms: Terms


def _is_flat(step: WeightedStep) -> bool:
    """Whether all values have one axis or none, and every element is read only at its own position or in a product."""
    sequential = ops.Gather | ops.Merge | ops.Concatenate | ops.CumulativeSum | ops.Max
    read = {arg for value in step.values if value not in step.sums for arg in value.inputs}
    return not any(
        len(value.axes) > 1 or isinstance(value.op, sequential) or (isinstance(value.op, ops.Input) and value in read)
        for value in [*step.values, *read]
    )


class _BlockPrinter(NestPrinter):
    """Prints a nest over units as a loop over blocks of units."""

    loops: StepFunction

    def __init__(self, loops: StepFunction, nest: Nest) -> None:
        super().__init__(loops, nest)
        self.lanes = loops.lanes
        self.at = dict.fromkeys(nest.axes, Expression("at"))

    def lines(self) -> Iterator[str]:
        """The lines of the nest."""
        loops, names = self.loops, self.loops.names
        yield from self.allocations()
        products = [loops.sum_of(value) for value in self.inside if value in self.sums]
        self.totals = {value: names.new(f"sum_{loops.name_of(value)}") for value in self.nest.reductions}
        yield from (f"lanes {total} = broadcast(0);" for total in self.totals.values())
        read = [arg for v in self.inside if v not in self.sums for arg in v.inputs] + self.roots
        constants = [v for v in dict.fromkeys(read) if v in loops.step.constants and self._is_vector(v)]
        body = []
        for k, value in enumerate(constants):
            self.variables[value] = self.new_name(value)
            load = f"{'load_mask' if self.is_mask(value) else 'load'}(w + {k} * BLOCK + part * LANES)"
            body.append(self.definition(value, self.variables[value], Expression(load)))
        units, numbers = self.sizes[self.axes[0]], [loops.step.constants[value].reshape(-1) for value in constants]
        yield from loops.block_loop(products, numbers, units, [*body, *self.innermost()])
        for value, total in self.totals.items():
            loops.variables[value] = self.new_name(value)
            yield f"const real {loops.variables[value]} = sum_lanes({total});"

    def definition(self, value: Value, name: str, expression: Expression) -> str:
        """The definition of a variable."""
        return f"const {'mask' if self.is_mask(value) else 'lanes'} {name} = {expression.text};"

    def write(self, place: Place, value: Value) -> str:
        """The line that stores a register."""
        return f"{'store_mask' if self.is_mask(value) else 'store'}({place.array} + at, {self._as_lanes(value).text});"

    def accumulate(self, value: Value) -> str:
        """The line that adds to a sum over units."""
        x, units = self._as_lanes(value.inputs[0]).text, self.sizes[self.axes[0]]
        x = f"first_lanes({x}, {units} - at)" if units % self.loops.packed.block else x
        return f"{self.totals[value]} += {x};"

    def element(self, value: Value, at: Position) -> Expression:
        """The expression of a register in memory."""
        return Expression(f"{'load_mask' if self.is_mask(value) else 'load'}({self.loops.places[value].array} + at)")

    def _is_vector(self, arg: Value | float) -> bool:
        return isinstance(arg, Value) and bool(arg.axes) and self.loops.step.number(arg) is None

    def _as_lanes(self, arg: Value | float) -> Expression:
        """The expression of a value as lanes. A single number is broadcast."""
        expression = self.read(arg, self.at)
        return expression if self._is_vector(arg) else self._broadcast(expression, arg)

    def _broadcast(self, expression: Expression, value: Value | float) -> Expression:
        is_mask = isinstance(value, Value) and self.is_mask(value)
        return Expression(f"{'broadcast_mask' if is_mask else 'broadcast'}({expression.text})")

    def expression(self, value: Value) -> Expression:
        """The expression of a value that the nest computes, as lanes."""
        if value in self.sums:
            return super().expression(value)
        assert isinstance(value.op, str)
        if not any(map(self._is_vector, value.args)):
            return self._broadcast(super().expression(value), value)
        # The operators of lanes also accept one number as an operand.
        is_arithmetic = value.op in SIGNS_AND_ARITHMETIC
        args = [self.read(arg, self.at) if is_arithmetic else self._as_lanes(arg) for arg in value.args]
        return self.lanes.apply(value.op, args)
