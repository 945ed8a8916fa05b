"""The C function that computes one step of a direction, and its packed weights."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from glassgate.engines.axes import FEATURES, PROJECTED, UNITS
from glassgate.engines.lowering.expressions import SIGNS_AND_ARITHMETIC, Expression
from glassgate.engines.lowering.ir import Elementwise, Value
from glassgate.engines.lowering.step import Key
from glassgate.export.c_dialect import lanes_dialect, scalar_dialect
from glassgate.export.c_means import move_means_into_weights
from glassgate.export.network import DirectionSpec
from glassgate.export.unit_loops import UnitLoop, UnitLoops
from glassgate.export.weighted_graph import Product, WeightedGraph


@dataclass
class PackedWeights:
    """Weights in the order in which a step reads them.

    Units are divided into blocks. Each phase reads its rows of weights block by block: [block][row][unit of the block].

    Attributes:
        block: the number of units in a block.
        parts: the weights of each phase, (blocks, rows, block).
    """

    block: int
    parts: list[np.ndarray] = field(default_factory=list)

    @property
    def offset(self) -> int:
        """The offset at which the weights of the next phase begin."""
        return sum(part.size for part in self.parts)

    @property
    def flat(self) -> np.ndarray:
        """All weights in one dimension."""
        parts = [part.reshape(-1) for part in self.parts]
        return np.concatenate(parts) if parts else np.zeros(0)

    def blocks_of(self, vector: np.ndarray, units: int) -> np.ndarray:
        """Pad a vector (units,) with zeros, and reshape it to (blocks, block)."""
        blocks = -(-units // self.block)
        padded = np.zeros(blocks * self.block, vector.dtype)
        padded[: len(vector)] = vector
        return padded.reshape(blocks, self.block)


class StepFunction:
    """The C function that computes one step of a direction.

    Each phase of the step becomes a loop over blocks of units. An iteration first computes the matrix products of a
    block, then the pointwise operations. Both operate on `lanes`, the vector registers of `support.c`.

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
        self.spec, self.block = spec, block
        self.double = spec.weights["weight_ih"].dtype == torch.float64
        self.lanes, self.scalars = lanes_dialect(self.double), scalar_dialect(self.double)
        self.graph = move_means_into_weights(WeightedGraph(spec))
        self.name = name.replace(".", "_")
        self.packed = PackedWeights(block)
        self.widths = {UNITS: spec.hidden_size, PROJECTED: spec.output_size, FEATURES: spec.input_size}
        self.state_sizes = {name: self.padded(spec.widths[name]) for name in self.graph.states}
        self.program = UnitLoops(self.graph)
        self._name_variables()
        self.text = "\n".join(self._lines())

    def _name_variables(self) -> None:
        names, graph, program = self.lanes.names(), self.graph, self.program
        self._arrays: dict[Value, str] = {graph.x: "x"}
        """The array of each input and, after its phase, of each stored value."""
        self._arrays |= {state: names.new(f"state_{name}") for name, state in graph.states.items()}
        self._variables = {v: names.new(graph.name_of(v)) for v in program.values if v not in graph.inputs}
        """The variable of each value in the phase that computes or loads it, and of each scalar."""
        self._array_names = {value: names.new(f"all_{self._variables[value]}") for value in program.kept}
        self._sum_names = {
            value: names.new(f"sum_{name}" if program.is_sum(value) else f"{name}_sum")
            for value, name in self._variables.items()
            if program.is_sum(value) or program.is_product(value)
        }
        """The variables that accumulate matrix products and sums over units."""
        self._new_names = {name: names.new(f"new_{name}") for name in graph.new_states if self._is_buffered(name)}

    def padded(self, units: int) -> int:
        """The number of units rounded up to whole blocks."""
        return -(-units // self.block) * self.block

    def _lines(self) -> Iterator[str]:
        spec, graph = self.spec, self.graph
        states = "".join(f", real *{self._arrays[state]}" for state in graph.states.values())
        yield f"/* {spec.label}: one step, {spec.input_size} -> {spec.output_size}. */"
        yield f"static void {self.name}(const real *W, const real *x{states}) {{"
        body = [line for loop in self.program.loops for line in self._unit_loop(loop)]
        for name, buffer in self._new_names.items():
            yield f"    ALIGNED real {buffer}[{self.state_sizes[name]}];"
        for value, array in self._array_names.items():
            yield f"    ALIGNED real {array}[{self.padded(self.widths[graph.axis_of(value)])}];"
        if not self.packed.parts:
            yield "    (void)W;"
        if graph.x not in self.program.values:
            yield "    (void)x;"
        yield from body
        for name, buffer in self._new_names.items():
            yield f"    memcpy({self._arrays[graph.states[name]]}, {buffer}, sizeof {buffer});"
        yield "}"

    def _is_buffered(self, state: str) -> bool:
        """Whether a new state needs a buffer, because a later operation still reads the old state."""
        graph, program = self.graph, self.program
        old, new = graph.states[state], graph.new_states[state]
        storing_phase, has_one_block = program.storing_key(state), self.state_sizes[state] == self.block
        for value in (value for value in program.values if old in program.operands(value)):
            # A block computes its products before its new states, but after the new states of earlier blocks.
            phase = program.key_of(value)
            is_late = program.is_product(value) and phase == storing_phase and not has_one_block
            if phase > storing_phase or is_late:
                return True
        others = (other for name, other in graph.new_states.items() if name != state)
        return any(other is old for other in others) or new in graph.inputs

    def _unit_loop(self, loop: UnitLoop) -> Iterator[str]:
        """The lines of a loop over units. Adds the weights of the loop to `packed`."""
        units = self.widths[loop.axis]
        affine = [value for value in loop.computed if self.program.is_product(value)]
        for scalar in loop.scalars:
            if not self.program.is_inlined(scalar):
                yield f"    const {self._type(scalar)} {self._variables[scalar]} = {self._expression(scalar).text};"
        for total in loop.sums:
            yield f"    lanes {self._sum_names[total]} = broadcast(0);"
        biases = [bias for value in affine if (bias := self.graph.affine[value].bias) is not None]
        rows = [self.packed.blocks_of(bias, units) for bias in biases]
        products = list(self._matrix_products(affine, units, rows))
        rows += [self.packed.blocks_of(self.graph.constants[v].reshape(-1), units) for v in loop.constants]
        yield f"    for (int u = 0; u < {self.padded(units)}; u += BLOCK) {{"
        if rows:
            part = np.stack(rows, 1)
            offset = f"W + {self.packed.offset}" if self.packed.offset else "W"
            yield f"        const real *w = {offset} + u * {part.shape[1]};"
            self.packed.parts.append(part)
        yield from (f"        {line}" for line in products)
        yield "        UNROLL for (int part = 0; part < ROWS; part++) {"
        yield "            const int at = u + part * LANES;"
        for value in affine:
            yield f"            const lanes {self._variables[value]} = {self._sum_names[value]}[part];"
        for k, constant in enumerate(loop.constants):
            load = self._load(constant, f"w + {k} * BLOCK + part * LANES")
            yield f"            const {self._type(constant)} {self._variables[constant]} = {load};"
        yield from (f"            {line}" for line in self._pointwise(loop))
        yield "        }"
        yield "    }"
        for total in loop.sums:
            yield f"    const real {self._variables[total]} = sum_lanes({self._sum_names[total]});"
        # Later phases load the stored values of this phase.
        self._arrays |= {value: self._array_names[value] for value in loop.computed if value in self.program.kept}

    def _pointwise(self, loop: UnitLoop) -> Iterator[str]:
        """Lines that compute the pointwise operations of one register of units, after the matrix products."""
        for value in loop.computed:
            if not (self.program.is_product(value) or self.program.is_inlined(value)):
                yield f"const {self._type(value)} {self._variables[value]} = {self._expression(value).text};"
            if value in self.program.kept:
                store = "store_mask" if _is_mask(value) else "store"
                yield f"{store}({self._array_names[value]} + at, {self._variables[value]});"
        units = self.widths[loop.axis]
        for total in loop.sums:
            (term,) = self.program.operands(total)
            x = self._as_lanes(term, loop.key).text
            yield f"{self._sum_names[total]} += {f'first_lanes({x}, {units} - at)' if units % self.block else x};"
        for name in loop.names:
            target = self._new_names.get(name) or self._arrays[self.graph.states[name]]
            yield f"store({target} + at, {self._as_lanes(self.program.outcome[name], loop.key).text});"

    def _matrix_products(self, affine: Sequence[Value], units: int, rows: list[np.ndarray]) -> Iterator[str]:
        """Lines that compute the matrix products of one block together.

        Args:
            affine: the sums of matrix products of a phase.
            units: the number of units.
            rows: the rows of the packed weights, to which each column of a matrix is appended as a row.
        """
        sums = {value: self.graph.affine[value] for value in affine}
        biased = [value for value in affine if sums[value].bias is not None]
        for value in affine:
            terms = [product.label for product in sums[value].products] + ["bias"] * (value in biased)
            note = ", minus a mean (in the weights)" if sums[value].is_centred else ""
            yield f"lanes {self._sum_names[value]}[ROWS]; /* {' + '.join(terms)}{note} */"
        if affine:
            yield "for (int part = 0; part < ROWS; part++) {"
            for value in affine:
                start = f"load(w + {biased.index(value)} * BLOCK + part * LANES)" if value in biased else "broadcast(0)"
                yield f"    {self._sum_names[value]}[part] = {start};"
            yield "}"
        if biased:
            yield f"w += {len(biased)} * BLOCK;"
        products = [(value, self.graph.origin(p.vector), p) for value in affine for p in sums[value].products]
        for vector in dict.fromkeys(vector for _, vector, _ in products):
            readers = [(value, product) for value, own, product in products if own is vector]
            matrices = [self._matrix(product, units) for _, product in readers]
            columns = matrices[0].shape[1]
            source = self._arrays[vector]
            if columns != self.widths[self.graph.axis_of(vector)]:  # a unit reads only its own head
                source = f"({source} + u / {units // self.spec.equations.heads} * {columns})"
            yield f"for (int k = 0; k < {columns}; k++, w += {len(readers)} * BLOCK)"
            yield "    for (int part = 0; part < ROWS; part++) {"
            for k, (value, _) in enumerate(readers):
                yield f"        {self._sum_names[value]}[part] += {source}[k] * load(w + {k} * BLOCK + part * LANES);"
            yield "    }"
            for k in range(columns):
                rows += [self.packed.blocks_of(matrix[:, k], units) for matrix in matrices]

    def _matrix(self, product: Product, units: int) -> np.ndarray:
        """The matrix of a product in two dimensions.

        With several heads, each row contains only the columns of its head: (units, columns of a head). If a block would
        contain units of two heads, the matrix is block-diagonal instead: (units, all columns).
        """
        matrix = product.matrix
        if matrix.ndim == 2:
            return matrix
        heads, rows, columns = matrix.shape
        if rows % self.block == 0:
            return matrix.reshape(heads * rows, columns)
        block_diagonal = np.zeros((units, heads * columns), matrix.dtype)
        for head in range(heads):
            block_diagonal[head * rows : (head + 1) * rows, head * columns : (head + 1) * columns] = matrix[head]
        return block_diagonal

    def _type(self, value: Value) -> str:
        if self.graph.is_single(value):
            return "int" if _is_mask(value) else "real"
        return "mask" if _is_mask(value) else "lanes"

    def _load(self, value: Value, address: str) -> str:
        """The expression that loads numbers, or truth values that are stored as ones and zeros."""
        return f"{'load_mask' if _is_mask(value) else 'load'}({address})"

    def _read(self, arg: Value | float, phase: Key) -> Expression:
        """The expression of a value in a phase: of lanes or, for a single number, of this number."""
        number = self.graph.number(arg) if isinstance(arg, Value) else arg
        if number is not None:
            return Expression(str(int(number))) if _is_mask(arg) else self.scalars.number(number)
        assert isinstance(arg, Value)
        is_here = self.graph.is_single(arg) or self.program.key_of(arg) == phase
        if self.program.is_inlined(arg) and is_here:
            return self._expression(arg)
        if arg in self.graph.inputs or (arg in self.program.kept and not is_here):
            return Expression(self._load(arg, f"{self._arrays[arg]} + at"))
        return Expression(self._variables[arg])

    def _as_lanes(self, arg: Value | float, phase: Key) -> Expression:
        """The expression of a value as lanes. A single number is broadcast."""
        return self._read(arg, phase) if self._is_vector(arg) else _broadcast(self._read(arg, phase), _is_mask(arg))

    def _is_vector(self, arg: Value | float) -> bool:
        return isinstance(arg, Value) and not self.graph.is_single(arg)

    def _expression(self, value: Value) -> Expression:
        """The expression of an operation: on one number for a single number, otherwise on lanes."""
        operation, phase = self.graph.operations[value], self.program.key_of(value)
        assert isinstance(operation, Elementwise)
        args = [self.graph.origin(arg) if isinstance(arg, Value) else arg for arg in operation.args]
        if not any(map(self._is_vector, args)):
            expression = self.scalars.apply(operation.op, [self._read(arg, phase) for arg in args])
            return expression if self.graph.is_single(value) else _broadcast(expression, _is_mask(value))
        # The operators of lanes also accept one number as an operand.
        read = self._read if operation.op in SIGNS_AND_ARITHMETIC else self._as_lanes
        return self.lanes.apply(operation.op, [read(arg, phase) for arg in args])


def _is_mask(value: Value | float) -> bool:
    return isinstance(value, Value) and value.type.dtype == "bool"


def _broadcast(expression: Expression, is_mask: bool) -> Expression:
    return Expression(f"{'broadcast_mask' if is_mask else 'broadcast'}({expression.text})")
