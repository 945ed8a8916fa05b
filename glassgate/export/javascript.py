"""A layer as JavaScript without dependencies: a function for one step of each direction, and its weights.

`javascript.js` calls these functions step by step. Every gate and state can be edited, as with `gg.edit`.
"""

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

import numpy as np

from glassgate.cell import Cell
from glassgate.engines.axes import FEATURES, PER_ROW, PROJECTED, UNITS, Axis
from glassgate.engines.symbolic.equations import Equations
from glassgate.export.network import DirectionSpec, levels_of
from glassgate.export.phases import Affine, Constant, Item, Phase, Pointwise, State, Step, SumOverUnits
from glassgate.layers.edits import REPLACEMENT, SCALE, edited_equations
from glassgate.layers.stack import Recurrent

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "eq": "===", "ne": "!==",
    "logical_and": "&&", "logical_or": "||",
}  # fmt: skip
_FUNCTIONS = {
    "abs": "Math.abs", "sign": "Math.sign", "floor": "Math.floor", "ceil": "Math.ceil", "round": "roundToEven",
    "trunc": "Math.trunc", "sqrt": "Math.sqrt", "exp": "Math.exp", "expm1": "Math.expm1", "log": "Math.log",
    "log1p": "Math.log1p", "sin": "Math.sin", "cos": "Math.cos", "tan": "Math.tan", "atan": "Math.atan",
    "sigmoid": "sigmoid", "tanh": "tanh", "erf": "erf", "pow": "Math.pow", "minimum": "Math.min",
    "maximum": "Math.max",
}  # fmt: skip

_KEYWORDS = """
arguments await break case catch class const continue debugger default delete do else enum eval export extends
false finally for function if implements import in instanceof interface let new null package private protected
public return static super switch this throw true try typeof undefined var void while with yield
"""
_HELPERS = (
    "Infinity Math NaN at at_out before edit erf multiply products roundToEven scratch sigmoid t tanh u values w x"
)
_RESERVED = frozenset(_KEYWORDS.split()) | frozenset(_HELPERS.split())
"""Names that a value of a step must not have in JavaScript."""


def runtime() -> str:
    """The JavaScript functions that run the emitted steps."""
    return files("glassgate.export").joinpath("javascript.js").read_text(encoding="utf-8").strip()


@dataclass
class Weights:
    """All arrays of a page, concatenated.

    Attributes:
        half: whether to store 16 bits per number.
    """

    half: bool = False
    arrays: list[np.ndarray] = field(default_factory=list)

    def add(self, values: Any) -> dict[str, Any]:
        """Add an array. Returns its offset and shape for JavaScript."""
        array = np.asarray(values, np.float32)
        start = sum(each.size for each in self.arrays)
        self.arrays.append(array.reshape(-1))
        return {"at": start, "shape": list(array.shape)}

    @property
    def flat(self) -> np.ndarray:
        """All numbers in one array."""
        return np.concatenate(self.arrays) if self.arrays else np.zeros(0, np.float32)

    @property
    def error(self) -> float:
        """The largest difference between a weight and its stored value."""
        flat = self.flat
        return float(np.abs(flat - flat.astype(np.float16)).max(initial=0.0)) if self.half else 0.0

    def packed(self) -> dict[str, Any]:
        """The numbers in base64."""
        stored = self.flat.astype("<f2" if self.half else "<f4")
        return {"bits": 16 if self.half else 32, "base64": base64.b64encode(stored.tobytes()).decode()}


@dataclass(frozen=True)
class Script:
    """A layer as JavaScript.

    Attributes:
        steps: the functions: one entry of an object literal for each direction.
        layer: the description that `runLayer` of `javascript.js` reads, as JSON.
    """

    steps: str
    layer: dict[str, Any]


