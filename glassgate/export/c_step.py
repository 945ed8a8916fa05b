"""The C function that computes one step of a direction, and its packed weights."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from glassgate.engines.axes import FEATURES, PER_ROW, PROJECTED, UNITS
from glassgate.export.c_means import move_means_into_weights
from glassgate.export.network import DirectionSpec
from glassgate.export.phases import Affine, Constant, Input, Phase, Pointwise, Product, Step, StepValue, SumOverUnits

_KEYWORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
"""
KEYWORDS = frozenset(_KEYWORDS.split())
"""The keywords of C99."""
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_COMPARISONS = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_FUNCTION_NAMES = """
abs sign floor ceil round trunc sqrt exp expm1 log log1p sin cos tan atan sigmoid tanh erf pow minimum maximum
"""
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
"""Operations that are functions of `support.c`, for example `exp_lanes` for "exp"."""
_HELPERS = (
    "W x w u k at part broadcast load store select_lanes sum_lanes first_lanes real integer lanes mask memcpy "
    "LANES ROWS BLOCK SIZE MATH NOT REAL INTEGER LANE UNROLL ALIGNED HELPER"
)
_LIBRARY = (*_FUNCTIONS, "rint", "fabs", "fmin", "fmax")
_RESERVED = KEYWORDS.union(
    _HELPERS.split(), _LIBRARY, (f"{name}f" for name in _LIBRARY), (f"{name}_lanes" for name in _FUNCTIONS)
)
"""Names that values of a step must not have in C."""


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
        self.step = move_means_into_weights(Step(spec, _RESERVED))
        self.name = name.replace(".", "_")
        self.packed = PackedWeights(block)
        self.widths = {UNITS: spec.hidden_size, PROJECTED: spec.output_size, FEATURES: spec.input_size}
        self.state_sizes = {name: self.padded(spec.widths[name]) for name in self.step.states}
        self._stored, self._use_counts = self.step.stored_values, self.step.use_counts
        self._variables: dict[StepValue, str] = {}
        """The C variable that holds each value."""
        self.text = "\n".join(self._lines())

    def padded(self, units: int) -> int:
        """The number of units rounded up to whole blocks."""
        return -(-units // self.block) * self.block

    def _lines(self) -> Iterator[str]:
        spec, step = self.spec, self.step
        states = "".join(f", real *state_{name}" for name in self.state_sizes)
        yield f"/* {spec.label}: one step, {spec.input_size} -> {spec.output_size}. */"
        yield f"static void {self.name}(const real *W, const real *x{states}) {{"
        for name, state in step.states.items():
            self._variables[state] = f"state_{name}"
        self._variables[step.input] = "x"
        body = [line for phase in step.phases for line in self._phase_loop(phase)]
        buffered = [name for name in step.new_states if self._is_buffered(name)]
        for name in buffered:
            yield f"    ALIGNED real new_{name}[{self.state_sizes[name]}];"
        for value in step.values:
            if value in self._stored:
                yield f"    ALIGNED real all_{value.name}[{self.padded(self.widths[value.axis])}];"
        yield from body
        for name in buffered:
            yield f"    memcpy(state_{name}, new_{name}, sizeof new_{name});"
        yield "}"

    def _is_buffered(self, state: str) -> bool:
        """Whether a new state needs a buffer, because a later operation still reads the old state."""
        old, new = self.step.states[state], self.step.new_states[state]
        storing_phase, has_one_block = self.step.storing_phase(state), self.state_sizes[state] == self.block
        for value in self.step.values:
            match value:
                case Affine(products=products) if any(product.vector is old for product in products):
                    # A block computes its products before its new states, but after the new states of earlier blocks.
                    if value.phase > storing_phase or (value.phase == storing_phase and not has_one_block):
                        return True
                case Pointwise(args=args) if old in args and value.phase > storing_phase:
                    return True
        others = (other for name, other in self.step.new_states.items() if name != state)
        return any(other is old for other in others) or isinstance(new, Input)

    def _phase_loop(self, phase: Phase) -> Iterator[str]:
        """The loop of a phase over its units. Adds the weights of the phase to `packed`."""
        level, axis = phase
        units = self.widths[axis]
        computed = [v for v in self.step.values if isinstance(v, Affine | Pointwise) and v.phase == phase]
        affine = [value for value in computed if isinstance(value, Affine)]
        totals = [value for value in self.step.values if isinstance(value, SumOverUnits) and value.x in computed]
        constants = self._constants([value for value in computed if isinstance(value, Pointwise)])
        yield from self._scalars(level)
        for total in totals:
            yield f"    lanes sum_{total.name} = broadcast(0);"
        rows = [self.packed.blocks_of(value.bias, units) for value in affine if value.bias is not None]
        products = list(self._matrix_products(affine, units, rows))
        rows += [self.packed.blocks_of(constant.numbers, units) for constant in constants]
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
            yield f"            const lanes {value.name} = {value.name}_sum[part];"
        for k, constant in enumerate(constants):
            yield f"            const lanes {constant.name} = load(w + {k} * BLOCK + part * LANES);"
            self._variables[constant] = constant.name
        yield from (f"            {line}" for line in self._pointwise(phase, computed, totals))
        yield "        }"
        yield "    }"
        for total in totals:
            yield f"    const real {total.name} = sum_lanes(sum_{total.name});"
            self._variables[total] = total.name
        # Later phases load the stored values of this phase.
        self._variables |= {value: f"all_{value.name}" for value in computed if value in self._stored}

    def _scalars(self, level: int) -> Iterator[str]:
        """Lines that compute the scalar values of a level."""
        for value in self.step.values:
            if isinstance(value, Pointwise) and value.phase == (level, PER_ROW) and value not in self._variables:
                self._variables[value] = value.name
                if not self._is_inline(value):
                    yield f"    const {self._type(value)} {value.name} = {self._expression(value, scalar=True)};"

    def _pointwise(
        self, phase: Phase, computed: Sequence[Affine | Pointwise], totals: Sequence[SumOverUnits]
    ) -> Iterator[str]:
        """Lines that compute the pointwise operations of one register of units, after the matrix products."""
        for value in computed:
            if isinstance(value, Pointwise) and not self._is_inline(value):
                yield f"const {self._type(value)} {value.name} = {self._expression(value)};"
            if value in self._stored:
                yield f"store(all_{value.name} + at, {value.name});"
        units = self.widths[phase[1]]
        for total in totals:
            x = self._read(total.x, phase)
            yield f"sum_{total.name} += {f'first_lanes({x}, {units} - at)' if units % self.block else x};"
        for name, new in self.step.new_states.items():
            if self.step.storing_phase(name) == phase:
                target = f"{'new' if self._is_buffered(name) else 'state'}_{name}"
                yield f"store({target} + at, {self._as_lanes(self._read(new, phase), new)});"

    def _matrix_products(self, affine: Sequence[Affine], units: int, rows: list[np.ndarray]) -> Iterator[str]:
        """Lines that compute the matrix products of one block together.

        Args:
            affine: the sums of matrix products of a phase.
            units: the number of units.
            rows: the rows of the packed weights, to which each column of a matrix is appended as a row.
        """
        biased = [value for value in affine if value.bias is not None]
        for value in affine:
            terms = [product.label for product in value.products] + (["bias"] if value.bias is not None else [])
            note = ", minus a mean (in the weights)" if value.is_centred else ""
            yield f"lanes {value.name}_sum[ROWS]; /* {' + '.join(terms)}{note} */"
        if affine:
            yield "for (int part = 0; part < ROWS; part++) {"
            for value in affine:
                start = f"load(w + {biased.index(value)} * BLOCK + part * LANES)" if value in biased else "broadcast(0)"
                yield f"    {value.name}_sum[part] = {start};"
            yield "}"
        if biased:
            yield f"w += {len(biased)} * BLOCK;"
        vectors = list(dict.fromkeys(product.vector for value in affine for product in value.products))
        for vector in vectors:
            readers = [(value, product) for value in affine for product in value.products if product.vector is vector]
            matrices = [self._matrix(product, units) for _, product in readers]
            columns = matrices[0].shape[1]
            source = self._array(vector)
            if columns != self.widths[vector.axis]:  # a unit reads only its own head
                source = f"({source} + u / {units // self.spec.equations.heads} * {columns})"
            yield f"for (int k = 0; k < {columns}; k++, w += {len(readers)} * BLOCK)"
            yield "    for (int part = 0; part < ROWS; part++) {"
            for k, (value, _) in enumerate(readers):
                yield f"        {value.name}_sum[part] += {source}[k] * load(w + {k} * BLOCK + part * LANES);"
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

    def _array(self, vector: StepValue) -> str:
        """The C array with all units of a vector."""
        return f"all_{vector.name}" if vector in self._stored else self._variables[vector]

    def _constants(self, operations: Sequence[Pointwise]) -> list[Constant]:
        """The constant vectors that these operations or new states read. Makes their names unique."""
        read = [*(arg for operation in operations for arg in operation.args), *self.step.new_states.values()]
        constants = list(dict.fromkeys(arg for arg in read if isinstance(arg, Constant) and not arg.is_scalar))
        names = {value.name for value in self.step.values if not isinstance(value, Constant)}
        for constant in constants:
            while constant.name in names | _RESERVED:
                constant.name += "_"
            names.add(constant.name)
        return constants

    def _is_inline(self, value: Pointwise) -> bool:
        """Whether a value without a name is written inside the expression of its only reader."""
        is_stored = value in self._stored or value in self.step.new_states.values()
        return not value.is_named and not is_stored and self._use_counts[value] == 1

    def _type(self, value: StepValue) -> str:
        is_mask = isinstance(value, Pointwise) and (value.op in _COMPARISONS or value.op.startswith("logical"))
        if value.is_scalar:
            return "int" if is_mask else "real"
        return "mask" if is_mask else "lanes"

    def _read(self, arg: StepValue | float, phase: Phase, in_sum: bool = False, is_argument: bool = False) -> str:
        """The text of a value in an expression of a phase.

        Args:
            in_sum: whether the value is an operand of + or -, where * and / need no brackets.
            is_argument: whether the value is a whole argument of a function, which needs no brackets.
        """
        if not isinstance(arg, StepValue):
            return number(arg, self.double)
        match arg:
            case Input():
                return f"load({self._variables[arg]} + at)"
            case Constant(is_scalar=True):
                return number(float(arg.numbers.reshape(-1)[0]), self.double)
            case Pointwise() if self._is_inline(arg) and (arg.is_scalar or arg.phase == phase):
                text = self._expression(arg, scalar=arg.is_scalar)
                is_tight = arg.op in _FUNCTIONS or arg.op == "detach" or (arg.op in ("mul", "div") and in_sum)
                return text if is_argument or (is_tight and not arg.is_scalar) else f"({text})"
        if arg in self._stored and arg.phase != phase:
            return f"load(all_{arg.name} + at)"
        return arg.name

    def _as_lanes(self, text: str, arg: StepValue | float) -> str:
        """The text of an argument of a function that takes lanes; a scalar is broadcast."""
        return text if isinstance(arg, StepValue) and not arg.is_scalar else f"broadcast({text})"

    def _expression(self, value: Pointwise, scalar: bool = False) -> str:
        is_function = value.op in _FUNCTIONS and not scalar
        args = [self._read(arg, value.phase, value.op in ("add", "sub"), is_function) for arg in value.args]
        if scalar:
            return _scalar_expression(value.op, args)
        lanes = [self._as_lanes(text, arg) for text, arg in zip(args, value.args, strict=True)]
        match value.op:
            case op if op in _INFIX:
                return f"{args[0]} {_INFIX[op]} {args[1]}"
            case op if op in _COMPARISONS:
                return f"(mask)({lanes[0]} {_COMPARISONS[op]} {lanes[1]})"
            case op if op in _FUNCTIONS:
                return f"{op}_lanes({', '.join(lanes)})"
            case "neg":
                return f"-{args[0]}"
            case "detach":
                return args[0]
            case "rsqrt":
                return f"broadcast(1) / sqrt_lanes({lanes[0]})"
            case "where":
                return f"select_lanes({args[0]}, {lanes[1]}, {lanes[2]})"
            case "logical_not":
                return f"NOT({args[0]})"
            case "logical_and":
                return f"{args[0]} & {args[1]}"
            case "logical_or":
                return f"{args[0]} | {args[1]}"
        raise AssertionError(f"unknown operation {value.op}")


def _scalar_expression(op: str, args: Sequence[str]) -> str:
    """The C expression of an operation on single numbers."""
    if op in _INFIX or op in _COMPARISONS:
        return f"{args[0]} {(_INFIX | _COMPARISONS)[op]} {args[1]}"
    match op:
        case "neg":
            return f"-{args[0]}"
        case "detach":
            return args[0]
        case "rsqrt":
            return f"1 / MATH(sqrt)({args[0]})"
        case "where":
            return f"{args[0]} ? {args[1]} : {args[2]}"
        case "logical_not":
            return f"!{args[0]}"
        case "logical_and":
            return f"{args[0]} && {args[1]}"
        case "logical_or":
            return f"{args[0]} || {args[1]}"
        case "minimum":
            return f"MATH(fmin)({args[0]}, {args[1]})"
        case "maximum":
            return f"MATH(fmax)({args[0]}, {args[1]})"
        case "abs":
            return f"MATH(fabs)({args[0]})"
        case "sign":
            return f"({args[0]} > 0) - ({args[0]} < 0)"
        case "sigmoid":
            return f"1 / (1 + MATH(exp)(-{args[0]}))"
        case "round":
            return f"MATH(rint)({args[0]})"
    return f"MATH({op})({', '.join(args)})"


def number(value: float, double: bool) -> str:
    """A number as a C literal."""
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "-INFINITY"
    if double:
        return repr(float(value))
    short = f"{np.float32(value):.9g}"
    return f"{short}f" if "." in short or "e" in short else f"{short}.0f"
