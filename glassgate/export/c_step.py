"""One direction as a C function: its packed weights, and the text of a step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from glassgate.engines.axes import FEATURES, PER_ROW, PROJECTED, UNITS
from glassgate.export.c_centred import centred
from glassgate.export.network import DirectionSpec
from glassgate.export.phases import Affine, Constant, Item, Phase, Pointwise, Product, State, Step, SumOverUnits

_KEYWORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
"""
KEYWORDS = frozenset(_KEYWORDS.split())
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_COMPARE = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_FUNCTION_NAMES = """
abs sign floor ceil round trunc sqrt exp expm1 log log1p sin cos tan atan sigmoid tanh erf pow minimum maximum
"""
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
"""Operations that are functions of `support.c`: `exp_lanes` for "exp"."""
_HELPERS = (
    "W x w u k at part broadcast load store select_lanes sum_lanes first_lanes real integer lanes mask memcpy "
    "LANES ROWS BLOCK SIZE MATH NOT REAL INTEGER LANE UNROLL ALIGNED HELPER"
)
_LIBRARY = (*_FUNCTIONS, "rint", "fabs", "fmin", "fmax")
_RESERVED = KEYWORDS.union(
    _HELPERS.split(), _LIBRARY, (f"{name}f" for name in _LIBRARY), (f"{name}_lanes" for name in _FUNCTIONS)
)
"""Names that a value of a step must not have in C."""