def emit(
    layer: Recurrent,
    weights: Weights,
    name: str = "",
    operation: str = "live",
    read: Callable[[Equations], Equations] = lambda equations: equations,
) -> Script:
    """Generate the JavaScript of a layer in eval mode.

    Args:
        layer: a layer of any cell, depth and number of directions.
        weights: collects the arrays of the layer.
        name: the name of the layer in its model, which is the prefix of the labels of directions, as in `gg.edit`.
        operation: the first word of error messages.
        read: changes the equations, for example to name values that steps store in addition to gates and states.

    Raises:
        ExportError: the cell uses an operation without a JavaScript equivalent. The message names the operation.
    """
    texts, levels = [], []
    for level in levels_of(layer, operation):
        directions = []
        for spec in level.directions:
            label = f"{name}.{spec.label}" if name else spec.label
            emitted = _Emitter(replace(spec, equations=editable(read(spec.equations))), label)
            texts.append(emitted.text)
            directions.append(emitted.described(layer.cell, weights))
        levels.append({"merge": level.merge, "residual": list(level.residual), "directions": directions})
    return Script(",\n\n".join(texts), {"levels": levels})


def editable(equations: Equations) -> Equations:
    """The equations with a factor and a replacement for each gate and state."""
    return edited_equations(
        equations, dict.fromkeys((*equations.gate_values, *equations.state), ((SCALE, REPLACEMENT), True))
    )