@dataclass
class Packed:
    """Weights in the order in which a step reads them, in blocks of units: [block][...][BLOCK].

    Attributes:
        block: the number of units in a block.
        parts: the weights of each phase, (blocks, rows, block).
    """

    block: int
    parts: list[np.ndarray] = field(default_factory=list)

    @property
    def offset(self) -> int:
        """The offset of the next part."""
        return sum(part.size for part in self.parts)

    @property
    def values(self) -> np.ndarray:
        """All weights, flat."""
        flat = [part.reshape(-1) for part in self.parts]
        return np.concatenate(flat) if flat else np.zeros(0)

    def rows(self, vector: np.ndarray, units: int) -> np.ndarray:
        """(units,) as (blocks, block), padded with zeros."""
        blocks = -(-units // self.block)
        padded = np.zeros(blocks * self.block, vector.dtype)
        padded[: len(vector)] = vector
        return padded.reshape(blocks, self.block)


class Direction:
    """The C function of one direction.

    Attributes:
        name: the name of the function.
        states: the padded size of the array of each state, by name.
        packed: the weights.
        text: the function.
    """

    def __init__(self, spec: DirectionSpec, block: int, name: str) -> None:
        self.spec, self.block = spec, block
        self.double = spec.weights["weight_ih"].dtype == torch.float64
        self.step = centred(Step(spec, _RESERVED))
        self.name = name.replace(".", "_")
        self.packed = Packed(block)
        self.width = {UNITS: spec.hidden_size, PROJECTED: spec.output_size, FEATURES: spec.input_size}
        self.states = {name: self.padded(spec.widths[name]) for name in self.step.states}
        self._stored, self._uses = self.step.crossing, self.step.uses
        self._place: dict[Item, str] = {}
        self.text = "\n".join(self._lines())

    def padded(self, units: int) -> int:
        """The units rounded up to whole blocks."""
        return -(-units // self.block) * self.block

    def _lines(self) -> Iterator[str]:
        spec, step = self.spec, self.step
        states = "".join(f", real *state_{name}" for name in self.states)
        yield f"/* {spec.label}: one step, {spec.input_size} -> {spec.output_size}. */"
        yield f"static void {self.name}(const real *W, const real *x{states}) {{"
        for name, state in step.states.items():
            self._place[state] = f"state_{name}"
        self._place[step.input] = "x"
        body = [line for phase in step.phases for line in self._phase(phase)]
        buffered = {name: item for name, item in step.new.items() if self._is_buffered(name)}
        for name in buffered:
            yield f"    ALIGNED real new_{name}[{self.states[name]}];"
        for item in step.items:
            if item in self._stored:
                yield f"    ALIGNED real all_{item.name}[{self.padded(self.width[item.axis])}];"
        yield from body
        for name in buffered:
            yield f"    memcpy(state_{name}, new_{name}, sizeof new_{name});"
        yield "}"

    def _is_buffered(self, state: str) -> bool:
        """Whether a new state needs a buffer, because a later operation still reads the old state."""
        old, new = self.step.states[state], self.step.new[state]
        last, one_block = self.step.stored_in(state), self.states[state] == self.block
        for item in self.step.items:
            match item:
                case Affine(products=products) if any(product.left is old for product in products):
                    # A block computes its products before its new states, but after the new states of earlier blocks.
                    if item.phase > last or (item.phase == last and not one_block):
                        return True
                case Pointwise(args=args) if old in args and item.phase > last:
                    return True
        return any(other is old for name, other in self.step.new.items() if name != state) or isinstance(new, State)

    def _phase(self, phase: Phase) -> Iterator[str]:
        units = self.width[phase[1]]
        here = [item for item in self.step.items if isinstance(item, Affine | Pointwise) and item.phase == phase]
        affine = [item for item in here if isinstance(item, Affine)]
        totals = [item for item in self.step.items if isinstance(item, SumOverUnits) and item.x in here]
        fixed = self._fixed([item for item in here if isinstance(item, Pointwise)])
        yield from self._scalars(phase[0])
        for item in totals:
            yield f"    lanes sum_{item.name} = broadcast(0);"
        rows = [self.packed.rows(item.bias, units) for item in affine if item.bias is not None]
        sums = list(self._affine(affine, units, rows))
        rows += [self.packed.rows(item.values, units) for item in fixed]
        yield f"    for (int u = 0; u < {self.padded(units)}; u += BLOCK) {{"
        if rows:
            part = np.stack(rows, 1)
            offset = f"W + {self.packed.offset}" if self.packed.offset else "W"
            yield f"        const real *w = {offset} + u * {part.shape[1]};"
            self.packed.parts.append(part)
        yield from (f"        {line}" for line in sums)
        yield "        UNROLL for (int part = 0; part < ROWS; part++) {"
        yield "            const int at = u + part * LANES;"
        for gate in affine:
            yield f"            const lanes {gate.name} = {gate.name}_sum[part];"
        for k, numbers in enumerate(fixed):
            yield f"            const lanes {numbers.name} = load(w + {k} * BLOCK + part * LANES);"
            self._place[numbers] = numbers.name
        yield from (f"            {line}" for line in self._pointwise(phase, here, totals))
        yield "        }"
        yield "    }"
        for item in totals:
            yield f"    const real {item.name} = sum_lanes(sum_{item.name});"
            self._place[item] = item.name
        # Later phases load the stored values of this one.
        self._place |= {item: f"all_{item.name}" for item in here if item in self._stored}

    def _scalars(self, level: int) -> Iterator[str]:
        """The values of a level that are the same for all units."""
        for item in self.step.items:
            if isinstance(item, Pointwise) and item.phase == (level, PER_ROW) and item not in self._place:
                self._place[item] = item.name
                if not self._is_inline(item):
                    yield f"    const {self._type(item)} {item.name} = {self._expression(item, scalar=True)};"

    def _pointwise(
        self, phase: Phase, here: Sequence[Affine | Pointwise], totals: Sequence[SumOverUnits]
    ) -> Iterator[str]:
        """The pointwise operations on one register of units, after the matrix products."""
        for item in here:
            if isinstance(item, Pointwise) and not self._is_inline(item):
                yield f"const {self._type(item)} {item.name} = {self._expression(item)};"
            if item in self._stored:
                yield f"store(all_{item.name} + at, {item.name});"
        units = self.width[phase[1]]
        for total in totals:
            value = self._read(total.x, phase)
            yield f"sum_{total.name} += {f'first_lanes({value}, {units} - at)' if units % self.block else value};"
        for name, new in self.step.new.items():
            if self.step.stored_in(name) == phase:
                target = f"{'new' if self._is_buffered(name) else 'state'}_{name}"
                yield f"store({target} + at, {self._lanes(self._read(new, phase), new)});"

    def _affine(self, affine: Sequence[Affine], units: int, rows: list[np.ndarray]) -> Iterator[str]:
        """The matrix products of a phase, computed together."""
        biased = [item for item in affine if item.bias is not None]
        for item in affine:
            terms = [product.label for product in item.products] + (["bias"] if item.bias is not None else [])
            note = ", minus a mean (in the weights)" if item.is_centred else ""
            yield f"lanes {item.name}_sum[ROWS]; /* {' + '.join(terms)}{note} */"
        if affine:
            yield "for (int part = 0; part < ROWS; part++) {"
            for item in affine:
                start = f"load(w + {biased.index(item)} * BLOCK + part * LANES)" if item in biased else "broadcast(0)"
                yield f"    {item.name}_sum[part] = {start};"
            yield "}"
        if biased:
            yield f"w += {len(biased)} * BLOCK;"
        lefts = list(dict.fromkeys(product.left for item in affine for product in item.products))
        for left in lefts:
            chosen = [(item, product) for item in affine for product in item.products if product.left is left]
            matrices = [self._matrix(product, units) for _, product in chosen]
            terms = matrices[0].shape[1]
            source = self._vector(left)
            if terms != self.width[left.axis]:  # a unit reads only its own head
                source = f"({source} + u / {units // self.spec.equations.heads} * {terms})"
            yield f"for (int k = 0; k < {terms}; k++, w += {len(chosen)} * BLOCK)"
            yield "    for (int part = 0; part < ROWS; part++) {"
            for k, (item, _) in enumerate(chosen):
                yield f"        {item.name}_sum[part] += {source}[k] * load(w + {k} * BLOCK + part * LANES);"
            yield "    }"
            for k in range(terms):
                rows += [self.packed.rows(matrix[:, k], units) for matrix in matrices]

    def _matrix(self, product: Product, units: int) -> np.ndarray:
        """The matrix (units, terms). Without blocks that span two heads, it has only the terms of each unit's head."""
        matrix = product.matrix
        if matrix.ndim == 2:
            return matrix
        heads, rows, columns = matrix.shape
        if rows % self.block == 0:
            return matrix.reshape(heads * rows, columns)
        dense = np.zeros((units, heads * columns), matrix.dtype)
        for head in range(heads):
            dense[head * rows : (head + 1) * rows, head * columns : (head + 1) * columns] = matrix[head]
        return dense

    def _vector(self, left: Item) -> str:
        return f"all_{left.name}" if left in self._stored else self._place[left]

    def _fixed(self, points: Sequence[Pointwise]) -> list[Constant]:
        """The constants per unit that these operations and the new states read."""
        read = [*(arg for point in points for arg in point.args), *self.step.new.values()]
        named = list(dict.fromkeys(arg for arg in read if isinstance(arg, Constant) and not arg.is_per_row))
        names = {item.name for item in self.step.items if not isinstance(item, Constant)}
        for item in named:
            while item.name in names | _RESERVED:
                item.name += "_"
            names.add(item.name)
        return named

    def _is_inline(self, item: Pointwise) -> bool:
        """Whether a value without a name is written inside the expression of its only reader."""
        kept = item in self._stored or item in self.step.new.values()
        return not item.is_named and not kept and self._uses[item] == 1

    def _type(self, item: Item) -> str:
        of_masks = isinstance(item, Pointwise) and (item.op in _COMPARE or item.op.startswith("logical"))
        if item.is_per_row:
            return "int" if of_masks else "real"
        return "mask" if of_masks else "lanes"

    def _read(self, arg: Item | float, phase: Phase, loose: bool = False, alone: bool = False) -> str:
        """A value in an expression of a phase.

        Args:
            loose: whether a product needs no brackets there.
            alone: whether the value is the whole argument of a function, which needs no brackets.
        """
        if not isinstance(arg, Item):
            return number(arg, self.double)
        match arg:
            case State():
                return f"load({self._place[arg]} + at)"
            case Constant(is_per_row=True):
                return number(float(arg.values.reshape(-1)[0]), self.double)
            case Pointwise() if self._is_inline(arg) and (arg.is_per_row or arg.phase == phase):
                text = self._expression(arg, scalar=arg.is_per_row)
                tight = arg.op in _FUNCTIONS or arg.op == "detach" or (arg.op in ("mul", "div") and loose)
                return text if alone or (tight and not arg.is_per_row) else f"({text})"
        if arg in self._stored and arg.phase != phase:
            return f"load(all_{arg.name} + at)"
        return arg.name

    def _lanes(self, text: str, arg: Item | float) -> str:
        """A value as an argument of a function that takes lanes."""
        return text if isinstance(arg, Item) and not arg.is_per_row else f"broadcast({text})"

    def _expression(self, item: Pointwise, scalar: bool = False) -> str:
        is_function = item.op in _FUNCTIONS and not scalar
        args = [self._read(arg, item.phase, item.op in ("add", "sub"), is_function) for arg in item.args]
        if scalar:
            return _scalar(item.op, args)
        wide = [self._lanes(text, arg) for text, arg in zip(args, item.args, strict=True)]
        match item.op:
            case op if op in _INFIX:
                return f"{args[0]} {_INFIX[op]} {args[1]}"
            case op if op in _COMPARE:
                return f"(mask)({wide[0]} {_COMPARE[op]} {wide[1]})"
            case op if op in _FUNCTIONS:
                return f"{op}_lanes({', '.join(wide)})"
            case "neg":
                return f"-{args[0]}"
            case "detach":
                return args[0]
            case "rsqrt":
                return f"broadcast(1) / sqrt_lanes({wide[0]})"
            case "where":
                return f"select_lanes({args[0]}, {wide[1]}, {wide[2]})"
            case "logical_not":
                return f"NOT({args[0]})"
            case "logical_and":
                return f"{args[0]} & {args[1]}"
            case "logical_or":
                return f"{args[0]} | {args[1]}"
        raise AssertionError(f"unknown operation {item.op}")


def _scalar(op: str, args: Sequence[str]) -> str:
    """An operation on single numbers."""
    if op in _INFIX or op in _COMPARE:
        return f"{args[0]} {(_INFIX | _COMPARE)[op]} {args[1]}"
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