class _Emitter:
    """The function of one direction.

    Attributes:
        label: for example "layer0.forward".
        text: the function, as an entry of an object literal.
    """

    def __init__(self, spec: DirectionSpec, label: str) -> None:
        self.spec, self.label, self.step = spec, label, Step(spec, _RESERVED, observed=True)
        self.width = {UNITS: spec.hidden_size, PROJECTED: spec.output_size, FEATURES: spec.input_size}
        self.arrays: dict[str, np.ndarray] = {}
        self.products: dict[str, list[dict[str, Any]]] = {}
        self.uses = self.step.uses
        self.results = {item: name for name, item in {**self.step.gates, **self.step.new}.items()}
        self._rename()
        self.stored = self._stored()
        self.text = "\n".join(self._lines())

    def described(self, cell: Cell, weights: Weights) -> dict[str, Any]:
        """The description of the direction for scripts, as JSON."""
        spec = self.spec
        return {
            "label": self.label,
            "cell": type(cell).__name__,
            "reverse": spec.reverse,
            "inputs": spec.input_size,
            "units": spec.hidden_size,
            "states": dict(spec.widths),
            "gates": list(self.step.gates),
            "values": self.values,
            "weights": {name: weights.add(values) for name, values in self.arrays.items()},
            "products": self.products,
            "initial": {name: weights.add(values) for name, values in spec.initial.items()},
        }

    @property
    def values(self) -> dict[str, int]:
        """The number of units of each value that a step stores, by name."""
        widths = {name: self.spec.widths.get(name, self.spec.hidden_size) for name in self.results.values()}
        for item in self.step.items:
            if item in self.stored:
                widths[self.stored[item]] = self.width[item.axis]
        return widths

    def _rename(self) -> None:
        """Name the edited states, and rename values whose names are reserved."""
        inputs = [*self.step.states.values(), *self.step.noise.values(), self.step.input]
        taken = {*_RESERVED, *(item.name for item in (*self.step.items, *inputs))}
        for item in self.step.items:
            name = item.name
            if item in self.results and not item.is_named:
                name = f"new_{self.results[item]}"
            elif isinstance(item, Affine) and item.name.removeprefix("ih_") in self.spec.equations.gates:
                name = f"{item.name.removeprefix('ih_')}_ih"
            elif name not in _RESERVED or item is self.step.input:
                continue
            while name in taken:
                name += "_"
            taken.add(name)
            item.name = name

    def _stored(self) -> dict[Item, str]:
        """The names of stored values: those with a name, and those that a later phase reads; without states."""
        stored: dict[Item, str] = {}
        taken, crossing = {*self.results.values()}, self.step.crossing
        for item in self.step.items:
            if not isinstance(item, Affine | Pointwise) or item.is_per_row:
                continue
            named = item.is_named and item not in self.results and item.name not in taken
            if named or (item in crossing and item not in self.results):
                name = item.name
                while name in taken:
                    name += "_"
                taken.add(name)
                stored[item] = name
        return stored

    def _lines(self) -> Iterator[str]:
        spec, step = self.spec, self.step
        states = ", ".join(f"{name}: {item.name}" for name, item in step.states.items())
        yield f"// {self.label}: step t, {spec.input_size} inputs, {spec.hidden_size} units."
        yield f'"{self.label}": (w, products, before, edit, values, t, scratch) => {{'
        yield f"  const {{ {states} }} = before;"
        if step.noise:
            yield f"  const {{ {', '.join(step.noise)} }} = edit;"
        done: set[Item] = set()
        body = [line for phase in step.phases for line in self._phase(phase, done)]
        parts = [part for parts in self.products.values() for part in parts]
        names = {
            "w": [name for name in self.arrays if name not in {part["weight"] for part in parts}],
            "products": [part["weight"] for part in parts if part["hoisted"]],
            "scratch": [part["weight"] for part in parts if not part["hoisted"]],
        }
        yield from (f"  const {{ {', '.join(arrays)} }} = {source};" for source, arrays in names.items() if arrays)
        yield f"  const {{ {', '.join(f'{name}: now_{name}' for name in self.values)} }} = values;"
        yield from (f"  const {self._offset(axis)} = t * {self.width[axis]};" for axis in self._axes())
        yield from (f"  {line}" for line in body)
        yield "}"

    def _axes(self) -> list[Axis]:
        """The axes with separate offsets: units, and projected units."""
        return [UNITS, PROJECTED] if self.spec.equations.projected else [UNITS]

    def _offset(self, axis: Axis) -> str:
        """The variable with the offset of a step in an array of all steps."""
        return "at_out" if axis == PROJECTED else "at"

    def _now(self, name: str, axis: Axis) -> str:
        """The stored value of this step."""
        return f"now_{name}[{self._offset(axis)} + u]"

    def _phase(self, phase: Phase, done: set[Item]) -> Iterator[str]:
        level, axis = phase
        items = self.step.items
        here = [i for i in items if isinstance(i, Affine | Pointwise) and i.phase == phase]
        for item in items:
            if isinstance(item, Pointwise) and item.phase == (level, PER_ROW) and item not in done:
                done.add(item)
                yield f"const {item.name} = {self._expression(item)};"
        totals = [item for item in items if isinstance(item, SumOverUnits) and item.x in here]
        for item in totals:
            yield f"let {item.name} = 0;"
        sums = {item: self._sum(item) for item in here if isinstance(item, Affine)}
        for lines, _ in sums.values():
            yield from lines
        yield f"for (let u = 0; u < {self.width[axis]}; u++) {{"
        for item in here:
            if isinstance(item, Affine):
                yield f"  const {item.name} = {sums[item][1]};"
            elif not self._is_inline(item):
                yield f"  const {item.name} = {self._expression(item)};"
            if item in self.stored:
                yield f"  {self._now(self.stored[item], axis)} = {self._read(item, phase)};"
        for item in totals:
            yield f"  {item.name} += {self._read(item.x, phase)};"
        for name, item in {**self.step.gates, **self.step.new}.items():
            if self.step.stored_in(name) == phase:
                yield f"  {self._now(name, axis)} = {self._read(item, phase)};"
        yield "}"

    def _sum(self, item: Affine) -> tuple[list[str], str]:
        """A bias and matrix products: the lines before the loop over units, and the sum of one unit.

        Products with the input are computed for all steps at once, before the first step.
        """
        lines, terms, parts = [], [], []
        units = self.width[item.axis]
        if item.bias is not None:
            name = self._new_name(f"{item.name}_bias")
            self.arrays[name] = item.bias
            terms.append(f"{name}[u]")
        for product in item.products:
            name = self._new_name(f"{item.name}_{product.left.name}")
            matrix, left = product.matrix, product.left
            heads = matrix.shape[0] if matrix.ndim == 3 else 1
            columns = matrix.shape[-1]
            hoisted = left is self.step.input and heads == 1
            self.arrays[name] = matrix.reshape(-1, columns)
            vector, start = (
                (left.name, "0")
                if isinstance(left, State)
                else (f"now_{self._stored_name(left)}", self._offset(left.axis))
            )
            if not hoisted:
                rest = f", {start}, {heads}" if heads > 1 else f", {start}" if start != "0" else ""
                lines.append(f"multiply({name}, 0, {units}, w.{name}, {columns}, {vector}{rest});")
            terms.append(f"{name}[{self._offset(item.axis)} + u]" if hoisted else f"{name}[u]")
            parts.append(
                {
                    "weight": name,
                    "vector": vector.removeprefix("now_"),
                    "heads": heads,
                    "units": units,
                    "hoisted": hoisted,
                }
            )
        self.products[item.name] = parts
        return lines, " + ".join(terms)

    def _new_name(self, name: str) -> str:
        """A unique name for an array, with underscores added if necessary."""
        taken = {*self.arrays, *(item.name for item in self.step.items)}
        while name in taken:
            name += "_"
        return name

    def _stored_name(self, item: Item) -> str:
        """The name under which a value is stored."""
        return self.stored.get(item) or self.results[item]

    def _is_inline(self, item: Pointwise) -> bool:
        """Whether a value is written inside the expression of its only reader."""
        kept = item in self.stored or item in self.results
        return not item.is_named and self.uses[item] <= 1 and not kept and not item.is_per_row

    def _read(self, arg: Item | float, phase: Phase, loose: bool = False) -> str:
        """A value in an expression of a phase. `loose`: whether it needs no brackets there."""
        match arg:
            case float() | int():
                return number(arg)
            case State():
                return f"{arg.name}[u]"
            case Constant(is_per_row=True):
                return number(float(arg.values.reshape(-1)[0]))
            case Constant():
                self.arrays[arg.name] = arg.values
                return f"{arg.name}[u]"
            case Pointwise() if self._is_inline(arg) and arg.phase == phase:
                text = self._expression(arg)
                return text if loose or arg.op in _FUNCTIONS else f"({text})"
        if isinstance(arg, Affine | Pointwise) and not arg.is_per_row and arg.phase != phase:
            return self._now(self._stored_name(arg), arg.axis)
        return arg.name

    def _expression(self, item: Pointwise) -> str:
        loose = item.op in _FUNCTIONS or item.op == "where"
        args = [self._read(arg, item.phase, loose and self._is_flat(arg)) for arg in item.args]
        match item.op:
            case op if op in _INFIX:
                return f"{args[0]} {_INFIX[op]} {args[1]}"
            case op if op in _FUNCTIONS:
                return f"{_FUNCTIONS[op]}({', '.join(args)})"
            case "neg":
                return f"-{args[0]}"
            case "detach":
                return args[0]
            case "rsqrt":
                return f"1 / Math.sqrt({args[0]})"
            case "where":
                return f"{args[0]} ? {args[1]} : {args[2]}"
            case "logical_not":
                return f"!{args[0]}"
        raise AssertionError(f"unknown operation {item.op}")

    def _is_flat(self, arg: Item | float) -> bool:
        """Whether an argument of a conditional expression needs no brackets."""
        return not (isinstance(arg, Pointwise) and arg.op == "where")


def number(value: float) -> str:
    """A number as a JavaScript literal; a negative number has brackets."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "(-Infinity)"
    text = f"{value:g}" if float(f"{value:g}") == value else repr(float(value))
    return f"({text})" if text.startswith("-") else text
